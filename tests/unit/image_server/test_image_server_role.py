# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role image_server on the controller: its variables, what it refuses, what it plans for a machine."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import VLAN_MODES
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.conversion import CHOICES
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import path_error
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine
from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import (
    pack_program,
    role_inputs,
    role_plan,
)
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import command_line
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.role_plan import image_server_plan
from tests.certificates import pair
from tests.folders import put

ROLE = Path(__file__).resolve().parents[3] / "roles/image_server"
NODE = {
    "uid": 0,
    "systemd": 252,
    "package_manager": "apt",
    "arch": "amd64",
    "packages": {"python3-yaml": "6.0"},
    "network": {"default": {"4": {"address": "192.0.2.9", "interface": "eth0", "gateway": ""}, "6": None}},
}
SHA = "0123456789abcdef" * 4
AGENT = {
    "agent_image": "registry.example/agent:1",
    "ironic_urls": ["https://192.0.2.5:6385"],
    "bases": {"x86_64": {"iso": {"url": "https://files.example/coreos.iso", "sha256": SHA}}},
}
NETWORK = {"interfaces": [{"name": "eth0", "type": "ethernet", "state": "up", "ipv4": {"enabled": True, "dhcp": True}}]}
#: secrets that stand on no line of their own
MACSEC = """interfaces:
  - name: macsec0
    type: macsec
    macsec: {encrypt: true, base-iface: eth0, mka-cak: 50b71a8ef0bd5751ea76de6d6c98c0aa, mka-ckn: f2b4}
"""
PAIR = pair("192.0.2.9")
#: a secret in what is no data URL
IGNITIONS = [
    {"merge": {"storage": {"files": [{"path": "/x", "contents": {"source": source}}]}}}
    for source in ("data:hush-hush", "data:;base64,hush-hush!")
]


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


def take(**variables):
    return image_server_plan(variables, "inputs")


def plan(record=None, **variables):
    """The settings by their ids."""
    found = image_server_plan(take(**variables), "settings", node=NODE, record=record)
    return {setting["id"]: setting for setting in found}


def refused(**variables) -> str:
    with pytest.raises(ValueError) as caught:
        take(**variables)
    return str(caught.value)


def test_the_filter_gets_every_variable_with_its_default():
    defaults, mapping = load("defaults/main.yml"), load("vars/main.yml")["__image_server_variables"]
    assert mapping == {name.removeprefix("image_server_"): "{{ " + name + " }}" for name in defaults}
    own = {name.removeprefix("image_server_"): value for name, value in defaults.items()}
    assert own == {name: option["default"] for name, option in role_specs.options("image_server").items()}
    assert set(role_inputs.RoleInputs.__annotations__) == {*own, "documents", "own", "warnings"}
    assert take()["documents"] == {}


def test_choices_of_the_specs_are_those_of_the_program():
    specs = role_specs.options("image_server")
    choices = {name: tuple(option["choices"]) for name, option in specs.items() if "choices" in option}
    assert choices["vlan_interfaces"] == VLAN_MODES
    assert choices["nmstate"] == CHOICES
    assert choices["log_level"] == command_line.LEVELS


