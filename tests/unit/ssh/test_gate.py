# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates: who is let through, how long is waited, and what is said of who answered instead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import machine_boot
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import gate, system_probe
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import system_probe as probe_module
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.gate import Verdict
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh.remote import (
    OTHER_KEY,
    REFUSED,
    SILENT,
    KnownHosts,
    Unreachable,
    classify,
)
from tests.unit.common import answers, odd

OLD, NEW = "9db909e1-5bfc-4279-8ee4-7ec4a94b92f6", "11111111-5bfc-4279-8ee4-7ec4a94b92f6"


RAM, DISK = "1 1 0:2 / / rw - rootfs rootfs rw", "29 1 8:2 / / rw shared:1 - ext4 /dev/sda2 rw"


def probe(**fields: str) -> str:
    """The answer of a rescue; with a hostname, of a system on a disk."""
    known = {"boot_id": NEW, "hostname": "rescue", "kernel": "6.12", "os": "Debian", "uid": "0", "record": ""}
    known.update({"root": DISK if "hostname" in fields else RAM, "rescue_marks": "oldroot"})
    known.update({"cloud_init": "absent", "cloud_init_result": "", "cloud_init_status": "", **fields})
    return answers.of_probe(**known)


def system(**fields: str) -> probe_module.System:
    return probe_module.parse(probe(**fields))


