# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's Ignition: systemd, the shell and oslo.config read back exactly what was given."""

from __future__ import annotations

import base64
import configparser
import json
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import agent, ignition
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

IMAGE = "quay.io/example/ironic-agent@sha256:" + "a" * 64
SECRET = json.dumps({"auths": {"quay.io": {"auth": "aHVudGVyMg=="}}})
INPUTS = agent.AgentInputs(agent_image=IMAGE, ironic_urls=("https://ironic.example.com",))
NO_HOST = agent.Host()
CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def made(inputs: agent.AgentInputs = INPUTS, host: agent.Host = NO_HOST) -> dict:
    config = agent.build(inputs, host).to_dict()
    assert ignition.problems(config) == []
    return config


def files(config: dict) -> dict[str, tuple[bytes, int]]:
    return {
        one["path"]: (ignition.content(one.get("contents") or one["append"][0]), one["mode"])
        for one in config["storage"]["files"]
    }


def units(config: dict) -> dict[str, str]:
    return {one["name"]: one["contents"] for one in config["systemd"]["units"]}


def words(line: str) -> list[str]:
    """The words of a line of a unit file, read as systemd.syntax and systemd.service say."""
    found, at = [], 0
    while at < len(line):
        if line[at] == " ":
            at += 1
            continue
        word, inside = "", False
        while at < len(line) and (inside or line[at] != " "):
            if line[at] == '"':
                inside = not inside
            elif line[at] == "\\":
                at += 1
                word += line[at]
            elif line[at] == "%":
                at += 1
                assert line[at] == "%", "a specifier"
                word += "%"
            else:
                word += line[at]
            at += 1
        found.append(word)
    return found


def command(config: dict) -> list[str]:
    (line,) = [one for one in units(config)[agent.UNIT].splitlines() if one.startswith("ExecStart=")]
    return [word.replace("$$", "$") for word in words(line.removeprefix("ExecStart="))]


def environment(config: dict) -> dict[str, str]:
    lines = [one for one in units(config)[agent.UNIT].splitlines() if one.startswith("Environment=")]
    return dict(word.split("=", 1) for line in lines for word in words(line.removeprefix("Environment=")))


def test_the_least_that_works():
    config = made()
    assert set(files(config)) == {
        "/etc/ironic-python-agent.conf", "/etc/NetworkManager/conf.d/clientid.conf", "/etc/issue.d/ipa.issue",
        "/etc/motd.d/ipa.motd",
    }  # fmt: skip
    assert command(config)[-2:] == ["--name=ironic-agent", IMAGE]
    assert environment(config) == {}
    assert "passwd" not in config


def test_everything_at_once():
    inputs = replace(
        INPUTS,
        inspector_urls=("http://[fd00::1]",),
        pull_secret=SECRET,
        ssh_keys=("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== one", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== two"),
        registries_conf="[[registry]]\n",
        ip_options="ip=dhcp6",
        https_proxy="http://user:p%40ss@proxy:3128",
        ntp_servers=("ntp.example.com", "fd00::123"),
        ca_bundle=CA,
    )
    host = agent.Host("Node-1.Example.com", {"eth0.nmconnection": "[connection]\n"}, True, {"/etc/x": (b"\x00", 0o600)},
                      {"x.service": "[Service]\n"})  # fmt: skip
    config = made(inputs, host)
    found = files(config)
    assert found["/etc/authfile.json"] == (SECRET.encode(), 0o600)
    assert found["/etc/NetworkManager/system-connections/eth0.nmconnection"] == (b"[connection]\n", 0o600)
    assert found["/etc/chrony.conf"][0] == b"\nserver ntp.example.com iburst\nserver fd00::123 iburst\n"
    assert found["/etc/containers/registries.conf"] == (b"[[registry]]\n", 0o644)
    assert found["/etc/x"] == (b"\x00", 0o600)
    assert b"node-1.example.com" in found["/etc/NetworkManager/dispatcher.d/01-hostname"][0]
    assert "--authfile=/etc/authfile.json" in command(config)
    assert "--env=IPA_COREOS_COPY_NETWORK=true" in command(config)
    assert environment(config) == {"HTTPS_PROXY": "http://user:p%40ss@proxy:3128"}
    assert config["passwd"]["users"][0]["sshAuthorizedKeys"] == [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== one",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== two",
    ]
    assert "update-ca-trust" in units(config)["kubenode-ca-trust.service"]
    assert set(units(config)) == {agent.UNIT, "kubenode-ca-trust.service", "x.service"}
    assert ignition.render(config) == ignition.render(made(inputs, host))


def settings_of(config: dict) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(files(config)["/etc/ironic-python-agent.conf"][0].decode())
    return dict(parser["DEFAULT"])


@pytest.mark.parametrize(
    ("mode", "network", "wanted"),
    [("always", False, "all"), ("always", True, "all"), ("never", False, ""), ("never", True, ""),
     ("automatic", False, "all"), ("automatic", True, "")],
)  # fmt: skip
def test_vlan_modes(mode, network, wanted):
    config = made(replace(INPUTS, vlan_interfaces=mode), agent.Host(has_network_data=network))
    assert settings_of(config)["enable_vlan_interfaces"] == wanted


def test_icc_15_8_the_agent_verifies_and_the_pull_secret_is_private():
    assert settings_of(made())["insecure"] == "False"
    assert settings_of(made(replace(INPUTS, insecure=True)))["insecure"] == "True"
    assert files(made(replace(INPUTS, pull_secret=SECRET)))["/etc/authfile.json"][1] == 0o600


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)


