# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the controller: it is killed, cannot resolve names, has a full disk, is not alone."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults.conftest import SETTINGS, SIZE, SMALL
from tests.integration.faults.fleet import COMMANDS, Outcome
from tests.waiting import until

#: The module that is killed, when half of the fleet has come so far, and what slows the step down meanwhile.
STATES = {
    "servers are made": ("hcloud_machine", "/servers", "create_server"),
    "rescues are armed": ("hcloud_rescue", "/enable_rescue", "enable_rescue"),
    "servers start": ("hcloud_rescue", "/poweron", "start_server"),
}


def both(fleet):
    """Make the servers; the options of the module that arms them."""
    create, rescue = fleet.steps(fleet.names)
    fleet.project.process("hcloud_machine", **{**create, "wait": True}).ok()
    fleet.project.forget_requests()
    return {**rescue, "machines": [{"name": name} for name in fleet.names]}


def killed(fleet, state: str) -> None:
    """Kill a run in a state, and run again until the fleet is quiet."""
    module, route, command = STATES[state]
    create, _rescue = fleet.steps(fleet.names)
    options = create if module == "hcloud_machine" else both(fleet)
    fleet.project.fault(point="action", command=command, effect="slow", delay=2, times=fleet.size)
    process = fleet.begin(module, **options)
    until(lambda: len(fleet.sent("POST", route)) >= fleet.size // 2, state, show=process.poll)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    fleet.project.forget_faults()
    until(lambda: not any(row["locked"] for row in fleet.rows().values()), "the end of what it had begun")
    # how far it came depends on the moment: what it sent, the history of each machine, and the end of what it had armed
    sent = [one for one in fleet.project.requests() if not one["user_agent"].startswith("Python-urllib")]
    armed = len(fleet.sent("POST", "/enable_rescue"))
    fleet.until_quiet()
    fleet.judge(fleet.names, extra=len(sent) + 4 * fleet.size + armed)
    for name in fleet.names:
        # the next run arms again what it finds armed: for which keys that is, and for how long still, is not known
        described = [command for command in fleet.project.commands(name) if command != "disable_rescue"]
        assert list(dict.fromkeys(described)) == COMMANDS, described
        assert described.count("start_server") == 1, described


def test_a_killed_controller_goes_on_small(fleet):
    killed(fleet("killed", SMALL), "rescues are armed")


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_a_controller_that_is_killed_goes_on(fleet, state):
    killed(fleet(f"killed while {state}"), state)


@pytest.mark.long
@pytest.mark.root
def test_names_that_are_lost_for_a_while_are_waited_for(fleet, tmp_path):
    one = fleet("DNS is lost")
    hosts, port = tmp_path / "hosts", one.project.lab.endpoint.rpartition(":")[2]
    known = "127.0.0.1 localhost api.lab.test\n"
    hosts.write_text(known)
    before = ["unshare", "--mount", "--propagation", "slave", "sh", "-c"]
    before += [f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
    create, _rescue = one.steps(one.names)
    process = one.begin("hcloud_machine", before, **create, api_endpoint=f"http://api.lab.test:{port}")
    until(lambda: len(one.sent("POST", "/servers")) >= 3, "the first servers", show=process.poll)
    hosts.write_text("127.0.0.1 localhost\n")
    # connections that are open need no name
    one.project.fault(point="request", drop=True, after_effect=True, times=10**6)
    until(lambda: one.project.lab.control("GET", "/faults")["faults"][0]["fired"], "the end of an open connection")
    time.sleep(5)  # for so long they are lost
    assert process.poll() is None, "the run gave up"
    one.project.forget_faults()
    hosts.write_text(known)
    result = one.result(process)
    assert not [machine["msg"] for machine in result["machines"] if machine["failed"]]
    one.until_quiet()
    one.judge(extra=20 + 5 * SIZE)  # of the run that lost them


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A folder on a file system that is soon full."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "kubenode-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("pages", [3, 8])
def test_a_controller_whose_disk_is_full_arms_what_it_can_note(fleet, pages):
    one = fleet("the controller's disk is full", timeout=60)
    with small_disk(one.intents, f"{4 * pages}k"):
        first = one.run()
        assert not first.whole, first.whole
        assert len(first.failed) >= SIZE - pages, first.failed
        for name, reason in first.failed.items():
            assert re.search("No space left on device", reason), reason
            # nothing is armed that no note on this disk belongs to
            assert not one.rows()[name]["rescue_enabled"], reason
            assert not one.rows()[name]["boots"], reason
        bystanders = [name for name in one.names if name not in first.failed]
        assert not set(one.left()) & set(bystanders)
        subprocess.run(["mount", "-o", "remount,size=1m", one.intents], check=True)
        one.until_quiet()
        assert sorted(path.name for path in one.intents.iterdir()) == [f"{name}.json" for name in one.names]
    one.judge(first.failed)


def alone(fleet, names, number: int, made: bool) -> Outcome:
    """One of several controllers, which share nothing but the project."""
    create, rescue = fleet.steps(names, fleet.intents / str(number))
    outcome = Outcome({}, asked=len(names))

    def run(module: str, **options: Any) -> list[dict[str, Any]]:
        """Run a module; the machines that it does not give up."""
        process = fleet.begin(module, **options)
        found = fleet.result(process)
        outcome.take(found, Path(str(process.args)).read_text())
        return [one for one in found["machines"] if not one["failed"]]

    machines = [{"name": name} for name in names] if made else run("hcloud_machine", **create)
    if machines:
        run("hcloud_rescue", machines=machines, **rescue)
    return outcome


def together(fleet, *parts: list[str], made: bool = False) -> list[Outcome]:
    """Controllers at the same time, each with machines of its own choice; each has to end with a result."""
    with ThreadPoolExecutor(len(parts)) as pool:
        fleet.outcomes += pool.map(lambda part: alone(fleet, part[1], part[0], made), enumerate(parts))
    return fleet.outcomes


def test_a_controller_that_ends_without_a_result_is_no_success(fleet, monkeypatch):
    """What the tests of several controllers rely on: the other one may have done its work."""
    one = fleet("one of two crashes", SMALL)
    begin = one.begin

    def crashing(module: str, **options: Any) -> subprocess.Popen[bytes]:
        process = begin(module, **options)
        if options.get("machines") == one.machines(one.names[:1]):
            process.wait()
            Path(str(process.args)).write_text("Traceback (most recent call last): ...")
        return process

    monkeypatch.setattr(one, "begin", crashing)
    with pytest.raises(ValueError, match="substring not found"):
        together(one, one.names, one.names[:1])


def judge_shared(fleet, outcomes: list[Outcome]) -> None:
    """Each machine is done, by one of the controllers; the other one says why it is not its own."""
    assert not fleet.left(), fleet.described("not done")
    fleet.judge(fleet.names, extra=5 * fleet.size)  # who was not the first has looked, too, and may have armed
    for name in fleet.names:
        commands = fleet.project.commands(name)
        assert [commands.count(one) for one in ("create_server", "start_server")] == [1, 1], (name, commands)
        done = [outcome for outcome in outcomes if outcome.reasons.get(name) == ""]
        assert len(done) == 1, fleet.described(f"{name} was done by {len(done)} controllers")


def test_two_controllers_that_make_the_same_servers_small(fleet):
    one = fleet("two controllers make", SMALL)
    judge_shared(one, together(one, one.names, one.names))


@pytest.mark.long
def test_two_controllers_never_arm_the_same_server(fleet):
    """Each has a folder of its own: only the API shows one what the other did."""
    one = fleet("two controllers arm")
    both(one)
    one.project.fault(point="action", command="enable_rescue", effect="slow", delay=3, times=SIZE)
    judge_shared(one, together(one, one.names, one.names, made=True))


@pytest.mark.long
def test_two_controllers_with_fleets_that_overlap(fleet):
    one = fleet("two controllers overlap")
    first, second = one.names[: SIZE * 3 // 4], one.names[SIZE // 4 :]
    outcomes = together(one, first, second)
    judge_shared(one, outcomes)


def left(fleet) -> int:
    """The requests that are left in the bucket."""
    headers = fleet.project.lab.control("POST", "/bucket", {"remaining": SETTINGS.limit})
    return int(headers["RateLimit-Remaining"])


@pytest.mark.long
def test_two_controllers_share_one_budget(fleet):
    """Each follows what the API says is left, of which the other one takes a part."""
    one = fleet("two controllers share a budget")
    one.project.lab.control("POST", "/bucket", {"remaining": 30})
    half = SIZE // 2
    together(one, one.names[:half], one.names[half:])
    assert not [outcome.failed for outcome in one.outcomes if outcome.failed], one.described("a machine failed")
    until(lambda: left(one) >= 4 * SIZE, "enough requests for our own questions", pause=0.5)
    one.judge()
    refused = [request for request in one.project.requests() if request["status"] == 429]
    # only what was on its way when the bucket ran dry
    assert len(refused) <= SIZE, len(refused)
