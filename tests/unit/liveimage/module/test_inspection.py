# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What images have embedded is shown and removed; the agent's inputs by option and by the peer's variable."""

from __future__ import annotations

import base64
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import bases, cpio
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import inspection, products, request
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import materialise, whole
from tests.unit.liveimage.module.building import NETWORK

HOST = {"name": "web-1", "network": NETWORK, "kernel_arguments": {"append": ["console=ttyS0"]}}


def test_show_returns_what_is_in_an_iso_an_initramfs_and_a_descriptor(workshop):
    workshop.build(HOST, outputs=["iso", "initramfs"])
    workshop.build(HOST, mode="overlay", dest=str(workshop.folder / "overlays"))
    paths = ["images/web-1.iso", "images/web-1.initramfs", "overlays/web-1.iso.json", "coreos.iso"]
    image, ramdisk, described, base = inspection.show_images([str(workshop.folder / path) for path in paths])
    assert [one["failed"] for one in (image, ramdisk, described, base)] == [False] * 4
    assert (image["kind"], ramdisk["kind"], base["customised"]) == ("iso", "initramfs", False)
    assert image["kernel_arguments"]["current"].endswith("console=ttyS0")
    assert list(image["network"]) == list(image["initramfs_network"]) == ["eno1.nmconnection"]
    assert image["ignition"] == ramdisk["ignition"] == described["ignition"]
    assert image["ignition"]["systemd"]["units"][0]["name"] == "ironic-agent.service"
    assert {**described, "path": "", "etag": ""} == {**image, "path": "", "etag": ""}
    assert json.loads(json.dumps(image)) == image  # plain data


def test_show_of_what_is_no_image_says_so(workshop):
    missing, folder = inspection.show_images([str(workshop.folder / "nothing.iso"), str(workshop.folder)])
    assert (missing["failed"], missing["msg"].endswith("nothing.iso is not there")) == (True, True)
    assert (folder["failed"], "cannot be read" in folder["msg"]) == (True, True)


def test_reset_gives_the_published_image_back(workshop):
    workshop.build(HOST)
    path = workshop.dest / "web-1.iso"
    path.chmod(0o640)
    customised = path.read_bytes()
    entries, diff = inspection.reset_images([str(path), str(workshop.base)], check=True)
    assert ([one["changed"] for one in entries], path.read_bytes() == customised) == ([True, False], True)
    entries, again = inspection.reset_images([str(path), str(workshop.base)], check=False)
    assert ([one["changed"] for one in entries], again) == ([True, False], diff)
    assert path.read_bytes() == workshop.base.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert not inspection.reset_images([str(path)], check=False)[0][0]["changed"]
    assert workshop.build(HOST)["web-1"]["changed"]  # the next run writes an image that was reset
    assert path.read_bytes() == customised


def test_reset_of_anything_else_is_refused(workshop):
    workshop.build(HOST, outputs=["initramfs"])
    link = workshop.folder / "link.iso"
    link.symlink_to(workshop.base)
    entries, _diff = inspection.reset_images([str(workshop.dest / "web-1.initramfs"), str(link)], check=False)
    assert [one["failed"] for one in entries] == [True, True]
    assert ("is no ISO" in entries[0]["msg"], "is a link" in entries[1]["msg"]) == (True, True)


@pytest.mark.parametrize("compression", cpio.COMPRESSIONS)
@pytest.mark.parametrize(
    "before",
    [b"", b"\x1f\x8b\x08 no archive", cpio.archive({"init": b"x" * 5000}), random.Random(1).randbytes(9000)],
    ids=["nothing", "no gzip", "an archive", "noise"],
)
def test_an_archive_at_the_end_is_found_behind_any_bytes(tmp_path, compression, before):
    padded = before + bytes(cpio.aligned(len(before)))
    path = tmp_path / "initramfs"
    path.write_bytes(padded + cpio.archive({"config.ign": b"{}"}, compression) + bytes(2))
    assert inspection.appended_members(whole(identify(str(path)))) == {"config.ign": b"{}"}


