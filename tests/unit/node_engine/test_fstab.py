# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Swap lines of fstab: exactly these become comments, and nothing else changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import system

TABLE = """# /etc/fstab: swap was on /dev/sda3 during installation
UUID=1 / ext4 errors=remount-ro 0 1
UUID=2 none            swap    sw              0       0
/swap.img\tnone\tswap\tsw\t0\t0
# UUID=3 none swap sw 0 0
/var/swap /mnt/swap none bind 0 0
/dev/vg/swap /data ext4 defaults 0 2
tmpfs /swap tmpfs defaults 0 0
  LABEL=s swap swap defaults
"""


def test_only_real_swap_lines_become_comments():
    assert [line.split()[0] for line in system.swap_lines(TABLE)] == ["UUID=2", "/swap.img", "LABEL=s"]
    done = system.without_swap(TABLE).splitlines()
    assert done[2] == "# kubenode: swap is off: UUID=2 none            swap    sw              0       0"
    assert done[3] == "# kubenode: swap is off: /swap.img\tnone\tswap\tsw\t0\t0"
    assert done[8] == "# kubenode: swap is off: LABEL=s swap swap defaults"
    assert [line for index, line in enumerate(done) if index not in (2, 3, 8)] == [
        line for index, line in enumerate(TABLE.splitlines()) if index not in (2, 3, 8)
    ]


WORDS = st.sampled_from(["swap", "none", "#", "#x", "UUID=1", "ext4", " ", "\t", "\n", "\r\n", "\x0b", "\x85", "é"])


@given(st.one_of(st.text(), st.lists(WORDS).map("".join), st.lists(WORDS).map(" ".join)))
def test_nothing_is_lost_and_once_is_enough(text):
    done = system.without_swap(text)
    assert system.swap_lines(done) == []
    assert system.without_swap(done) == done
    assert done.count("\n") == text.count("\n")
    wanted = [line if not system.swap_lines(line) else system.MARK + line.lstrip() for line in text.split("\n")]
    assert done.split("\n") == wanted
