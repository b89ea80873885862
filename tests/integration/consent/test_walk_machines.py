# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of test_walk.py on machines that boot: real playbook runs, and people at the same servers between them.

Each server, cloud or dedicated, is one seeded sequence; the servers of a round share a lab and its runs. Some runs are
killed with SIGKILL at a stage that one of the servers, the pilot, is certain to reach. The oracle reads the disks at
the machine itself: none has changed that was not named, and "verified" is said of what was written last.
"""

import json
import random
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent as consents
from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents
from dev.testbed import DedicatedTestbed, Testbed
from lab.errors import LabError
from lab.running import Mark, Person
from tests.integration.consent.conftest import Scene
from tests.integration.testbeds import cloud_testbed, dedicated_testbed
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.long, pytest.mark.timeout(3600)]

#: Of the rounds, the even ones are of cloud servers.
ROUNDS, SERVERS, RUNS = 4, 5, 4
#: Where runs are killed; see `Pilot`.
STAGES = ("arming", "rescue", "begun", "written", "booted")
#: Prints a line for each disk: its name, whether it runs, is there or is not, its record, and what a person left there.
#: A program of a run that was killed may still write.
LOOK = r"""
root=$(findmnt -no SOURCE /)
runner=/root/.kubenode/runner.sh
if [ -d /root/.oldroot ]; then
    root=
    while [ -e $runner ] && sh $runner status 0 2 | grep -qx state=running; do :; done
fi
mkdir -p /run/look
for disk in %s; do
    where= system=
    case $root in
        "/dev/$disk"*) system=runs ;;
        *)
            for part in /dev/$disk[0-9]* /dev/${disk}p[0-9]*; do
                mount -o ro,noload "$part" /run/look || continue
                if [ -d /run/look/etc ]; then where=/run/look system=there && break; fi
                umount /run/look
            done 2>/dev/null
            ;;
    esac
    [ -n "$system" ] || continue
    echo "$disk|$system|$(tr -d '\n' <"$where/etc/kubenode/installed.json")|$(cat "$where/etc/precious")"
    [ -z "$where" ] || umount /run/look
done 2>/dev/null
"""
#: Makes a system one that an earlier run of ours might have left: it lets the operator in and has the same host key.
DRESS = r"""
mkdir -p /root/.ssh /etc/kubenode
echo '%(public)s' >>/root/.ssh/authorized_keys
printf %%s '%(record)s' >/etc/kubenode/installed.json
[ -s /etc/kubenode/installed.json ] || rm -r /etc/kubenode
umask 077
cat >/etc/ssh/ssh_host_ed25519_key <<'END'
%(host_key)s
END
ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key >/etc/ssh/ssh_host_ed25519_key.pub
systemctl restart ssh || true
"""


#: Makes a system one of a person's: nothing of an installation of ours is left, also not what cloud-init knows of it.
ANOTHER = r"""
rm -rf /etc/kubenode /run/cloud-init/.instance-id
for seed in /var/lib/cloud/seed/nocloud*/meta-data; do
    [ ! -e "$seed" ] || echo 'instance-id: of-a-person' >"$seed"
