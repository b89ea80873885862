# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role base stops at its first refusal, without a machine: the role's own task, given the result of a preflight."""

from __future__ import annotations

import os
import subprocess

import yaml

from dev.toolchain.paths import CHECKOUT
from tests.integration.runs import LIMIT


def test_one_refusal_ends_the_role(tmp_path):
    tasks = yaml.safe_load((CHECKOUT / "roles/base/tasks/preflight.yml").read_text())
    (task,) = [one for one in tasks if one["name"].endswith("Refuse what cannot work")]
    hosts = {"good": [], "bad": ["the kernel is too old"]}
    hosts = {name: {"__base_preflight": {"refusals": refusals}} for name, refusals in hosts.items()}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    went_on = {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}}
    play = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": [task, went_on]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        ["ansible-playbook", "-i", "hosts.yml", "play.yml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")},
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the kernel is too old" in done.stdout
    assert ("good goes on" in done.stdout, "bad goes on" in done.stdout) == (True, False)
