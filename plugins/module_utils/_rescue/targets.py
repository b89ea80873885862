# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's half of machine_disks: look, and empty what the controller decided on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._common import consent as consents
from .._common import intents, probe
from . import job, protocol
from .disks import disk_facts, disk_gather, disk_names, guard, wiping
from .disks.disk_facts import Disk, Identity
from .disks.disk_tools import Tools
from .job import Job, JobError, Run


@contextlib.contextmanager
def _failing(words: str = "%s", begun: bool = False) -> Iterator[None]:
    """What goes wrong with the disks as an error of the job; its text takes its place in ``words``.

    ``begun``: whether disks have been changed before.
    """
    try:
        yield
    except (wiping.WipeError, JobError) as exc:
        raise JobError(words % exc, begun or exc.begun) from exc
    except (disk_gather.GatherError, disk_names.Unresolved) as exc:
        raise JobError(words % exc, begun) from exc


def look_at_disks(run: Run, health: bool = True, types: Sequence[str] = ("disk",)) -> dict[str, Any]:
    """All facts of all disks, how far a job of the runner in this rescue is, and the seconds since its boot."""
    tools = Tools(run, limits=True)
    tools("udevadm", "settle", "--timeout=100")
    with _failing():
        raw = disk_gather.read(tools, types, health=False)
        with disk_gather.opened(tools, raw) as changed:
            if changed:
                raw = disk_gather.read(tools, types, health=False)
            if health:
                disk_gather.add_health(tools, raw, types)
            raw.systems = disk_gather.look_inside(tools, raw)
            found = disk_facts.facts(raw, types)
    return {"disks": found, "job": job.progress(run), "uptime": _uptime()}


def measure_disks(run: Run, targets: Sequence[Disk]) -> dict[str, Any]:
    """How fast the disks are read that the controller means, one after the other; of a slow one, the better of two.

    ``targets``: as for :func:`wipe`. Returns :func:`gather.read_speed` of each, in their order.
    """
    tools = Tools(run, limits=True)
    with _failing():
        now = disk_facts.facts(disk_gather.read(tools, health=False))
        chosen = [wiping.still(target, now) for target in targets]
    found = []
    for disk in chosen:
        one = disk_gather.read_speed(tools, disk["path"])
        if one["speed"] is not None and guard.too_slow(disk, one["speed"]):
            again = disk_gather.read_speed(tools, disk["path"])
            one = one if again["speed"] is not None and again["speed"] < one["speed"] else again
        found.append(one)
    return {"disks": found}


def wipe_disks(
    run: Run, targets: Sequence[Disk], types: Sequence[str] = ("disk",), base: str = protocol.BASE
) -> dict[str, Any]:
    """Empty the disks that the controller means, if they are still what it saw.

    ``targets``: ``serial``, ``wwn``, ``size`` and ``content_id`` of each, as :func:`look` returned them.
    """
    tools = Tools(run, limits=True)
    with _failing(), job.alone(base):
        if job.progress(run, base)["running"]:
            raise JobError("a program of ours is writing in this rescue; wait for its end, or reset the machine")
        done = empty_disks(tools, targets, types)
        with _failing("everything was erased, but %s", begun=True):
            job.forget(base)
            left = disk_facts.facts(disk_gather.read(tools, types), types)
    return {"disks": left, "steps": done}


def empty_disks(tools: Tools, targets: Sequence[Disk], types: Sequence[str] = ("disk",)) -> list[str]:
    """The same within a job's start; returns what was done."""
    now = disk_facts.facts(disk_gather.read(tools, types, health=False), types)
    chosen = [wiping.still(target, now) for target in targets]
    return wiping.wipe(tools, [disk["name"] for disk in chosen], types)


def _uptime() -> float:
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 1e9


#: Besides the kinds of consent: the user's word names the machine, and what lies on its disks says whether the word was
#: used up by that; the caller has looked at the disks and emptied them.
NAMED, CHECKED = "named", "checked"
#: Prints what is on the disks that its arguments name.
LOOK = probe.SCRIPT_OF_DISKS + 'seen_disks "$@"\n'