done
"""


@dataclass
class System:
    """A system on a disk, as the oracle knows it."""

    record: dict[str, str]
    mine: str = ""  # what a person left there
    ran: bool = False

    @property
    def id(self) -> tuple[str, str]:
        """Another one after it was written over."""
        return installed.installation_of(self.record), self.mine


class Server:
    """One sequence."""

    def __init__(self, seed: int, scene: Scene, number: int, cloud: bool) -> None:
        self.chance, self.scene, self.number, self.cloud = random.Random(seed), scene, number, cloud
        self.name = f"walk-{number}"
        self.person = Person(scene.lab, self.name if cloud else number)
        self.steps = [f"seed {seed}"]
        #: Disks with systems; only the first one of a cloud server is ever written.
        self.disks = {"sda": "", "sdb": ""} if cloud else {"nvme0n1": serial(number), "nvme1n1": serial(number, 1)}
        self.data: Mark | None = None if cloud else self.person.mark(1)  # the user's, which no run ever names
        self.systems: dict[str, System] = {}
        self.last = ""  # the installation that was written last
        self.verified = set[str]()
        self.granted: dict[str, set[str]] = {}  # folder → what an unfinished run of it had been allowed to write
        self.said: dict[str, Any] = {}
        self.second_first = False
        self.tokens = 0

    # --- people

    def act(self) -> None:
        """One of the things that happen between two runs."""
        acts = [self.nothing, self.rescue, self.reset, self.mend, self.install, self.key, self.silence, self.order]
        act = self.chance.choice([*acts, self.order])
        try:
            act()
        except LabError as error:  # nothing runs that could be worked on
            self.steps.append(f"{act.__name__} was impossible: {error}")
        else:
            self.steps.append(act.__name__)

    def nothing(self) -> None:
        """No person does anything."""

    def rescue(self) -> None:
        """A person boots it into a rescue, and stays there."""
        self.person.to_rescue(wait=False)

    def reset(self) -> None:
        """A person presses the button; what is armed boots."""
        if self.cloud:
            self.person._act("reset")
        else:
            self.person._reset(self.person.row())

    def mend(self) -> None:
        """A person changes the running system."""
        self._leave("true")

    def install(self) -> None:
        """A person has another system from now on."""
        self._leave(ANOTHER).record = {}

    def key(self) -> None:
        """The operator's key is taken out."""
        self.person.remove_key(self._public_key())

    def silence(self) -> None:
        """Its network is gone during the next run."""
        self.person.silence()

    def order(self) -> None:
        """From now on the firmware prefers the other disk; a cloud server gets one with an old system at first."""
        bring = self.cloud and "sdb" not in self.systems
        if bring:
            self.person.add_disk("3G", "debian")
        self.second_first = not self.second_first
        self.person.boots_from(*([1 if self.cloud else 2] if self.second_first else []))
        self.person.to_disk()
        if bring:
            self._dress()

    def _dress(self) -> None:
        until(lambda: self._inside("findmnt -no SOURCE /").startswith("/dev/sdb"), "the second disk", pause=0.5)
        record: dict[str, str] = {}
        if self.chance.random() < 0.7:
            at = "2026-01-01T00:00:00Z"
            record = {
                "machine": self.name, "installation": f"{self.chance.getrandbits(128):032x}", "installed_at": at,
                "verified_at": at, "image_url": "https://example.com/old.raw", "consent": "fresh",
            }  # fmt: skip
        self._leave(DRESS % {
            "public": self._public_key(), "record": json.dumps(record) if record else "",
            "host_key": (self.scene.testbed.folder / "host_key").read_text(encoding="ascii").strip(),
        }).record = record  # fmt: skip

    def _leave(self, script: str) -> System:
        """A person works on the system that runs from a disk, and leaves a trace."""
        self.tokens += 1
        trace = f"echo {self.tokens} >/etc/precious && sync && findmnt -no SOURCE /"
        out = self.person.enter(f"[ ! -d /root/.oldroot ] || exit 1\n{script}\n{trace}")
        root = re.sub("p?[0-9]+$", "", out.split()[-1].removeprefix("/dev/"))
        system = self.systems.setdefault(root, System({}))
        system.mine, system.ran = str(self.tokens), True
        return system

    def _public_key(self) -> str:
        return self.scene.testbed.private_key.with_suffix(".pub").read_text(encoding="ascii").strip()

    def running(self) -> str | None:
        """The installation of the system that runs from a disk; None when none does."""
        text = self._inside("[ -d /root/.oldroot ] || echo; cat /etc/kubenode/installed.json")
        return installed.installation_of(json.loads(text.strip() or "{}")) if text else None

    def _inside(self, script: str) -> str:
        """What a script prints on the running system; nothing when none runs."""
        try:
            return self.person.enter(script)
        except LabError:
            return ""

    # --- the operator

    def speak(self, images: list[str]) -> dict[str, Any]:
        """The variables of this server in the next run."""
        self.said = {"kubenode_image_url": self.chance.choice([*images[:1] * 2, *images])}
        if not self.cloud:
            wipe = [one for one in self.disks.values() if self.chance.random() < 0.2]
            self.said.update(
                kubenode_first_contact=self.chance.choice(["refuse", "reset", "reset"]), kubenode_wipe=wipe,
                kubenode_root_device_hints={"serial": list(self.disks.values())[self.chance.random() < 0.3]},
            )  # fmt: skip
        return self.said

    def named(self) -> str | None:
        """How kubenode_reinstall names it: not at all (None), by its name alone (empty), or with an id."""
        if self.chance.random() < 0.6:
            return None
        known = [found for one in self.systems.values() if (found := installed.installation_of(one.record))]
        return self.chance.choice(known)[:8] if known and self.chance.random() < 0.5 else ""

    # --- the oracle

    def judge(self, words: consents.Words, report: Mapping[str, Any], cut: str, folder: Path) -> bool:
        """Compare what is on the disks with what was there, and with what the run says; whether it said "verified"."""
        if self.data is not None:
            self.data.assert_untouched()
        allowed = {disk for disk in self.systems if self._consented(disk, words)}
        granted = set().union(*self.granted.values())
        found, root = self._look()
        changed = []
        for disk in self.disks:
            before, now = self.systems.get(disk), found.get(disk)
            if before is not None and (now is None or now.id != before.id):
                assert not before.ran or disk in allowed | granted, self._described(f"{disk} was written over: {now}")
            if now is not None and (before is None or now.id != before.id):
                changed.append(disk)
                self.last = installed.installation_of(now.record)
            if now is not None:
                now.ran = disk == root or (before is not None and before.id == now.id and before.ran)
        self.systems = found
        if changed:
            self.granted.clear()
        elif cut:
            self.granted.setdefault(folder.name, set()).update(allowed)
        else:
            self.granted.pop(folder.name, None)
        said = bool(report.get("verified") and not report.get("failed")) or self._verified_in_output()
        if said:
            self._judge_proof(found.get(root), folder)
        return said

    def _judge_proof(self, system: System | None, folder: Path) -> None:
        assert system is not None, self._described("verified, and no disk has booted")
        shown = installed.installation_of(system.record)
        assert system.record.get("machine") == self.name, self._described(f"verified, and {system} runs")
        assert system.record.get("verified_at"), self._described(f"verified, and {system} runs")
        kept = intents.read(str(folder / f"intents/{self.name}.json")) or {}
        # A controller that knows nothing of a later installation trusts the record of a system that was proven.
        knows = self.cloud or kept.get("installation") == self.last
        assert shown == self.last or (not knows and shown in self.verified), self._described(
            f"verified, and {system} runs, but {self.last} was written last"
        )
        self.verified.add(shown)

    def _verified_in_output(self) -> bool:
        """What a run says while it goes on, also one that was killed."""
        lines = re.findall(rf"^{self.name}: (.* answers \(.*\), boot .*)$", self.scene.output, re.MULTILINE)
        return any("not verified" not in line and "adopt" not in line for line in lines)

    def _consented(self, disk: str, words: consents.Words) -> bool:
        record = self.systems[disk].record
        wipe = consents.Words("wipe", self.said.get("kubenode_wipe", []))
        if self.disks[disk] and wipe.covers(self.disks[disk], record):
            return True
        if self.cloud and disk != "sda":
            return False
        ours = self.cloud or record.get("machine") == self.name
        return ours and words.names(self.name) and words.covers(self.name, record)

    def _look(self) -> tuple[dict[str, System], str]:
        """The systems on the disks, and the disk that runs; nothing when no disk can boot."""
        self.person.let_speak()
        if not self.person.row()["powered"]:
            self.person.power_on()
        script = LOOK % " ".join(self.disks) + "echo end\n"
        text = until(lambda: self._inside(script) or self._nothing_boots(), f"a look at {self.name}", pause=0.5)
        found, root = dict[str, System](), ""
        for line in [one for one in text.splitlines() if one.count("|") > 2]:
            disk, state, rest = line.split("|", 2)
            record, mine = rest.rsplit("|", 1)
            found[disk] = System(json.loads(record) if record else {}, mine)
            root = disk if state == "runs" else root
        return found, root

    def _nothing_boots(self) -> str:
        console = self.scene.control("GET", f"/machines/{self.person.machine}/console")
        tail = str(console)[-300:]
        return tail if "No bootable device" in tail else ""

    def _described(self, what: str) -> str:
        return f"{self.name}: {what}; before: {self.systems}\n" + "\n".join([*self.steps, self.scene.output[-8000:]])


