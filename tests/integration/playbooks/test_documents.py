# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every ``ansible-playbook`` of README and the guides, with the inventory before it and the built collection.

In check mode, with the accounts of a lab whose machines never answer; nothing but the files that a reader has is added.
The quick start of README is run on machines, too.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.documents import DOCUMENTS, Step, blocks, steps
from tests.integration.accounts import CloudAccount
from tests.integration.controller import collections_path
from tests.integration.runs import Run
from tests.unit.liveimage import maker

STEPS = [step for document in DOCUMENTS for step in steps(document)]
#: Ends of runs on machines that there are none of: what Ansible's own connection or a check of machines says.
SILENT = (
    "unreachable",
    "does not answer",
    "no server",
    "not resolve",
    "cannot be reached",
    "trying to connect to https://127",
)
#: Playbooks that need a machine that runs, or an AWX.
NODES = ("awx", "node", "node_base", "node_join", "node_reboot", "node_upgrade", "robot_release", "hcloud_delete")
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "x",
    "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "x", "user": {"token": "x"}}],
    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
}  # fmt: skip


class Reader(CloudAccount):
    """A reader with accounts, a home with a key and a kubeconfig, and the files that the documents name."""

    def __init__(self, lab: Any, folder: Path, installed: Path, step: Step, **more: Any) -> None:
        """``more``: variables beside those of the document."""
        self.installed, self.step, self.more = installed, step, more
        named = json.dumps(step.files)
        super().__init__(lab, folder, "my-key" if "my-key" in named else "laptop")
        self.home = folder / "reader"
        for path, text in {
            ".ssh/id_ed25519": self.key.read_text(), ".ssh/id_ed25519.pub": self.public_key,
            ".kube/config": json.dumps(KUBECONFIG),
        }.items():  # fmt: skip
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(text)
            (self.home / path).chmod(0o600)
        self.numbers = [4711, 4712] if "471" in named else []
        if self.numbers:
            lab.dedicated(*({"number": number, "powered": False} for number in self.numbers))
        self.works = folder / "works"
        self.works.mkdir()
        (printed,) = [block.text for block in blocks("README.md") if block.text.startswith("#cloud-config\n")]
        for name in ("cloud-init.yml", "user-data.yml"):
            (self.works / name).write_text(printed)
        self._certificate()
        self._inventory()
        wanted = re.findall(r'"kubenode_image_name": "([^"]+)"', named)
        self.images = [self._image(name) for name in wanted if not self.call("GET", f"/images?name={name}")["images"]]

    def _certificate(self) -> None:
        made = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=ca", "-days", "3650"]
        made += ["-keyout", os.devnull, "-out", str(self.works / "ca.crt")]
        subprocess.run(made, check=True, capture_output=True)

    def _inventory(self) -> None:
        """The reader's inventory; what is below /srv on the reader's host is below our folder."""
        srv = self.folder / "srv"
        text = json.dumps(self.step.files)
        if "/srv/" in text:
            (srv / "bases").mkdir(parents=True)
            maker.make(srv / "bases/coreos.iso", maker.Layout())
            self.step.files = json.loads(text.replace("/srv/", f"{srv}/"))
            (self.works / "nmstate").mkdir()
            interface = "{name: eth0, type: ethernet, state: up, ipv4: {enabled: true, dhcp: true}}"
            (self.works / "nmstate/web-1.yml").write_text(f"interfaces: [{interface}]\n")
            (self.works / "pull-secret.json").write_text('{"auths": {}}')
        self.step.write(self.works, self.more)

    def _image(self, name: str) -> int:
        """A node image of the project; returns its id."""
        body = {"name": "builder", "server_type": "cx23", "image": "debian-12", "start_after_create": False}
        server = self.call("POST", "/servers", body)["server"]["id"]
        snapshot = {"type": "snapshot", "labels": {"caph-image-name": name}}
        made = self.call("POST", f"/servers/{server}/actions/create_image", snapshot)
        self.ended(made["action"])
        self.call("DELETE", f"/servers/{server}")
        return made["image"]["id"]

    @property
    def environment(self) -> dict[str, str]:
        path = collections_path(self.installed)
        # awx.awx imports what ansible-core 2.20 calls deprecated
        quiet = {"ANSIBLE_DEPRECATION_WARNINGS": "false"} if "awx" in self.step.playbooks else {}
        return {**super().environment, "ANSIBLE_COLLECTIONS_PATH": path, "HOME": str(self.home), **quiet}

    def do(self, *words: str) -> Run:
        """The command of the document, or another one."""
        return self.begin(words or self.step.words, self.works).wait()

    def close(self) -> None:
        super().close()
        for image in self.images:
            self.call("DELETE", f"/images/{image}")
        for number in self.numbers:
            self.lab.control("DELETE", f"/dedicated/{number}", timeout=180)


@pytest.fixture(params=STEPS, ids=lambda step: f"{step.place}-{'-'.join(step.playbooks)}")
def reader(request, lab_dry, tmp_path, installed) -> Iterator[Reader]:
    one = Reader(lab_dry, tmp_path, installed, request.param, ansible_host="127.0.0.1", ansible_port=1)
    yield one
    one.close()


@pytest.mark.long
def test_a_command_does_what_its_document_says(reader):
    words = reader.step.words
    done = reader.do(*words, *([] if "--check" in words else ["--check"]))
    said = " ".join(done.output.split())
    assert "Traceback" not in said
    assert "[WARNING]" not in said, done.output
    assert done.rc == 0 or (set(reader.step.playbooks) & set(NODES) and any(words in said for words in SILENT)), (
        done.output
    )
    assert reader.servers().keys() == reader._before


def changes(run: Run) -> list[str]:
    """How many tasks changed something on each of the machines."""
    return re.findall(r"^node-[0-9] +: ok=[0-9]+ +changed=([0-9]+)", run.output, re.MULTILINE)


@pytest.mark.long
def test_the_quick_start_of_readme_makes_a_machine(lab_nspawn, tmp_path, installed):
    """As printed, but for the address of the image: from nothing to a verified system, which later plays reach."""
    image = f"{lab_nspawn.images_url}/debian.raw.zst"
    url = f"{image}#sha256={requests.get(image + '.sha256', timeout=600).text.split()[0]}"
    first = steps("README.md")[0]
    files = re.sub(r"https://images\.example\.com/[^\"]*", url, json.dumps(first.files))
    reader = Reader(lab_nspawn, tmp_path, installed, Step(first.place, first.words, json.loads(files)))
    try:
        done = reader.do().ok()
        assert changes(done)[0] != "0", "tasks of the whole fleet count for its first machine"
        again = reader.do().ok()
        assert changes(again) == ["0", "0"], again.output
        reader.do("ansible-playbook", "-i", "inventory.yml", "kubenode.provision.node_base", "--check").ok()
        named = json.dumps({"kubenode_delete": ["node-1", "node-2"]})
        reader.do("ansible-playbook", "-i", "inventory.yml", "kubenode.provision.hcloud_delete", "-e", named).ok()
        assert not {"node-1", "node-2"} & set(reader.servers())
    finally:
        reader.close()


PLAYBOOKS = [block for document in DOCUMENTS for block in blocks(document) if block.is_playbook]


@pytest.mark.long
@pytest.mark.parametrize("block", PLAYBOOKS, ids=lambda block: block.place)
def test_a_playbook_of_a_document_can_be_run(block, tmp_path, installed):
    (tmp_path / "play.yml").write_text(block.text)
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "--syntax-check", "play.yml"],
        cwd=tmp_path, env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(installed)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
