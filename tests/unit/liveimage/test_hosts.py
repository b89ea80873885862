# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is given becomes its Ignition and its images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import bases, cpio, hosts, iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.hosts import HostInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.ignition import content
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import read
from tests.unit.liveimage.maker import KARGS, LAYOUTS, Layout, make

INPUTS = AgentInputs(agent_image="example.test/ipa:1", ironic_urls=("http://ironic.test",))
NETWORK = "interfaces: [{name: eth0, type: ethernet, state: up, ipv4: {enabled: true, dhcp: true}}]"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== someone"


def text(made: hosts.HostConfig, path: str) -> str:
    (found,) = (entry for entry in made.config["storage"]["files"] if entry["path"] == path)
    return (content(found["contents"]) or b"").decode()


def paths(made: hosts.HostConfig) -> set[str]:
    return {entry["path"] for entry in made.config["storage"]["files"]}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> iso.Iso:
    return iso.inspect(str(make(tmp_path_factory.mktemp("base") / "base.iso", LAYOUTS["2023-igninfo"])))


@pytest.mark.parametrize("network", [None, "", "# nothing\n", {}], ids=["none", "empty", "comment", "empty-data"])
def test_no_network_is_dhcp(network):
    made = hosts.build(INPUTS, HostInputs("web-1", network=network))
    assert made.profiles == {}
    assert made.warnings == ()
    assert "enable_vlan_interfaces = all" in text(made, "/etc/ironic-python-agent.conf")


def test_text_and_data_are_the_same():
    as_text = hosts.build(INPUTS, HostInputs("web-1", network=NETWORK))
    data = {
        "interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": True, "dhcp": True}}]
    }
    assert hosts.build(INPUTS, HostInputs("web-1", network=data)).ignition == as_text.ignition
    assert list(as_text.profiles) == ["eth0.nmconnection"]


@pytest.mark.parametrize(
    ("given", "expected"), [(None, "web-1"), ("other", "other"), ("", "")], ids=["name", "own", "none"]
)
def test_hostname(given, expected):
    made = hosts.build(INPUTS, HostInputs("web-1", hostname=given))
    unit = next(unit for unit in made.config["systemd"]["units"] if unit["name"] == "ironic-agent.service")
    assert f'IPA_DEFAULT_HOSTNAME={expected}"' in unit["contents"]


def test_a_document_without_a_profile_is_reported():
    made = hosts.build(INPUTS, HostInputs("web-1", network="interfaces: [{name: eth0, state: absent}]"))
    assert made.profiles == {}
    assert "configures no interface" in made.warnings[0]


def test_keys_of_server_and_host_are_both_let_in():
    other = KEY.replace("someone", "operator")
    inputs = AgentInputs(agent_image="example.test/ipa:1", ironic_urls=("http://ironic.test",), ssh_keys=(other,))
    made = hosts.build(inputs, HostInputs("web-1", ssh_keys=(KEY,)))
    assert made.config["passwd"]["users"] == [{"name": "core", "sshAuthorizedKeys": [other, KEY]}]


@pytest.mark.parametrize("own", [None, {"storage": {}}], ids=["agent", "ignition"])
def test_a_key_that_is_none_is_refused(own):
    with pytest.raises(ImageError, match="ssh_keys"):
        hosts.build(
            INPUTS, HostInputs("web-1", ssh_keys=("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB==\nroot",), ignition=own)
        )


def test_a_given_ignition_takes_the_place_of_the_agent():
    given = {
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/own", "contents": {"source": "data:,"}}]},
    }
    host = HostInputs("web-1", ignition=given, network=NETWORK, hostname="web", files={"/etc/more": (b"x", 0o600)},
                      units={"own.service": "[Unit]\n"}, ssh_keys=(KEY,))  # fmt: skip
    made = hosts.build(None, host)
    assert made.config["ignition"]["version"] == "3.4.0"
    assert paths(made) == {
        "/etc/own", "/etc/more", "/etc/hostname", "/etc/NetworkManager/system-connections/eth0.nmconnection",
    }  # fmt: skip
    assert text(made, "/etc/hostname") == "web\n"
    assert [unit["name"] for unit in made.config["systemd"]["units"]] == ["own.service"]


def test_a_given_ignition_keeps_its_own_hostname():
    made = hosts.build(None, HostInputs("Not a hostname", ignition={"ignition": {"version": "3.2.0"}}))
    assert made.config == {"ignition": {"version": "3.2.0"}}


