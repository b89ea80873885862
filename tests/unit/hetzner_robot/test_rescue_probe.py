# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who counts as the rescue: only whom Robot's fingerprints prove, and never the boot that was seen before."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import DISK, RAM, Origin
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import reset_escalation
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    Deadline,
    MachineError,
    Permanent,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.reset_escalation import (
    ARRIVED,
    NOT_THERE,
    OTHER_SYSTEM,
    SAME_BOOT,
    RescueProbe,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import DENIED, SILENT, SYSTEM, Answer


def key(body):
    return "ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519" + body).decode()


OLD_BOOT, NEW_BOOT = "0" * 8 + "-0000-0000-0000-" + "0" * 12, "1" * 8 + "-0000-0000-0000-" + "0" * 12
OLD_KEY, NEW_KEY, FALSE_KEY = key(b"old"), key(b"new"), key(b"false")
NO_ANSWER = Answer(SILENT, "Connection timed out")
IN_RAM, ON_DISK = Origin(0, RAM, ["oldroot"]), Origin(0, DISK)
OLD_SYSTEM = Answer(SYSTEM, hostname="old", boot_id=OLD_BOOT, origin=ON_DISK)
DISK_SYSTEM = Answer(SYSTEM, hostname="old", boot_id=NEW_BOOT, origin=ON_DISK)
RESCUE = Answer(SYSTEM, hostname="rescue", boot_id=NEW_BOOT, origin=IN_RAM)


class Machine:
    """In place of SSH and Robot: shows keys, answers, and notes each login."""

    def __init__(self, strict=True):
        self.shown, self.answer, self.published, self.active = [], NO_ANSWER, [], True
        self.logins, self.pinned, self.asked, self.negotiated = [], None, 0, None
        self.now, self.elsewhere = 0.0, None
        self.probed = RescueProbe(self, self, "n1", "192.0.2.1", strict, clock=lambda: self.now)

    # SSH
    def host_keys(self, _name, _address):
        return self.shown

    def keys_of_last_probe(self, _name):
        return self.shown if self.negotiated is None else [self.negotiated]

    def probe(self, _name, _address):
        self.logins.append("anybody")
        return self.answer

    def probe_pinned(self, _name, _address):
        self.logins.append("pinned")
        return self.answer if set(self.pinned) & set(self.shown) else NO_ANSWER

    def pin_keys(self, _name, keys):
        self.pinned = keys

    def probe_elsewhere(self, _name, _address):
        return self.elsewhere

    # Robot
    def rescue(self, _deadline, last):
        assert last
        self.asked += 1
        entries = [{"key": {"fingerprint": ssh_access.sha256_fingerprint(one)}} for one in self.published]
        return {"active": self.active, "host_key": entries}

    def booted(self, shown, answer, published):
        self.shown, self.answer, self.published, self.active = [shown], answer, published, False

    def see(self):
        self.now += 2
        return self.probed.see(OLD_BOOT, Deadline(10, "x"))

    def see_for(self, seconds):
        end = self.now + seconds
        while self.now < end:
            found = self.see()
        return found


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_rescue_gets_commands_only_after_its_key_is_proven(machine):
    assert machine.see_for(100) == NOT_THERE
    assert (machine.logins, machine.asked) == ([], 0)
    machine.booted(NEW_KEY, RESCUE, [FALSE_KEY, NEW_KEY])
    assert machine.see() == ARRIVED
    assert (machine.logins, machine.asked, machine.pinned) == (["pinned"], 1, [NEW_KEY])
    assert machine.probed.proven == [NEW_KEY]


def test_a_false_key_ends_it_and_nothing_is_sent(machine):
    machine.booted(FALSE_KEY, RESCUE, [NEW_KEY])
    with pytest.raises(Permanent, match="none of those Robot reports") as error:
        machine.see_for(60)
    assert error.value.permanent
    assert (machine.logins, machine.pinned) == ([], None)


