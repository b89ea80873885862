# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real kubelet and kubeadm: every way to join, words of failures, pods, leaving.

A container machine with the release becomes an image by base, and machines of that image have nothing but the API
server in reach. In virtual machines pods run, too; container machines show the rest in a fifth of the time.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import software
from dev.demos.node import NETWORK, PAUSE
from dev.toolchain.paths import CHECKOUT
from dev.toolchain.release import collection_files, provision_program
from lab import cache, cluster, mirror
from lab.cluster.running_cluster import RunningCluster
from lab.mirror.upstream import tarball
from lab.nodes import SHARED_GROUPS, SHARED_KERNEL, Node
from lab.running import RunningLab
from tests.integration.commands.image_site import Web
from tests.integration.controller import Controller
from tests.integration.mirrored import real
from tests.integration.node_join.conftest import Joined, Joiner
from tests.waiting import until

pytestmark = [
    pytest.mark.root, pytest.mark.nspawn, pytest.mark.mirror, pytest.mark.cluster(cluster.OLDEST),
    pytest.mark.timeout(3600),
]  # fmt: skip

RELEASES = {"newest": cluster.KUBERNETES, "oldest": cluster.OLDEST}
#: the sandbox image that base takes for them
SANDBOX = {cluster.KUBERNETES: PAUSE, cluster.OLDEST: "3.10.1"}
#: schemas 4 and 3 of its configuration
CONTAINERD = {cluster.KUBERNETES: cluster.CONTAINERD, cluster.OLDEST: "2.1.9"}
EACH = [
    pytest.param(("container", "newest"), id="newest-container"),
    pytest.param(("container", "oldest"), id="oldest-container"),
    pytest.param(("virtual", "newest"), id="newest-virtual", marks=pytest.mark.qemu),
]
#: kubeadm refuses a container whose host has the controllers of control groups in the hierarchies of version 1
CONTAINER = f"""\
{SHARED_KERNEL}
cd /usr/local/bin && mv kubeadm kubeadm.real && cat >kubeadm <<'END'
#!/bin/sh
[ "$1" != join ] || set -- "$@" --ignore-preflight-errors=SystemVerification
exec /usr/local/bin/kubeadm.real "$@"
END
chmod 755 kubeadm
"""
IMAGE = f"registry.k8s.io/pause:{PAUSE}"
#: the version that the user's cri-dockerd counts as
OWN = "0.0.0"
#: seconds for what an emulated processor may need minutes for
PATIENCE = 900
#: what makes Debian start for the first time as CoreOS does: Ignition of the cloud's user data before the system runs
_HOOK = """\
#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
for program in /root/ignition /usr/sbin/useradd /usr/sbin/usermod /usr/sbin/groupadd; do
    copy_exec $program /usr/bin/${program##*/}
done
"""
_AT_BOOT = """\
#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /scripts/functions
[ -e "$rootmnt/boot/ignition.firstboot" ] || exit 0
IP=:::::eth0:dhcp
configure_networking
mkdir -p /run/ignition
for stage in fetch-offline fetch kargs disks mount files; do
    ignition --platform=hetzner --stage=$stage --root="$rootmnt" --log-to-stdout || panic "Ignition failed: $stage"
done
mv "$rootmnt/boot/ignition.firstboot" "$rootmnt/boot/ignition.done"
"""
LIKE_COREOS = f"""\
set -e
cd /etc/initramfs-tools
cat >hooks/ignition <<'END'
{_HOOK}END
cat >scripts/local-bottom/ignition <<'END'
{_AT_BOOT}END
chmod 755 hooks/ignition scripts/local-bottom/ignition
for modules in /lib/modules/*; do mkinitramfs -o "/boot/initrd.img-${{modules##*/}}" "${{modules##*/}}"; done
mkdir -p /etc/systemd/system-preset
echo 'disable *' >/etc/systemd/system-preset/99-default-disable.preset
systemctl mask --quiet systemd-firstboot.service
touch /boot/ignition.firstboot /etc/cloud/cloud-init.disabled
ssh-keygen -A
echo uninitialized >/etc/machine-id
rm /root/ignition /root/.ssh/authorized_keys
"""
USER_DATA = [{"hosts": "all", "gather_facts": False, "roles": ["kubenode.provision.node_user_data"]}]


