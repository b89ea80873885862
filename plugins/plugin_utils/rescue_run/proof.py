# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the system that answers is the one that was installed, and the record of that on the machine (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, installed
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import DISK, Origin, same_disk
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url as image_urls

#: What a system showed, the strongest first: the id of its installation; that it runs from the disk that was written;
#: that a system answered; that a port is open; nothing.
NONCE, DISK_PROOF, SSH, PORT, NONE = "nonce", "disk", "ssh", "port", "none"
UNPROVEN, ADOPTED = "unproven", "adopted"
#: Those that make a system "verified".
VERIFIED = (NONCE, DISK_PROOF)


@dataclass(frozen=True)
class Proof:
    """``kind``: what was shown; ``why``: why that is not enough, empty when it is; ``final``: waiting will not help."""

    kind: str
    why: str = ""
    final: bool = False

    @property
    def verified(self) -> bool:
        """Whether the system may be called verified."""
        return self.kind in VERIFIED and not self.why


def judge(
    name: str,
    origin: Origin,
    record: Mapping[str, Any] | None,
    installation: str,
    written: Sequence[Mapping[str, Any]] | None,
    wanted: str | None = None,
    adopt: bool = False,
    noted: Sequence[Mapping[str, Any]] | None = None,
    seeded: str = "",
) -> Proof:
    """What a system shows of its installation.

    ``installation``: the id that is expected, empty when it is not known; ``written``: the disks as the rescue saw them
    after the image command; ``wanted``: the weakest proof that is enough, by default the id or the disk, where one of
    them can be known; ``seeded``: the id that cloud-init's seed brought, for a system without a record of its own;
    ``noted``: the disks that an earlier run wrote. They cannot prove a system, because
    the disks may have been written again since; but a system on another disk is not that installation.
    """
    if adopt:
        return Proof(ADOPTED)
    if wanted is None and not installation and written is None:
        return Proof(SSH)
    same, why = runs_from(origin, written)
    if noted is not None and runs_from(origin, noted)[0] is False:
        same, why = runs_from(origin, noted)
    shown = installed.installation_of(record)
    if not shown and seeded == installation:
        # A seed of another installation says nothing: images are made of systems that had one.
        shown = seeded
    if shown and shown == installation and same is not False:
        return Proof(NONCE)
    if same is False:
        return Proof(UNPROVEN, f"{why}. Look at the boot order of the machine's firmware", final=True)
    if shown and (installation or not installed.is_proven(record, name)):
        return Proof(UNPROVEN, _other(name, record, installation), final=True)
    if shown:
        return Proof(NONCE)
    if wanted == NONCE:
        return Proof(UNPROVEN, f"{_no_record(record)}, and proof: nonce asks for one")
    if same:
        return Proof(DISK_PROOF)
    if wanted in (SSH, PORT, NONE):
        return Proof(SSH)
    if not installation:
        text = f"it runs a system that this collection did not install ({_no_record(record)}). " + _ways_out(name)
        return Proof(UNPROVEN, text)
    return Proof(
        UNPROVEN,
        f"nothing shows that this system is installation {installed.short(installation)}: {_no_record(record)}, and "
        f"{why}. {_ways_out(name)}. kubenode_proof: ssh takes any system that answers; an image command of your "
        f"own can write the id ($KUBENODE_INSTALLATION) as 'installation' into {installed.RECORD}",
    )


def of_earlier_run(
    proof: Proof, name: str, record: Mapping[str, Any] | None, succeeded: bool | None, wanted: str | None
) -> Proof:
    """What a proof is worth when the image command ran in an earlier run.

    ``succeeded``: whether that run saw it end well; None where another controller ran it. Then the record says so when
    it is whole: our commands write it last, from a disk that does not boot before it.
    """
    whole = all((record or {}).get(key) for key in ("command", "image_url", "installed_at"))
    if not proof.verified or succeeded or (succeeded is None and (whole or installed.is_proven(record, name))):
        return proof
    if wanted in (SSH, PORT, NONE):
        return Proof(SSH)
    seen = "its image command failed, or its end was not seen" if succeeded is False else "nothing tells that its image"
    seen += "" if succeeded is False else " command ended well; run from the kubenode_dir that it was installed from"
    return Proof(UNPROVEN, f"{seen}, so what it runs may be unfinished. {_ways_out(name)}", final=True)


