# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command is called with: the machine's name is a host name by the one rule that all of the collection has."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.arguments import Job
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused


@pytest.mark.parametrize("name", ["", "-a", "a-", "a..b", "a_b", "a b", "a" * 64, "a." * 127 + "ab", "10.0.0.1", "a\n"])
def test_what_is_no_host_name_is_refused(tmp_path, name):
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(Refused, match="is not a host name"):
        Job(str(tmp_path / "data"), name, "no-such-disk", with_keys=False)


@pytest.mark.parametrize("name", ["node-1", "Node-1.example.com", "a", "a" * 63, "db.1", "rack-2.07"])
def test_host_names_are_taken(tmp_path, name):
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(Refused, match="no such device"):
        Job(str(tmp_path / "data"), name, "no-such-disk", with_keys=False)