class World:
    """A machine as a list of answers by time; waiting costs no time."""

    def __init__(self, tmp_path: Path, *answers: tuple[float, object]) -> None:
        self.now, self.answers = 0.0, answers
        self.known_hosts = KnownHosts(str(tmp_path), "node-1", "rescue", "run-1")
        self.known_hosts.prepare()

    #: A connection that stays open is tried in test_remote.py.
    is_open = False
    rescue = None

    def use(self, known_hosts: KnownHosts) -> None:
        pass

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        self.now += 0.1
        answer = [answer for since, answer in self.answers if since <= self.now][-1]
        if isinstance(answer, Exception):
            raise answer
        self.known_hosts.path.write_text("node-1.rescue ssh-ed25519 AAAA\n")
        return 0, answer

    def wait(self, judge, timeout: float = 100.0, **options: object) -> probe_module.System:
        return gate.wait_for(
            self, self.known_hosts, judge, timeout, "the rescue", clock=lambda: self.now, sleep=self.sleep, **options
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def booted(folder: Path, answer: str, bootstrap: str = "", **given: object) -> dict:
    """What machine_boot makes of a system that answers."""
    world = World(folder, (0, answer))
    world.log_in = lambda *_access: None

    class Host:
        remote, check_mode = world, False
        read_file = staticmethod(lambda path: bootstrap.encode())
        flow = staticmethod(lambda given: Flow(given, "node-1"))

    validated = ArgumentSpecValidator(options.machine_boot_spec()).validate(
        {"reboot": False, "known_hosts_dir": str(folder), **given}
    )
    assert not validated.error_messages
    return machine_boot.run(Host, validated.validated_parameters)


def rescue_gate(previous: str | None = None):
    return lambda found: gate.judge_rescue(found, previous)


@pytest.mark.parametrize(
    ("addresses", "wanted", "verdict"),
    [
        ("127.0.0.1 192.0.2.1 ", ["192.0.2.1", "2001:db8:1::/64"], Verdict.OPEN),
        ("127.0.0.1 192.0.2.2 ", ["192.0.2.1", "2001:db8:1::/64"], Verdict.NEVER),
        ("127.0.0.1 192.0.2.2 ", ["192.0.2.1", "2001:db8:2::/64"], Verdict.OPEN),
        ("127.0.0.1 192.0.2.2 ", ["2001:db8:2::"], Verdict.OPEN),
        ("127.0.0.1 192.0.2.2 ", ["2001:db8:3::"], Verdict.NEVER),
        ("", ["192.0.2.1"], Verdict.NEVER),
        ("²92.0.2.1 \x1b nonsense", ["192.0.2.1"], Verdict.NEVER),
        ("192.0.2.2", [], Verdict.OPEN),
    ],
)
def test_the_rescue_of_another_server_is_not_the_machine_s(addresses, wanted, verdict):
    found = system(addresses=addresses, addresses6="20010db8000200000000000000000001 nonsense " + "z" * 32)
    judged = gate.judge_rescue(found, None, wanted)
    assert judged.verdict is verdict
    assert judged.final is (verdict is Verdict.NEVER)


SILENCE = Unreachable(SILENT, "Connection refused")


def test_the_gate_opens_when_the_rescue_answers_and_pins_its_key(tmp_path):
    world = World(tmp_path, (0, SILENCE), (5, probe(hostname="old", boot_id=OLD)), (7, SILENCE), (30, probe()))
    found = world.wait(rescue_gate(OLD))
    assert (found.boot_id, found.is_rescue) == (NEW, True)
    assert 30 <= world.now < 33
    assert world.known_hosts.boot_id == NEW
    assert world.known_hosts.of_this_run


def test_a_silent_machine_is_waited_for_to_the_limit(tmp_path):
    world = World(tmp_path, (0, SILENCE))
    with pytest.raises(gate.GateClosed) as closed:
        world.wait(rescue_gate())
    assert str(closed.value) == (
        "the rescue did not answer within 100 s; at last: no SSH server answers (Connection refused)"
    )
    assert closed.value.system is None
    assert 100 <= world.now < 103


@pytest.fixture
def shown(monkeypatch):
    """What a user reads while a gate waits."""
    lines: list[str] = []
    monkeypatch.setattr(gate.display, "progress", lambda name, text: lines.append(f"{name}: {text}"))
    return lines


def test_a_gate_that_waits_says_so_with_what_was_seen_last(tmp_path, shown):
    changed = classify("@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.")
    world = World(tmp_path, (0, SILENCE), (40, changed), (130, probe()))
    world.wait(rescue_gate(OLD), timeout=360)
    assert [re.sub(r"\d+ of", "N of", line) for line in shown] == [
        "node-1: waiting for the rescue, N of at most 360 s: no SSH server answers (Connection refused)",
        "node-1: waiting for the rescue, N of at most 360 s: an SSH server answers with a host key that is not the "
        "pinned one: another system, or it is intercepted",
    ]


def test_a_gate_that_opens_soon_says_nothing(tmp_path, shown):
    World(tmp_path, (0, SILENCE), (8, probe())).wait(rescue_gate(OLD))
    assert shown == []


def test_the_wait_for_a_port_is_shown_too(tmp_path, shown):
    world = World(tmp_path, (0.0, SILENCE), (30.0, Unreachable(REFUSED, "Permission denied")))
    world.look = lambda any_boot: False
    gate.wait_for_port(world, world.known_hosts, OLD, 100.0, clock=lambda: world.now, sleep=world.sleep)
    (line,) = shown
    assert line.startswith("node-1: waiting for a port of the new system, 1")
    assert line.endswith(" of at most 100 s: no SSH server answers (Connection refused)")


def test_another_system_is_noticed_before_the_limit_and_leaves_no_pin(tmp_path):
    world = World(tmp_path, (0, SILENCE), (10, probe(hostname="web-1")))
    with pytest.raises(gate.GateClosed) as closed:
        world.wait(rescue_gate(OLD))
    assert "another system answers instead of the rescue (hostname 'web-1', Debian, boot 1111" in str(closed.value)
    assert closed.value.system.hostname == "web-1"
    assert 30 <= world.now < 35
    assert world.known_hosts.boot_id == ""


def test_who_answered_in_between_is_remembered(tmp_path):
    refused = classify("Failed to connect to the host via ssh: root@x: Permission denied (publickey).")
    world = World(tmp_path, (0, refused), (5, SILENCE))
    with pytest.raises(gate.GateClosed) as closed:
        world.wait(rescue_gate())
    assert "at last: no SSH server answers" in str(closed.value)
    before = "before: an SSH server answers but refuses our key (root@x: Permission denied (publickey).)"
    assert before in str(closed.value)


def test_a_system_that_refuses_our_key_is_not_waited_for_to_the_limit(tmp_path):
    """One that goes down or comes up may do so for a moment."""
    refused = classify("Failed to connect to the host via ssh: root@x: Permission denied (publickey).")
    world = World(tmp_path, (0, refused), (5, SILENCE), (30, refused))
    with pytest.raises(gate.GateClosed, match=r"refuses our key .*, for 20 s"):
        world.wait(rescue_gate(), refusal_stays=True)
    assert 50 <= world.now < 55


def test_a_passing_hostname_of_the_boot_is_no_reason_to_give_up(tmp_path):
    world = World(tmp_path, (0, probe(hostname="localhost")), (10, probe()))
    assert world.wait(rescue_gate()).is_rescue


def test_another_key_ends_the_wait_where_that_was_asked_for(tmp_path):
    changed = classify("@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.")
    world = World(tmp_path, (0, changed))
    with pytest.raises(gate.OtherKey):
        world.wait(rescue_gate(), stop_at_other_key=True)
    with pytest.raises(gate.GateClosed) as closed:
        world.wait(rescue_gate(), timeout=5)
    assert "a host key that is not the pinned one" in str(closed.value)


def test_who_shows_another_key_and_was_not_rebooted_is_not_waited_for_to_the_limit(tmp_path):
    changed = classify("@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.")
    world = World(tmp_path, (0, changed))
    with pytest.raises(gate.GateClosed) as closed:
        world.wait(rescue_gate(), timeout=600, same_boot=True, way_out=". Name its key")
    assert "a host key that is not the pinned one" in str(closed.value)
    assert str(closed.value).endswith("for 20 s. Name its key")
    assert world.now < 30
    world = World(tmp_path, (0, changed), (10, SILENCE), (15, changed), (25, probe()))
    assert world.wait(rescue_gate(), timeout=600, same_boot=True).is_rescue, "it may yet make its keys"


@pytest.mark.parametrize(
    ("fields", "options", "verdict", "why"),
    [
        ({"hostname": "node-1"}, {}, Verdict.OPEN, ""),
        ({"boot_id": OLD, "hostname": "node-1"}, {}, Verdict.WAIT, "it did not reboot"),
        ({}, {}, Verdict.NEVER, "the disk did not boot"),
        ({}, {"expect": "rescue"}, Verdict.OPEN, ""),
        ({"hostname": "node-1"}, {"expect": "rescue"}, Verdict.WRONG, "another system answers"),
    ],
)
def test_who_may_answer_after_a_reboot(fields, options, verdict, why):
    found = gate.judge_system(system(**fields), OLD, **{"expect": "os", **options})
    assert found.verdict is verdict
    assert why in found.why


@pytest.mark.parametrize(
    ("name", "cloud_init", "verdict"),
    [
        ("node-1", "absent", Verdict.OPEN),
        ("node-1.example.com", "absent", Verdict.OPEN),
        ("NODE-1", "done", Verdict.OPEN),
        ("x", "absent", Verdict.WRONG),
        ("x", "unknown", Verdict.WRONG),
        ("x", "done", Verdict.WRONG),
        ("x", "running", Verdict.WAIT),
    ],
)
def test_the_name_of_the_new_system_is_the_expected_one(name, cloud_init, verdict):
    found = gate.judge_hostname(system(hostname=name, cloud_init=cloud_init), "node-1")
    assert found.verdict is verdict
    if verdict is not Verdict.OPEN:
        assert "its hostname is 'x', expected 'node-1'" in found.why
        assert "kubenode_hostname" in found.why
        assert "kubenode_check_hostname: false" in found.why


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "its hostname is 'x', expected 'node-1'"),
        ({"check_hostname": False}, ""),
        ({"adopt": True}, ""),
        # stronger evidence than a name is reported first
        ({"proof": "nonce"}, "proof: nonce asks for one"),
    ],
)
def test_a_new_system_with_another_name_is_not_verified(tmp_path, monkeypatch, more, why):
    monkeypatch.setattr(gate, "STEADY", 0.0)
    result = booted(tmp_path, probe(hostname="x"), hostname="node-1", **{"proof": "ssh", **more})
    assert (result["failed"], why in result["msg"]) == (bool(why), True), result["msg"]


