# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole documents and the keyfiles they become; this file, run as a program, writes them again.

dev/run sh -c 'PYTHONPATH=$ANSIBLE_COLLECTIONS_PATH python tests/unit/liveimage/nmstate/test_golden.py'
"""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import nmstate

HERE = Path(__file__).parent
DOCUMENTS = sorted((HERE / "documents").glob("*.yaml"))
BELOW = [(kind, "parent") for kind in ("vlan", "vxlan", "macvlan", "macsec", "ipvlan")]
BELOW += [("hsr", "port1"), ("hsr", "port2")]
LEFT_ALONE = ("eth1", "eth2", "eth9")  # bases that are no part of their document
HEADER = "# Copyright (c) 2026 kubenode.provision authors\n# SPDX-License-Identifier: GPL-3.0-or-later\n"


def golden(document: Path) -> Path:
    return HERE / "golden" / (document.stem + ".txt")


def made(document: Path) -> str:
    files = nmstate.keyfiles(nmstate.parse(document.read_text()))
    return HEADER + "".join("\n==> %s <==\n%s" % pair for pair in files.items())


def turned(value):
    """The same with the keys of all mappings in the other order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_a_document_becomes_these_keyfiles(document):
    assert made(document) == golden(document).read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_the_order_of_keys_means_nothing(document):
    given = nmstate.parse(document.read_text())
    assert list(nmstate.keyfiles(turned(given)).items()) == list(nmstate.keyfiles(given).items())


def test_no_golden_file_is_left_over():
    assert sorted((HERE / "golden").iterdir()) == [golden(one) for one in DOCUMENTS]
    assert len(DOCUMENTS) >= 12


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.stem)
def test_controllers_come_before_ports_and_bases_before_vlans(document):
    seen: set[str] = set()
    for text in nmstate.keyfiles(nmstate.parse(document.read_text())).values():
        profile = configparser.RawConfigParser(strict=True)
        profile.read_string(text)
        master = profile.get("connection", "master", fallback=None)
        below = [profile.get(*key, fallback=None) for key in BELOW]
        for needed in filter(None, (master, *below)):
            assert needed in seen or needed in LEFT_ALONE
        seen.update((profile.get("connection", "interface-name", fallback=""), profile["connection"]["uuid"]))


def test_a_port_that_is_not_described_is_a_warning():
    bond = {"name": "b", "type": "bond", "link-aggregation": {"mode": 1, "port": ["e0", "e1", "e2"]}}
    others = [{"name": "e0"}, {"name": "e1", "state": "ignore"}]
    result = nmstate.convert({"interfaces": [bond, *others]})
    assert list(result.files) == ["b.nmconnection", "e0.nmconnection"]
    assert [one.split(" is not described")[0] for one in result.warnings] == [
        "interfaces[0].link-aggregation.port[1]: e1", "interfaces[0].link-aggregation.port[2]: e2"
    ]  # fmt: skip


def test_what_older_systems_do_not_know_is_a_warning():
    kinds = [("hsr", "hsr", {"port1": "a", "port2": "b"}), ("ipvlan", "ipvlan", {"base-iface": "a"})]
    for kind, section, content in kinds:
        result = nmstate.convert({"interfaces": [{"name": "e", "type": kind, section: content}]})
        assert [f"interfaces[0]: {kind} needs NetworkManager 1." in one for one in result.warnings] == [True]


def test_what_is_empty_asks_for_nothing():
    link = {"name": "eth0", "ethernet": {"fec": {}}, "dispatch": {}}
    shown = {"capture": {}, "ovs-db": {}, "ovn": {}, "interfaces": [link]}
    assert nmstate.keyfiles(shown) == nmstate.keyfiles({"interfaces": [{"name": "eth0"}]})


def test_the_name_of_a_host_is_only_a_warning():
    result = nmstate.convert({"hostname": {"config": "a.example.com"}, "interfaces": [{"name": "eth0"}]})
    assert list(result.files) == ["eth0.nmconnection"]
    assert ["hostname.config" in one for one in result.warnings] == [True]


if __name__ == "__main__":
    for each in DOCUMENTS:
        golden(each).write_text(made(each))
