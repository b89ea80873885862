# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role base on machines that really boot: it does what check mode predicted, and the second run does nothing."""

import json
from dataclasses import dataclass

import pytest

from lab.nodes import Node
from tests.integration.controller import Controller
from tests.integration.mirrored import mirrored
from tests.integration.runs import Run
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.nspawn, pytest.mark.mirror]

BASE = "kubenode.provision.node_base"
PROGRAMS = [
    "/opt/cni/bin/bridge",
    "/usr/local/bin/containerd",
    "/usr/local/bin/crictl",
    "/usr/local/bin/kubelet",
    "/usr/local/bin/runc",
]
#: What the system and its services write now and then, without being asked.
RESTLESS = [
    "/root/.ansible",
    "/var/backups",
    "/var/cache/man",
    "/var/lib/containerd",
    "/var/lib/dhcpcd",
    "/var/lib/logrotate",
    "/var/lib/systemd",
    "/var/log",
    # folders of services with a /tmp of their own
    "/var/tmp",
]


def touched(node: Node) -> list[str]:
    """What changed on the disk since ``mark()``."""
    prunes = " -o ".join(f"-path {path}" for path in RESTLESS)
    return node.run(
        f"find /etc /usr /opt /var /root /home /srv \\( {prunes} \\) -prune -o -cnewer /run/mark -print"
    ).split()


def mark(node: Node) -> None:
    """From now on, changes count."""
    # the clock of file times is coarse
    node.run("touch /run/mark && sleep 0.1")


def enabled(node: Node) -> str:
    """Which units are enabled or masked, and which run."""
    return node.run(
        "systemctl list-unit-files --no-legend --state=enabled,masked,disabled;"
        " systemctl is-active containerd kubelet kubenode-runtime-probe.timer || true"
    )


@dataclass
class Runs:
    """A fresh machine on which base ran three times."""

    node: Node
    check: Run
    touched_by_check: list[str]
    units_before: str
    units_after_check: str
    first: Run
    second: Run
    touched_by_second: list[str]


@pytest.fixture(scope="module")
def runs(controller: Controller, lab_nspawn) -> Runs:
    node = lab_nspawn.node("base-1")
    controller.add_nodes(node)
    variables = mirrored(lab_nspawn)
    units = enabled(node)
    mark(node)
    check = controller.play(BASE, "--check", "--diff", hosts=["base-1"], **variables).ok()
    seen, after = touched(node), enabled(node)
    first = controller.play(BASE, hosts=["base-1"], **variables).ok()
    mark(node)
    second = controller.play(BASE, "--diff", hosts=["base-1"], **variables).ok()
    return Runs(node, check, seen, units, after, first, second, touched(node))


def test_check_mode_on_a_fresh_machine_changes_nothing(runs: Runs):
    assert runs.touched_by_check == []
    assert runs.units_after_check == runs.units_before


def test_check_mode_foretells_what_the_run_then_does(runs: Runs):
    reported, done = runs.check.settings("base-1"), runs.first.settings("base-1")
    # folders that the downloads had made by then
    assert reported - done <= {"cni/bin", "facts/dir"}
    assert done <= reported
    assert {one.partition("/")[0] for one in reported} == {one.partition("/")[0] for one in done}
    assert "kubelet/kubelet-unit" in done
    (predicted,) = [entry["result"]["msg"] for entry in runs.check.of("base-1") if "would be installed" in str(entry)]
    for package in ("conntrack", "socat"):
        assert package in predicted
        assert runs.node.run(f"dpkg-query -W -f '${{Status}}' {package}") == "install ok installed"
    fetched = [
        sorted(
            one["name"] for entry in play.of("base-1") for one in entry["result"].get("artifacts", []) if one["changed"]
        )
        for play in (runs.check, runs.first)
    ]
    assert fetched[0] == fetched[1] == ["cni-plugins", "containerd", "crictl", "kubelet", "runc"]


