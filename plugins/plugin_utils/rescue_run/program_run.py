# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One program in one rescue, from the gate to the logs: what image_url_command and robot_installimage share."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, intents, probe, safe_files
from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import Masker
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line, printable
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol, targets

from ..progress import display
from ..records import claims
from ..report.results import ENDS_WITH
from ..ssh import gate
from ..ssh.remote import Patience, Remote, Unreachable
from ..ssh.system_probe import System
from . import rescue_programs, upload, watch
from .flow import Flow, Host, Turn, parse_host_keys

#: How a refusal begins that comes before the program.
NOT_STARTED = "nothing was started"
#: Lines of its output that a message shows.
SHOWN = 5


class StartFailed(Exception):
    """The program could not be started; nothing was written to a disk by it.

    ``untouched``: the machine says that nothing was emptied for it, either.
    """

    def __init__(self, message: str, untouched: bool = False) -> None:
        super().__init__(message)
        self.untouched = untouched


class RescueRun:
    """One program on one machine. A subclass names it, and says what it adds to the flow."""

    #: What starts or attaches on the machine, and what people call what it runs.
    step = ""
    noun = "image command"
    #: How lines begin that are for us and not for people.
    quiet: tuple[str, ...] = ()
    #: Whether it changes disks from its start on, and does not look at them first.
    writes_at_once = True

    def __init__(
        self, remote: Remote, given: dict[str, Any], flow: Flow, job: jobs.Job, logs: watch.Logs, masker: Masker
    ) -> None:
        self._remote, self._given = remote, given
        self._flow, self._job, self._logs, self._masker = flow, job, logs, masker
        self._known_hosts = flow.known_hosts("rescue")
        self._host_keys = parse_host_keys(given["host_keys"])
        self._installation = ""
        self._turn = Turn()

    # --- what a subclass adds

    def _before_start(self, system: System) -> None:
        """What must be there before the program starts; raises :class:`StartFailed` or :class:`Unreachable`."""

    def _more(self, stdout: bytes | None, best_effort: bool) -> dict[str, Any]:
        """Results of this program only; ``stdout``: the end of what it printed, None when not fetched."""
        return {}

    def _touched(self) -> bool:
        """Whether a program that failed may have changed the machine."""
        return True

    def wrote(self) -> bool:
        """Whether its disks may hold what it wrote, so that the next run may write them without asking."""
        return self._touched()

    def _explain(self, status: protocol.Status, about: dict[str, Any]) -> str:
        """Why the program did not succeed."""
        text = f"the {self.noun} failed: {protocol.explain_failure(status, self._job.rule)}"
        return text + self._last_message(about)

    @staticmethod
    def _last_message(about: dict[str, Any]) -> str:
        return f" Its last message: {about['message'].rstrip('.')}." if about["message"] else ""

    # --- the flow

    def result(self, about: dict[str, Any]) -> dict[str, Any]:
        """Gate, start, watch, collect; always a result, never an exception of the flow."""
        flow, given = self._flow, self._given
        try:
            system = gate.pass_rescue(self._remote, self._known_hosts, self._host_keys, given)
        except gate.GateClosed as exc:
            msg = self._masker.text(f"{flow.name}: {exc}")
            return flow.result(failed=True, in_rescue=False, permanent=exc.final, msg=msg, **exc.seen, **about)
        about = dict(about, in_rescue=True, boot_id=system.boot_id, hostname=system.hostname)
        while True:
            self._turn = flow.turns.take(self._would_start, self._waits)
            try:
                if not self._turn.waited or self._is_still(system):
                    return self._have_run(system, about)
            finally:
                self._turn.leave()
            try:  # others write meanwhile
                found = gate.pass_rescue(self._remote, self._known_hosts, self._host_keys, given)
                if found.boot_id != system.boot_id:  # what was looked at, and permitted, is of the boot before
                    raise gate.GateClosed("another rescue answers, which this run has not started", found)
            except gate.GateClosed as exc:
                flow.timeline.to(boot_states.PROVISIONING_FAILED)
                msg = f"{flow.name}: it was lost while it waited in its rescue, and nothing was written: "
                msg += f"{str(exc).rstrip('.')}. The next run looks at what it runs then"
                about.update(exc.seen, permanent=exc.final, msg=self._masker.text(msg))
                return flow.result(failed=True, **about)

    def _is_still(self, system: System) -> bool:
        """Whether the system that has waited is the one that answers."""
        try:
            is_still = self._remote.run("cat /proc/sys/kernel/random/boot_id")[1].strip() == system.boot_id
        except Unreachable:
            return False
        if is_still:
            self._progress("its turn has come")
        return is_still

    def _is_silent(self, seconds: float) -> None:
        self._turn.leave()
        self._progress(f"has not answered for {seconds:.0f} s; it is waited for as long as its {self.noun} may take")

    def _would_start(self) -> bool:
        """Whether it begins to write; it does not wait for its turn when it goes on with what runs or has ended."""
        try:
            return would_start(self._remote, self._job)
        except Unreachable:
            return True

    def _waits(self) -> None:
        self._flow.timeline.to(boot_states.WAITING_IN_RESCUE)
        self._progress(f"waits in its rescue for its turn (kubenode_throttle: {self._flow.turns.limit})")

    def _have_run(self, system: System, about: dict[str, Any]) -> dict[str, Any]:
        """Start the program or attach to it, watch it, and collect what it left."""
        flow, given = self._flow, self._given
        started = time.monotonic()
        try:
            self._logs.begin()
            attached, finished = self._start(system)
            flow.timeline.to(boot_states.RUNNING_IMAGE_COMMAND)
            watcher = watch.Watcher(
                self._remote, self._job.digest, system.boot_id, self._log, self._progress, shown=self._shown,
                measured=lambda done, total: display.measured(flow.name, done, total), silent=self._is_silent,
            )  # fmt: skip
            status = watcher.until_end(self._job.limit, given["poll"])
        except (StartFailed, watch.WatchFailed) as exc:
            never_ran = isinstance(exc, StartFailed) and str(exc).startswith(NOT_STARTED)
            if not never_ran:
                flow.timeline.to(boot_states.RUNNING_IMAGE_COMMAND)
            flow.timeline.to(boot_states.PROVISIONING_FAILED)
            about.update(self._collect(best_effort=True))
            if isinstance(exc, StartFailed):  # what an earlier program printed is not its reason
                about.update(stdout_tail=[], stderr_tail=[], interleaved_tail=[])
            text = str(exc) if never_ran else f"the {self.noun} failed: {exc}"
            msg = self._masker.text(f"{flow.name}: {text}") + self._ending(about)
            about["seconds"] = round(time.monotonic() - started, 1)
            return flow.result(failed=True, changed=isinstance(exc, watch.WatchFailed), msg=msg, **about)
        if status.output_error:  # ours, nothing of it is the file's
            display.warning(f"{flow.name}: {self.noun}: {status.output_error}")
        about["written"] = self._written()
        empty = [disk["name"] for disk in about["written"] or [] if not disk["holds"] and not disk["kinds"]]
        succeeded = status.succeeded(self._job.rule) and not empty
        if given["intent_file"]:
            with contextlib.suppress(intents.IntentError):  # without it no later run can finish the proof
                intents.note_written(given["intent_file"], about["written"], succeeded)
        about.update(
            installation=self._installation,
            attached=attached,
            rc=status.exit_code,
            seconds=status.seconds,
            message=self._shown(status.message),
            **self._collect(),
        )
        if self.wrote():
            self._note_changed()
        if status.succeeded(self._job.rule) and empty:
            flow.timeline.to(boot_states.PROVISIONING_FAILED)
            msg = f"{flow.name}: the {self.noun} ended well, but {', '.join(empty)} holds nothing: it wrote nowhere, "
            msg += f"or to another disk. Log: {about['log_file']}{self._ending(about)}"
            return flow.result(failed=True, changed=True, msg=msg, **about)
        if succeeded:
            msg = f"the {self.noun} succeeded after {status.seconds:.1f} s" + (
                " (in an earlier run)" if finished else ""
            )
            return flow.result(changed=not finished, msg=msg, **about)
        flow.timeline.to(boot_states.PROVISIONING_FAILED)
        msg = self._masker.text(f"{flow.name}: {self._explain(status, about)} Log: {about['log_file']}")
        msg += self._ending(about)
        return flow.result(failed=True, changed=self._touched(), msg=msg, **about)

    def _start(self, system: System) -> tuple[bool, bool]:
        try:
            self._before_start(system)
        except Unreachable as exc:
            raise StartFailed(f"SSH was lost before it was started ({exc.detail}); run again") from exc
        before = self._note_start()
        # After a lost answer, it is not known what was emptied and what was changed since; the next run finds out.
        try:
            answer = start(self._remote, self.step, self._job, self._masker, again=not self._job.empty)
        except StartFailed as exc:
            if exc.untouched:
                self._take_back(before)
            raise
        if self.writes_at_once:
            self._note_changed()
        self._installation = str(answer.get("installation") or "")
        if not answer["attached"]:
            # What will be written makes keys of its own.
            self._flow.known_hosts("os").forget()
        return bool(answer["attached"]), bool(answer["finished"])

    def _note_start(self) -> Any:
        """Write into the intent that a disk may be changed from now on; returns what stood there before."""
        path = self._given["intent_file"]
        try:
            if path:
                intents.forget_success(path)
            return claims.note_begun(path, surely=False) if path else None
        except (claims.ClaimError, intents.IntentError) as exc:
            raise StartFailed(f"{NOT_STARTED}: {exc}") from exc

    def _note_changed(self) -> None:
        """The same, now that it is known; without it, it stays a maybe."""
        if self._given["intent_file"]:
            with contextlib.suppress(claims.ClaimError):
                claims.note_begun(self._given["intent_file"])

    def _take_back(self, before: Any) -> None:
        """No disk was changed: the words of this run end with it."""
        path = self._given["intent_file"]
        if path:
            with contextlib.suppress(claims.ClaimError):  # it comes again right now, and is shown
                claims.take_back(path, before)
            end_refused(self._flow.name, path)

    def _send(self, kind: upload.Kind, source: Path, target: str, digest: str) -> None:
        """Put a file of the controller into the rescue, when the program will be started and needs it."""
        if not would_start(self._remote, self._job):
            return
        if kind is upload.IMAGE:  # as long as writing it; a command is small, and may be refused
            self._flow.timeline.to(boot_states.RUNNING_IMAGE_COMMAND)
        try:
            upload.upload(self._remote, kind, source, target, digest, self._progress)
        except (upload.UploadFailed, OSError) as exc:
            raise StartFailed(str(exc)) from exc

    def _written(self) -> list[probe.WrittenDisk] | None:
        """The disks of the job: what they hold now, and what they held ``before`` it; None when it is unknown."""
        before = shlex.quote(f"{protocol.BASE}/{protocol.BEFORE}")
        script = f"cat {before} 2>/dev/null; echo; echo and now\n{targets.LOOK}"
        try:
            then, marked, now = self._remote.run(script, *self._job.devices)[1].partition("\nand now\n")
        except Unreachable:
            return None
        disks, earlier = probe.parse_written(now) if marked else None, probe.parse_written(then)
        for disk in disks or []:
            old = [one for one in earlier or [] if one["name"] == disk["name"]]
            disk["before"] = sorted({*old[0]["holds"], *old[0]["kinds"]}) if old else None
        return disks

    def _log(self, data: bytes) -> None:
        for line in self._logs.append(data):
            display.log_line(self._flow.name, printable(line))

    def _progress(self, message: str) -> None:
        display.progress(self._flow.name, self._shown(message))

    def _shown(self, text: str) -> str:
        """One line for people; masked before it is cut, since half a secret is one, too."""
        return one_line(self._masker.text(text))

    def _collect(self, best_effort: bool = False) -> dict[str, Any]:
        last: dict[str, bytes] = {}
        for name in ("stdout", "stderr"):
            data = self._keep(name, f"sh {watch.RUNNER} fetch {name}", best_effort)
            if data is not None:
                last[name] = data
        stdout, stderr = (last.get(name, b"").decode("utf-8", "replace").splitlines() for name in ("stdout", "stderr"))
        found = {
            "stdout_tail": self._tail(stdout),
            "stderr_tail": self._tail(stderr),
            "interleaved_tail": self._tail(self._logs.tail, words=2),
            "log_file": str(self._logs.interleaved),
        }
        return {**found, **self._more(last.get("stdout"), best_effort)}

    def _tail(self, lines: Iterable[str], words: int = 0) -> list[str]:
        """The last lines that are for people; ``words``: how many there are in front of the text of each."""
        texts = [(line, (line.split(" ", words) + [""] * words)[words]) for line in lines]
        return [printable(line, 500) for line, text in texts if not text.startswith(self.quiet)][-watch.TAIL :]

    @staticmethod
    def _ending(about: dict[str, Any]) -> str:
        """The last lines of stderr for a message; of stdout, where there are no others."""
        for stream in ("stderr",) if about.get("debug_tail") else ("stderr", "stdout"):
            lines = [line for line in about[f"{stream}_tail"] if line.strip()][-SHOWN:]
            if lines:
                return ENDS_WITH[stream] + "\n".join(f"  {line}" for line in lines)
        return ""

    def _keep(self, name: str, script: str, best_effort: bool) -> bytes | None:
        """Store the log that ``script`` prints (gzip, base64, ``end=1``) as ``name``; returns its end."""
        try:
            return self._logs.store(name, self._fetch(script, best_effort))
        except (Unreachable, protocol.ProtocolError, OSError) as exc:
            if not best_effort:
                display.warning(f"{self._flow.name}: the {name} of the {self.noun} was not fetched: {exc}")
            return None

    def _fetch(self, script: str, best_effort: bool) -> bytes:
        patience = Patience(self._remote, 0) if best_effort else Patience(self._remote)
        while True:
            try:
                return protocol.parse_fetch(self._remote.run(script)[1])
            except Unreachable as exc:
                patience.bear(exc)