def test_one_message_lists_every_error_with_variable_value_and_fix():
    error = refused(
        bind_addr="x:99999",
        metrics_addr=":70000",
        publish_addr="192.0.2.1",
        allow=["192.0.2.1/99"],
        hosts={"Web_1": {}, "a": {"interfaces": [{"nam": 1}]}, "b": "x: ["},
        bases={"amd64": {}, "aarch64": {"iso": {"url": "x"}}, "x86_64": {"iso": {"url": "ftp://x/y", "sha256": "x"}}},
        agent_image="a b",
        ssh_keys="nothing",
        signed_urls=-1,
        python="a b",
        memory_max="lots",
        ntp_servers=["one,two"],
    )
    named = {line.partition(" ")[0].partition(":")[0].partition("[")[0] for line in error.splitlines()}
    assert named == {
        f"image_server_{name}"
        for name in ("bind_addr", "metrics_addr", "publish_addr", "allow", "hosts", "bases", "agent_image", "ssh_keys",
                     "signed_urls", "python", "memory_max", "ntp_servers", "ironic_urls")
    }  # fmt: skip
    assert "image_server_bind_addr is 'x:99999'; give :PORT" in error
    assert "image_server_hosts[a]: interfaces[0].name is missing" in error
    assert "image_server_bases[amd64] is 'amd64'; the key is an architecture, one of x86_64" in error


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"hosts": {"web-1": {}}}, "image_server_agent_image"),
        ({"agent_image": "a/b:1", "ironic_urls": ["http://192.0.2.1"]}, "image_server_bases"),
        ({"tls_key": "-----BEGIN PRIVATE KEY-----"}, "image_server_tls_certificate: certificate and key come together"),
        ({"bind_addr": ":8085"}, "image_server_metrics_addr"),
        ({"hosts": []}, "image_server_hosts: give a dictionary"),
        ({"state": "gone"}, "image_server_state is 'gone'; give one of present, absent"),
        ({"nonsense": 1}, "there is no variable image_server_nonsense"),
        ({"bases": {"x86_64": {"iso": {"path": "/home/me/coreos.iso"}}}}, "the service sees no file there"),
        ({**AGENT, "hosts": {"web-1": [1]}}, "image_server_hosts[web-1]: give an NMState document"),
        ({**AGENT, "hosts": {"../up": {}}}, "image_server_hosts is '../up'"),
        ({**AGENT, "hosts": {"a" * 64: {}}}, "image_server_hosts is 'aaa"),
        ({**AGENT, "ip_options": "ip=\ndhcp"}, "image_server_ip_options"),
    ],
    ids=["hosts-without-agent", "agent-without-base", "half-tls", "ports", "type", "choice", "unknown", "home",
         "document", "path", "long", "newline"],
)  # fmt: skip
def test_refused(variables, words):
    assert words in refused(**variables)