def test_the_first_run_leaves_a_machine_that_waits_to_join(runs: Runs):
    run = runs.node.run
    assert run("ls " + " ".join(PROGRAMS)).split() == PROGRAMS
    assert run("systemctl is-enabled kubelet containerd kubenode-runtime-probe.timer").split() == ["enabled"] * 3
    assert run("systemctl is-active containerd kubenode-runtime-probe.timer").split() == ["active"] * 2
    # neither running nor failed: its condition is not met yet
    shown = run("systemctl show -p ActiveState -p Result -p ConditionResult kubelet").split()
    assert sorted(shown) == ["ActiveState=inactive", "ConditionResult=no", "Result=success"]
    conditions = {one["type"]: one["status"] for one in json.loads(run("crictl info"))["status"]["conditions"]}
    assert conditions["RuntimeReady"] is True
    assert json.loads(run("cat /etc/kubenode/base.json"))["kubernetes"] == {"minor": "1.36", "version": "1.36.4"}
    assert run("containerd config dump | grep -c 'SystemdCgroup = true'") == "1"
    assert run("systemd-analyze cat-config systemd/logind.conf | grep ^InhibitDelayMaxSec | tail -1").endswith("=60s")
    assert run("systemctl list-units --failed --no-legend") == ""


def test_the_second_run_changes_nothing_and_is_short(runs: Runs):
    assert runs.second.changed("base-1") == []
    assert runs.touched_by_second == []
    assert [name.rpartition("| ")[2] for name in runs.second.remote("base-1")] == [
        "Read the facts",
        "Apply the plan",
    ]
    assert len(runs.first.remote("base-1")) <= 15


@pytest.mark.long
def test_one_dead_machine_among_three_delays_no_other(runs: Runs, controller: Controller, lab_nspawn):
    other = lab_nspawn.node("base-2", "debian")
    controller.add_nodes(other, **mirrored(lab_nspawn, "bookworm"))
    # its package manager was cut off at some time
    other.run("mkdir -p /var/lib/dpkg/updates && touch /var/lib/dpkg/updates/0001")
    controller.hosts["base-dead"] = {
        **other.inventory,
        "ansible_host": lab_nspawn.controller.rpartition(".")[0] + ".250",
    }
    wanted = {name: value for name, value in mirrored(lab_nspawn).items() if name not in controller.hosts["base-2"]}
    controller.hosts["base-1"].update(mirrored(lab_nspawn))
    play = controller.play(BASE, hosts=["base-dead", "base-1", "base-2"], **wanted)
    assert play.rc == 4, play.output
    assert [entry["host"] for entry in play.results if entry["kind"] == "unreachable"] == ["base-dead"]
    assert play.changed("base-1") == []
    # Debian 12 with its containerd, from the same variables
    assert other.run("systemctl is-active containerd") == "active"
    assert other.run("crictl version | grep RuntimeVersion").endswith("1.6.20~ds1")
    assert "Let dpkg finish what was cut off" in str(play.changed("base-2"))
    assert other.run("dpkg-query -W -f '${Status}' socat") == "install ok installed"


@pytest.mark.long
def test_tags_choose_steps_and_switches_leave_steps_out(runs: Runs, controller: Controller, lab_nspawn):
    variables = {**mirrored(lab_nspawn), "base_journald_max": "2G", "base_shutdown_grace_period": "90s"}
    play = controller.play(BASE, "--tags", "journald", hosts=["base-1"], **variables)
    assert play.settings("base-1") == {"journald/cap", "journald/restart"}
    variables["base_manage_shutdown"] = False
    play = controller.play(BASE, hosts=["base-1"], **variables)
    assert play.settings("base-1") == set(), play.output
    assert runs.node.run("cat /etc/systemd/journald.conf.d/90-kubenode.conf").endswith("SystemMaxUse=2G")
    assert "60s" in runs.node.run("cat /etc/systemd/logind.conf.d/zz-kubenode.conf")


def test_a_lost_program_is_brought_back_and_its_service_restarted(runs: Runs, controller: Controller, lab_nspawn):
    runs.node.run("echo damage >> /usr/local/bin/runc; rm /etc/containerd/config.toml; rm /usr/local/bin/crictl")
    before = runs.node.run("systemctl show -P MainPID containerd")
    controller.play(BASE, "--tags", "runtime", hosts=["base-1"], **mirrored(lab_nspawn)).ok()
    assert runs.node.run("systemctl show -P MainPID containerd") != before
    assert runs.node.run("crictl info | grep -c RuntimeReady") == "1"
    assert runs.node.run("runc --version | head -1").startswith("runc version 1.1.15")


