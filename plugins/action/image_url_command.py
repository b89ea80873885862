# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of image_url_command: check, gate, start, watch, collect."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils import _states
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options, protocol
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.plugin_utils import _gate, _inputs, _logs, _say, _watch
from ansible_collections.kubenode.provision.plugins.plugin_utils._flow import Flow, parse_host_keys
from ansible_collections.kubenode.provision.plugins.plugin_utils._remote import Remote, Unreachable
from ansible_collections.kubenode.provision.plugins.plugin_utils._runner import runner_text
from ansible_collections.kubenode.provision.plugins.plugin_utils._text import Masker, one_line, printable

MODULE = "kubenode.provision.image_url_command"
TAIL = 20


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task for one machine."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        given = self.validate_argument_spec(argument_spec=options.image_url_command_spec())[1]
        flow = Flow(given, task_vars)
        inputs = self._inputs(given, flow.machine)
        job = jobs.Job(
            command=inputs.command.content,
            bootstrap=inputs.bootstrap,
            arguments=inputs.arguments,
            token=given["oci_registry_auth_token"] or "",
            limit=given["timeout"],
            rule=given["success"],
            runner=runner_text(),
        )
        about = {
            "job": job.digest,
            "image_url": image_url.redact(inputs.image_url),
            "command_path": inputs.command.path,
        }
        if self._task.check_mode:
            return flow.result(changed=True, msg=f"would run {inputs.command.path} in the rescue", **about)
        masker = Masker([job.token, *image_url.secrets_of(inputs.image_url)])
        logs = _logs.Logs(given["log_dir"] or _logs.default_directory(), flow.machine, masker)
        try:
            logs.prepare()
        except OSError as exc:
            raise AnsibleActionFail(f"log_dir {str(logs.directory)!r} cannot be written: {exc.strerror}") from exc
        return _Run(self, task_vars, given, flow, job, logs, masker).result(about)

    def _inputs(self, given: dict[str, Any], machine: str) -> _inputs.Inputs:
        inputs, findings = _inputs.examine(dict(given, name=machine), given["command_dir"], _inputs.file_reader(self))
        findings += _inputs.check_token(given["oci_registry_auth_token"])
        for name, least in (("timeout", 1), ("rescue_timeout", 0), ("poll", 0.1)):
            if given[name] < least:
                findings.append(f"{name} {given[name]}: give a number of seconds, at least {least}")
        if findings or inputs is None:
            raise AnsibleActionFail(f"{machine}: " + "; ".join(findings))
        return inputs


