# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error names what is wrong, and nothing is written."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from tests.unit.liveimage.module.building import NETWORK

HUGE = "x" * (70 * 1024 * 1024)

#: what concerns every host → words of the message; ../test_agent.py has the rest of what the agent is given
COMMON = {
    "pull secret that is no base64": ({"pull_secret": "%%%"}, ["IRONIC_AGENT_PULL_SECRET", "neither JSON nor base64"]),
    "pull secret without auths": ({"pull_secret": '{"a": 1}'}, ["pull_secret", "'auths'"]),
    "pull secret twice": ({"pull_secret": "{}", "pull_secret_file": "/x"}, ["pull_secret_file", "both"]),
    "pull secret file that is not there": ({"pull_secret_file": "/nowhere/x"}, ["pull_secret_file", "/nowhere/x"]),
    "no agent image": ({"agent_image": ""}, ["agent_image", "IRONIC_AGENT_IMAGE"]),
    "podman option with a newline": ({"podman_options": ["a\nb"]}, ["podman option", "line break"]),
    "CA file that is not there": ({"ca_bundle_file": "/nowhere/ca"}, ["CA_BUNDLE", "/nowhere/ca"]),
    "registries file that is not there": (
        {"registries_conf_file": "/nowhere/r"},
        ["REGISTRIES_CONF_PATH", "/nowhere/r"],
    ),
    "publish_url that is none": ({"publish_url": "images"}, ["publish_url", "'images'"]),
    "publish_url with a password": (
        {"publish_url": "http://u:p@x"},
        ["publish_url 'http://********@x' is no", "without credentials"],
    ),
    "rootfs_url with a password": (
        {"rootfs_url": "u:p@x/rootfs"},
        ["rootfs_url '********@x/rootfs' is no", "without credentials"],
    ),
    "rootfs_url that is none": ({"rootfs_url": "a b"}, ["rootfs_url", "'a b'"]),
    "permissions that are none": ({"permissions": "rw"}, ["permissions", "'rw'", "0600"]),
    "base that is a folder": ({"base_iso": "/tmp"}, ["base_iso /tmp is a folder; name the file in it"]),
    "no base at all": ({"base_iso": None}, ["base_iso (DEPLOY_ISO)", "base_initramfs (DEPLOY_INITRD)"]),
    "secret of names that is short": ({"names_secret_file": "/dev/null"}, ["names_secret_file", "32 bytes"]),
    "destination without a parent": ({"dest": "/nowhere/at/all"}, ["dest /nowhere/at/all", "not a folder"]),
}

#: what concerns one host → words of its message
HOST = {
    "NMState with an unknown key": ({"network": {"interfases": []}}, ["interfases", "interfaces"]),
    "NMState with an unknown key below": (
        {"network": {"interfaces": [{"name": "a", "type": "ethernet", "state": "up", "mtuu": 1}]}},
        ["network: interfaces[0].mtuu"],
    ),
    "NMState that contradicts itself": (
        {"network": {"interfaces": [{"name": "a", "type": "ethernet"}, {"name": "a", "type": "ethernet"}]}},
        ["given twice"],
    ),
    "NMState that is no YAML": ({"network": "a: [b"}, ["YAML"]),
    "NMState that is a list": ({"network": ["a"]}, ["list"]),
    "network twice": ({"network": NETWORK, "network_file": "/x"}, ["network and network_file"]),
    "network file that is not there": ({"network_file": "/nowhere/n"}, ["network_file", "/nowhere/n"]),
    "network file that is no text": ({"network_file": "{image}"}, ["network_file", "UTF-8"]),
    "hostname with a semicolon": ({"hostname": "a;reboot"}, ["hostname", "a;reboot", "RFC 1123"]),
    "hostname with a percent sign": ({"hostname": "a%h"}, ["hostname", "a%h"]),
    "hostname with a newline": ({"hostname": "a\nb"}, ["hostname", "RFC 1123"]),
    "agent image with a newline": ({"agent_image": "a\nb"}, ["agent_image"]),
    "Ignition that is no JSON": ({"ignition": "{"}, ["ignition", "no JSON"]),
    "Ignition of version 2": ({"ignition": {"ignition": {"version": "2.3.0"}}}, ["'ignition.version'", "2.3.0"]),
    "Ignition with an unknown key": (
        {"ignition": {"ignition": {"version": "3.4.0"}, "storge": {}}},
        ["ignition: storge: unknown key; did you mean storage?"],
    ),
    "Ignition with a key of something else": (
        {"merge": '{"ignition": {"version": "3.4.0"}, "network": {}}'},
        ["merge: network: unknown key; known are ignition, kernelArguments"],
    ),
    "Ignition that is a list": ({"ignition": [1]}, ["ignition"]),
    "Ignition twice": ({"ignition": "{}", "ignition_file": "/x"}, ["ignition and ignition_file"]),
    "Ignition with a file twice": (
        {"merge": {"storage": {"files": [{"path": "/a"}, {"path": "/a"}]}}},
        ["storage.files[1].path", "/a"],
    ),
    "file with a relative path": ({"files": [{"path": "a", "content": ""}]}, ["files: path 'a' is not absolute"]),
    "file with a path that climbs": ({"files": [{"path": "/a/../b", "content": ""}]}, ["/a/../b"]),
    "file of the agent": ({"files": [{"path": "/etc/authfile.json", "content": "x"}] * 2}, ["given twice"]),
    "file without content": ({"files": [{"path": "/a"}]}, ["/a", "exactly one of content"]),
    "file with content twice": ({"files": [{"path": "/a", "content": "", "src": "/b"}]}, ["/a", "exactly one"]),
    "file that is not there": ({"files": [{"path": "/a", "src": "/nowhere/s"}]}, ["src of /a", "/nowhere/s"]),
    "file in bad base64": ({"files": [{"path": "/a", "content_base64": "%"}]}, ["content_base64 of /a"]),
    "file with a bad mode": ({"files": [{"path": "/a", "content": "", "mode": "rw"}]}, ["mode of /a", "'rw'"]),
    "file that is too large": ({"files": [{"path": "/a", "content": HUGE}]}, ["/a", "is the most"]),
    "unit that is none": ({"units": [{"name": "a b", "contents": ""}]}, ["unit 'a b'"]),
    "unit without contents": ({"units": [{"name": "a.service"}]}, ["a.service", "exactly one of contents"]),
    "unit of the agent": ({"units": [{"name": "ironic-agent.service", "contents": "x"}]}, ["ironic-agent", "twice"]),
    "key that is none": ({"ssh_keys": ["nothing"]}, ["ssh_keys (IRONIC_RAMDISK_SSH_KEY): 'nothing' is no line"]),
    "argument with a blank": ({"kernel_arguments": {"append": ["a b"]}}, ["kernel_arguments: append", "a b"]),
    "argument with a newline": ({"kernel_arguments": {"append": ["a\nb"]}}, ["kernel_arguments: append"]),
    "argument to delete that is not there": ({"kernel_arguments": {"delete": ["nothing"]}}, ["'nothing'"]),
    "arguments that are too long": ({"kernel_arguments": {"append": ["a" * 2000]}}, ["more than the 1138"]),
    "setting of iPXE in an argument": ({"kernel_arguments": {"append": ["a=${net0/mac}"]}}, ["iPXE", "${net0/mac}"]),
    "operator of iPXE as an argument": ({"kernel_arguments": {"append": ["||"]}}, ["'||'", "iPXE"]),
}