@pytest.mark.long
def test_docker_is_planned_and_applied_nowhere_in_check_mode(runs: Runs, controller: Controller, lab_nspawn):
    """Docker Engine does not start in containers; what can be said here is that its plan is one."""
    variables = {**mirrored(lab_nspawn), "base_container_runtime": "docker"}
    play = controller.play(BASE, "--check", hosts=["base-1"], **variables).ok()
    assert "docker.io docker-cli" in str([entry["result"].get("msg") for entry in play.of("base-1")])
    assert {"runtime/docker-unit", "facts/base"} <= play.settings("base-1")
    assert "cri-dockerd" in play.fetched("base-1")
    assert runs.node.run("systemctl is-active containerd") == "active"


def test_every_refusal_is_reported_at_once_and_nothing_is_changed(runs: Runs, controller: Controller, lab_nspawn):
    mark(runs.node)
    wrong = {"base_version_check": "refuse", "base_kubernetes_version": "1.35.8", "base_min_disk": "900T"}
    play = controller.play(BASE, hosts=["base-1"], **{**mirrored(lab_nspawn), **wrong}).fails()
    error = play.error("base-1")
    assert "containerd 1.7.24 is too old for Kubernetes 1.35" in error
    assert "base_min_disk is 900T" in error
    assert touched(runs.node) == []


def test_without_the_rights_of_root_there_is_one_clear_error(runs: Runs, controller: Controller, lab_nspawn):
    run = runs.node.run
    run("id plain >/dev/null 2>&1 || useradd -m plain; cp -r /root/.ssh /home/plain/; chown -R plain /home/plain/.ssh")
    controller.hosts["base-plain"] = {**controller.hosts["base-1"], "ansible_user": "plain", "ansible_become": False}
    play = controller.play(BASE, hosts=["base-plain"], **mirrored(lab_nspawn))
    assert "set become: true" in play.error("base-plain")


def test_without_python_there_is_one_clear_error(runs: Runs, controller: Controller, lab_nspawn):
    bare = {**controller.hosts["base-1"], "ansible_python_interpreter": "/opt/bin/python"}
    controller.hosts["base-bare"] = bare
    play = controller.play(BASE, hosts=["base-bare"], **mirrored(lab_nspawn))
    errors = [entry["result"]["msg"] for entry in play.of("base-bare", "failed")]
    assert "no Python was found on the machine" in errors[-1]


@pytest.mark.long
def test_a_stopped_containerd_is_restarted_and_a_slow_one_left_alone(runs: Runs, controller: Controller, lab_nspawn):
    probe = {"interval": "1s", "timeout": "20s", "threshold": 2}
    controller.play(BASE, "--tags", "health", hosts=["base-1"], **mirrored(lab_nspawn), base_runtime_probe=probe).ok()

    def pid() -> str:
        return runs.node.run("systemctl show -P MainPID containerd")

    def probes() -> int:
        return int(runs.node.run("journalctl -o cat -u kubenode-runtime-probe | wc -l"))

    slow = pid()
    # it answers, but each time only after a second or two
    runs.node.run(f"for n in 1 2 3 4 5 6; do kill -STOP {slow}; sleep 2; kill -CONT {slow}; sleep 0.5; done")
    assert pid() == slow
    runs.node.run(f"kill -STOP {slow}")
    until(lambda: pid() not in (slow, "0"), "a new containerd")
    until(lambda: runs.node.ssh("crictl info").returncode == 0, "an answer")
    assert "restarting containerd" in runs.node.run("journalctl -o cat -u kubenode-runtime-probe")
    assert probes() >= 3


@pytest.mark.long
def test_a_second_play_of_the_same_run_reports_nothing_of_the_first(runs: Runs, controller: Controller, lab_nspawn):
    """Registered results outlive a play; packages that the first one installed are no change of the second."""
    runs.node.run("dpkg --purge --force-depends conntrack")
    play = {"hosts": "all", "gather_facts": False, "roles": ["kubenode.provision.base"]}
    again = controller.play([play, play], hosts=["base-1"], **mirrored(lab_nspawn)).ok()
    named = [entry["result"]["msg"] for entry in again.of("base-1") if "Name the steps" in entry["task"]]
    assert named[0].startswith("changed: packages")
    assert named[1] == "changed: nothing"