@pytest.mark.parametrize(
    ("fields", "unknown_for", "verdict", "status"),
    [
        ({"cloud_init": "absent"}, 0, Verdict.OPEN, "absent"),
        ({"cloud_init": "disabled"}, 0, Verdict.OPEN, "disabled"),
        ({"cloud_init": "running"}, 999, Verdict.WAIT, "running"),
        ({"cloud_init": "unknown"}, 5, Verdict.WAIT, "unknown"),
        ({"cloud_init": "unknown"}, 25, Verdict.OPEN, "unknown"),
        ({"cloud_init": "done", "cloud_init_result": json.dumps({"v1": {"errors": []}})}, 0, Verdict.OPEN, "done"),
        (
            {"cloud_init": "done", "cloud_init_result": json.dumps({"v1": {"errors": ["bad"]}})},
            0,
            Verdict.NEVER,
            "error",
        ),
        (
            {
                "cloud_init": "done",
                "cloud_init_status": json.dumps({"v1": {"init": {"recoverable_errors": {"WARNING": ["odd key"]}}}}),
            },
            0,
            Verdict.NEVER,
            "degraded",
        ),
        (
            {
                "cloud_init": "done",
                "cloud_init_status": json.dumps({"v1": {"init": {"recoverable_errors": {"DEPRECATED": ["old key"]}}}}),
            },
            0,
            Verdict.OPEN,
            "done",
        ),
    ],
)
def test_cloud_init_has_to_end_well(fields, unknown_for, verdict, status):
    found = system(hostname="node-1", **fields)
    assert found.cloud_init.status == status
    judgement = gate.judge_cloud_init(found, unknown_for)
    assert judgement.verdict is verdict
    if verdict is Verdict.NEVER:
        assert "bad" in judgement.why or "odd key" in judgement.why