NAMES = [" ", "A", "web_1", "-web", "web.", "a/b", "../a", "a b", "a\nb", "ä", "x" * 64, ".web", "web;reboot"]


@pytest.mark.parametrize("name", sorted(COMMON))
def test_what_concerns_everybody_stops_everything(workshop, name):
    options, words = COMMON[name]
    with pytest.raises(ImageError) as raised:
        workshop.build({"name": "web-1"}, {"name": "web-2"}, **options)
    assert [word for word in words if word not in str(raised.value)] == []
    assert workshop.written() == []


@pytest.mark.parametrize("name", sorted(HOST))
def test_what_concerns_one_host_stops_only_that(workshop, name):
    options, words = HOST[name]
    host = {"name": "web-1", **options}
    if host.get("network_file") == "{image}":
        host["network_file"] = str(workshop.base)
    results = workshop.build(host, {"name": "web-2"}, outputs=["iso", "pxe"], publish_url="http://i.example.com")
    assert results["web-1"]["failed"]
    assert [word for word in words if word not in results["web-1"]["msg"]] == []
    assert len(results["web-1"]["msg"]) < 1000
    assert [path for path in workshop.written() if "web-1" in path] == []
    assert not results["web-2"]["failed"]
    assert (workshop.dest / "web-2.iso").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_becomes_a_file_and_a_path_and_must_be_fit_for_that(workshop, name):
    before = sorted(path.name for path in workshop.folder.iterdir())
    for state in ("present", "absent"):
        results = workshop.build({"name": name, "state": state}, {"name": "web-2"})
        assert (results[name]["failed"], "hosts[].name" in results[name]["msg"]) == (True, True)
        assert workshop.written() == ["images/.web-2.iso.kubenode.json", "images/web-2.iso"]
    assert sorted(path.name for path in workshop.folder.iterdir()) == sorted([*before, "images"])


def test_a_name_that_is_there_twice_is_refused(workshop):
    with pytest.raises(ImageError, match=r"'web-1' is given twice, for hosts\[0\] and hosts\[1\]"):
        workshop.build({"name": "web-1"}, {"name": "web-1"})


def test_two_hosts_that_would_write_one_file_are_refused(workshop):
    results = workshop.build(
        {"name": "web", "outputs": ["minimal_iso"]}, {"name": "web-minimal"}, rootfs_url="http://i.example.com/r"
    )
    assert results["web-minimal"]["msg"] == "file web-minimal.iso would be that of host web, too; rename one of them"
    assert not results["web"]["failed"]


def test_hosts_with_ignitions_of_their_own_need_no_agent(workshop):
    host = {"name": "web-1", "ignition": {"ignition": {"version": "3.4.0"}}}
    assert not workshop.build(host, agent_image=None, ironic_urls=None)["web-1"]["failed"]


@pytest.mark.parametrize("output", ["minimal_iso", "pxe"])
def test_what_is_fetched_from_somewhere_needs_to_know_from_where(workshop, output):
    result = workshop.build({"name": "web-1"}, outputs=[output])["web-1"]
    assert ("publish_url" in result["msg"], workshop.written()) == (True, [])


def test_every_base_that_is_damaged_is_refused_by_name(workshop, tmp_path):
    whole = workshop.base.read_bytes()
    for content in (b"", b"\0" * 4096, whole[:40_000], whole[:32_769] + b"CD999" + whole[32_774:]):
        workshop.base.write_bytes(content)
        result = workshop.build({"name": "web-1"})["web-1"]
        assert (result["failed"], str(workshop.base) in result["msg"]) == (True, True)
        assert workshop.written() == []