class Images:
    """Disks with a release on them, each made once."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        self._made: dict[str, Path] = {}

    def of(self, version: str) -> Path:
        """The disk with this release."""
        if version not in self._made:
            self._made[version] = self._bake(version)
        return self._made[version]

    def _bake(self, version: str) -> Path:
        lab, name = self._lab, "bake-" + version.replace(".", "-")
        archive = f"images/pause-{SANDBOX[version]}.tar"
        pause = mirror.find(archive)
        assert pause is not None
        controller = Controller(lab, self._folder / name)
        controller.folder.mkdir()
        controller.add_nodes(lab.node(name))
        controller.play(
            "kubenode.provision.node_base",
            base_prebake=True,
            base_kubeadm=True,
            base_image_archives=[{"url": f"{lab.mirror_url}/{archive}", "sha256": cache.sha256(pause)}],
            **{**real(lab, version), "base_containerd_version": CONTAINERD[version]},
        ).ok()
        lab.power_off(name)
        image = lab.disk_image(name)
        lab.remove(name)
        return image


class Real(Joiner):
    """A machine with a real kubelet; ``pods``: whether it can run pods."""

    def __init__(self, lab: RunningLab, node: Node, folder: Path, version: str, *, pods: bool) -> None:
        super().__init__(lab, node, lab.cluster(), folder)
        self.version, self.pods = version, pods
        self.fields = {} if pods else SHARED_GROUPS
        self.create = {"kubeconfig": str(self.cluster.kubeconfig)}

    def join(self, **variables: Any) -> Joined:
        """Run the role with what every node needs here."""
        given = {"cni_config": NETWORK, "ready": True, "timeout": PATIENCE, "token_create": self.create, **variables}
        return self.run(**given)

    def leave(self) -> None:
        """Let the role take it out of the cluster."""
        self.join(state="absent", ca_cert=None).ok()

    @property
    def object(self) -> dict[str, Any]:
        """Its Node; empty when there is none."""
        return self.cluster.nodes().get(self.node.name, {})

    def nothing_left(self) -> None:
        """No Node, and no file of a join."""
        assert self.object == {}
        assert self.files() == set()

    def prove(self) -> None:
        """It is Ready with this release's kubelet, and runs a pod if it can."""
        node = self.object
        assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v{self.version}"
        assert {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"] == "True"
        if self.pods:
            prove_pod(self.cluster, self.node.name)


def prove_pod(plane: RunningCluster, node: str) -> None:
    """A pod runs on the node, says its word in a log that the API server fetches from there, and goes."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"on-{node}"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": ["say", f"hello from {node}"]}
            ],
        },
    }
    plane.kubectl("create", "-f", "-", text=json.dumps(pod))
    where = ["pod", f"on-{node}"]

    def runs() -> bool:
        return plane.kubectl("get", *where, "-o", "jsonpath={.status.phase}") == "Running"

    until(runs, f"a pod on {node}", PATIENCE, pause=1, show=lambda: plane.kubectl("describe", *where))
    assert f"hello from {node}" in plane.kubectl("logs", f"on-{node}")
    plane.kubectl("delete", *where, "--timeout", f"{PATIENCE}s")


@pytest.fixture(scope="module")
def images(lab_nspawn: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Disks of every release."""
    return Images(lab_nspawn, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module", params=EACH)
def machine(request: pytest.FixtureRequest, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A machine of each kind with each release, which can reach the API server and nothing else."""
    kind, release = request.param
    lab: RunningLab = request.getfixturevalue("lab_nspawn" if kind == "container" else "lab_qemu")
    version, name = RELEASES[release], f"real-{release}"
    node = lab.node(name, images.of(version), cloud_init=False)
    if kind == "container":
        node.run(CONTAINER)
    lab.isolate(name, [lab.controller])
    yield Real(lab, node, tmp_path_factory.mktemp(name), version, pods=kind == "virtual")
    lab.remove(name)


def test_the_role_lets_kubeadm_join(machine: Real) -> None:
    machine.join(method="kubeadm", labels={"example.com/rack": "r1"}, taints=["lab=yes:NoSchedule"]).ok()
    assert machine.object["metadata"]["labels"]["example.com/rack"] == "r1"
    assert {"key": "lab", "value": "yes", "effect": "NoSchedule"} in machine.object["spec"]["taints"]
    assert not {"/run/kubenode/kubeadm-join.yaml", "/etc/kubernetes/bootstrap-kubelet.conf"} & machine.files()
    machine.prove()
    pid = machine.pid()
    done = machine.join(method="kubeadm", labels={"example.com/rack": "r1"}, taints=["lab=yes:NoSchedule"]).ok()
    done.says("changed=0")
    assert machine.pid() == pid


def test_it_leaves_what_kubeadm_joined(machine: Real) -> None:
    machine.leave()
    assert machine.kubelet() == "inactive"
    machine.nothing_left()


def test_words_of_kubeadm_are_the_message(machine: Real) -> None:
    listens = "systemd-run --quiet --unit=taken python3 -m http.server 10250"
    machine.node.run(listens)
    done = machine.join(method="kubeadm")
    machine.node.run("systemctl stop taken")
    done.fails_as("kubeadm_failed", "its checks: Port-10250: Port 10250 is in use")
    machine.nothing_left()


def test_a_kubelet_that_kubeadm_started_in_vain(machine: Real) -> None:
    done = machine.join(
        method="kubeadm", unknown_fields="allow", kubelet_extra_args={"network-plugin": "cni"}, timeout=60
    )
    done.fails_as("kubelet_exited", "unknown flag: --network-plugin")
    machine.nothing_left()


def test_a_token_that_may_not_sign(machine: Real) -> None:
    token = machine.cluster.token(signing=False)
    done = machine.join(method="kubeadm", token=token, token_create=None).fails_as("discovery_signature")
    assert token.partition(".")[2] not in done.output
    assert machine.files() == set()


def test_the_program_lets_kubeadm_join(machine: Real, tmp_path: Path) -> None:
    program = tmp_path / "provision"
    program.write_bytes(provision_program(collection_files(CHECKOUT), "1.2.3", preset=0))
    given = {
        "join_method": "kubeadm",
        "join_cni_config": NETWORK,
        "join_ready": True,
        "join_timeout": PATIENCE,
        "join_kubelet_config": machine.fields,
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "token").write_text(machine.cluster.token())
    files = [program, tmp_path / "given.json", tmp_path / "token", machine.cluster.ca_file]
    subprocess.run(["scp", "-q", *machine.node.ssh_options, *files, f"root@{machine.node.address}:/root/"], check=True)
    command = f"sh provision --phase join --vars given.json --ca-cert ca.crt --api-server {machine.cluster.endpoint}"
    done = machine.node.ssh(f"chmod 0600 token && {command} --token-file token", PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    machine.prove()
    again = machine.node.run(command, PATIENCE)
    assert not re.search("^changed", again, re.MULTILINE), again
    machine.leave()


def test_the_kubelet_bootstraps_and_registers_again(machine: Real) -> None:
    machine.join(provider_id="hcloud://4242", node_ip="auto4", kubelet_config={"maxPods": 50}).ok()
    assert machine.object["spec"]["providerID"] == "hcloud://4242"
    assert machine.object["status"]["capacity"]["pods"] == "50"
    machine.prove()
    (machine.join(provider_id="hcloud://4242", node_ip="auto4", kubelet_config={"maxPods": 50}).ok().says("changed=0"))
    machine.join(provider_id="hcloud://4242", node_ip="auto4", kubelet_config={"maxPods": 60}).ok()
    until(lambda: machine.object["status"]["capacity"]["pods"] == "60", "the kubelet's new configuration", PATIENCE)
    machine.cluster.kubectl("delete", "node", machine.node.name)
    done = machine.join(provider_id="hcloud://4242", node_ip="auto4", kubelet_config={"maxPods": 60}).ok()
    assert done.report["seen"]["need_registration"] is True
    machine.prove()
    machine.leave()
    assert machine.files() == set()


def test_a_kubelet_that_exits(machine: Real) -> None:
    done = machine.join(unknown_fields="allow", kubelet_config={"maxPods": -1})
    done.fails_as("kubelet_exited", "maxPods (--max-pods) -1 must not be a negative number")
    machine.nothing_left()


@contextlib.contextmanager
def user_data(folder: Path, name: str, lab: RunningLab, **variables: Any) -> Iterator[str]:
    """What the role node_user_data makes for a machine that has all of base and joins by kubeadm."""
    plane, web = lab.cluster(), Web(socket.create_server((lab.controller, 0)))
    program = provision_program(collection_files(CHECKOUT), "1.2.3", preset=0)
    web.site.files["/provision"] = program
    result = folder / "user-data"
    controller = Controller(None, folder)
    controller.hosts[name] = {
        "ansible_connection": "local",
        "node_user_data_dest": str(result),
        "node_user_data_provision_source": f"{web.site.url}/provision#sha256={hashlib.sha256(program).hexdigest()}",
        "node_user_data_phase": "join",
        "node_user_data_attempts": 2,
        "join_method": "kubeadm",
        "join_api_server": plane.endpoint,
        "join_ca_file": str(plane.ca_file),
        "join_token": plane.token(),
        "join_cni_config": json.dumps(NETWORK),
        "join_ready": True,
        "join_timeout": PATIENCE,
        **variables,
    }
    controller.play(USER_DATA).ok()
    try:
        yield result.read_text()
    finally:
        web.close()


def prove_first_boot(plane: RunningCluster, node: Node, version: str, said: str) -> None:
    """It has done what its user data says, and nothing secret is left."""
    assert "kubenode-setup: done" in said, said
    assert re.search(r"provision: join: done \(\d+ s\)$", said, re.MULTILINE), said
    assert plane.nodes()[node.name]["status"]["nodeInfo"]["kubeletVersion"] == f"v{version}"
    assert node.ssh("ls /etc/kubernetes/bootstrap-kubelet.conf /run/kubenode/kubeadm-join.yaml").stdout == ""


@pytest.mark.parametrize("where", EACH)
def test_cloud_init_lets_kubeadm_join(
    where: tuple[str, str], images: Images, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kind, release = where
    lab: RunningLab = request.getfixturevalue("lab_nspawn" if kind == "container" else "lab_qemu")
    name = f"first-boot-{release}"
    fields = SHARED_GROUPS if kind == "container" else {}
    with user_data(tmp_path, name, lab, join_kubelet_config=fields) as given:
        config = yaml.safe_load(given)
        if kind == "container":
            config["bootcmd"] = [["sh", "-c", CONTAINER]]
        text = "#cloud-config\n" + yaml.safe_dump({"growpart": {"mode": "off"}, **config})
        node = lab.node(name, images.of(RELEASES[release]), user_data=text, wait=False)
        node.wait(2 * PATIENCE)
    prove_first_boot(lab.cluster(), node, RELEASES[release], node.run("cat /var/log/cloud-init-output.log"))
    if kind == "virtual":
        prove_pod(lab.cluster(), name)
    lab.remove(name)


@pytest.mark.qemu
def test_ignition_lets_kubeadm_join(
    images: Images, lab_nspawn: RunningLab, lab_qemu: RunningLab, real_ignition: Path, tmp_path: Path
) -> None:
    version, name, prepared = RELEASES["newest"], "first-boot-ignition", "like-coreos"
    node = lab_nspawn.node(prepared, images.of(version), cloud_init=False)
    command = ["scp", "-q", *node.ssh_options, real_ignition, f"root@{node.address}:/root/ignition"]
    subprocess.run(command, check=True)
    node.run(LIKE_COREOS)
    lab_nspawn.power_off(prepared)
    image = lab_nspawn.disk_image(prepared)
    lab_nspawn.remove(prepared)
    own = {
        "node_user_data_format": "ignition",
        "node_user_data_ssh_user": "root",
        "node_user_data_ssh_authorized_keys": [lab_qemu.node_key.with_suffix(".pub").read_text().strip()],
    }
    with user_data(tmp_path, name, lab_qemu, **own) as text:
        node = lab_qemu.node(name, image, user_data=text, wait=False)
        node.wait(PATIENCE)
        until(
            lambda: node.run("systemctl is-active kubenode-setup || true") not in ("activating", "inactive"),
            "the end of the first boot",
            2 * PATIENCE,
            pause=1,
        )
    prove_first_boot(lab_qemu.cluster(), node, version, node.run("journalctl --no-pager -o cat -u kubenode-setup"))
    assert node.run("hostname") == name
    assert node.run("cat /root/.ssh/authorized_keys") == own["node_user_data_ssh_authorized_keys"][0]
    prove_pod(lab_qemu.cluster(), name)
    lab_qemu.remove(name)


@pytest.mark.skipif(not os.environ.get("CRI_DOCKERD"), reason="CRI_DOCKERD names no cri-dockerd, which no registry has")
def test_docker_and_cri_dockerd_join(lab_nspawn: RunningLab, tmp_path: Path) -> None:
    lab, version, name = lab_nspawn, RELEASES["newest"], "with-docker"
    github = Web(socket.create_server((lab.controller, 0)))
    archive = tarball({"cri-dockerd/cri-dockerd": Path(os.environ["CRI_DOCKERD"]).read_bytes()})
    given = real(lab, version)
    for one in ("crictl", "cni-plugins"):
        path = _path(one, given[f"base_{one.replace('-', '_')}_version"])
        github.site.files[path] = mirror.find("github.com" + path).read_bytes()
    github.site.files[_path("cri-dockerd", OWN)] = archive
    given["base_checksums"]["cri-dockerd"] = {OWN: {"amd64": hashlib.sha256(archive).hexdigest()}}
    pause = f"images/pause-{PAUSE}.tar"

    machine = Real(lab, lab.node(name, "debian13"), tmp_path, version, pods=False)
    machine.node.run(SHARED_KERNEL)
    machine.add_nodes(machine.node)
    done = machine.play(
        "kubenode.provision.node_base",
        base_container_runtime="docker",
        base_cri_dockerd_version=OWN,
        base_mirrors={"github.com": github.site.url},
        base_image_archives=[{"url": f"{lab.mirror_url}/{pause}", "sha256": cache.sha256(mirror.find(pause))}],
        **given,
    )
    github.close()
    assert not done.failed, done.output
    machine.join().ok()
    assert machine.object["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("docker://")
    machine.prove()
    again = machine.join()
    assert "changed=0" in again.output, again.output
    machine.leave()
    assert machine.files() == set()
    lab.remove(name)


def _path(component: str, version: str) -> str:
    """Where on its host a program is published."""
    return urlsplit(software.URLS[component].format(version=version, arch="amd64")).path
