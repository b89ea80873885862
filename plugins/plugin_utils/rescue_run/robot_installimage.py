# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What robot_installimage does on the controller: check, gate, upload, start, watch, collect."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, masking
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line, printable
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import protocol, steps
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import autosetup, program, verdict
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs

from ..ssh.remote import Unreachable
from ..ssh.system_probe import System
from . import image_inputs, installimage_inputs, programs, upload
from .flow import BadInput, Host, check_consent, check_installation, intent_for
from .program_run import RescueRun, end_refused, open_logs

WORK = f"{protocol.BASE}/{specs.WORK}"
#: What else is kept of a run, and where it lies in the rescue.
EXTRA_LOGS = {"debug": program.DEBUG, "post-install": f"{WORK}/post-install.log"}

#: The shipped image command whose client of registries brings an image into a file, too.
_CLIENT = "image-url-command-oci"


def run(host: Host, given: dict[str, Any]) -> dict[str, Any]:
    """Run installimage in the rescue of one machine."""
    flow = host.flow(given)
    check_consent(given)
    inputs = _examined(host, given, flow.name)
    spec = inputs.spec
    installation = check_installation(given["installation"]) or installed.new_installation()
    files, token = {specs.EMPTY: json.dumps(given["empty"]).encode("ascii")}, ""
    if spec["image"]["kind"] == specs.OCI:
        files[specs.REGISTRY_CLIENT] = programs.image_command(_CLIENT)
        token = given["oci_registry_auth_token"] or ""
    job = jobs.Job(
        command=programs.installimage(),
        bootstrap=specs.pack(spec),
        arguments=[spec["image"]["shown"], flow.name, " ".join(spec["devices"])],
        token=token,
        limit=given["timeout"] + program.TIDY,
        rule=protocol.MARKER_AND_EXIT_CODE,
        runner=programs.runner_text(),
        installation=installation,
        devices=spec["devices"],
        consent=given["consent"],
        reinstall=given["reinstall"],
        files=files,
        intent=intent_for(given, flow.name, installation, image_url=spec["image"]["shown"], command="installimage"),
    )
    about: dict[str, Any] = {"job": job.digest, "image": spec["image"]["shown"]}
    if host.diff or host.check_mode:
        about["diff"] = {
            "before_header": flow.name,
            "before": "",
            "after_header": "/autosetup",
            "after": _preview(spec),
        }
    if host.check_mode:
        msg = f"would install {spec['image']['shown']} on {', '.join(spec['devices'])} and erase what they hold"
        return flow.result(changed=True, msg=msg, **about)
    urls = [spec["image"]["location"], str(spec["autosetup"].get("SSHKEYS_URL", ""))]
    secrets = [
        spec["crypt_password"],
        *masking.of_token(token),
        *(secret for url in urls for secret in masking.of_url(url)),
    ]
    masker = masking.Masker(secrets, masking.of_lines((spec["bootstrap_data"] or "").encode()))
    logs = open_logs(given["log_dir"], flow.name, masker, "installimage")
    run = _Run(host.remote, given, flow, job, logs, masker)
    run.image, run.local = spec["image"], inputs.local
    result = run.result(about)
    if result.get("failed") and run.refused and given["intent_file"]:
        end_refused(flow.name, given["intent_file"], maybe=True)
    return result


def _examined(host: Host, given: dict[str, Any], name: str) -> installimage_inputs.Inputs:
    inputs, findings = installimage_inputs.examine(given, name, host.read_file, host.find_file)
    findings += image_inputs.check_seconds(given, timeout=1, rescue_timeout=0, poll=0.1)
    findings += image_inputs.check_addresses(given)
    if findings or inputs is None:
        raise BadInput(name, findings)
    return inputs


def _preview(spec: specs.Spec) -> str:
    """The configuration as far as it is known without the machine, secrets masked."""
    uefi = spec["uefi"] != specs.NO if not spec["partitions"] else spec["uefi"] == specs.YES
    layout = specs.layout_of(spec, uefi)
    text = autosetup.autosetup(spec, layout, spec["devices"], spec["image"]["shown"], mask=True)
    if not spec["partitions"] and spec["uefi"] == specs.AUTO:
        text = text.replace(" esp 256M\n", " esp 256M  # when the rescue was booted by UEFI\n")
    return text