@pytest.mark.parametrize(
    "variables",
    [
        {"pull_secret": "{hush-hush"},
        {"secret": "hush-hush"},
        {"tls_key": "hush-hush"},
        {"download_headers": {"A b": "hush-hush"}},
        {"http_proxy": "http://me:hush-hush@192.0.2.1\n"},
        {"bases": {"x86_64": {"iso": {"url": "ftp://me:hush-hush@192.0.2.1/", "sha256": SHA}}}},
        {"hosts": "{web-1: {interfaces: [{mka-cak: hush-hush}]}}"},
        {"host_options": "environment: {KEY: hush-hush}"},
        {**AGENT, "hosts": {"web-1": {}}, "host_options": {"web-1": {"http_proxy": "http://me:hush-hush@192.0.2.1\n"}}},
        *({**AGENT, "hosts": {"web-1": {}}, "host_options": {"web-1": own}} for own in IGNITIONS),
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_errors_keep_secrets(variables):
    assert "hush" not in refused(**variables)


@pytest.mark.parametrize(
    "variables",
    [
        {"publish_addr": "http://user:hush@x:8084"},
        {"publish_addr": "user:hush@x:8084"},
        {"ironic_urls": ["https://user:hush@192.0.2.5"]},
        {"inspector_urls": ["user:hush@192.0.2.5"]},
        {"bases": {"x86_64": {"iso": {"url": "https://user:hush@x/live.iso"}, "other": 1}}},
    ],
    ids=str,
)
def test_no_login_of_a_url_is_shown(variables):
    found = refused(**variables)
    assert "********@" in found
    assert "hush" not in found


def test_settings_are_what_node_settings_takes_and_hide_the_secrets():
    variables = {
        **AGENT,
        "hosts": {"web-1": NETWORK, "web-2": "", "web-3.example.com": MACSEC},
        "pull_secret": {"auths": {"registry.example": {"auth": "aHVzaC1odXNo"}}},
        "secret": "hush-hush-hush-hush-hush-hush-hush-hush",
        "https_proxy": "http://me:hush-hush@192.0.2.1:3128",
        "tls_key": PAIR.pem,
        "tls_certificate": PAIR.crt,
        "registries_conf": "unqualified-search-registries = []\n",
        "ca_bundle": "-----BEGIN CERTIFICATE-----\n",
        "firewall": "open",
    }
    inputs = take(**variables)
    settings = image_server_plan(inputs, "settings", node=NODE, record={})
    assert "hush" not in str(settings)
    assert "aHVzaC1odXNo" not in str(settings)
    assert "50b71a8ef0bd5751" not in str(settings)
    assert PAIR.pem.splitlines()[1] not in str(settings)
    resolved, errors = engine.with_secrets(settings, image_server_plan(inputs, "secrets", node=NODE))
    assert errors + engine.setting_errors(resolved) == []
    secret = {setting["path"]: setting["mode"] for setting in resolved if setting.get("secret")}
    assert secret == {
        role_inputs.SECRET: "0600",
        role_inputs.PULL_SECRET: "0600",
        role_inputs.ENVIRONMENT: "0600",
        role_inputs.TLS_KEY: "0640",
        **{f"{role_inputs.NMSTATE}/{name}.yaml": "0640" for name in variables["hosts"]},
    }
    written = {setting["id"]: setting.get("content") for setting in resolved}
    assert written["host/web-2.yaml"] == ""
    assert yaml.safe_load(written["host/web-1.yaml"]) == NETWORK
    assert written["host/web-3.example.com.yaml"] == MACSEC


def test_a_naming_secret_of_the_machine_is_only_created():
    assert plan()["secret"]["create_only"] is True
    assert plan(secret="x" * 32)["secret"]["create_only"] is False
    made = [image_server_plan(take(), "secrets", node=NODE)["secret"] for _turn in range(2)]
    assert made[0] != made[1]
    assert re.fullmatch("[0-9a-f]{64}\n", made[0])


def test_only_what_an_earlier_run_wrote_is_removed():
    old = {
        "program": f"{role_inputs.PROGRAMS}/{'0' * 16}.pyz",
        "hosts": ["web-1.yaml", "web-2.yaml", "web-1.host.yml", "../../etc/passwd", "Not a name.yaml", "by-hand"],
        "bases": [
            f"{role_inputs.BASES}/coreos_aarch64.iso",
            f"{role_inputs.BASES}/coreos.initramfs",
            "/etc/shadow",
            f"{role_inputs.BASES}/../x.iso",
        ],
        "fetched": ["image-server-aarch64-iso", "containerd", "../x"],
    }
    settings = plan(old, **AGENT, hosts={"web-1": NETWORK})
    gone = {setting["path"] for setting in settings.values() if setting["kind"] == "absent"}
    ours = {
        role_inputs.PULL_SECRET,
        role_inputs.TLS_KEY,
        role_inputs.TLS_CERTIFICATE,
        role_inputs.REGISTRIES,
        role_inputs.CA_BUNDLE,
    }
    removed = {
        f"{role_inputs.NMSTATE}/web-2.yaml",
        f"{role_inputs.NMSTATE}/web-1.host.yml",
        f"{role_inputs.BASES}/coreos_aarch64.iso",
        f"{role_inputs.BASES}/coreos.initramfs",
        f"{role_inputs.ARTIFACTS}/image-server-aarch64-iso.json",
        f"{role_inputs.PROGRAMS}/{'0' * 16}.pyz",
    }
    assert gone == removed | ours
    # the running program may still read its file until it was restarted
    assert list(settings)[-2:] == ["service", "program/old"]
    assert set(plan(old, state="absent")) >= {"service", "host/web-1.yaml", "host/web-2.yaml", "program"}
    for broken in ({"hosts": 7}, {"bases": ["x", 3]}, {"bases": {"a": "b"}}, {"fetched": None}, {"program": 3}):
        assert engine.setting_errors(list(plan(broken, state="absent").values())) == []


def test_bases_have_the_names_the_program_looks_for():
    bases = {
        "x86_64": {"iso": {"url": "http://h/x", "sha256": SHA}, "initramfs": {"path": "/srv/initramfs"}},
        "aarch64": {"iso": {"url": "http://h/a", "sha256": SHA}},
    }
    inputs = take(**{**AGENT, "bases": bases})
    fetched = {one["install"][0]["path"]: one["url"] for one in image_server_plan(inputs, "artifacts")}
    assert fetched == {
        f"{role_inputs.BASES}/coreos_aarch64.iso": "http://h/a",
        f"{role_inputs.BASES}/coreos_x86_64.iso": "http://h/x",
    }

    def links(settings):
        return {one["path"].rpartition("/")[2]: one["target"].rpartition("/")[2] for one in settings.values()
                if one["id"].startswith("base/")}  # fmt: skip

    settings = plan(**{**AGENT, "bases": bases})
    assert links(settings) == {
        "coreos_x86_64.initramfs": "initramfs",
        "coreos.initramfs": "coreos_x86_64.initramfs",
        "coreos.iso": "coreos_x86_64.iso",
    }
    assert f'DEPLOY_INITRD="{role_inputs.BASES}/coreos.initramfs"\n' in settings["environment"]["content"]
    other = plan(**{**AGENT, "bases": bases, "architecture": "aarch64"})
    assert "DEPLOY_INITRD" not in other["environment"]["content"]
    assert links(other) == {"coreos_x86_64.initramfs": "initramfs", "coreos.iso": "coreos_aarch64.iso"}


def test_options_of_a_host_are_checked_as_the_program_reads_them():
    options = {"kernel_arguments": {"append": ["console=ttyS1"]}, "files": [{"path": "/etc/x", "content": "hush-hush"}]}
    variables = {**AGENT, "hosts": {"web-1": NETWORK}, "host_options": {"web-1": options}}
    settings = plan(**variables)
    assert "hush" not in str(settings)
    own = settings["host/web-1.host.yml"]
    assert (own["path"], own["mode"]) == (f"{role_inputs.NMSTATE}/web-1.host.yml", "0640")
    assert yaml.safe_load(image_server_plan(take(**variables), "secrets", node=NODE)[own["content_secret"]]) == options
    error = refused(
        **{
            **variables,
            "hosts": {"web-1": NETWORK, "web-2": "", "web-3": "", "web-4": ""},
            "host_options": {"web-1": {"arch": "s390x"}, "web-2": {"fils": []}, "web-3": {"ssh_keys": ["none"]},
                             "web-4": {"agent_image": "a b"}, "web-5": {}},
        }
    )  # fmt: skip
    for number, words in (
        (1, "arch is 's390x', and image_server_bases has x86_64"),
        (2, "fils"),
        (3, "ssh"),
        (4, "agent_image"),
        (5, "image_server_hosts has no such host"),
    ):
        (line,) = [line for line in error.splitlines() if line.startswith(f"image_server_host_options[web-{number}]: ")]
        assert words in line


def test_documents_are_left_to_nmstatectl_when_it_is_asked_for():
    unknown = {"web-1": {"interfaces": [{"name": "eth0", "type": "ipsec"}]}}
    given = {**AGENT, "hosts": unknown}
    assert "ipsec is not supported" in refused(**given)
    assert plan(**given, nmstate="auto")["unit"]["content"].count(" --nmstate auto ") == 1
    assert "image_server_nmstate is 'other'" in refused(**given, nmstate="other")


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"uid": 1000}, "set become: true"),
        ({"systemd": None}, "systemd is absent; the service needs 247"),
        ({"package_manager": "dnf"}, "name it in image_server_python"),
        ({"arch": "arm64"}, "image_server_bases has x86_64, and the hosts' images are made of that for aarch64"),
        ({"network": {"default": {"4": None, "6": None}}}, "image_server_publish_addr"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_machines_that_cannot_be_one_are_refused(node, words):
    (refusal,) = image_server_plan(take(**AGENT), "refusals", node={**NODE, **node})
    assert words in refusal
    assert image_server_plan(take(**AGENT), "refusals", node=NODE) == []


@pytest.mark.parametrize(
    ("leads_to", "words"),
    [(None, "no such file is on the machine"), ("directory", "it is a directory"), ("other", "a pipe"), ("file", "")],
)
def test_a_base_that_is_not_on_the_machine_is_refused(leads_to, words):
    bases = {"x86_64": {"iso": {"url": "http://h/x", "sha256": SHA}, "initramfs": {"path": "/srv//base"}}}
    inputs = take(**{**AGENT, "bases": bases})
    asked = image_server_plan(inputs, "queries")["files"]
    assert "/srv/base" in asked
    assert [path_error(path) for path in asked] == [None] * 3
    node = {**NODE, "files": {path: {"exists": bool(leads_to), "leads_to": leads_to} for path in asked}}
    found = image_server_plan(inputs, "refusals", node=node)
    if words:
        (line,) = found
        assert line.startswith("image_server_bases[x86_64].initramfs.path is '/srv//base', and ")
        assert words in line
        assert "bring the base there" in line
    else:
        assert found == []
    assert image_server_plan(take(state="absent", bases=bases), "refusals", node=node) == []


@pytest.mark.parametrize(("leads_to", "words"), [(None, "no such file is on the machine"), ("file", "")])
def test_a_python_that_is_not_on_the_machine_is_refused(leads_to, words):
    inputs = take(**AGENT, python="//opt/venv/bin/python3")
    asked = image_server_plan(inputs, "queries")["files"]
    assert "/opt/venv/bin/python3" in asked
    node = {**NODE, "files": {path: {"exists": bool(leads_to), "leads_to": leads_to} for path in asked}}
    found = image_server_plan(inputs, "refusals", node=node)
    assert len(found) == bool(words)
    assert all(line.startswith(f"image_server_python is '//opt/venv/bin/python3', and {words}; make") for line in found)


@pytest.mark.parametrize(
    ("crt", "key", "words"),
    [
        (PAIR, pair(), "the key is not the certificate's; give the two that belong together"),
        (pair(bits=1024), None, "the key is too short"),
        (pair(begin=-9, end=-1), None, "has expired; give a valid one"),
        (pair(begin=1, end=9), None, "is not valid yet; give a valid one"),
    ],
    ids=["other", "short", "expired", "early"],
)
def test_a_pair_that_no_server_can_use_is_refused(crt, key, words, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    given = {"tls_certificate": crt.crt, "tls_key": (key or crt).pem}
    error = refused(**given, bind_addr="here")
    assert "image_server_bind_addr is 'here'" in error
    (line,) = [line for line in error.splitlines() if "tls" in line]
    assert line.startswith("image_server_tls_certificate and image_server_tls_key cannot be used: ")
    assert words in line
    assert given["tls_key"].splitlines()[1] not in error
    assert list(tmp_path.iterdir()) == []
    assert take(**given, state="absent")["state"] == "absent"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, []),
        (
            {"publish_addr": "https://images.example/x"},
            ["is not for images.example, by which", "https://images.example/x"],
        ),
        ({"bind_addr": "192.0.2.7:8084"}, ["is not for 192.0.2.7, by which"]),
        ({"publish_addr": "https://images.example", "state": "absent"}, []),
    ],
    ids=["route", "published", "bound", "absent"],
)
def test_a_certificate_for_another_name_is_a_warning(variables, words):
    inputs = take(**{"tls_certificate": PAIR.crt, "tls_key": PAIR.pem, **variables})
    found = image_server_plan(inputs, "warnings", node=NODE)
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)
    assert image_server_plan(take(), "warnings", node=NODE) == []