def test_a_system_that_is_going_down_may_show_an_unknown_key(machine):
    """It was asked for one type of key, and shows another one in its last seconds."""
    machine.booted(FALSE_KEY, OLD_SYSTEM, [NEW_KEY])
    assert machine.see_for(10) == NOT_THERE
    assert machine.probed.undecided
    machine.booted(NEW_KEY, RESCUE, [NEW_KEY])
    assert machine.see_for(12) == ARRIVED
    assert not machine.probed.undecided


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_system_is_known_by_its_keys_of_all_types_from_the_first_look_on(machine, left):
    """A connection shows one type; in its last seconds, the system may show any other one alone."""
    machine.shown, machine.negotiated, machine.answer = [OLD_KEY, key(b"rsa"), key(b"ecdsa")], OLD_KEY, OLD_SYSTEM
    machine.probed.look()
    machine.published, machine.active = [NEW_KEY], False
    machine.shown = [machine.shown[left]]
    machine.negotiated = None
    assert machine.see() == SAME_BOOT
    machine.answer = NO_ANSWER
    assert machine.see_for(60) == NOT_THERE
    assert machine.asked == 0


def test_a_mismatch_counts_only_when_the_same_keys_are_shown_again(machine):
    machine.booted(FALSE_KEY, OLD_SYSTEM, [NEW_KEY])
    assert machine.see_for(12) == NOT_THERE
    machine.shown = [key(b"another")]
    assert machine.see_for(18) == NOT_THERE
    with pytest.raises(Permanent):
        machine.see_for(20)


def test_keys_that_change_all_the_time_do_not_hold_a_run_for_ever(machine):
    machine.booted(FALSE_KEY, OLD_SYSTEM, [NEW_KEY])

    def show_others():
        for number in range(60):
            machine.shown = [key(b"%d" % number)]
            machine.see()

    with pytest.raises(Permanent):
        show_others()
    assert machine.now <= 80
    assert machine.logins == []


def test_the_old_system_between_two_mismatches_ends_the_first_one(machine):
    machine.shown, machine.answer = [OLD_KEY], OLD_SYSTEM
    machine.probed.look()
    machine.booted(FALSE_KEY, OLD_SYSTEM, [NEW_KEY])
    assert machine.see() == NOT_THERE
    machine.shown = [OLD_KEY]
    assert machine.see_for(30) == SAME_BOOT
    assert not machine.probed.undecided
    machine.shown = [FALSE_KEY]
    assert machine.see_for(18) == NOT_THERE
    with pytest.raises(Permanent):
        machine.see_for(20)


def test_the_system_seen_before_is_recognised_by_its_key_without_a_request(machine):
    machine.shown, machine.answer = [OLD_KEY], OLD_SYSTEM
    machine.probed.look()
    assert machine.see_for(100) == SAME_BOOT
    machine.answer = DISK_SYSTEM
    assert machine.see() == OTHER_SYSTEM
    assert machine.asked == 0
    machine.booted(NEW_KEY, RESCUE, [NEW_KEY])
    assert machine.see() == ARRIVED


def test_a_false_rescue_with_the_old_key_never_counts(machine):
    machine.shown, machine.answer = [OLD_KEY], OLD_SYSTEM
    machine.probed.look()
    machine.booted(OLD_KEY, RESCUE, [NEW_KEY])
    with pytest.raises(Permanent):
        machine.see_for(60)
    machine.published, machine.active = [], True
    assert machine.see_for(60) == NOT_THERE
    assert machine.pinned is None


def test_a_system_that_answers_while_the_rescue_is_armed_is_another_one(machine):
    machine.shown, machine.answer = [FALSE_KEY], DISK_SYSTEM
    assert machine.see_for(10) == OTHER_SYSTEM
    assert machine.asked == 1