def would_start(remote: Remote, job: jobs.Job) -> bool:
    """Whether the module will start the program, and not attach to one that runs or has succeeded."""
    answer = remote.run(f"[ ! -e {watch.RUNNER} ] || sh {watch.RUNNER} status 0 0")[1]
    try:
        status = protocol.parse_status(answer) if answer.strip() else None
    except protocol.ProtocolError:
        return True
    if status is None or protocol.decide(status, job.digest, job.rule) == protocol.START:
        return True
    # See `targets.decider`, which decides it there.
    if status.state == protocol.RUNNING or not (job.empty or job.erases):
        return False
    kept = remote.run(f"cat {protocol.BASE}/{protocol.INSTALLATION} 2>/dev/null || :")[1].strip()
    return kept != job.installation


def goes_on(host: Host, job: jobs.Job) -> bool:
    """For check mode: whether a run would go on with what was started in the rescue; False where that is not known."""
    try:
        return host.is_reached and not would_start(host.remote, job)
    except Unreachable:
        return False


def start(remote: Remote, step: str, job: jobs.Job, masker: Masker, again: bool = True) -> dict[str, Any]:
    """The answer of what starts a program in the rescue or attaches to it; raises :class:`StartFailed`."""
    try:
        # Starting is attaching when it was started already, so it may be tried again.
        return call_step(remote, step, again, payload=job.pack())
    except StepFailed as exc:
        raise StartFailed(masker.text(str(exc)), exc.answer.get("begun") is False) from exc


