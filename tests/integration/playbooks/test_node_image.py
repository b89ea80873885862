# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node images on the lab: baked, uploaded, interrupted at every stage, and nodes made from them."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import cache, images, mirror
from lab.cluster import KUBERNETES
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL
from tests.integration.accounts import CloudAccount
from tests.integration.controller import pinned
from tests.integration.mirrored import real
from tests.integration.runs import Run, Running
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.nspawn]

SNAPSHOT = "kubenode.provision.node_image_snapshot"
#: A container cannot grow its disk, and cloud-init would call that a warning.
CLOUD_CONFIG = "#cloud-config\ngrowpart: {mode: 'off'}\n"


class ImageAccount(CloudAccount):
    """A project in the shared lab, and playbook runs that may be cut off."""

    def __init__(self, lab, folder: Path) -> None:
        super().__init__(lab, folder)
        self.output = ""
        self.variables: dict[str, Any] = {
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_python_interpreter": "/usr/bin/python3",
            "kubenode_dir": str(folder / "kubenode"),
            "kubenode_ssh_keys": [self.key_name],
            "kubenode_location": "fsn1",
            "kubenode_image_owner": "tests",
        }

    def image_url(self, name: str) -> str:
        """An image of the lab with its digest."""
        url = f"{self.lab.lab.images_url}/{name}"
        with urllib.request.urlopen(f"{url}.sha256", timeout=300) as answer:
            return f"{url}#sha256={answer.read().decode().split()[0]}"

    def start(self, playbook: str, *more: str, hosts: tuple[str, ...] = (), **variables: Any) -> Running:
        env = {
            "ANSIBLE_CALLBACKS_ENABLED": "kubenode.provision.provision_report",
            "KUBENODE_REPORT_FILE": str(self.folder / "report.json"),
        }
        return self.start_play(playbook, *more, hosts=hosts, shared={**self.variables, **variables}, env=env)

    def report(self) -> dict[str, Any]:
        """That of the last run."""
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        return found

    def run(self, playbook: str, *more: str, **options: Any) -> Run:
        """Run playbooks to their end; what they printed is in ``output``, too."""
        done = self.start(playbook, *more, **options).wait(1200)
        self.output = done.output
        return done

    def cut(self, ready: Callable[[], bool] | None, how: signal.Signals, **options: Any) -> None:
        """Begin a run and end it as soon as a check is true; without one while it writes a disk."""
        running = self.start(SNAPSHOT, **options)
        if ready is None:
            # a disk is written in less than the time between two looks at it, unless the image comes slowly
            running.until(lambda: running.output.count("waiting for the rescue") == 2, "two machines that start")
            for name in self.builders():
                self.lab.person(name).worsen(kbytes=4000)
        running.until(ready or "writing /dev/sda", "what the run is cut off at")
        self.output = running.interrupt(how).output

    def builders(self) -> dict[str, dict]:
        """The temporary machines."""
        return {name: one for name, one in self.servers().items() if name.startswith("kubenode-image-")}

    def snapshots(self, name: str) -> list[dict]:
        return self.call("GET", f"/images?label_selector=caph-image-name=={name}")["images"]

    def close(self) -> None:
        """Delete what was made, images too."""
        super().close()
        for image in self.call("GET", "/images?label_selector=kubenode.provision/node-image")["images"]:
            self.call("DELETE", f"/images/{image['id']}")

    def acting(self, command: str) -> bool:
        """Whether an action of this kind runs on a temporary machine."""
        for server in self.builders().values():
            try:
                actions = self.call("GET", f"/servers/{server['id']}/actions?status=running")["actions"]
            except urllib.error.HTTPError:  # it went meanwhile
                continue
            if any(action["command"] == command for action in actions):
                return True
        return False


@pytest.fixture(scope="module")
def account(lab_nspawn, tmp_path_factory):
    """One project for the module; what it made is deleted in the end."""
    made = ImageAccount(lab_nspawn, tmp_path_factory.mktemp("images"))
    yield made
    made.close()


