# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots a machine and proves which system answers afterwards. All of it happens on the controller and over SSH."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import (
    boot_states,
    installed,
    intents,
    masking,
    ssh_access,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common.names import host_name_error
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import to_rfc3339

from ..progress import display
from ..records import claims
from ..ssh import gate
from ..ssh.known_hosts import KnownHosts
from ..ssh.remote import Remote, Unreachable
from ..ssh.system_probe import System
from . import image_inputs, proof
from .flow import BadInput, Flow, Host, check_installation, parse_host_keys

#: Seconds that the machine may wait for cloud-init before it answers.
CLOUD_INIT = 10
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
        self._proof = proof.Proof(proof.NONE)

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
            about.update(proof=proof.UNPROVEN, verified=False)
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
        return self._given["expect"] == "os" and self._given["proof"] in (proof.PORT, proof.NONE)

    def _without_login(self, sent: bool) -> dict[str, Any]:
        """For systems without SSH, or without our key."""
        flow, kind = self._flow, self._given["proof"]
        about = {"proof": kind, "verified": False, "record_written": False}
        if kind == proof.PORT:
            gate.wait_for_port(
                self._remote, self._target, self._previous, self._given["timeout"], any_boot=not self._given["reboot"]
            )
        flow.timeline.to(boot_states.OPERATING_SYSTEM_RUNNING)
        self._release_claim()
        asked = "the reboot was sent" if self._given["reboot"] else "it was installed, and no system was asked"
        text = "a system answers" if kind == proof.PORT else asked
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
        system = gate.wait_for(
            self._remote,
            self._target,
            lambda system: gate.judge_system(system, self._previous, given["expect"]),
            given["timeout"],
            "the new system" if expect_os else "the rescue",
            ask=("", str(CLOUD_INIT)) if wait_cloud_init else (),
            # Some images make their host keys while cloud-init runs.
            prove=False,
            same_boot=not given["reboot"],
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
            ask=("", str(CLOUD_INIT)) if wait_cloud_init else (),
            mask=self._masker.text,
        )

    def _judge_proof(self, system: System) -> gate.Decision:
        """Whether this system is the installation that was made."""
        given = self._given
        self._proof = proof.judge(
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
            self._proof = proof.of_earlier_run(self._proof, machine, record, succeeded, given["proof"])
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
                "installed": proof.public_record(system.record),
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
        record = proof.complete_record(
            system.record, self._flow.name, installation, image_url, command, self._proof.kind, now
        )
        if record is None:
            return False
        try:
            code, answer = self._remote.run(proof.WRITE_RECORD, json.dumps(record, sort_keys=True))
        except Unreachable:
            return False
        # Best effort: the root file system may be read-only, or the user not root.
        if code != 0 or "recorded=1" not in answer:
            return False
        facts["installed"] = proof.public_record(record)
        return True