def serial(number: int, place: int = 0) -> str:
    """Of a disk with a system."""
    return f"WALK{place}{number:010d}"


def servers(first: int) -> list[dict[str, Any]]:
    """Servers with two disks for systems, and one of data between them."""
    return [
        {
            "number": number,
            "memory_mib": 1024,
            "disks": [
                {"kind": "nvme", "size": "3G", "serial": serial(number)},
                {"kind": "sata", "size": "64M", "serial": f"DATA{number:011d}"},
                {"kind": "nvme", "size": "3G", "serial": serial(number, 1)},
            ],
        }
        for number in range(first, first + SERVERS)
    ]


class Pilot:
    """Whose way through a run decides when the run is killed: every word that it needs is said."""

    def __init__(self, server: Server) -> None:
        self.server = server
        target = "sda"
        server.person.let_speak()
        if not server.cloud:
            target, wanted = next(iter(server.disks.items()))
            server.said.update(kubenode_root_device_hints={"serial": wanted}, kubenode_first_contact="reset")
        system = server.systems.get(target)
        shown = installed.installation_of(system.record) if system is not None else ""
        if not server.cloud:
            server.said["kubenode_wipe"] = {server.disks[target]: shown} if shown else [server.disks[target]]
        #: What goes by kubenode_reinstall; without an id, a forgotten word might have used the name up.
        self.named = server.running() or shown
        self._before = self._installation()
        self._boots = len(self._booted())

    def _installation(self) -> str:
        return self.server._inside("cat /root/.kubenode/installation")

    def _booted(self) -> list[str]:
        return [boot["source"] for boot in self.server.person.row()["boots"]]

    def reaches(self, stage: str, output: Callable[[], str]) -> Callable[[], bool]:
        """Whether it has come to a stage of the run that prints ``output``."""
        written = f"\n{self.server.name}: the image command succeeded"
        return {
            "arming": lambda: "TASK [Arm the rescue" in output(),
            "rescue": lambda: "TASK [Write the disks" in output(),
            "begun": lambda: self._installation() not in ("", self._before) or written in output(),
            "written": lambda: written in output(),
            "booted": lambda: written in output() and self._booted()[self._boots :][-1:] == ["disk"],
        }[stage]


