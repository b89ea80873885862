# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged documents: refused by ImageError, or keyfiles that any reader of ini files takes as they were meant."""

from __future__ import annotations

import configparser
import copy
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate import keyfiles, parse
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.profile import keyfile_text

DOCUMENTS = [parse(one.read_text()) for one in sorted((Path(__file__).parent / "documents").glob("*.yaml"))]
SECTIONS = {
    "connection", "bond", "bond-port", "bridge", "bridge-port", "ipv4", "ipv6", "ethernet", "vlan", "veth", "user",
    "sriov", "ethtool", "802-1x", "infiniband", "macvlan", "vxlan", "vrf",
    "match", "macsec", "hsr", "ipvlan", "loopback",
    "ovs-bridge", "ovs-port", "ovs-interface", "ovs-patch", "ovs-dpdk", "ovs-external-ids", "ovs-other-config",
}  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["a\n[ipv4]\nmethod=auto", "a\rb", "\\", "\\n", ' "', "a;b", "%s", "\x00", "[x]", "#", "  a", "é", "\u2028"]
    ),
    st.sampled_from(["eth0", "bond0", "br0", "0.0.0.0/0", "::/0", "192.0.2.1", "fe80::1", "52:54:00:12:34:56"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def places(value, path=()):
    """All paths in a document."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in members:
        yield from places(one, (*path, key))


@st.composite
def damaged(draw):
    document = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _number in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(document))))
        if not path:
            continue
        target = document
        for key in path[:-1]:
            target = target[key]
        action = draw(st.sampled_from(["replace", "delete", "rename", "twice", "swap"]))
        if action == "delete":
            del target[path[-1]]
        elif action == "rename" and isinstance(target, dict):
            target[draw(TEXTS)] = target.pop(path[-1])
        elif action == "twice" and isinstance(target, list):
            target.append(copy.deepcopy(target[path[-1]]))
        elif action == "swap":
            other = draw(st.sampled_from(DOCUMENTS))
            for key in draw(st.sampled_from(list(places(other)))):
                other = other[key]
            target[path[-1]] = copy.deepcopy(other)
        else:
            target[path[-1]] = draw(VALUES)
    return document


def ini(text: str) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(
        strict=True,
        delimiters=("=",),
        comment_prefixes=("#",),
        inline_comment_prefixes=None,
        empty_lines_in_values=False,
    )
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(text)
    return found


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(damaged())
def test_damaged_documents(document):
    try:
        files = keyfiles(document)
    except ImageError as error:
        assert str(error).isprintable()
        return
    assert files == keyfiles(document)
    for name, text in files.items():
        assert re.fullmatch(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@ -]*\.nmconnection", name)
        profile = ini(text)
        assert set(profile.sections()) <= SECTIONS
        assert profile["connection"]["id"] + ".nmconnection" == name
        lines = [line for line in text.splitlines() if line]
        assert len(lines) == sum(1 + len(profile[section]) for section in profile.sections())
        assert all(line.isprintable() for line in lines)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=80))
def test_a_value_stays_on_its_line(text):
    lines = keyfile_text({"connection": {"id": "a"}, "user": {"k": text}}).split("\n")
    assert lines[:-2] == ["[connection]", "id=a", "", "[user]"]
    written = lines[-2].partition("=")[2]
    plain = re.sub(r"\\(.)", lambda one: {"s": " "}.get(one[1], one[1]), written)
    assert plain == text
    assert not written.startswith(" ")


@pytest.mark.parametrize("text", ["a\nb", "a\r", "\x00", "\x7f"])
def test_control_characters_never_reach_a_keyfile(text):
    with pytest.raises(ImageError):
        keyfile_text({"connection": {"id": text}})


def test_long_chains_and_many_interfaces():
    chain = [{"name": "e0"}] + [
        {"name": "v%d" % at, "type": "vlan", "vlan": {"base-iface": "v%d" % (at - 1) if at else "e0", "id": 5}}
        for at in range(300)
    ]
    assert next(iter(keyfiles({"interfaces": list(reversed(chain))}))) == "e0.nmconnection"
    with pytest.raises(ImageError, match="500 is the most"):
        keyfiles({"interfaces": [{"name": "e%d" % at} for at in range(501)]})
    ports = [
        {
            "name": "v%d" % at,
            "type": "vrf",
            "vrf": {"route-table-id": 5, "port": ["p%d-%d" % (at, one) for one in range(99)]},
        }
        for at in range(6)
    ]
    with pytest.raises(ImageError, match="more than 500 interfaces with the ports that it lists"):
        keyfiles({"interfaces": ports})