def test_missing_packages_and_a_python_of_the_users():
    assert image_server_plan(take(), "missing", node=NODE) == ["python3-httptools"]
    assert image_server_plan(take(python="/opt/venv/bin/python3"), "missing", node=NODE) == []
    assert plan(python="/opt/venv/bin/python3")["unit"]["content"].count("ExecStart=/opt/venv/bin/python3 -I ") == 1
    (refusal,) = image_server_plan(take(manage_packages=False), "refusals", node=NODE)
    assert "python3-httptools not installed" in refusal


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, "http://192.0.2.9:8084"),
        ({"bind_addr": "[2001:db8::1]:80"}, "http://[2001:db8::1]:80"),
        ({"publish_addr": "https://images.example/x/"}, "https://images.example/x"),
    ],
    ids=["route", "bound", "given"],
)
def test_url(variables, url):
    assert image_server_plan(take(**variables), "url", node=NODE) == url


@given(st.text(max_size=200))
def test_an_environment_file_gives_back_every_value(value):
    """Read as systemd does: between double quotes, a backslash makes the next of these four plain."""
    quoted = role_plan.quoted(value)
    assert quoted[0] == quoted[-1] == '"'
    assert not re.search(r'(?<!\\)(?:\\\\)*["$`]', quoted[1:-1])
    assert re.sub(r'\\([\\"$`])', r"\1", quoted[1:-1]) == value