def runs_from(origin: Origin, written: Sequence[Mapping[str, Any]] | None) -> tuple[bool | None, str]:
    """Whether a system runs from the disks that were written; None when it is not known, with the reason."""
    if written is None:
        return None, "what its disks held before and after the image command is not known"
    if origin.root != DISK or not origin.disks:
        return None, "it does not tell on which disk its root file system is"
    for disk in origin.disks:
        found = [_is(disk, target) for target in written]
        if True not in found:
            names = ", ".join(str(target.get("name")) for target in written)
            text = f"it runs from another disk ({_words(disk)}) than the one that was written ({names} in the rescue)"
            return (None if None in found else False), text
    unchanged = [str(target.get("name")) for target in written if not _changed(target)]
    if unchanged:
        return None, f"nothing shows that the image command changed {', '.join(unchanged)}"
    return True, ""


def _is(disk: Mapping[str, Any], target: Mapping[str, Any]) -> bool | None:
    same, _what = same_disk(disk, target)
    return True if same is None and target.get("only") else same


def _changed(target: Mapping[str, Any]) -> bool:
    """Whether the command left something on the disk that was not there before it."""
    before = target.get("before")
    now = {*(target.get("holds") or []), *(target.get("kinds") or [])}
    return before is not None and bool(now - set(before)) and (not before or bool(set(target["holds"]) - set(before)))


def _other(name: str, record: Mapping[str, Any] | None, installation: str) -> str:
    if not installation:
        return f"it runs {installed.describe(record)}, which was never verified. " + _ways_out(name)
    return (
        f"another system answers: {installed.describe(record)}; expected installation {installed.short(installation)}. "
        "The firmware booted another disk, or the image command wrote nothing. Its record was left as it is. "
        + _ways_out(name)
    )


def _ways_out(name: str) -> str:
    given = consent.extra_var("reinstall", [name])
    return f"Two ways out: kubenode_adopt: true leaves the machine as it is, {given} writes it"


def _no_record(record: Mapping[str, Any] | None) -> str:
    return f"its {installed.RECORD} names no installation" if record else f"it has no {installed.RECORD}"


def _words(disk: Mapping[str, Any]) -> str:
    known = [*disk.get("serials", [])[:1], *disk.get("wwns", [])[:1]]
    return ", ".join([str(disk.get("name")), *known])


# --- the installed record: what was installed, when, and when that was verified

#: Writes its first argument as the record; whole or not at all. Another user than root needs sudo without a password.
#: Only the record is flushed: a new system has much to write after its first boot, and the run would wait for it all.
WRITE_RECORD = r"""
[ "$(id -u)" = 0 ] && how= || how="sudo -n"
printf '%s\n' "$1" | $how /bin/sh -c '
umask 022
mkdir -p /etc/kubenode && cd /etc/kubenode && cat >.installed.json.new && sync .installed.json.new &&
mv -f .installed.json.new installed.json && sync .' && echo recorded=1
"""


def complete_record(
    found: dict[str, Any] | None,
    name: str,
    installation: str,
    image_url: str | None,
    command: str | None,
    proof: str,
    now: str,
) -> dict[str, Any] | None:
    """The record to write, or None when nothing is to be added. A record of another installation is not changed."""
    record = dict(found or {})
    shown = installed.installation_of(record)
    if shown and installation and shown != installation:
        return None
    if not shown and record.get("machine", name) != name:
        # A record inside an image describes the machine that the image was made from.
        record = {}
    known: dict[str, Any] = {"machine": name}
    if installation:
        known["installation"] = installation
    if image_url:
        known["image_url"] = image_urls.redact(image_url)
    if command:
        known["command"] = command
    if record.get("verified_at") and all(key in record for key in known):
        return None
    # Until it is verified, the run that started the command knows best what was run.
    record.update({key: value for key, value in known.items() if key not in record or not record.get("verified_at")})
    record.setdefault("installed_at", now)
    record.setdefault("verified_at", now)
    record.setdefault("proof", proof)
    return record


def public_record(record: dict[str, Any] | None) -> dict[str, str]:
    """The keys of the contract, as strings; a record comes from a disk that anybody may have written."""
    return {key: str((record or {})[key])[:2000] for key in installed.KEYS if (record or {}).get(key) is not None}