def open_logs(directory: str | None, name: str, masker: Masker, stem: str = "image-url-command") -> watch.Logs:
    """The logs of a machine, their directory made; fails the task when nothing can be written there."""
    logs = watch.Logs(directory or watch.default_directory(), name, masker, stem)
    try:
        logs.prepare()
    except OSError as exc:
        text = safe_files.unwritable(logs.directory, exc, logs.directory)
        raise AnsibleActionFail(f"log_dir {text}") from None
    return logs


def end_refused(name: str, intent_file: str, maybe: bool = False) -> None:
    """A run was refused before it changed a disk: no later run may write what this one was allowed to."""
    try:
        claims.release_unbegun(intent_file, maybe)
    except claims.ClaimError as exc:
        display.warning(f"{name}: {exc}")


# --- a call of ``module_utils/_rescue/steps.py`` in a rescue: the program and one request go there, one answer returns


#: FOLDER SIZE: the program is the first bytes of stdin, the request, which holds secrets, the others. The folder is
#: named for its sources, so that the next request finds it there, compiled.
_SCRIPT = r"""
exec 2>&1
umask 077
if [ -e "$1/__main__.py" ]; then head -c "$2" >/dev/null
else
  mkdir -p "$1.$$" && head -c "$2" | tar -xzf - -C "$1.$$" && mv -T "$1.$$" "$1"
  rm -rf "$1.$$"
fi
exec python3 -I -S -- "$1"
"""
_FOLDER = f"{protocol.BASE}/{protocol.STATE_DIR}/steps"