class _Run:
    """One image command on one machine, from the gate to the logs."""

    def __init__(
        self,
        action: ActionModule,
        task_vars: dict[str, Any],
        given: dict[str, Any],
        flow: Flow,
        job: jobs.Job,
        logs: _logs.Logs,
        masker: Masker,
    ) -> None:
        self._action, self._task_vars, self._given = action, task_vars, given
        self._flow, self._job, self._logs, self._masker = flow, job, logs, masker
        self._remote = Remote(action)
        self._known_hosts = flow.known_hosts("rescue")
        self._host_keys = parse_host_keys(given["host_keys"])

    def result(self, about: dict[str, Any]) -> dict[str, Any]:
        """Gate, start, watch, collect; always a result, never an exception of the flow."""
        flow, given = self._flow, self._given
        try:
            system = self._pass_gate()
        except _gate.GateClosed as exc:
            seen = {"boot_id": exc.system.boot_id, "hostname": exc.system.hostname} if exc.system else {}
            return flow.result(
                failed=True, in_rescue=False, msg=self._masker.text(f"{flow.machine}: {exc}"), **seen, **about
            )
        about = dict(about, in_rescue=True, boot_id=system.boot_id, hostname=system.hostname)
        started = time.monotonic()
        try:
            self._logs.begin()
            attached, finished = self._start()
            flow.timeline.to(_states.RUNNING_IMAGE_COMMAND)
            watcher = _watch.Watcher(self._remote, self._job.digest, system.boot_id, self._log, self._progress)
            status = watcher.until_end(given["timeout"], given["poll"])
        except (_StartFailed, _watch.WatchFailed) as exc:
            flow.timeline.to(_states.RUNNING_IMAGE_COMMAND)
            flow.timeline.to(_states.PROVISIONING_FAILED)
            about.update(self._collect(best_effort=True))
            msg = self._masker.text(f"{flow.machine}: the image command failed: {exc}")
            about["seconds"] = round(time.monotonic() - started, 1)
            return flow.result(failed=True, changed=isinstance(exc, _watch.WatchFailed), msg=msg, **about)
        about.update(
            attached=attached,
            rc=status.exit_code,
            seconds=status.seconds,
            message=self._masker.text(one_line(status.message)),
            **self._collect(),
        )
        if status.succeeded(given["success"]):
            msg = f"the image command succeeded after {status.seconds:.1f} s" + (
                " (in an earlier run)" if finished else ""
            )
            return flow.result(changed=not finished, msg=msg, **about)
        flow.timeline.to(_states.PROVISIONING_FAILED)
        return flow.result(failed=True, changed=True, msg=self._explain(status, about), **about)

    def _pass_gate(self) -> Any:
        previous, pin = self._given["previous_boot_id"] or None, self._known_hosts
        # A boot that we asked for ourselves, or another run's: the next contact is a first one.
        if self._host_keys:
            pin.require(self._host_keys)
        elif not pin.of_this_run or pin.boot_id == previous:
            pin.forget()
        self._remote.use(pin, shared=True)
        self._remote.reset()
        system = _gate.wait_for(
            self._remote,
            pin,
            lambda system: _gate.judge_rescue(system, previous),
            self._given["rescue_timeout"],
            "the rescue",
        )
        self._remote.use(pin, shared=True)
        return system

    def _start(self) -> tuple[bool, bool]:
        arguments = {
            "image_url": image_url.redact(self._given["image_url"]),
            "command": self._given["command"],
            "payload": self._job.pack(),
        }
        for attempt in (1, 2, 3):
            try:
                answer = self._action._execute_module(
                    module_name=MODULE, module_args=arguments, task_vars=self._task_vars
                )
                break
            except AnsibleConnectionFailure as exc:
                # Starting is attaching when it was started already, so it may be tried again.
                if attempt == 3:
                    raise _StartFailed(f"SSH was lost while it was started ({one_line(str(exc))}); run again") from exc
                self._remote.reset()
        if answer.get("failed") or "attached" not in answer:
            reason = answer.get("msg") or "the module gave no answer"
            raise _StartFailed(one_line(f"{reason} {answer.get('module_stderr', '')}", 2000))
        if not answer["attached"]:
            # What will be written makes keys of its own.
            self._flow.known_hosts("os").forget()
        return bool(answer["attached"]), bool(answer["finished"])

    def _log(self, data: bytes) -> None:
        for line in self._logs.append(data):
            _say.log_line(self._flow.machine, printable(line))

    def _progress(self, message: str) -> None:
        _say.progress(self._flow.machine, self._masker.text(message))

    def _collect(self, best_effort: bool = False) -> dict[str, Any]:
        tail: list[str] = []
        for name in ("stdout", "stderr"):
            try:
                last = self._logs.store(name, self._fetch(name, attempts=1 if best_effort else 5))
            except (Unreachable, protocol.ProtocolError, OSError) as exc:
                if not best_effort:
                    _say.warning(f"{self._flow.machine}: the {name} of the image command was not fetched: {exc}")
                continue
            if name == "stdout":
                tail = [printable(line, 500) for line in last.decode("utf-8", "replace").splitlines()[-TAIL:]]
        return {"stdout_tail": tail, "log_file": str(self._logs.interleaved)}

    def _fetch(self, name: str, attempts: int) -> bytes:
        while True:
            try:
                return protocol.parse_fetch(self._remote.run(f"sh {_watch.RUNNER} fetch {name}")[1])
            except Unreachable:
                attempts -= 1
                if not attempts:
                    raise
                self._remote.reset()
                time.sleep(1)

    def _explain(self, status: protocol.Status, about: dict[str, Any]) -> str:
        reason = protocol.explain_failure(status, self._given["success"])
        text = f"{self._flow.machine}: the image command failed: {reason}"
        if about["message"]:
            text += f" Its last message: {about['message']}"
        return f"{text} Log: {about['log_file']}"


class _StartFailed(Exception):
    """The image command could not be started."""
