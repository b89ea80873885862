# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reader copies from README and the guides: each variable exists and fits, each command is run by a test.

The runs themselves are in tests/integration/playbooks/test_documents.py.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from ansible.vars.manager import VariableManager

from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import conflicts, specification
from tests.documents import CHECKOUT, COLLECTION, DOCUMENTS, Block, Step, blocks, is_of_hosts, steps
from tests.folders import put, put_programs
from tests.unit.docs import plugin_specs

BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]
STEPS = [step for document in DOCUMENTS for step in steps(document)]
OURS = ("kubenode_", "base_", "join_")
#: The first word of a command → what runs it.
RUN_BY = {
    "ansible-playbook": "tests/integration/playbooks/test_documents.py",
    "ansible-builder": "tests/integration/awx/test_containers.py",
    "ansible-galaxy": "tests/unit/toolchain/test_release.py",
    "pip": "tests/unit/toolchain/test_release.py",
    "curl": "tests/unit/toolchain/test_release.py",
    "sha256sum": "tests/unit/toolchain/test_release.py",
    "make": "tests/unit/docs/test_where.py",
    "python3": "tests/integration/test_molecule.py",
    ".": "tests/integration/test_molecule.py",
    "hetzner-lab": "tests/unit/toolchain/test_release.py",
    "cp": "tests/integration/test_molecule.py",
    "molecule": "tests/integration/test_molecule.py",
    "image-server": "tests/integration/liveimage/test_static.py",
    "ls": "tests/integration/playbooks/test_node_image_tarball.py",
    "export": "",
}
#: Texts of other languages, and what looks at them.
OTHERS = {
    "ini": "the report is enabled in tests/integration/playbooks/test_whole_run.py",
    "text": "what programs print",
    "sh": "tests/integration/playbooks/test_pre_provision.py",
    "python": "tests/unit/report/test_notify.py",
}

#: Keys of files of others, and what a run leaves for later ones.
FOREIGN = {"collections", "plugin", "label_selector", "groups", "simple_filters", "ansible_ssh_common_args"}
FOREIGN |= {"kubenode_summary", "version", "images", "dependencies", "options", "additional_build_steps"}
FOREIGN.add("disable_root")


def roles_of(playbook: str) -> list[str]:
    """The roles whose variables a playbook takes."""
    text = (CHECKOUT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
    found = re.findall(r"kubenode__roles: \[([a-z, ]+)\]", text)
    return found[0].split(", ") if found else []


def hosts_of(step: Step, folder: Path) -> list[dict[str, Any]]:
    """The variables of each host of a command, as Ansible gives them."""
    step.write(folder, {})
    loader = DataLoader()
    inventory = InventoryManager(loader, [str(folder / name) for name in step.files])
    manager = VariableManager(loader, inventory)
    return [{**manager.get_vars(host=host), **step.extra} for host in inventory.get_hosts()]


def wrong(variables: dict[str, Any]) -> list[str]:
    """What is wrong with the names and kinds of variables of hosts."""
    specified = specification.variables()
    found = []
    roles = role_specs.variables("base", "join", "image_server", "node_user_data")
    for name, value in variables.items():
        if "{{" in str(value):
            continue
        if name in specified:
            text = specification.wrong_kind(specified[name], value)
            found += [f"{name} {text}"] if text else []
        elif name in roles:
            spec = {name: {key: roles[name][key] for key in ("type", "elements", "choices") if key in roles[name]}}
            found += ArgumentSpecValidator(spec).validate({name: value}).error_messages
        elif not name.startswith("ansible_"):
            found.append(f"{name} is no variable of ours")
    return found


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.place}-{'-'.join(step.playbooks)}")
def test_a_command_goes_together_with_its_inventory(step, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text, **_more: said.append(text))
    monkeypatch.setattr(specification, "of_the_command_line", lambda: step.extra)
    hosts = hosts_of(step, tmp_path)
    assert step.playbooks
    for name in ("cloud-init.yml", "user-data.yml", "ca.crt"):
        (tmp_path / name).touch()
    for playbook in step.playbooks:
        assert (CHECKOUT / "playbooks" / f"{playbook}.yml").exists(), playbook
        assert conflicts.variable_findings(hosts, playbook, roles_of(playbook)) == []
        taken = {one.name for one in specification.taken_by(playbook)}
        assert {name for name in step.extra if name.startswith("kubenode_")} <= {
            *taken,
            *(one.name for other in step.playbooks for one in specification.taken_by(other)),
        }
    assert said == []


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.language == "yaml"], ids=lambda block: block.place)
def test_a_block_of_yaml_says_what_we_take(block: Block):
    found = yaml.safe_load(block.text)
    if block.is_playbook:
        for name in plugin_specs.module_names():
            code = plugin_specs.accepted(name) if f"{COLLECTION}{name}:" in block.text else None
            for arguments in plugin_specs.example_tasks(found, name) if code else ():
                assert plugin_specs.example_errors(arguments, code) == []
    elif block.is_inventory:
        groups = [group for group in _groups(found) if isinstance(group, dict)]
        hosts = [host for group in groups for host in (group.get("hosts") or {}).values()]
        values = [*hosts, *(group.get("vars") for group in groups)]
        for one in values:
            assert wrong({name: value for name, value in (one or {}).items() if name.startswith(OURS)}) == []
    elif block.variables.keys() & FOREIGN and not block.variables.keys() - FOREIGN:
        assert not is_of_hosts(block) or "kubenode_summary" in block.variables
    else:
        assert wrong(block.variables) == []


