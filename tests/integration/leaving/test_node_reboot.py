# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_reboot on machines that boot; the API server is a double."""

import pytest

from tests.integration.controller import Controller

from .kubernetes_double import ApiDouble, node, pod

pytestmark = pytest.mark.nspawn

NAMES = ("reboot-1", "reboot-2")
RECORD = f'{{"machine": "reboot-2", "installation": "{"5f" * 16}", "verified_at": "2026-11-23T00:00:00Z"}}'


class Scene(Controller):
    """Two nodes, and runs of the playbook on them."""

    def __init__(self, lab, folder):
        super().__init__(lab, folder)
        self.nodes = {name: lab.node(name) for name in NAMES}
        self.nodes["reboot-2"].run(f"mkdir -p /etc/kubenode && echo '{RECORD}' > /etc/kubenode/installed.json")
        self.add_nodes(*self.nodes.values())
        self.kept = folder / "kubenode"
        self.api = ApiDouble(folder)
        for name, machine in self.nodes.items():
            self.api.add(node(name, machine.run("cat /etc/machine-id"), boot_id=machine.boot_id()))
        self.api.meanwhile = self.report

    def report(self, method, path):
        """What kubelets do: report their boot to the API server."""
        name = path.split("/")[-1]
        if method == "GET" and name in self.nodes:
            self.api.nodes[name]["status"]["nodeInfo"]["bootID"] = self.nodes[name].boot_id()

    def boots(self):
        return {name: machine.boot_id() for name, machine in self.nodes.items()}

    def start(self, *flags, **variables):
        given = {"kubenode_kubeconfig": str(self.api.kubeconfig), "kubenode_dir": str(self.kept), **variables}
        return self.start_play("kubenode.provision.node_reboot", *flags, **given)

    def run(self, *flags, **variables):
        return self.start(*flags, **variables).wait()

    def notes(self):
        return sorted(path.name for path in self.kept.glob("reboots/*"))


@pytest.fixture(scope="module")
def scene(lab_nspawn, tmp_path_factory):
    scene = Scene(lab_nspawn, tmp_path_factory.mktemp("reboot"))
    yield scene
    scene.stop()
    scene.api.close()


@pytest.mark.long
def test_one_after_the_other_and_on_from_where_it_stopped(scene):
    api, first = scene.api, scene.boots()
    api.add(pod("web", "reboot-2"), pod("front", "reboot-1"))
    api.budgets["web"] = 0
    scene.hosts["absent-1"] = {"ansible_host": "198.51.100.7", "ansible_timeout": 2}
    scene.run("--check").ok().says("a run without --check would stop here")
    del scene.hosts["absent-1"]
    assert (scene.boots(), api.writes, scene.notes()) == (first, [], [])

    scene.run(kubenode_evict_timeout=8).fails().says("a PodDisruptionBudget does not allow it")
    then = scene.boots()
    assert (then["reboot-1"] != first["reboot-1"], then["reboot-2"]) == (True, first["reboot-2"])
    assert set(api.pods) == {"web"}
    assert {name: one["spec"].get("unschedulable", False) for name, one in api.nodes.items()} == {
        "reboot-1": False,
        "reboot-2": True,
    }
    assert scene.notes() == ["reboot-1.json"]

    api.budgets["web"] = 1
    scene.run().ok().says("an unfinished run had rebooted it")
    now = scene.boots()
    assert (now["reboot-1"], now["reboot-2"] != first["reboot-2"]) == (then["reboot-1"], True)
    assert not any(one["spec"].get("unschedulable") for one in api.nodes.values())
    assert (api.pods, scene.notes()) == ({}, [])


@pytest.mark.long
def test_a_cordon_of_a_person_stays_and_a_foreign_node_stops_the_run(scene):
    before = scene.boots()
    machine_id = scene.api.nodes["reboot-1"]["status"]["nodeInfo"]["machineID"]
    scene.api.nodes["reboot-1"]["status"]["nodeInfo"]["machineID"] = "another"
    scene.run().fails().says("was registered by another machine")
    assert scene.boots() == before

    scene.api.nodes["reboot-1"]["status"]["nodeInfo"]["machineID"] = machine_id
    scene.api.cordon("reboot-1", "kubectl")
    scene.run(hosts=["reboot-1"]).ok().says("it stays cordoned, as it was before")
    assert scene.boots()["reboot-1"] != before["reboot-1"]
    assert scene.api.nodes["reboot-1"]["spec"]["unschedulable"] is True