class _Run(RescueRun):
    """One installation on one machine."""

    step = steps.INSTALLIMAGE
    noun = "installation"
    quiet = (program.RESULT, program.MARKER)
    writes_at_once = False
    image: specs.Image
    local: Path | None = None
    outcome: dict[str, Any] | None = None

    def _before_start(self, system: System) -> None:
        if self.local is not None:
            target = f"{WORK}/images/{self.image['file_name']}"
            self._send(upload.IMAGE, self.local, target, self.image["digest"])

    def _more(self, stdout: bytes | None, best_effort: bool) -> dict[str, Any]:
        ends = {name: self._keep_file(name, path, best_effort) for name, path in EXTRA_LOGS.items()}
        self.outcome = _outcome(stdout or b"")
        debug = (ends["debug"] or b"").decode("utf-8", "replace")
        tail = [printable(line, 300) for line in verdict.tail(debug)]
        if not self.outcome:
            return {"debug_tail": tail, "permanent": False}
        outcome = self.outcome
        # it was JSON when its log was masked
        mask = self._masker.text
        outcome["reason"] = mask(outcome["reason"])
        return {
            "debug_tail": [printable(mask(str(line)), 300) for line in outcome["tail"]] or tail,
            "permanent": bool(outcome["permanent"]),
            "began": bool(outcome["began"]),
            "blanked": outcome["blanked"],
            "uefi": outcome["uefi"],
            "drives": [
                {key: one_line(mask(str(drive.get(key))), 300) for key in ("name", "path")}
                for drive in outcome["drives"]
                if isinstance(drive, dict)
            ],
            "image_digest": one_line(str(outcome["image_digest"]), 100),
            "host_keys": [one_line(str(key), 2000) for key in outcome["host_keys"]],
            "unlock_host_keys": [one_line(str(key), 2000) for key in outcome["unlock_host_keys"]],
            "warnings": [one_line(mask(str(warning))) for warning in outcome["warnings"]],
        }

    def _keep_file(self, name: str, path: str, best_effort: bool) -> bytes | None:
        quoted = shlex.quote(path)
        script = f"[ ! -s {quoted} ] || gzip -c {quoted} | base64; echo end=1"
        try:
            packed = self._fetch(script, best_effort)
            return self._logs.store(name, packed) if packed else None
        except (Unreachable, protocol.ProtocolError, OSError):
            return None

    @property
    def refused(self) -> bool:
        """Whether the program reported that it left every disk as it was."""
        return self.outcome is not None and not self.outcome["began"]

    def _touched(self) -> bool:
        return not self.refused

    def _explain(self, status: protocol.Status, about: dict[str, Any]) -> str:
        if self.outcome and self.outcome["reason"]:
            text = f"the installation failed: {one_line(str(self.outcome['reason']), 1500).rstrip('.')}."
        else:
            text = f"the installation failed: {protocol.explain_failure(status, self._job.rule)}"
        if about.get("blanked"):
            text += " The disks were emptied again."
        elif about.get("blanked") is False:
            text += f" Emptying the disks again failed: {'; '.join(about['warnings'])}."
        if about["debug_tail"]:
            text += "\ndebug.txt ends with:\n" + "\n".join(f"  {line}" for line in about["debug_tail"]) + "\n"
        return text


def _outcome(stdout: bytes) -> dict[str, Any] | None:
    """What the program reported at its end; nothing in it is trusted to be well-formed."""
    shape = {
        "tail": list, "permanent": bool, "began": bool, "drives": list, "image_digest": str, "host_keys": list,
        "unlock_host_keys": list, "warnings": list, "reason": str,
    }  # fmt: skip
    for line in reversed(stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(program.RESULT):
            try:
                found = json_value(line[len(program.RESULT) :])
            except ValueError:
                return None
            if not isinstance(found, dict) or not all(isinstance(found.get(k), kind) for k, kind in shape.items()):
                return None
            return {"blanked": None, "uefi": None, **found}
    return None