def kinds_of(text: str) -> list[str]:
    """The kinds in a consent; raises ValueError for a word that is none."""
    kinds = (text or consents.EMPTY).split("+")
    unknown = sorted(set(kinds) - set(consents.KINDS) - {NAMED, CHECKED})
    if unknown:
        raise ValueError(f"consent {unknown[0]!r}: use one of {', '.join(consents.KINDS + (NAMED, CHECKED))}")
    return kinds


def decider(wanted: Job, base: str = protocol.BASE) -> Callable[[protocol.Status | None], str]:
    """What to do about a job when the rescue is in a status; a job whose disks are to be emptied begins from the start.

    Unless it is of the same installation: then it is the one that emptied them.
    """

    def decide(status: protocol.Status | None) -> str:
        todo = protocol.decide(status, wanted.digest, wanted.rule)
        empties = bool(wanted.empty) or wanted.erases
        if todo != protocol.ATTACH or not empties or job.installation_in(base) == wanted.installation:
            return todo
        running = status is not None and status.state == protocol.RUNNING
        return protocol.BUSY if running else protocol.START

    return decide


def prepare(run: Run, wanted: Job, base: str = protocol.BASE) -> bool:
    """Make the disks of a job ready for it, when it may write them; raises JobError. Returns whether any was changed.

    First every check that may refuse, then the note that it has begun, and only then the first change.
    """
    kinds = kinds_of(wanted.consent)
    if NAMED in kinds:
        kinds.append(consents.REINSTALL)
    checked = CHECKED in kinds
    empties = bool(wanted.empty) or not checked
    if empties:
        _look_at_interpreter(job.head(wanted, base))
        _look_at_image(wanted)
    _look_again(run, wanted)
    begun = None if checked else _begun(wanted, base)
    if begun:
        # What had allowed it is used up by what it writes now.
        earlier = [kind for kind in str(begun.get("consent") or "").split("+") if kind in consents.KINDS]
        kinds = earlier + [kind for kind in kinds if kind != consents.EMPTY]
    elif not checked and consents.FRESH not in kinds and (consents.REINSTALL not in kinds or NAMED in kinds):
        _guard(run, wanted, NAMED in kinds)
    wanted.consent = consents.joined(*kinds)
    with _noted(wanted, begun, base):
        if empties:
            _empty(run, wanted, checked, base)
        if wanted.empty:
            _look_again(run, wanted)
    code, out, dummy = run(["sh", "-c", LOOK, "sh"] + wanted.devices)
    if code == 0:
        try:
            job.keep(base, protocol.BEFORE, out)
        except OSError as exc:
            raise JobError(f"nothing was started: {exc}", begun=empties) from exc
    return empties


def _begun(wanted: Job, base: str) -> dict[str, Any] | None:
    """The intent of an earlier start in this rescue that was allowed to write for this installation; None for none."""
    intent = intents.parse(_kept(base) or "")
    if intent is None or not intents.is_open(intent, wanted.machine, wanted.installation):
        return None
    return intent if intent.get("begun") is True else None


def _kept(base: str) -> str | None:
    """The intent that an earlier start put into this rescue, as text; None for none."""
    try:
        with open(os.path.join(base, protocol.INTENT), encoding="utf-8") as file:
            return file.read(65536)
    except (OSError, UnicodeDecodeError):
        return None


@contextlib.contextmanager
def _noted(wanted: Job, begun: dict[str, Any] | None, base: str) -> Iterator[None]:
    """The intent is in the rescue before a disk is changed, so that who comes after a cut goes on.

    Where nothing was changed after all, it goes again.
    """
    intent, before = intents.parse(wanted.intent), _kept(base)
    if intent is not None:
        more = {"armed_at": begun["armed_at"]} if begun else {}
        wanted.intent = json.dumps(dict(intent, begun=True, consent=wanted.consent, **more), sort_keys=True)
        job.keep(base, protocol.INTENT, wanted.intent)
    try:
        yield
    except JobError as exc:
        if intent is not None and not exc.begun:
            if before is None:
                os.unlink(os.path.join(base, protocol.INTENT))
            else:
                job.keep(base, protocol.INTENT, before)
        raise