def test_a_probe_is_read():
    record = {"machine": "node-1", "image_url": "https://x/y"}
    found = system(hostname="node-1", record=json.dumps(record), os="Debian GNU/Linux 13 (trixie)", uid="0")
    assert found.record == record
    assert (found.os, found.origin.uid, found.reboot_sent) == ("Debian GNU/Linux 13 (trixie)", 0, False)
    assert system(reboot="sent").reboot_sent


@example("", "²")
@example("", "9" * 5000)
@given(st.text(max_size=100), st.text(max_size=100))
def test_a_hostile_answer_is_shown_harmless_or_refused(key, value):
    for field in ("hostname", "os", "kernel", "record", "cloud_init_result", "cloud_init_status", "user", "cloud_init"):
        try:
            found = system(**{field: value, **({key: value} if key.isidentifier() else {})})
        except probe_module.ProbeError:
            continue
        text = found.hostname + found.os + found.kernel + found.cloud_init.state
        assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in text)
        assert found.origin.uid >= -1


@pytest.mark.parametrize("user", odd.WORDS)
def test_a_user_id_that_is_no_number_is_none(user):
    assert system(uid=user).origin.uid == -1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_cloud_init_files_of_any_shape_are_read(content):
    for shape in (content, {"v1": content}, {"v1": {"init": content, "errors": content, "datasource": content}}):
        found = system(cloud_init="done", cloud_init_result=json.dumps(shape), cloud_init_status=json.dumps(shape))
        assert found.cloud_init.status in ("done", "error", "degraded")


@pytest.mark.parametrize(
    ("instance", "seeded"),
    [
        ("iid-kubenode-" + "a" * 32, "a" * 32),
        ("iid-kubenode-" + "a" * 33, ""),
        ("iid-kubenode-9db909e1-5bfc-4279-8ee4-7ec4a94b92f6", ""),
        ("4711", ""),
    ],
)
def test_the_seed_of_an_installation_shows_its_id(instance, seeded):
    assert system(hostname="node-1", instance=instance).seeded == seeded


