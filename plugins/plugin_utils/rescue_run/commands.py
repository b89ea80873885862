# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What image_url_command and pre_provision_command do on the controller: check, gate, upload, start, watch, decide."""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._common import (
    boot_states,
    installed,
    masking,
    safe_files,
)
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line, printable
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import (
    image_url,
    pre_provision,
    protocol,
    steps,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs

from ..progress import display
from ..ssh import gate
from ..ssh.remote import Remote, Unreachable
from ..ssh.system_probe import System
from . import image_inputs, program_run, rescue_programs, upload, watch
from .flow import BadInput, Flow, Host, check_consent, check_installation, intent_for, parse_host_keys, run_id
from .image_inputs import Command, interpreter_of


def image_url_command(host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Run an image command in the rescue of one machine."""
    flow = host.flow(given)
    check_consent(given)
    inputs = _image_examined(host, given, flow.name)
    installation = check_installation(given["installation"]) or installed.new_installation()
    job = jobs.Job(
        command=b"" if inputs.command.is_large else inputs.command.head,
        uploaded=_uploaded(inputs) if inputs.command.is_large else {},
        bootstrap=inputs.bootstrap,
        arguments=inputs.arguments,
        token=given["oci_registry_auth_token"] or "",
        limit=given["timeout"],
        rule=given["success"],
        runner=rescue_programs.runner_text(),
        installation=installation,
        devices=inputs.root_devices,
        consent=given["consent"],
        reinstall=given["reinstall"],
        empty=given["empty"],
        still_empty=given["still_empty"],
        check_image=given["check_image"],
        intent=intent_for(
            given, flow.name, installation, image_url=image_url.redact(inputs.image_url), command=given["command"]
        ),
    )
    about = {"job": job.digest, "image_url": image_url.redact(inputs.image_url), "command_path": inputs.command.path}
    if host.check_mode:
        would = f"would run {inputs.command.path} in the rescue"
        if program_run.goes_on(host, job):
            would = f"would go on with the {ImageCommandRun.noun} of an earlier run"
        return flow.result(changed=True, msg=would, **about)
    secrets = [*masking.of_token(job.token), *masking.of_url(inputs.image_url)]
    masker = masking.Masker(secrets, masking.of_lines(job.bootstrap))
    logs = program_run.open_logs(given["log_dir"], flow.name, masker)
    run = ImageCommandRun(host.remote, given, flow, job, logs, masker)
    run.command = inputs.command
    return run.result(about)


def _image_examined(host: Host, given: dict[str, Any], name: str) -> image_inputs.Inputs:
    inputs, findings = image_inputs.examine(dict(given, name=name), given["command_dir"], host.read_file)
    findings += image_inputs.check_token(given["oci_registry_auth_token"])
    findings += image_inputs.check_seconds(given, timeout=1, rescue_timeout=0, poll=0.1)
    findings += image_inputs.check_addresses(given)
    if findings or inputs is None:
        raise BadInput(name, findings)
    return inputs


def _uploaded(inputs: image_inputs.Inputs) -> dict[str, Any]:
    """The options of the start for a command that was uploaded before: digest, size, and the digest of the job."""
    command = inputs.command
    try:
        digest = protocol.job_digest_in_pieces(command.pieces(), command.size, inputs.bootstrap, inputs.arguments)
    except OSError as exc:
        raise AnsibleActionFail(f"{inputs.name}: command {command.path}: it cannot be read ({exc.strerror})") from exc
    return {"sha256": command.sha256, "size": command.size, "digest": digest}


class ImageCommandRun(program_run.RescueRun):
    """One image command on one machine."""

    step = steps.IMAGE_COMMAND
    command: Command

    def _before_start(self, system: System) -> None:
        if self.command.is_large:
            target = f"{protocol.BASE}/{protocol.COMMANDS}/{self.command.sha256}"
            self._send(upload.COMMAND, Path(self.command.path), target, f"sha256:{self.command.sha256}")

    def _explain(self, status: protocol.Status, about: dict[str, Any]) -> str:
        text = protocol.explain_failure(status, self._job.rule, one_line(interpreter_of(self.command.head), 100))
        return f"the {self.noun} failed: {text}" + self._last_message(about)


NOUN, BEFORE = "pre-provision command", "before this run wrote anything"
#: Lines of its output in results and in the reason of a machine that it stopped.
TAIL, SHOWN = 20, 10
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}\Z")


def pre_provision_command(host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Run a pre-provision command in the rescue of one machine."""
    flow = host.flow(given)
    program, masker = _program_examined(host, given, flow.name)
    about: dict[str, Any] = {"command_path": program.path, "command_sha256": program.sha256}
    if host.check_mode:
        msg = f"would run {program.path} in the rescue, before anything is written"
        return flow.result(changed=True, msg=msg, **about)
    facts = {"KUBENODE_MACHINE": flow.name, "KUBENODE_PROVIDER": given["provider"], "KUBENODE_SERVER": given["server"]}
    name, runner = Path(program.path).name, rescue_programs.runner_text()
    job = pre_provision.make(name, program.sha256, flow.name, facts, given["timeout"], runner, run_id())
    logs = program_run.open_logs(given["log_dir"], "", masker, f"{flow.name}.pre-provision")
    return PreProvisionRun(host.remote, given, flow, program, job, logs, masker).result(about)


def _program_examined(host: Host, given: dict[str, Any], name: str) -> tuple[Command, masking.Masker]:
    spec = {"pre_provision_command": given["command"], "pre_provision_timeout": given["timeout"]}
    program, findings = image_inputs.examine_pre_provision(spec, given["command_dir"], host.find_file)
    own = {"pre_provision_command": "command", "pre_provision_timeout": "timeout"}
    findings = [in_variables(finding, own) for finding in findings]
    findings += image_inputs.check_seconds(given, rescue_timeout=0, poll=0.1)
    findings += image_inputs.check_addresses(given)
    if given["server"] and not _SERVER.match(given["server"]):
        findings.append(f"server {one_line(given['server'], 60)!r}: give the provider's id or number of the server")
    bootstrap = image_inputs.read_bootstrap(given, host.read_file, findings)
    if findings or program is None or bootstrap is None:
        raise BadInput(name, findings or ["command is empty; name the program"])
    return program, masking.Masker(masking.of_texts(given["secrets"]), masking.of_lines(bootstrap))


class PreProvisionRun:
    """The program on one machine."""

    def __init__(
        self,
        remote: Remote,
        given: dict[str, Any],
        flow: Flow,
        program: Command,
        job: jobs.Job,
        logs: watch.Logs,
        masker: masking.Masker,
    ) -> None:
        self._remote, self._given, self._flow = remote, given, flow
        self._program, self._job, self._logs, self._masker = program, job, logs, masker
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL)

    def result(self, about: dict[str, Any]) -> dict[str, Any]:
        """Gate, start, watch, decide; always a result, never an exception of the flow."""
        flow, given = self._flow, self._given
        pin, keys = flow.known_hosts("rescue"), parse_host_keys(given["host_keys"])
        try:
            system = gate.pass_rescue(self._remote, pin, keys, given)
        except gate.GateClosed as exc:
            msg = f"{flow.name}: {exc}"
            return flow.result(failed=True, in_rescue=False, permanent=exc.final, msg=msg, **exc.seen, **about)
        about = {**about, "in_rescue": True, "permanent": False, "boot_id": system.boot_id, "hostname": system.hostname}
        try:
            answer = self._start()
            if answer["written"]:
                msg = f"the {NOUN} is not run: a program that was started in this rescue is writing, or has written"
                return flow.result(msg=msg, ran=False, **about)
            self._logs.begin()
            status = self._watch(system.boot_id)
        except (program_run.StartFailed, upload.UploadFailed, watch.WatchFailed, Unreachable, OSError) as exc:
            why = f"SSH was lost ({exc}); run again" if isinstance(exc, Unreachable) else str(exc)
            if isinstance(exc, OSError) and safe_files.is_full(exc) and exc.filename:
                why = safe_files.unwritable(exc.filename, exc)
            return self._failed(f"failed {BEFORE}: {self._masker.text(why)}", about)
        about.update(
            ran=True,
            attached=bool(answer["attached"]),
            rc=status.exit_code,
            seconds=status.seconds,
            output_tail=list(self._tail),
            log_file=str(self._logs.interleaved),
        )
        if pre_provision.passed(status):
            msg = f"the {NOUN} lets the machine go on, after {status.seconds:.1f} s"
            return flow.result(changed=True, msg=msg, **about)
        about.update(changed=True, permanent=pre_provision.is_word(status))
        if about["permanent"] and self._given["intent_file"]:
            # What an earlier run was allowed and had not begun ends with this one; the next one asks again.
            program_run.end_refused(self._flow.name, self._given["intent_file"])
        interpreter = one_line(interpreter_of(self._program.head), 100)
        why = pre_provision.explain(status, interpreter)
        text = f"stopped this machine {BEFORE}: {why} Log: {self._logs.interleaved}"
        shown = list(self._tail)[-SHOWN:]
        if shown:
            text += "\nIts output ends with:\n" + "\n".join(f"  {line}" for line in shown)
        return self._failed(text, about)

    def _start(self) -> dict[str, Any]:
        program, name = self._program, Path(self._program.path).name
        upload.upload(
            self._remote,
            upload.PRE_PROVISION,
            Path(program.path),
            f"{pre_provision.UPLOADS}/{name}",
            f"sha256:{program.sha256}",
            lambda _message: None,
        )
        return program_run.start(self._remote, steps.PRE_PROVISION, self._job, self._masker)

    def _watch(self, boot_id: str) -> protocol.Status:
        watcher = watch.Watcher(
            self._remote,
            self._job.digest,
            boot_id,
            self._log,
            lambda _message: None,
            runner=pre_provision.RUNNER,
            noun=NOUN,
            harm="This run has written nothing",
        )
        return watcher.until_end(self._job.limit, self._given["poll"])

    def _log(self, data: bytes) -> None:
        for line in self._logs.append(data):
            display.log_line(self._flow.name, printable(line))
            # seconds, stream, text
            self._tail.append(printable((line.split(" ", 2) + ["", ""])[2], 300))

    def _failed(self, text: str, about: dict[str, Any]) -> dict[str, Any]:
        self._flow.timeline.to(boot_states.PROVISIONING_FAILED)
        msg = f"{self._flow.name}: the {NOUN} {text}"
        return self._flow.result(**{**about, "failed": True, "msg": msg})