class StepFailed(Exception):
    """The step was not done; the text says why and what to do. ``answer``: what the program answered."""

    def __init__(self, message: str, answer: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.answer = answer or {}


def call_step(remote: Remote, step: str, again: bool = False, **request: Any) -> dict[str, Any]:
    """The answer to a request; ``again``: it may be sent once more when SSH is lost. Raises :class:`StepFailed`."""
    program = rescue_programs.steps()
    folder = f"{_FOLDER}-{rescue_programs.steps_digest()}"
    data = program + json.dumps({"step": step, **request}).encode("utf-8")
    patience = Patience(remote) if again else Patience(remote, 0)
    while True:
        try:
            code, text = remote.run(_SCRIPT, folder, str(len(program)), data=data)
            break
        except Unreachable as exc:
            try:
                patience.bear(exc)
            except Unreachable:
                raise StepFailed(f"SSH was lost ({exc}); run again") from exc
    lines = text.strip().splitlines()
    try:
        answer = json_value(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        shown = one_line(" ".join(lines[-3:]), 1000) or "nothing"
        full = ". Its memory is full: reset the machine, so that it boots a new rescue" if "space left" in text else ""
        raise StepFailed(f"the rescue did not do its part (exit code {code}): {shown}{full}")
    if answer.get("failed"):
        raise StepFailed(one_line(str(answer.get("msg") or "no reason given"), 2000), answer)
    return answer