def test_what_cloud_init_repeats_of_the_bootstrap_data_is_masked(tmp_path):
    line = "kubeadm join  --token abcdef.0123456789abcdef"
    error = json.dumps({"v1": {"errors": [f"Command failed: {line} " + "x" * 500], "datasource": "DataSourceNoCloud"}})
    answer = probe(hostname="node-1", cloud_init="done", cloud_init_result=error)
    data = f"#cloud-config\nruncmd:\n - {line}\n"
    result = booted(tmp_path, answer, data, bootstrap_data_file="data.yml", proof="ssh")
    assert result["failed"]
    assert "cloud-init ended with status error: Command failed: ********" in result["msg"]
    assert "abcdef" not in json.dumps(result)


@pytest.mark.parametrize("text", ["", "bash: no such file", probe().replace("end=1\n", ""), probe(boot_id="x")])
def test_what_is_no_answer_of_the_probe_is_refused(text):
    with pytest.raises(probe_module.ProbeError):
        probe_module.parse(text)


def test_what_still_answers_before_a_reboot_is_no_new_port_and_leaves_no_host_key(tmp_path):
    """The port of the system that goes down is open: asked by SSH, it is the boot that was seen before."""
    world = World(tmp_path, (0.0, probe(boot_id=OLD)), (5.0, Unreachable(REFUSED, "Permission denied")))
    looks = []

    def look(any_boot: bool) -> bool:
        assert not any_boot
        looks.append(world.known_hosts.path.exists())
        return False

    world.look = look
    gate.wait_for_port(world, world.known_hosts, OLD, 100.0, clock=lambda: world.now, sleep=world.sleep)
    assert world.now >= 5.0
    assert len(looks) > 2
    assert not any(looks), "the key of the old system is forgotten before the next look"


def test_an_open_port_is_enough_where_no_reboot_was_asked_for(tmp_path):
    world = World(tmp_path, (0.0, Unreachable(SILENT, "no SSH is spoken there")))
    opens = iter([False, True])
    world.look = lambda any_boot: any_boot and next(opens)
    gate.wait_for_port(world, world.known_hosts, None, 100.0, lambda: world.now, world.sleep, any_boot=True)
    assert next(opens, None) is None


def test_the_name_is_read_after_the_wait_for_cloud_init():
    """cloud-init sets the name while it runs: what was read before the wait would be the name of the image."""
    wait, name = (
        probe_module.SCRIPT.index(text) for text in ("/run/cloud-init/result.json", "/proc/sys/kernel/hostname")
    )
    assert wait < name


# --- whom the passphrase of an encrypted system is handed, and when the new system runs


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
PASSWORD = "correct-horse"
GONE, OTHER, NO = Unreachable(SILENT, "timed out"), Unreachable(OTHER_KEY, "key"), Unreachable(REFUSED, "denied")
EARLY = (1, "Try again later\n")
OPENED = (0, "Please unlock disk luks-1\ncryptsetup: luks-1 set up successfully\n")


class Initramfs:
    """A machine as the answers to one ssh after the other; waiting costs no time."""

    def __init__(
        self, tmp_path: Path, *answers: object, boot: str = "", known: bool = True, login: tuple = (None, None, None)
    ) -> None:
        self.now, self.answers, self.given, self.boot = 0.0, list(answers), [], boot
        self.login, self.logged_in = login, (None, None, None)
        self.initramfs = KnownHosts(str(tmp_path), "node-1", "initramfs", "run-1")
        self.system = KnownHosts(str(tmp_path), "node-1", "os", "run-1")
        self.initramfs.require([KEY])
        if known:
            self.system.require([KEY])
        self.used = self.initramfs

    def use(self, known_hosts: KnownHosts) -> None:
        self.used = known_hosts

    def log_in(self, user: str | None, port: int | None, private_key: str | None) -> None:
        self.logged_in = (user, port, private_key)

    def ask(self, data: bytes) -> tuple[int, str]:
        assert self.used is self.initramfs, "the passphrase goes to the initramfs alone"
        assert self.logged_in == ("root", 22, None)
        self.given.append(data)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, _script: str) -> tuple[int, str]:
        assert self.used is self.system
        if not self.boot or self.logged_in != self.login:
            raise OTHER
        return 0, self.boot

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def unlock(self) -> bool:
        ways = gate.Way(self.initramfs, "root", 22), gate.Way(self.system, *self.login)
        return gate.unlock(self, *ways, PASSWORD, "old", 300.0, clock=lambda: self.now, sleep=self.sleep)