def test_a_rescue_that_robot_says_nothing_of_is_given_up_after_a_minute(machine):
    machine.booted(NEW_KEY, RESCUE, [])
    with pytest.raises(MachineError, match="accept-new") as error:
        machine.see_for(200)
    assert 50 <= machine.now <= 70
    assert machine.probed.undecided
    assert machine.asked <= 7
    assert machine.logins == []
    assert not error.value.permanent


def test_fingerprints_that_come_late_are_good_enough(machine):
    machine.booted(NEW_KEY, RESCUE, [])
    assert machine.see_for(30) == NOT_THERE
    assert machine.probed.undecided
    machine.published = [NEW_KEY]
    assert machine.see_for(12) == ARRIVED
    assert not machine.probed.undecided


def test_a_rescue_that_falls_silent_again_is_undecided_no_more(machine):
    machine.booted(NEW_KEY, RESCUE, [])
    machine.see_for(10)
    machine.shown = []
    assert machine.see() == NOT_THERE
    assert not machine.probed.undecided


def test_a_proven_rescue_that_refuses_our_key_is_given_up(machine):
    machine.booted(NEW_KEY, Answer(DENIED, "Permission denied (publickey)"), [NEW_KEY])
    assert machine.see() == NOT_THERE
    with pytest.raises(Permanent, match="refuses ours"):
        machine.see_for(60)


def test_without_checking_the_first_contact_is_pinned():
    machine = Machine(strict=False)
    assert machine.see() == NOT_THERE
    machine.booted(NEW_KEY, RESCUE, [FALSE_KEY])
    assert machine.see() == ARRIVED
    assert (machine.asked, machine.pinned, machine.probed.proven) == (0, [NEW_KEY], [])
    machine.answer = OLD_SYSTEM
    assert machine.see() == SAME_BOOT


def clocked(machine, seconds):
    def sleep(pause):
        machine.now += pause

    return Deadline(seconds, "the proof", clock=lambda: machine.now, sleep=sleep)


def test_a_rescue_that_is_there_already_is_proven_too(machine):
    machine.booted(NEW_KEY, RESCUE, [NEW_KEY])
    machine.probed.look()
    assert machine.probed.wait_for_proof([], clocked(machine, 70))
    assert (machine.probed.proven, machine.asked) == ([NEW_KEY], 1)
    assert machine.probed.wait_for_proof([FALSE_KEY, NEW_KEY], clocked(machine, 70))
    assert machine.asked == 1
    machine.published = [FALSE_KEY]
    machine.probed.restart()
    with pytest.raises(Permanent):
        machine.probed.wait_for_proof([FALSE_KEY], clocked(machine, 70))


def test_a_rescue_that_was_armed_again_since_it_booted_cannot_be_proven(machine):
    machine.booted(NEW_KEY, RESCUE, [])
    machine.active = True
    machine.probed.look()
    assert not machine.probed.wait_for_proof([], clocked(machine, 70))
    assert machine.logins == ["anybody"], "the look before; nothing else was sent"
    machine.active, machine.now, began = False, machine.now + 20, machine.now + 20
    assert not machine.probed.wait_for_proof([], clocked(machine, 500))
    assert machine.now - began <= 70
    text = reset_escalation.ways_out("n1")
    assert """-e '{"kubenode_reinstall": ["n1"]}'""" in text
    assert """-e '{"kubenode_host_key_checking": "accept-new"}'""" in text


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (OLD_SYSTEM, SAME_BOOT),
        (DISK_SYSTEM, OTHER_SYSTEM),
        (NO_ANSWER, NOT_THERE),
        (Answer(DENIED, "no"), NOT_THERE),
    ],
)
def test_a_system_with_a_port_of_its_own_that_comes_up_instead_is_seen(machine, answer, found):
    """Where the rescue's port is silent: it may be in use, and is not reset."""
    machine.elsewhere = answer
    assert machine.see() == found
    assert machine.asked == 0


def test_what_answers_on_another_port_is_never_the_rescue(machine):
    machine.elsewhere = RESCUE
    assert machine.see() == NOT_THERE
    assert machine.pinned is None