def _groups(found: Any) -> list[Any]:
    return [one for name, group in found.items() for one in (group, *_groups((group or {}).get("children") or {}))]


def test_every_command_is_run_by_a_test():
    words = [words for block in BLOCKS for words in block.commands]
    names = {line[0] for line in words if "=" not in line[0]}
    assert names == set(RUN_BY)
    assert [path for path in RUN_BY.values() if not (CHECKOUT / path).exists()] == []
    assert {block.language for block in BLOCKS} == {"yaml", "shell", "console", *OTHERS}


def test_who_installs_the_collection_installs_what_it_imports_on_the_controller():
    """A scenario of molecule makes tokens, for instance, which needs the library `kubernetes`."""
    lines = {document: [words for block in blocks(document) for words in block.commands] for document in DOCUMENTS}
    takes = {
        document
        for document, found in lines.items()
        if any(
            words[:3] == ["ansible-galaxy", "collection", "install"] and COLLECTION.rstrip(".") in words
            for words in found
        )
    }
    assert takes >= {"README.md", "docs/first_cloud_node.md", "docs/molecule.md"}
    for document in takes:
        requirements = [words[-1] for words in lines[document] if words[:3] == ["pip", "install", "-r"]]
        assert [one.partition("/kubenode/provision/")[2] for one in requirements] == ["meta/ee-requirements.txt"], (
            document
        )
    assert (CHECKOUT / "meta/ee-requirements.txt").exists()


def test_what_is_wrong_is_found(tmp_path):
    assert wrong({"kubenode_image_ulr": "x"}) == ["kubenode_image_ulr is no variable of ours"]
    assert wrong({"kubenode_boot_timeout": "soon"}) != []
    assert wrong({"base_packages": 1, "base_prebake": "perhaps"}) != []
    step = Step("x", ["ansible-playbook", "-i", "i.yml", f"{COLLECTION}node", "-e", "a=b", "-e", '{"c": [1]}'], {})
    assert (step.extra, step.playbooks) == ({"a": "b", "c": [1]}, ["node"])


@pytest.mark.parametrize(("disk", "partition"), [("sda", "sda2"), ("nvme0n1", "nvme0n1p2")])
def test_the_shortest_image_command_names_the_partition_and_hands_over_the_keys(tmp_path, disk, partition):
    """With programs in the places of those that need a disk; test_udev_control.py of the lab boots what it wrote."""
    text = (CHECKOUT / "docs/commands.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^    #!/bin/bash\n(?:    .*\n|\n)+?    echo IMAGE_URL_DONE\n", text, re.MULTILINE)
    code = re.sub(r"(?<![\w/])/(root|mnt)\b", rf"{tmp_path}/\1", textwrap.dedent(code))
    (tmp_path / "mnt").mkdir()
    names = ("curl", "zstd", "dd", "blockdev", "udevadm", "umount", "mount")
    put_programs(tmp_path / "bin", {name: f'echo "{name} $*" >>{tmp_path}/calls' for name in names})
    keys = "# a comment\nssh-ed25519 AAAAC3 me@home: # 1\nno-pty ecdsa-sha2-nistp256 AAAAE2=\n"
    put(tmp_path / "root/.ssh/authorized_keys", keys)
    (tmp_path / "data").write_text("#cloud-config\n")
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "KUBENODE_INSTALLATION": "0" * 32}
    words = ["bash", "-c", code, "command", "http://x", str(tmp_path / "data"), "web-1", disk]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["IMAGE_URL_DONE"]), done.stderr
    assert f"mount /dev/{partition} {tmp_path}/mnt" in (tmp_path / "calls").read_text().splitlines()
    meta = yaml.safe_load((tmp_path / "mnt/var/lib/cloud/seed/nocloud/meta-data").read_text())
    assert meta == {
        "instance-id": f"iid-kubenode-{'0' * 32}",
        "local-hostname": "web-1",
        "public-keys": ["ssh-ed25519 AAAAC3", "ecdsa-sha2-nistp256 AAAAE2="],
    }