@settings(deadline=None)
@given(TEXT, TEXT, TEXT, st.lists(TEXT.filter(bool), max_size=2))
def test_icc_15_9_systemd_reads_every_value_back(options, proxy, extra, podman):
    inputs = replace(
        INPUTS,
        ip_options=f"ip=dhcp{options}",
        http_proxy=proxy,
        environment={"EXTRA": extra},
        podman_options=tuple(podman),
    )
    config = made(inputs)
    found = command(config)
    assert f"--env=IPA_COREOS_IP_OPTIONS=ip=dhcp{options}" in found
    assert f"--env=EXTRA={extra}" in found
    assert environment(config).get("HTTP_PROXY", "") == proxy
    at = found.index("--name=ironic-agent")
    assert found[at - len(podman) : at] == podman


def test_the_hostname_script_is_a_script():
    script = files(made(host=agent.Host("node-1")))["/etc/NetworkManager/dispatcher.d/01-hostname"][0]
    assert script.startswith(b"#!/bin/sh\n")
    subprocess.run(["sh", "-n"], input=script, check=True)


@pytest.mark.parametrize(
    "name", ["a b", "$(reboot)", "a;b", "-a", "a-", "a..b", "a" * 64, "é", "a\nb", ".", "a." * 127 + "ab"]
)
def test_hostnames_are_rfc_1123(name):
    with pytest.raises(ImageError, match="hostname"):
        made(host=agent.Host(name))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_image": ""}, "IRONIC_AGENT_IMAGE"),
        ({"agent_image": "a b"}, "IRONIC_AGENT_IMAGE"),
        ({"agent_image": "--privileged"}, "IRONIC_AGENT_IMAGE"),
        ({"agent_image": 'quay.io/a"b'}, "IRONIC_AGENT_IMAGE"),
        ({"agent_image": "docker://u:p@quay.io/a b"}, r"'docker://\*{8}@quay.io/a b' is no image"),
        ({"ironic_urls": ()}, "IRONIC_BASE_URL.* is empty"),
        ({"ironic_urls": ("bad url",)}, "IRONIC_BASE_URL.*no http or https"),
        ({"ironic_urls": ("ftp://x",)}, "no http or https"),
        ({"ironic_urls": ("http://x:99999",)}, "is no URL"),
        ({"ironic_urls": ("http://user:pass@x",)}, "without credentials"),
        ({"inspector_urls": ("//x",)}, "IRONIC_INSPECTOR_BASE_URL"),
        ({"vlan_interfaces": "sometimes"}, "automatic, always, never"),
        ({"pull_secret": "no json"}, "IRONIC_AGENT_PULL_SECRET"),
        ({"pull_secret": "[]"}, "IRONIC_AGENT_PULL_SECRET"),
        ({"ssh_keys": ("not a key",)}, "IRONIC_RAMDISK_SSH_KEY"),
        ({"ssh_keys": ("ssh-rsa AAAA\nssh-rsa BBBB",)}, "IRONIC_RAMDISK_SSH_KEY"),
        ({"ntp_servers": ("a b",)}, "ADDITIONAL_NTP_SERVERS"),
        ({"ntp_servers": ("a\nb",)}, "ADDITIONAL_NTP_SERVERS"),
        ({"http_proxy": "http://a\nEnvironment=B=c"}, "HTTP_PROXY.*line break"),
        ({"no_proxy": "a\nb"}, "NO_PROXY.*line break"),
        ({"ip_options": "a\nb"}, "IP_OPTIONS.*line break"),
        ({"ip_options": "foo bar"}, "IP_OPTIONS.*'foo bar' has no kernel argument in it, such as ip=dhcp"),
        (
            {"ssh_keys": ("ssh-foo bad",)},
            "IRONIC_RAMDISK_SSH_KEY.*'ssh-foo bad' is no line of a .pub file: .* no. base64",
        ),
        ({"ssh_keys": ("ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIA== me",)}, "its base64 is not a key of type ssh-rsa"),
        ({"environment": {"A B": "x"}}, "no name"),
        ({"environment": {"A": "x\ny"}}, "line break"),
        ({"podman_options": ("x\ny",)}, "line break"),
        ({"ca_bundle": "nothing"}, "CA_BUNDLE"),
    ],
)
def test_bad_inputs_are_refused_by_name(changes, message):
    with pytest.raises(ImageError, match=message):
        made(replace(INPUTS, **changes))


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("http://a", "http://a:6385"),
        ("http://a:1/x/", "http://a:1/x"),
        ("https://[fd00::1]", "https://[fd00::1]:6385"),
        ("https://[fd00::1]:80/v1", "https://[fd00::1]:80/v1"),
    ],
)
def test_urls_are_made_whole(given_, wanted):
    assert agent.urls("x", (given_,), 6385) == (wanted,)