def test_a_port_below_1024_takes_one_capability():
    low = plan(bind_addr=":80")["unit"]["content"]
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE\n" in low
    assert "PrivateUsers" not in low
    assert "\nCapabilityBoundingSet=\n" in plan()["unit"]["content"]


def test_the_unit_passes_on_what_was_asked_for():
    text = plan(**AGENT, unguessable=True, signed_urls=60, memory_max="512M", allow=["192.0.2.0/24"],
                pull_secret='{"auths": {}}')["unit"]["content"]  # fmt: skip
    assert " --unguessable --signed-urls 60\n" in text
    assert f"LoadCredential=pull-secret:{role_inputs.PULL_SECRET}\n" in text
    assert " --pull-secret-file ${CREDENTIALS_DIRECTORY}/pull-secret " in text
    assert "MemoryMax=512M\n" in text
    assert "IPAddressAllow=localhost 192.0.2.0/24\nIPAddressDeny=any\n" in text
    assert "--nmstate-dir" not in plan()["unit"]["content"]


def test_names_are_guessed_only_where_that_is_asked_for():
    assert " --unguessable\n" in plan(**AGENT)["unit"]["content"]
    open_names = plan(**AGENT, unguessable=False)["unit"]["content"]
    assert " --guessable\n" in open_names
    assert "--unguessable" not in open_names


def test_the_digest_of_the_program_names_its_file():
    content = pack_program.program_bytes()
    assert plan()["program"]["path"] == f"{role_inputs.PROGRAMS}/{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    assert plan()["launcher"]["target"] == plan()["program"]["path"]


def test_the_program_knows_the_options_of_its_unit(tmp_path):
    file = put(tmp_path / "program.pyz", pack_program.program_bytes(sys.executable), 0o755)
    done = subprocess.run([str(file), "--help"], capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    options = set(re.findall(r"--[a-z-]+", done.stdout))
    text = plan(**AGENT, unguessable=True, signed_urls=60, pull_secret='{"auths": {}}',
                tls_key=PAIR.pem, tls_certificate=PAIR.crt)  # fmt: skip
    assert set(re.findall(r" (--[a-z-]+)", text["unit"]["content"])) <= options