def _guard(run: Run, wanted: Job, named: bool) -> None:
    """Raises unless the disks hold nothing, or what the user's word covers."""
    words = consents.Words("reinstall", wanted.reinstall if named else ())
    goes = {str(uuid).lower() for uuid in _intent(wanted).get("goes") or []}
    with _failing("nothing was started: %s"):
        disks = look_at_disks(run, health=False)["disks"]
        chosen = [_name(device, disks) for device in wanted.devices]
    for disk in (one for one in disks if one["name"] in chosen and one["holds"]):
        records = [entry["installed"] for entry in disk["holds"] if entry.get("installed")]
        if not records and not any(str(entry.get("uuid")).lower() in goes for entry in disk["holds"]):
            records = [None]
        left = [one for one in records if not words.covers(wanted.machine, one)]
        said = words.names(wanted.machine)
        if said and not left:
            continue
        way_out = f"To write it, name the machine: {consents.extra_var('reinstall', [wanted.machine])}"
        if any(record and record.get("machine") == wanted.machine for record in records):
            way_out += "; to keep it, reboot the server: a rescue is for one boot"
        why = words.why_not(wanted.machine, left[0]) if said else way_out
        held = "\n  ".join(disk_facts.held(disk))
        raise JobError(
            f"nothing was started and nothing was written, as disk {disk['name']} is not empty. It holds:\n"
            f"  {held}\n{why}"
        )


def _look_again(run: Run, wanted: Job) -> None:
    """Raises unless the disks that were found empty, and so stay as they are, hold nothing still."""
    if not wanted.still_empty:
        return
    with _failing("nothing was started: %s"):
        disks = disk_facts.facts(disk_gather.read(Tools(run, limits=True), health=False))
        for target in wanted.still_empty:
            disk = wiping.still(target, disks)
            if disk["name"] != target["name"]:
                raise JobError(
                    f"disk {disk_names.identity(disk)} is called {disk['name']} by now, and was {target['name']}. "
                    "Run again"
                )
            if disk["holds"]:  # what blkid does not know, or what uses the disk, is not in content_id
                held = "\n  ".join(disk_facts.held(disk))
                raise JobError(f"disk {disk['name']} is not empty any more. It holds:\n  {held}")


def _intent(wanted: Job) -> dict[str, Any]:
    """That of this job, which says which systems without a record the word means."""
    intent = intents.parse(wanted.intent)
    return intent if intent and intents.is_open(intent, wanted.machine, wanted.installation) else {}


def _look_at_interpreter(head: bytes) -> None:
    """Raises when the command cannot start in this rescue, by its first line."""
    first = head.partition(b"\n")[0]
    words = [os.fsdecode(word) for word in first[2:].split()] if first.startswith(b"#!") else []
    if not words:
        return
    missing = "" if os.access(words[0], os.X_OK) else words[0]
    if not missing and os.path.basename(words[0]) == "env" and len(words) > 1:
        plain = not words[1].startswith("-") and "=" not in words[1]
        missing = words[1] if plain and shutil.which(words[1], path=_path()) is None else ""
    if missing:
        raise JobError(
            f"nothing was started: the first line of the image command names {missing}, which is not in this rescue. "
            "No disk was touched. Use a program that is there, or install it in the pre-provision command"
        )


def _path() -> str:
    """Where the runner lets a command look for programs."""
    return os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"


def _look_at_image(wanted: Job) -> None:
    """Raises when the disks would be emptied for an image that cannot be fetched."""
    if not wanted.check_image:
        return
    from . import image_url  # lazy: HTTP and TLS take longer to load than all else, and most starts empty nothing

    try:
        image_url.check_fetchable(wanted.arguments[0], wanted.token)
    except image_url.NotFetchable as exc:
        raise JobError(
            f"nothing was started: kubenode_image_url {exc}. No disk was touched. Where the image command gets the "
            "image in a way of its own, kubenode_check_image: false skips this look"
        ) from exc


def _empty(run: Run, wanted: Job, checked: bool, base: str) -> None:
    able = Tools(run, limits=True)
    with _failing("the disks could not be emptied before the start: %s"):
        if checked:
            empty_disks(able, wanted.empty)
            # Nothing is left of what an earlier job wrote.
            job.forget(base)
        else:
            disks = disk_gather.identities(able)
            wiping.wipe(able, [_name(device, disks) for device in wanted.devices])


def _name(device: str, disks: Sequence[Identity]) -> str:
    """The kernel's name of a disk; the kernel's own names are taken as they are."""
    if any(disk["name"] == device for disk in disks):
        return device
    return disk_names.one(device, disks)["name"]
