# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots a machine and proves which system answers afterwards. All of it happens on the controller and over SSH.

What proves a system, and its record on the machine, are pure functions.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import (
    boot_states,
    consent,
    installed,
    intents,
    masking,
    ssh_access,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common.names import host_name_error
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import DISK, Origin, same_disk
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import to_rfc3339
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url as image_urls

from ..progress import display
from ..records import claims
from ..ssh import gate
from ..ssh.remote import KnownHosts, Remote, Unreachable
from ..ssh.system_probe import System
from . import image_inputs
from .flow import BadInput, Flow, Host, check_installation, parse_host_keys

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
        return f"it runs {installed.describe(record)}, {_not_as(name, record or {})}. {_ways_out(name)}"
    return (
        f"another system answers: {installed.describe(record)}; expected installation {installed.short(installation)}. "
        "The firmware booted another disk, or the image command wrote nothing. Its record was left as it is. "
        + _ways_out(name)
    )


def _not_as(name: str, record: Mapping[str, Any]) -> str:
    """Why a record proves no system of this machine."""
    if not record.get("verified_at"):
        return "which was never verified"
    return (
        f"which was verified at {record['verified_at']}, but not as '{name}'. Where the server has two names in the "
        "inventory, take this one out"
    )


def _ways_out(name: str) -> str:
    given = consent.extra_var("reinstall", [name])
    return f"Two ways out: kubenode_adopt: true leaves the machine as it is, {given} writes it"


def _put_there(name: str, known: Path) -> str:
    given = consent.extra_var("reinstall", [name])
    return (
        ". Where a person has put this system there on purpose, kubenode_host_keys names its key "
        f"({known} has the known one), or {given} writes the machine"
    )


def _no_record(record: Mapping[str, Any] | None) -> str:
    return f"its {installed.RECORD} names no installation" if record else f"it has no {installed.RECORD}"


def _words(disk: Mapping[str, Any]) -> str:
    known = [*disk.get("serials", [])[:1], *disk.get("wwns", [])[:1]]
    return ", ".join([str(disk.get("name")), *known])


# --- the installed record: what was installed, when, and when that was verified

#: Writes its first argument as the record; whole or not at all. Another user than root needs sudo without a password.
#: With it is flushed what the first boot has configured (host keys, network, who may log in), lest a power cut take
#: from a proven system what it was proven by. Not the rest: a new system has much to write, and the run would wait.
WRITE_RECORD = r"""
[ "$(id -u)" = 0 ] && how= || how="sudo -n"
printf '%s\n' "$1" | $how /bin/sh -c '
umask 022
find /etc /var/lib/cloud /root/.ssh /home/*/.ssh -xdev -mmin -60 -exec sync {} + 2>/dev/null
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


#: Seconds that the machine may wait for cloud-init before it answers.
CLOUD_INIT = 20
#: The state that begins when the reboot is sent.
LEFT = {"os": boot_states.BOOTING_TO_REAL_OS, "rescue": boot_states.BOOTING_TO_RESCUE}


def run(host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Reboot one machine, and prove which system answers."""
    flow = host.flow(given)
    keys = parse_host_keys(given["host_keys"])
    unlock_keys = parse_host_keys(given["unlock_host_keys"])
    findings = [*ssh_access.access_findings(given), *image_inputs.check_seconds(given, timeout=1, cloud_init_timeout=0)]
    keeper = {field: given[field.replace("os_", "unlock_")] for field in ("os_port", "os_private_key")}
    findings += [text.replace("os_", "unlock_", 1) for text in ssh_access.access_findings(keeper)]
    if given["hostname"] and host_name_error(given["hostname"]):
        findings.append(f"hostname {given['hostname'][:100]!r}: {host_name_error(given['hostname'])}")
    bootstrap = image_inputs.read_bootstrap(given, host.read_file, findings)
    if findings or bootstrap is None:
        raise BadInput(flow.name, findings)
    check_installation(given["installation"])
    if host.check_mode:
        return flow.result(changed=given["reboot"], msg="would reboot" if given["reboot"] else "would ask who answers")
    secrets = [*given["secrets"], *filter(None, [given["unlock_password"]])]
    masker = masking.Masker(masking.of_texts(secrets), masking.of_lines(bootstrap))
    return _Boot(host.remote, given, flow, keys, masker, unlock_keys).result()


class _Boot:
    """One reboot of one machine."""

    def __init__(
        self,
        remote: Remote,
        given: dict[str, Any],
        flow: Flow,
        keys: list[str],
        masker: masking.Masker | None = None,
        unlock_keys: Sequence[str] = (),
    ) -> None:
        self._given, self._flow, self._keys, self._unlock_keys = given, flow, keys, list(unlock_keys)
        self._masker = masker or masking.Masker(())
        self._remote = remote
        self._target = flow.known_hosts(given["expect"])
        self._previous: str | None = given["previous_boot_id"] or None
        self._proof = Proof(NONE)

    def result(self) -> dict[str, Any]:
        """Reboot, gate, record."""
        flow, given, sent = self._flow, self._given, False
        try:
            if given["reboot"]:
                sent = self._reboot()
                flow.timeline.to(LEFT[given["expect"]])
            self._unlock()
            if given["expect"] == "os":
                self._remote.log_in(given["os_user"], given["os_port"], given["os_private_key"])
            if self._needs_no_login():
                return self._without_login(sent)
            system = self._prove()
        except gate.GateClosed as exc:
            flow.timeline.to(boot_states.PROVISIONING_FAILED)
            about = self._facts(exc.system) if exc.system else {}
            about.update(proof=UNPROVEN, verified=False)
            if not (exc.system and exc.system.is_rescue):
                self._give_up()
            return flow.result(failed=True, changed=sent, msg=f"{flow.name}: {exc}", **about)
        about = self._facts(system)
        if given["expect"] == "os":
            if given["reboot"] or not given["boot_state"]:
                flow.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)
            else:
                flow.timeline.found(boot_states.OPERATING_SYSTEM_RUNNING)
            about.update(proof=self._proof.kind, verified=self._proof.verified)
        written = self._write_record(system, about["system"])
        self._release_claim()
        msg = f"{system.hostname} answers ({system.os or system.kernel}), boot {system.boot_id}"
        if given["expect"] == "os" and not self._proof.verified:
            msg += f"; {'left as it is, as adopt says' if given['adopt'] else 'not verified'}"
        return flow.result(changed=sent or written, msg=msg, record_written=written, **about)

    def _unlock(self) -> None:
        """Open the disks of an encrypted system, where the host keys of its initramfs are known."""
        given = self._given
        if given["expect"] != "os" or not given["unlock_password"]:
            return
        initramfs = self._flow.known_hosts("initramfs")
        if self._unlock_keys:
            initramfs.require(self._unlock_keys)
        elif not initramfs.require_known():
            return
        if self._keys:
            self._target.require(self._keys)
        keeper = gate.Way(initramfs, "root", given["unlock_port"], given["unlock_private_key"])
        system = gate.Way(self._target, given["os_user"], given["os_port"], given["os_private_key"])
        gate.unlock(self._remote, keeper, system, given["unlock_password"], self._previous, given["timeout"])

    def _needs_no_login(self) -> bool:
        """Whether the chosen proof needs no login: an open port is enough, or nothing is checked."""
        return self._given["expect"] == "os" and self._given["proof"] in (PORT, NONE)

    def _without_login(self, sent: bool) -> dict[str, Any]:
        """For systems without SSH, or without our key."""
        flow, kind = self._flow, self._given["proof"]
        about = {"proof": kind, "verified": False, "record_written": False}
        if kind == PORT:
            gate.wait_for_port(
                self._remote, self._target, self._previous, self._given["timeout"], any_boot=not self._given["reboot"]
            )
        flow.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)
        self._release_claim()
        asked = "the reboot was sent" if self._given["reboot"] else "it was installed, and no system was asked"
        text = "a system answers" if kind == PORT else asked
        return flow.result(changed=sent, msg=f"{text}; not verified, as proof: {kind} says", **about)

    def _reboot(self) -> bool:
        """Send the reboot to the system of ``previous_boot_id``; another one has rebooted already and is left alone."""
        present = self._present()
        self._remote.use(present)
        if self._remote.reboots(self._previous):
            self._left(is_rescue=True)
            return True
        try:
            system = gate.wait_for(
                self._remote,
                present,
                lambda system: gate.Decision(gate.Verdict.OPEN),
                self._given["timeout"],
                "the system to reboot",
                ask=(self._previous or "any",),
                stop_at_other_key=True,
            )
        except gate.OtherKey:
            # The reboot has happened already, or the gate will say who answers.
            return False
        if not system.reboot_sent:
            return False
        self._previous = system.boot_id
        self._left(system.is_rescue)
        return True

    def _left(self, is_rescue: bool) -> None:
        """The reboot was sent to a rescue, or to another system."""
        self._remote.leave()
        if is_rescue or self._given["expect"] == "rescue":
            # A new installation, or a new rescue, has new keys.
            self._target.forget()

    def _present(self) -> KnownHosts:
        """The host keys of the system that runs now."""
        rescue = self._flow.known_hosts("rescue")
        if rescue.boot_id and (rescue.boot_id == self._previous or (rescue.of_this_run and not self._previous)):
            return rescue
        return self._flow.known_hosts("os")

    def _prove(self) -> System:
        given = self._given
        if self._keys:
            self._target.require(self._keys)
        expect_os = given["expect"] == "os"
        wait_cloud_init = given["wait_cloud_init"] and expect_os
        ask = ("", str(min(CLOUD_INIT, int(given["cloud_init_timeout"])))) if wait_cloud_init else ()
        system = gate.wait_for(
            self._remote,
            self._target,
            lambda system: gate.judge_system(system, self._previous, given["expect"]),
            given["timeout"],
            "the new system" if expect_os else "the rescue",
            ask=ask,
            # Some images make their host keys while cloud-init runs.
            prove=False,
            same_boot=not given["reboot"],
            way_out=_put_there(self._flow.name, self._target.path) if expect_os else "",
            mask=self._masker.text,
        )
        if not expect_os:
            self._target.prove(system.boot_id)
            return system
        began, boot_id = time.monotonic(), system.boot_id

        def ready(system: System) -> gate.Decision:
            if system.boot_id != boot_id:
                # cloud-init may reboot the machine itself (power_state); what counts is the boot that stays.
                found = gate.judge_system(system, self._previous, "os")
                if found.verdict is not gate.Verdict.OPEN:
                    return found
            found = self._judge_proof(system)
            if wait_cloud_init and not self._proof.final:
                # The bootstrap data may be what brings the proof.
                ended = gate.judge_cloud_init(system, time.monotonic() - began)
                if ended.verdict is not gate.Verdict.OPEN:
                    return ended
            # Last, as all else says more of a system than its name.
            named = given["hostname"] and given["check_hostname"] and not given["adopt"]
            return gate.judge_hostname(system, given["hostname"]) if named and not self._proof.why else found

        if ready(system).verdict is gate.Verdict.OPEN:
            self._target.prove(system.boot_id)
            return system
        return gate.wait_for(
            self._remote,
            self._target,
            ready,
            given["cloud_init_timeout"],
            "cloud-init of the new system",
            ask=ask,
            mask=self._masker.text,
        )

    def _judge_proof(self, system: System) -> gate.Decision:
        """Whether this system is the installation that was made."""
        given = self._given
        self._proof = judge(
            self._flow.name,
            system.origin,
            system.record,
            given["installation"] or "",
            given["written"],
            given["proof"],
            given["adopt"],
            self._noted(),
            system.seeded,
        )
        if not given["reboot"]:
            shown = given["installation"] or installed.installation_of(system.record)
            succeeded = intents.seen_to_succeed(self._intent(), shown)
            machine, record = self._flow.name, system.record
            self._proof = of_earlier_run(self._proof, machine, record, succeeded, given["proof"])
        if self._proof.why:
            return gate.Decision(gate.Verdict.NEVER, self._proof.why)
        return gate.Decision(gate.Verdict.OPEN)

    def _noted(self) -> list[dict[str, Any]] | None:
        """The disks that an earlier run wrote, when its proof is finished now."""
        given = self._given
        if given["written"] is not None or not given["installation"] or not given["intent_file"]:
            return None
        with contextlib.suppress(intents.IntentError):
            return intents.written_of(given["intent_file"], given["installation"])
        return None

    def _intent(self) -> dict[str, Any] | None:
        """What this controller knows of the installation."""
        with contextlib.suppress(intents.IntentError):
            return intents.read(self._given["intent_file"]) if self._given["intent_file"] else None
        return None

    def _facts(self, system: System) -> dict[str, Any]:
        cloud_init = system.cloud_init
        return {
            "hostname": system.hostname,
            "boot_id": system.boot_id,
            "system": {
                "hostname": system.hostname,
                "boot_id": system.boot_id,
                "previous_boot_id": self._previous or "",
                "os": system.os,
                "kernel": system.kernel,
                "cloud_init": {
                    "status": cloud_init.status,
                    "errors": cloud_init.errors,
                    "warnings": cloud_init.warnings,
                    "datasource": cloud_init.datasource,
                },
                "installed": public_record(system.record),
                "host_key_fingerprints": self._target.fingerprints(),
            },
        }

    def _release_claim(self) -> None:
        """The new system is proven: no later run may write its disks without consent."""
        given = self._given
        if given["expect"] != "os":
            return
        try:
            if given["claim_file"]:
                claims.release(given["claim_file"])
            if given["intent_file"]:
                intents.close(given["intent_file"], intents.DONE, proof=self._proof.kind)
        except (claims.ClaimError, intents.IntentError) as exc:
            display.warning(f"{self._flow.name}: {exc}")

    def _give_up(self) -> None:
        """This run failed: a person may repair the machine now, so no later run may write it without consent."""
        if self._given["expect"] == "os" and self._given["intent_file"]:
            with contextlib.suppress(intents.IntentError):  # the reason of the failure says more
                intents.close(self._given["intent_file"], intents.GIVEN_UP)

    def _write_record(self, system: System, facts: dict[str, Any]) -> bool:
        given = self._given
        image_url, command = given["image_url"], given["command"]
        installation = given["installation"] or installed.installation_of(system.record)
        if not given["reboot"]:
            # What an earlier run wrote is not what this one is asked for.
            intent = self._intent() or {}
            known = installation and intent.get("installation") == installation
            image_url, command = (intent.get(key) if known else None for key in ("image_url", "command"))
        about_image = system.record or image_url or command
        if given["expect"] != "os" or not given["write_record"] or not about_image or not self._proof.verified:
            return False
        now = to_rfc3339(time.time())
        record = complete_record(
            system.record, self._flow.name, installation, image_url, command, self._proof.kind, now
        )
        if record is None:
            return False
        try:
            code, answer = self._remote.run(WRITE_RECORD, json.dumps(record, sort_keys=True))
        except Unreachable:
            return False
        # Best effort: the root file system may be read-only, or the user not root.
        if code != 0 or "recorded=1" not in answer:
            return False
        facts["installed"] = public_record(record)
        return True