def test_an_upload_is_the_image_bit_by_bit_and_is_made_once(account):
    before = set(account.servers())
    options = {"kubenode_image_uploads": [{"name": "raw-0", "image_url": account.image_url("debian.raw.zst")}]}
    made = account.run(SNAPSHOT, **options).ok()
    assert set(account.servers()) == before
    (image,) = account.snapshots("raw-0")
    file = account.lab.lab.cloud.images[image["id"]].file
    with file.open("rb") as written, images.ensure("debian").files["raw"].open("rb") as given:
        while piece := given.read(1 << 22):
            assert written.read(len(piece)) == piece
    report = account.report()
    (machine,) = report["machines"]
    assert (bool(machine["removed"]), machine["address"], report["cost"]["hourly"]) == (True, None, 0)
    made.says("EUR for 1 server that was removed", f"{machine['name']}: removed, id {machine['id']}")

    account.run(SNAPSHOT, **options).ok().says("changed=0")
    assert account.snapshots("raw-0") == [image]


@pytest.mark.long
def test_a_run_cut_off_at_every_stage_leaves_nothing_and_ends_in_the_same_image(account):
    uploads = [{"name": f"raw-{number}", "image_url": account.image_url("debian.raw.zst")} for number in (1, 2)]
    options: dict[str, Any] = {"kubenode_image_uploads": uploads, "kubenode_image_keep": 1}
    others = set(account.servers())
    stages = ["create_server", "enable_rescue", None, "create_image", "delete_server"]
    for number, stage in enumerate(stages):
        if stage:
            account.fault(point="action", command=stage, effect="stuck", times=2)
        account.cut(
            (lambda stage=stage: account.acting(stage)) if stage else None,
            signal.SIGKILL if number % 2 else signal.SIGINT,
            **options,
        )
        assert account.builders(), stage
        if not number % 2:
            left = [f"{name} (id {one['id']}) is still there;" for name, one in account.builders().items()]
            assert [one for one in left if one not in account.output] == [], stage
        account.forget_faults()
    account.run(SNAPSHOT, **options).ok()
    assert set(account.servers()) == others
    made = [account.snapshots("raw-1"), account.snapshots("raw-2")]
    assert [len(found) for found in made] == [1, 1]
    assert {image["status"] for found in made for image in found} == {"available"}

    # the second run makes nothing, and creates no machine for that
    account.run(SNAPSHOT, **options).ok().says("changed=0")
    assert [account.snapshots("raw-1"), account.snapshots("raw-2")] == made
    assert account.output.count("exists") == 2


@pytest.mark.long
def test_files_of_the_controller_are_uploaded_through_ssh_qcow2_converted(account, tmp_path):
    raw = images.ensure("debian").files["raw"]
    packed, qcow2 = tmp_path / "debian.raw.gz", tmp_path / "debian.qcow2"
    with packed.open("wb") as file:
        subprocess.run(["gzip", "-1", "-c", str(raw)], stdout=file, check=True)
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", str(raw), str(qcow2)], check=True)
    needy = tmp_path / "needy.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", needy], check=True)
    uploads = [{"name": path.name, "path": str(path), "sha256": cache.sha256(path)} for path in (packed, qcow2, needy)]
    before = set(account.servers())
    account.run(SNAPSHOT, kubenode_image_uploads=uploads).fails().says("it needs other files (a backing or data file)")
    damaged = {**uploads[0], "sha256": "0" * 64}
    account.run(SNAPSHOT, kubenode_image_uploads=[damaged]).fails().says("it is damaged or not the one you meant")
    assert set(account.servers()) == before

    account.run(SNAPSHOT, kubenode_image_uploads=uploads[:2]).ok()
    for upload in uploads[:2]:
        (image,) = account.snapshots(upload["name"])
        with account.lab.lab.cloud.images[image["id"]].file.open("rb") as written, raw.open("rb") as given:
            while piece := given.read(1 << 22):
                assert written.read(len(piece)) == piece
    until(lambda: not servers_of(account.folder), "the end of the server of files, which ends with the run")