@given(data=st.binary(min_size=1, max_size=3000))
@settings(max_examples=100, deadline=None)
def test_nothing_is_found_where_nothing_is(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "some.initramfs"
    path.write_bytes(data)
    assert inspection.appended_members(whole(identify(str(path)))) == {}


def test_an_initramfs_on_disk_shows_what_was_put_behind_it(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(cpio.archive({"init": b"x" * 70_000}))
    materialise(
        bases.customise_initramfs(bases.read_initramfs(str(plain)), b"{}", {"a.nmconnection": "[x]"}),
        str(tmp_path / "own"),
    )
    assert sorted(inspection.inspect_file(str(tmp_path / "own")).members) == [
        "config.ign",
        "etc/coreos-firstboot-network/a.nmconnection",
    ]
    assert inspection.inspect_file(str(plain)).members == {}


words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)


@given(arguments=st.lists(words, max_size=5))
@settings(max_examples=200, deadline=None)
def test_an_ipxe_script_gives_the_kernel_exactly_its_arguments(arguments):
    try:
        script = products.ipxe_script("web-1", "http://a/k", "http://a/i", " ".join(arguments)).decode()
    except ImageError:
        assert any("${" in one or one.startswith("#") or one in ("||", "&&", ";") for one in arguments)
        return
    lines = script.splitlines()
    assert len(lines) == 5
    # iPXE splits at blanks, knows no quotes, ends commands at these words and expands ${…}
    tokens = lines[2].split()
    assert tokens == ["kernel", "--name", "kernel", "http://a/k", "initrd=initrd", *arguments]
    assert not {"||", "&&", ";"} & set(tokens)
    assert "${" not in script


def test_kernel_arguments_of_a_network_boot_are_those_of_the_iso_without_its_medium():
    published = "mitigations=auto coreos.liveiso=fedora ignition.firstboot ignition.platform.id=metal"
    found = products.ipxe_arguments(published, Edit(append=("a=b",), replace=("mitigations=auto=off",)), "http://x/r")
    words = "coreos.live.rootfs_url=http://x/r mitigations=off ignition.firstboot ignition.platform.id=metal a=b"
    assert found == words
    assert products.ipxe_arguments("", Edit(), "http://x/r").split()[1:] == [
        "ignition.firstboot",
        "ignition.platform.id=metal",
    ]


def test_every_variable_of_the_peer_has_an_option(workshop, monkeypatch, tmp_path):
    secret = json.dumps({"auths": {"quay.io": {"auth": "eDp5"}}})
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    (tmp_path / "registries.conf").write_text("unqualified-search-registries = []\n")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample== me, myself"
    given_ = {
        "agent_image": "quay.io/a/b:1",
        "ironic_urls": ["http://a", "http://b"],
        "inspector_urls": ["http://i"],
        "pull_secret": secret,
        "vlan_interfaces": "ALWAYS",
        "ssh_keys": [key],
        "registries_conf_file": str(tmp_path / "registries.conf"),
        "ip_options": "ip=dhcp6",
        "http_proxy": "http://p:1",
        "https_proxy": "http://p:2",
        "no_proxy": "localhost",
        "ntp_servers": ["ntp1", "ntp2"],
        "ca_bundle_file": str(tmp_path / "ca.pem"),
    }
    by_option = request.agent_of(workshop.params({"name": "a"}, **given_))
    for variable, value in {
        "IRONIC_AGENT_IMAGE": "quay.io/a/b:1",
        "IRONIC_BASE_URL": "http://a,http://b",
        "IRONIC_INSPECTOR_BASE_URL": "http://i",
        "IRONIC_AGENT_PULL_SECRET": base64.b64encode(secret.encode()).decode(),
        "IRONIC_AGENT_VLAN_INTERFACES": "always",
        "IRONIC_RAMDISK_SSH_KEY": key,
        "REGISTRIES_CONF_PATH": str(tmp_path / "registries.conf"),
        "IP_OPTIONS": "ip=dhcp6",
        "HTTP_PROXY": "http://p:1",
        "HTTPS_PROXY": "http://p:2",
        "NO_PROXY": "localhost",
        "ADDITIONAL_NTP_SERVERS": "ntp1, ntp2,",
        "CA_BUNDLE": str(tmp_path / "ca.pem"),
        "DEPLOY_ISO": str(workshop.base),
        "IMAGE_SHARED_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(variable, value)
    found = workshop.params({"name": "a"}, agent_image=None, ironic_urls=None, base_iso=None)
    assert request.agent_of(found) == by_option
    assert request.common(found).base_iso == str(workshop.base)
    assert request.common(found).shared_dir == str(tmp_path)


def test_nmstatectl_is_used_when_it_is_asked_for(workshop):
    started = []

    def run(command, text):
        started.append((tuple(command), json.loads(text)))
        return 0, "NetworkManager:\n- - eno1.nmconnection\n  - |\n    [connection]\n    id=by-nmstatectl\n", ""

    workshop.build(HOST, run=run)
    assert started == [(("nmstatectl", "gc", "/dev/stdin"), NETWORK)]
    shown = inspection.show_images([str(workshop.dest / "web-1.iso")])[0]
    assert "id=by-nmstatectl" in shown["network"]["eno1.nmconnection"]
    refused = workshop.build(HOST, run=lambda _command, _text: (1, "", "no such key\n"), check=True)["web-1"]
    assert refused["msg"] == "network: nmstatectl refuses the NMState document: no such key"


def test_a_text_that_is_no_ignition_is_not_shown():
    assert inspection.masked_ignition(b"{secret") == "(7 bytes that are no valid Ignition)"