def test_inspector_urls_get_their_path_once():
    inputs = replace(INPUTS, inspector_urls=("http://a:1/x/", "http://b/v1/continue"))
    assert inputs.checked().inspector_urls == ("http://a:1/x/v1/continue", "http://b:5050/v1/continue")


ONE, TWO = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB=="


def test_every_variable_of_the_peer():
    texts = {"/registries": "[[registry]]\n", "/ca": CA, "/run/secrets/pull-secret": "unused"}
    found = agent.from_environment(
        {
            "IRONIC_AGENT_IMAGE": IMAGE,
            "IRONIC_BASE_URL": "http://a, http://b ,,",
            "IRONIC_INSPECTOR_BASE_URL": "http://c",
            "IRONIC_AGENT_PULL_SECRET": base64.b64encode(SECRET.encode()).decode(),
            "IRONIC_AGENT_VLAN_INTERFACES": "ALWAYS",
            "IRONIC_RAMDISK_SSH_KEY": f" {ONE} x \n\n{TWO} y\n",
            "REGISTRIES_CONF_PATH": "/registries",
            "IP_OPTIONS": "ip=dhcp",
            "HTTP_PROXY": "http://p",
            "HTTPS_PROXY": "http://q",
            "NO_PROXY": "localhost",
            "ADDITIONAL_NTP_SERVERS": " n1 , n2,",
            "CA_BUNDLE": "/ca",
        },
        texts.get,
    )  # fmt: skip
    assert found.checked() == agent.AgentInputs(
        agent_image=IMAGE, ironic_urls=("http://a:6385", "http://b:6385"), inspector_urls=("http://c:5050/v1/continue",),
        pull_secret=SECRET, vlan_interfaces="always",
        ssh_keys=(f"{ONE} x", f"{TWO} y"),
        registries_conf="[[registry]]\n", ip_options="ip=dhcp", http_proxy="http://p", https_proxy="http://q",
        no_proxy="localhost", ntp_servers=("n1", "n2"), ca_bundle=CA,
    )  # fmt: skip


def test_a_missing_pull_secret_file_is_no_error_and_a_missing_bundle_is_one():
    assert agent.from_environment({"IRONIC_AGENT_IMAGE": IMAGE}, lambda _path: None).pull_secret == ""
    with pytest.raises(ImageError, match="CA_BUNDLE: file /ca cannot be read"):
        agent.from_environment({"CA_BUNDLE": "/ca"}, lambda _path: None)


LOGINS = [
    "https://user:secretpw@192.0.2.5",
    "https://:secretpw@192.0.2.5",
    "user:secretpw@x",
    "http://user:secret/pw@x",
]
LOGINS += ["http://secretpw:@x:0", "http://user:secretpw@[x", "http://user:secretpw@x:99999", "ftp://user:secretpw@x"]


@pytest.mark.parametrize("name", ["ironic_urls", "inspector_urls"])
@pytest.mark.parametrize("url", LOGINS)
def test_no_error_repeats_a_password_of_a_url(name, url):
    with pytest.raises(ImageError, match=name) as raised:
        made(replace(INPUTS, **{name: (url,)}))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("IRONIC_INSECURE", "maybe", "IRONIC_INSECURE 'maybe' is neither true nor false"),
        ("IRONIC_AGENT_VLAN_INTERFACES", "foo", "VLAN_INTERFACES.*'foo' is not one of automatic, always, never"),
        ("IRONIC_RAMDISK_SSH_KEY", "ssh-foo bad", "IRONIC_RAMDISK_SSH_KEY.*'ssh-foo bad'"),
        ("IP_OPTIONS", "foo bar", "IP_OPTIONS.*'foo bar'"),
    ],
)  # fmt: skip
def test_a_variable_with_a_value_that_means_nothing_is_refused(variable, value, said):
    environ = {"IRONIC_AGENT_IMAGE": IMAGE, "IRONIC_BASE_URL": "http://a", variable: value}
    with pytest.raises(ImageError, match=said):
        agent.from_environment(environ, lambda _path: None).checked()


@pytest.mark.parametrize(
    ("variable", "field", "meanings"),
    [
        ("IRONIC_INSECURE", "insecure", {"": False, "on": True, "True": True, "1": True, "yes": True, "off": False}),
        (
            "IRONIC_AGENT_VLAN_INTERFACES", "vlan_interfaces",
            {"": "automatic", "auto": "automatic", "Automatic": "automatic", "ALWAYS": "always", "never ": "never"},
        ),
        ("IP_OPTIONS", "ip_options", {one: one for one in ("", "ip=dhcp6", "rd.neednet=1 ip=ib0:dhcp")}),
    ],
)  # fmt: skip
def test_what_others_take_is_taken(variable, field, meanings):
    for value, meaning in meanings.items():
        environ = {"IRONIC_AGENT_IMAGE": IMAGE, "IRONIC_BASE_URL": "http://a", variable: value}
        assert getattr(agent.from_environment(environ, lambda _path: None).checked(), field) == meaning