def test_what_is_merged_wins():
    conf = "/etc/ironic-python-agent.conf"
    merge = {"storage": {"files": [{"path": conf, "contents": {"source": "data:,own"}}]}}
    made = hosts.build(INPUTS, HostInputs("web-1", merge=merge))
    assert text(made, conf) == "own"
    assert json.loads(made.ignition) == made.config


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (HostInputs("web_1"), r"'web_1' is not one by RFC 1123"),
        (HostInputs("web", merge={"ignition": 3}), r"merge: ignition is no object"),
        (HostInputs("web", ignition={"storage": {"files": [{"path": "x"}]}}), r"ignition: storage.files\[0\].path"),
        (HostInputs("web", network="interfaces: 3"), "interfaces"),
        (HostInputs("web", network=["x"]), "is list, not a mapping"),  # type: ignore[arg-type]
        (HostInputs("web", files={"/etc/chrony.conf/../x": (b"", 0o644)}), "is not plain"),
        (HostInputs("web", files={"/etc/issue.d/ipa.issue": (b"", 0o644)}), "given twice"),
        (HostInputs("web", units={"../x": ""}), "is no name of a systemd unit"),
    ],
    ids=["hostname", "merge", "ignition", "network", "network-list", "path", "twice", "unit"],
)
def test_refused_by_name(host, expected):
    with pytest.raises(ImageError, match=expected):
        hosts.build(INPUTS, host)


def test_neither_ignition_nor_agent():
    with pytest.raises(ImageError, match="neither an Ignition of its own nor"):
        hosts.build(None, HostInputs("web"))


DOCUMENTS = sorted((Path(__file__).parent / "nmstate" / "documents").glob("*.yaml"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_every_profile_has_a_place_in_iso_and_initramfs(base, document):
    host = HostInputs("web-1", network=document.read_text())
    made = hosts.build(INPUTS, host)
    image = iso.of(hosts.iso_overlay(base, made, host))
    assert {name.rpartition("/")[2] for name in image.embedded} == {iso.IGNITION, *made.profiles}
    assert hosts.initramfs_overlay(base.overlay, made, host).size > base.overlay.size


@pytest.mark.parametrize(
    ("profile", "secret"),
    [
        ("[802-1x]\npassword=x\n", True),
        ("[802-1x]\nprivate-key-password=x\nprivate-key=/etc/a.key\n", True),
        ("[802-1x]\nprivate-key=/etc/a.key\n", False),
        ("[macsec]\nmka-cak=50b71a8ef0bd5751ea76de6d6c98c03a\n", True),
        ("[vpn-secrets]\npskvalue=x\n", True),
        ("[bridge]\nmulticast-snooping=true\n", False),
        ("[user]\nnmstate.interface.description=the password=x is elsewhere\n", False),
    ],
)  # fmt: skip
def test_what_of_a_profile_is_for_few(profile, secret):
    assert bool(hosts.secret_in(None, HostInputs("web-1"), {"a.nmconnection": profile})) is secret


def test_a_key_of_macsec_is_a_secret():
    network = f"interfaces: [{{name: m0, type: macsec, macsec: {{base-iface: e0, mka-cak: {'a' * 32}, mka-ckn: ab}}}}]"
    made = hosts.build(INPUTS, HostInputs("web-1", network=network))
    assert hosts.secret_in(INPUTS, HostInputs("web-1"), made.profiles) == "a password of the host's network"


def test_images_hold_what_was_built(base, tmp_path):
    host = HostInputs("web-1", network=NETWORK, arguments=Edit(append=("console=ttyS0",)))
    made = hosts.build(INPUTS, host)
    image = iso.of(hosts.iso_overlay(base, made, host))
    profile = iso.NETWORK + "/eth0.nmconnection"
    assert image.embedded[iso.IGNITION] == made.ignition
    assert image.embedded[profile].decode() == made.profiles["eth0.nmconnection"]
    assert image.kernel_arguments is not None
    assert image.kernel_arguments.current == KARGS + " console=ttyS0"
    plain = tmp_path / "initrd"
    plain.write_bytes(b"070701" * 1001)
    whole = bases.read_initramfs(str(plain))
    behind = hosts.initramfs_overlay(whole, made, host)
    added = read(behind, whole.size, behind.size - whole.size)
    assert {member.name for member in cpio.members(added)} >= {iso.IGNITION, profile}


def test_profiles_stay_out_of_an_initramfs_that_does_not_read_them(tmp_path):
    old = iso.inspect(str(make(tmp_path / "old.iso", Layout(features=None))))
    host = HostInputs("web-1", network=NETWORK)
    made = hosts.build(INPUTS, host)
    assert set(iso.of(hosts.iso_overlay(old, made, host)).embedded) == {iso.IGNITION}


def test_images_of_a_host_share_their_memory(base, tmp_path: Path):
    plain = tmp_path / "initrd"
    plain.write_bytes(b"x" * 4096)
    host = HostInputs("web-1", network=NETWORK)
    made = hosts.build(INPUTS, host)
    overlays = (
        hosts.iso_overlay(base, made, host),
        hosts.initramfs_overlay(bases.read_initramfs(str(plain)), made, host),
    )
    own = [segment.data for overlay in overlays for segment in overlay.segments if hasattr(segment, "data")]
    assert len(own) == 2
    assert own[0] is own[1]


def test_secrets_are_in_no_text_form():
    host = HostInputs("web-1", ignition={"a": "S3CRET"}, merge={"b": "S3CRET"}, files={"/x": (b"S3CRET", 0o600)},
                      units={"c": "S3CRET"}, network="S3CRET")  # fmt: skip
    assert "S3CRET" not in repr(host)
    assert "ipa.motd" not in repr(hosts.build(INPUTS, HostInputs("web-1")))
