# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What image_url_command does on the controller: check, gate, start, watch, collect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, masking
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, protocol, steps
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs

from ..ssh.system_probe import System
from . import image_inputs, upload
from .flow import BadInput, Host, check_consent, check_installation, intent_for
from .image_inputs import Command, interpreter_of
from .program_run import RescueRun, open_logs
from .rescue_programs import runner_text


def run(host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Run an image command in the rescue of one machine."""
    flow = host.flow(given)
    check_consent(given)
    inputs = _examined(host, given, flow.name)
    installation = check_installation(given["installation"]) or installed.new_installation()
    job = jobs.Job(
        command=b"" if inputs.command.is_large else inputs.command.head,
        uploaded=_uploaded(inputs) if inputs.command.is_large else None,
        bootstrap=inputs.bootstrap,
        arguments=inputs.arguments,
        token=given["oci_registry_auth_token"] or "",
        limit=given["timeout"],
        rule=given["success"],
        runner=runner_text(),
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
        return flow.result(changed=True, msg=f"would run {inputs.command.path} in the rescue", **about)
    secrets = [*masking.of_token(job.token), *masking.of_url(inputs.image_url)]
    masker = masking.Masker(secrets, masking.of_lines(job.bootstrap))
    logs = open_logs(given["log_dir"], flow.name, masker)
    run = _Run(host.remote, given, flow, job, logs, masker)
    run.command = inputs.command
    return run.result(about)


def _examined(host: Host, given: dict[str, Any], name: str) -> image_inputs.Inputs:
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


class _Run(RescueRun):
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