@pytest.mark.parametrize(
    "answers",
    [
        (OTHER, GONE, GONE, EARLY, OPENED, GONE),
        (OPENED, OPENED, NO),
        (OPENED, (1, "Error: Timeout reached while waiting for askpass.\n"), OTHER),
        # the server went away before it could say how it ended
        ((255, OPENED[1]), GONE),
        # LUKS is slow, and the next one has nothing to do any more
        ((1, "Error: Timeout reached while waiting for PID 312.\n"), (0, ""), GONE),
    ],
)
def test_every_device_is_opened_until_the_server_goes_away(tmp_path, answers):
    world = Initramfs(tmp_path, *answers)
    assert world.unlock() is True
    assert set(world.given) == {PASSWORD.encode()}, "no line end, which would belong to it"


def test_a_wrong_passphrase_is_tried_once(tmp_path):
    world = Initramfs(tmp_path, EARLY, (1, "cryptsetup: cryptsetup failed, bad password or options?\n"))
    with pytest.raises(gate.GateClosed) as caught:
        world.unlock()
    assert caught.value.final
    assert "does not take the passphrase" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert len(world.given) == 2


def test_a_system_that_another_user_unlocked_is_left_to_the_gate(tmp_path, monkeypatch):
    monkeypatch.setattr(system_probe, "parse", lambda text: type("System", (), {"boot_id": text}))
    assert Initramfs(tmp_path, OTHER, boot="new").unlock() is False
    # the rescue that goes down shows another key, too
    with pytest.raises(gate.GateClosed, match=r"not unlocked within 300 s; at last: key"):
        Initramfs(tmp_path, OTHER, boot="old").unlock()


@pytest.mark.parametrize(
    ("answer", "login"),
    [(OTHER, ("admin", None, "/key")), (GONE, (None, 2222, None)), (OTHER, ("admin", 2222, "/key"))],
)
def test_a_system_that_runs_is_found_by_its_own_user_and_port(tmp_path, monkeypatch, answer, login):
    monkeypatch.setattr(system_probe, "parse", lambda text: type("System", (), {"boot_id": text}))
    world = Initramfs(tmp_path, answer, boot="new", login=login)
    assert world.unlock() is False
    assert world.now == 0.0


def test_without_a_known_key_of_the_system_another_key_has_a_minute(tmp_path):
    world = Initramfs(tmp_path, OTHER, OTHER, GONE, OTHER, known=False)
    assert world.unlock() is False
    assert world.now >= 3 * gate.PAUSE + gate.OTHER_SYSTEM


def test_a_system_that_an_earlier_run_proved_is_asked_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(system_probe, "parse", lambda text: type("System", (), {"boot_id": text}))
    world = Initramfs(tmp_path, OTHER, boot="new", known=False)
    world.system.path.write_text(f"{world.system.alias} {KEY}\n")
    world.system.prove("3d1b7e4a-0f5c-4f0e-9a53-0d4d3c1f2a11")
    assert world.unlock() is False
    assert world.now == 0.0


@pytest.mark.parametrize(("answer", "words"), [(GONE, "timed out"), (NO, "denied"), (EARLY, "Try again later")])
def test_an_initramfs_that_never_asks_is_given_up(tmp_path, answer, words):
    with pytest.raises(gate.GateClosed, match=f"at last: {words}"):
        Initramfs(tmp_path, answer).unlock()


def test_keys_that_an_earlier_run_kept_count(tmp_path):
    kept = KnownHosts(str(tmp_path), "node-1", "initramfs", "run-2")
    assert not kept.require_known()
    assert not kept.strict
    Initramfs(tmp_path, GONE)
    assert kept.require_known()
    assert kept.strict