@pytest.mark.long
def test_an_interrupted_run_names_the_node_that_stays_cordoned(scene, tmp_path):
    scene.api.nodes["reboot-2"]["spec"].pop("unschedulable", None)
    report = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.provision.provision_report"}
    report["KUBENODE_REPORT_FILE"] = str(tmp_path / "report.json")
    running = scene.start(hosts=["reboot-2"], env=report)
    running.until_task("Reboot, unless that has happened")
    said = "The run was interrupted. Run the same command again: it goes on where this one was."
    running.interrupt().says(said, "The Node reboot-2 stays cordoned until then. To give that up: kubectl uncordon ")
    assert scene.api.nodes["reboot-2"]["spec"]["unschedulable"] is True
    scene.run(hosts=["reboot-2"]).ok().says("Node Ready, uncordoned")
    assert not scene.api.nodes["reboot-2"]["spec"].get("unschedulable")


@pytest.mark.long
def test_a_node_that_is_not_ready_again_stops_the_run(scene):
    before = scene.boots()
    scene.api.meanwhile = lambda _method, _path: None
    scene.run(kubenode_ready_timeout=2).fails().says("has not reported this boot yet")
    assert scene.boots()["reboot-2"] == before["reboot-2"]
    assert scene.notes() == ["reboot-1.json"]
    scene.api.meanwhile = scene.report
    assert scene.run(hosts=["reboot-1"]).rc == 0


#: What a boot of an encrypted machine looks like from outside: on port 22 a server with a key of its own that runs one
#: program for every user who may, and no system before that program was given the passphrase.
LOCKED = """set -e
echo 'Port 2222' >/etc/ssh/sshd_config.d/port.conf
ssh-keygen -q -t ed25519 -N '' -f /etc/initramfs_key
cat >/usr/local/bin/cryptroot-unlock <<'END'
#!/bin/sh
[ "$(cat)" = correct-horse ] || { echo 'cryptsetup: cryptsetup failed, bad password or options?'; exit 1; }
echo 'cryptsetup: luks-1 set up successfully'
systemctl --no-block start ssh.service
END
chmod 755 /usr/local/bin/cryptroot-unlock
printf '%s\\n' 'Port 22' 'HostKey /etc/initramfs_key' \\
    'ForceCommand /usr/local/bin/cryptroot-unlock' >/etc/initramfs_sshd
cat >/etc/systemd/system/initramfs.service <<'END'
[Unit]
Conflicts=ssh.service
[Service]
ExecStartPre=/bin/mkdir -p /run/sshd
ExecStart=/usr/sbin/sshd -D -f /etc/initramfs_sshd
[Install]
WantedBy=multi-user.target
END
systemctl --quiet enable initramfs.service
systemctl --quiet disable ssh.service
systemctl restart ssh.service
cat /etc/initramfs_key.pub
"""


@pytest.mark.long
def test_an_encrypted_machine_is_unlocked_after_its_reboot(lab_nspawn, scene):
    machine = lab_nspawn.node("locked-1")
    key = " ".join(machine.run(LOCKED).split()[:2])
    scene.add_nodes(machine, ansible_port=2222)
    pins = scene.kept / "known_hosts" / "locked-1.initramfs"

    def boot_id() -> str:
        found = scene.module("locked-1", "node_info", files=[]).ok()
        return str(found["node"]["boot_id"])

    def run(password: str):
        given = {"kubenode_remote_unlock": True, "kubenode_crypt_password": password, "kubenode_dir": str(scene.kept)}
        done = scene.play("kubenode.provision.node_reboot", "-vvv", hosts=["locked-1"], **given)
        assert "correct-horse" not in done.output
        return done

    first = boot_id()
    run("correct-horse").fails().says(f"there is no {pins}")
    assert "kubenode_crypt_password is not set" in run("").output
    assert boot_id() == first

    pins.parent.mkdir(exist_ok=True)
    pins.write_text(f"locked-1.initramfs {key}\n")
    run("wrong-horse").fails().says("the initramfs does not take the passphrase")
    assert "locked-1.json" in scene.notes()
    # it waits, and the next run goes on there
    run("correct-horse").ok().says("an unfinished run had rebooted it")
    second = boot_id()
    assert second != first
    run("correct-horse").ok()
    assert boot_id() != second