def servers_of(folder: Path) -> list[str]:
    """The command lines of the servers of files that runs from a folder have started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder) in (path / "environ").read_text(errors="replace"):
                found.append((path / "cmdline").read_text(errors="replace"))
    return [line for line in found if "run_server" in line]


@pytest.mark.mirror
@pytest.mark.cluster
def test_a_baked_image_makes_nodes_that_download_nothing(account, lab_nspawn):
    archive = mirror.find("images/pause-3.10.2.tar")
    pause = {"url": lab_nspawn.mirror_url + "/images/pause-3.10.2.tar", "sha256": cache.sha256(archive)}
    source = account.image_url("debian13.raw.zst")
    options: dict[str, Any] = {
        **{key: value for key, value in real(lab_nspawn, KUBERNETES).items() if key != "base_kubernetes_version"},
        "base_image_archives": [pause],
        "kubenode_image_user_data": CLOUD_CONFIG
        + yaml.safe_dump(dict(mirror.cloud_config(lab_nspawn.mirror_url, "trixie"))),
        "kubenode_image_matrix": {
            "kubernetes": [KUBERNETES],
            "base": [
                {"name": "debian-13", "image_url": source},
                {"name": "damaged", "image_url": source.partition("#")[0] + "#sha256=" + "0" * 64},
            ],
        },
    }
    account.cut("TASK [kubenode.provision.base : apply | Fetch", signal.SIGINT, **options)
    assert len(account.builders()) == 2

    # one of two fails: the other becomes an image, and both machines go
    account.run(SNAPSHOT, **options).fails()
    assert account.builders() == {}
    assert f"damaged-kubernetes-{KUBERNETES}: no image was made" in account.output
    assert account.snapshots(f"damaged-kubernetes-{KUBERNETES}") == []
    (image,) = account.snapshots(f"debian-13-kubernetes-{KUBERNETES}")
    assert image["labels"]["kubenode.provision/kubernetes"] == KUBERNETES
    assert image["labels"]["kubenode.provision/base-image"] == "debian-13"

    # a node of it joins with nothing but the API server in reach
    node = f"baked-{os.getpid()}"
    name = {"kubenode_image_name": f"debian-13-kubernetes-{KUBERNETES}", "kubenode_server_type": "cx23"}
    name["kubenode_user_data"] = CLOUD_CONFIG + yaml.safe_dump({"bootcmd": [["sh", "-c", SHARED_KERNEL]]})
    play = "kubenode.provision.hcloud_image_name"
    account.run(play, hosts=(node,), **name).ok()
    assert account.commands(node) == ["create_server", "start_server"]
    lab_nspawn.isolate(node, [lab_nspawn.controller])
    cluster = lab_nspawn.cluster()
    join = {
        "join_api_server": cluster.endpoint,
        "join_ca_file": str(cluster.ca_file),
        "join_token": cluster.token(),
        "join_kubelet_config": SHARED_GROUPS,
    }
    account.run(play, "kubenode.provision.node_join", hosts=(node,), **name, **join).ok()
    assert node in cluster.nodes()

    # the very key that built the image is not in it, and the image is none that a run of ours installed
    account.reach(node, account.servers()[node]["public_net"]["ipv4"]["ip"])
    script = "hostname; ls /etc/kubenode; ls /etc/cloud/cloud.cfg.d /var/lib/cloud/seed 2>/dev/null || true"
    output = account.ssh(node, script, pinned(account.folder / f"kubenode/known_hosts/{node}.os"))
    assert output.splitlines()[0] == node
    assert "installed.json" not in output
    assert "zz-kubenode" not in output


def test_bad_input_is_reported_at_once_and_creates_nothing(account):
    before = set(account.servers())
    matrix = {"kubernetes": ["1.36"], "architecture": ["mips"], "base": ["debian-13"], "name": "n" * 64}
    account.run(SNAPSHOT, kubenode_image_matrix=matrix).fails().says(
        "'1.36': give a full version",
        "'mips': use x86 or arm",
        "(64 characters) does not fit into a label",
    )
    unknown = {"kubernetes": ["1.36.4", "1.99.0"], "base": ["debian-13"]}
    account.run(SNAPSHOT, "--check", kubenode_image_matrix=unknown).fails().says(
        "kubenode_image_matrix.kubernetes is '1.99.0'; no sha256 of kubelet 1.99.0 is pinned"
    )
    missing = {"kubernetes": ["1.36.4"], "base": ["no-such-image"]}
    account.run(SNAPSHOT, kubenode_image_matrix=missing).fails().says(
        "'no-such-image' is neither the name nor the id of an image"
    )
    wrong = {"kubernetes": ["1.36.4"], "base": ["debian-13"], "architecture": ["arm"]}
    account.run(SNAPSHOT, kubenode_image_matrix=wrong, kubenode_image_server_types={"arm": "cx23"}).fails()
    assert "architecture: arm is wanted, but server type 'cx23' is x86" in json.dumps(account.output)
    assert set(account.servers()) == before