def _testbed(part: int, folder: Path) -> Testbed:
    return dedicated_testbed(folder, servers(500 + part * SERVERS)) if part % 2 else cloud_testbed(folder)


@pytest.mark.parametrize("part", range(ROUNDS))
def test_no_walk_on_machines_writes_what_was_not_named(part, tmp_path):
    first = 500 + part * SERVERS
    with Scene.of(_testbed(part, tmp_path)) as scene:
        walk = [Server(number, scene, number, part % 2 == 0) for number in range(first, first + SERVERS)]
        try:
            verified = [_run(scene, walk, random.Random(first * 100 + run), part, run) for run in range(RUNS)]
        finally:
            for one in walk:
                one.person.close()
    for one in walk:
        print(one.name, *one.steps, sep="\n  ")
    # walks that never get anywhere would prove nothing; what comes later depends on what people do
    assert verified[0] == SERVERS, verified


def _run(scene: Scene, walk: list[Server], chance: random.Random, part: int, number: int) -> int:
    """One run for all servers, perhaps killed, perhaps from a colleague's folder; returns how many it verified."""
    testbed = scene.testbed
    images = [testbed.image_url(), testbed.image_url(image="debian13")]
    said = {one.name: one.speak(images if number else images[:1]) for one in walk}
    named = {one.name: word for one in walk if (word := one.named()) is not None} if number else {}
    cut = STAGES[(part * 2 + number - 1) % len(STAGES)] if 0 < number < RUNS - 1 else ""
    pilot = Pilot(next(one for one in chance.sample(walk, SERVERS) if one.running() != "")) if cut else None
    if pilot is not None:
        named = {**named, pilot.server.name: pilot.named}
    if not number:
        for one in walk:  # the first run writes the first disk
            one.said.update({} if one.cloud else {
                "kubenode_first_contact": "reset", "kubenode_wipe": [],
                "kubenode_root_device_hints": {"serial": serial(one.number)},
            })  # fmt: skip
    # names alone are a list; with ids, those without one are left out
    ids = {name: word for name, word in named.items() if word}
    reinstall: Any = sorted(named) if pilot is not None and not pilot.named else ids or sorted(named)
    folder = testbed.folder / (chance.choice(["mine", "mine", "colleague"]) if number else "mine")
    common = {"kubenode_dir": str(folder), "kubenode_boot_timeout": 60}
    if isinstance(testbed, DedicatedTestbed):
        limits = {f"kubenode_{kind}_reset_timeout": 40 for kind in ("ssh", "hw", "power")}
        hosts = {one.name: {"kubenode_server_number": one.number, **said[one.name]} for one in walk}
        scene.servers(
            hosts, **common, **limits, kubenode_sw_reset_timeout=20, kubenode_rename=False,
            kubenode_clear_quarantine=sorted(hosts),
        )  # fmt: skip
    else:
        scene.inventory(said, **common, kubenode_rescue_timeout=30)
    step = f"run {number} in {folder.name}: {reinstall} cut={cut!r}"
    for one in walk:
        one.steps.append(f"{step} {one.said}" + (" as the pilot" if pilot and pilot.server is one else ""))
    testbed.report.unlink(missing_ok=True)
    running = scene.start("-e", json.dumps({"kubenode_reinstall": reinstall}))
    if pilot is not None:
        running.until(pilot.reaches(cut, lambda: running.output), f"{pilot.server.name}: {cut}")
        running.interrupt(signal.SIGKILL)
    scene.output = running.wait().output
    report = scene.machines if testbed.report.exists() else {}
    words = consents.Words("reinstall", reinstall)
    said_verified = [one.judge(words, report.get(one.name, {}), cut, folder) for one in walk]
    if number + 1 < RUNS:
        for one in walk:
            one.act()
    return sum(said_verified)
