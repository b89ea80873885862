# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What robot_installimage does on the controller: check, gate, upload, start, watch, collect."""

from __future__ import annotations

import io
import json
import shlex
import tarfile
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, masking, web
from ansible_collections.kubenode.provision.plugins.module_utils._common.names import InvalidName
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line, printable
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options, protocol, steps
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import job as jobs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_names import is_kernel_name
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import (
    image_file,
    installer,
    rescue_program,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.config_words import EXAMPLE, shown
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.spec import autosetup

from ..ssh.remote import Unreachable
from ..ssh.system_probe import System
from . import image_inputs, rescue_programs, upload
from .flow import BadInput, Host, check_consent, check_installation, intent_for
from .image_inputs import check_token, read_bootstrap
from .program_run import RescueRun, end_refused, goes_on, open_logs

WORK = f"{protocol.BASE}/{specs.WORK}"
#: What else is kept of a run, and where it lies in the rescue.
EXTRA_LOGS = {"debug": rescue_program.DEBUG, "post-install": f"{WORK}/post-install.log"}

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
        files[specs.REGISTRY_CLIENT] = rescue_programs.image_command(_CLIENT)
        token = given["oci_registry_auth_token"] or ""
    job = jobs.Job(
        command=rescue_programs.installimage(),
        bootstrap=specs.pack(spec),
        arguments=[spec["image"]["shown"], flow.name, " ".join(spec["devices"])],
        token=token,
        limit=given["timeout"] + rescue_program.TIDY,
        rule=protocol.MARKER_AND_EXIT_CODE,
        runner=rescue_programs.runner_text(),
        installation=installation,
        devices=spec["devices"],
        consent=given["consent"],
        reinstall=given["reinstall"],
        erases=bool(given["empty"]),
        files=files,
        intent=intent_for(given, flow.name, installation, image_url=spec["image"]["shown"], command="installimage"),
    )
    about: dict[str, Any] = {"job": job.digest, "image": spec["image"]["shown"]}
    urls = [spec["image"]["location"], str(spec["autosetup"].get("SSHKEYS_URL", ""))]
    secrets = [
        spec["crypt_password"],
        *masking.of_token(token),
        *(secret for url in urls for secret in masking.of_url(url)),
    ]
    masker = masking.Masker(secrets, masking.of_lines((spec["bootstrap_data"] or "").encode()))
    asked = None
    if host.check_mode:
        if goes_on(host, job):
            return flow.result(changed=True, msg=f"would go on with the {_Run.noun} of an earlier run", **about)
        asked = _asked(host, job, spec) if host.is_reached else None
        if asked and not asked.get("ok"):
            msg = masker.text(f"{flow.name}: the {_Run.noun} would fail: {one_line(asked['reason'], 1000)}")
            return flow.result(failed=True, in_rescue=True, msg=msg, **about)
    if host.diff or host.check_mode:
        about["diff"] = {
            "before_header": flow.name,
            "before": "",
            "after_header": "/autosetup",
            "after": _preview(spec, asked["uefi"] if asked else None),
        }
    if host.check_mode:
        msg = f"would install {spec['image']['shown']} on {', '.join(spec['devices'])}"
        if given["empty"] or not asked:
            msg += " and erase what they hold"
        return flow.result(changed=True, msg=msg, **about)
    logs = open_logs(given["log_dir"], flow.name, masker, "installimage")
    run = _Run(host.remote, given, flow, job, logs, masker)
    run.image, run.local = spec["image"], inputs.local
    result = run.result(about)
    if result.get("failed") and not run.wrote() and given["intent_file"]:
        end_refused(flow.name, given["intent_file"], maybe=True)
    return result


def _examined(host: Host, given: dict[str, Any], name: str) -> Inputs:
    inputs, findings = examine(given, name, host.read_file, host.find_file)
    findings += image_inputs.check_seconds(given, timeout=1, rescue_timeout=0, poll=0.1)
    findings += image_inputs.check_addresses(given)
    if findings or inputs is None:
        raise BadInput(name, findings)
    return inputs


#: A tar archive on stdin: the program and what it reads. Nothing of it stays.
_CHECK = f"""
umask 077
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" && tar -xf - && python3 -I -S ./{protocol.COMMAND} {rescue_program.CHECK} "$folder/{protocol.BOOTSTRAP}"
"""


def _asked(host: Host, job: jobs.Job, spec: specs.Spec) -> dict[str, Any] | None:
    """What the program says of an installation that it would do in this rescue; None where it cannot be asked."""
    bare = specs.pack({**spec, "bootstrap_data": None, "crypt_password": "-" if spec["crypt_password"] else ""})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        files = {protocol.COMMAND: job.command, protocol.BOOTSTRAP: bare, specs.EMPTY: job.files[specs.EMPTY]}
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    try:
        return _outcome(host.remote.run(_CHECK, data=packed.getvalue())[1].encode())
    except Unreachable:
        return None


def _preview(spec: specs.Spec, known: object) -> str:
    """The configuration as far as it is known, secrets masked; ``known``: whether the rescue was booted by UEFI."""
    if isinstance(known, bool):
        return autosetup(spec, specs.layout_of(spec, known), spec["devices"], spec["image"]["shown"], mask=True)
    uefi = spec["uefi"] != specs.NO if not spec["partitions"] else spec["uefi"] == specs.YES
    layout = specs.layout_of(spec, uefi)
    text = autosetup(spec, layout, spec["devices"], spec["image"]["shown"], mask=True)
    if not spec["partitions"] and spec["uefi"] == specs.AUTO:
        text = text.replace(" esp 256M\n", " esp 256M  # when the rescue was booted by UEFI\n")
    return text


class _Run(RescueRun):
    """One installation on one machine."""

    step = steps.INSTALLIMAGE
    noun = "installation"
    quiet = (rescue_program.RESULT, rescue_program.MARKER)
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
        tail = [printable(line, 300) for line in installer.tail(debug)]
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

    def _touched(self) -> bool:
        """False when the program reported that it left every disk as it was."""
        return self.outcome is None or bool(self.outcome["began"])

    def wrote(self) -> bool:
        """No disk holds anything of ours either where those of the user's word were emptied and nothing was begun."""
        outcome = self.outcome or {}
        emptied = outcome.get("installing") is False and outcome.get("blanked") is True
        return self._touched() and not emptied

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
    for line in reversed(stdout.decode("utf-8", "replace").split("\n")):
        if line.startswith(rescue_program.RESULT):
            try:
                found = json_value(line[len(rescue_program.RESULT) :])
            except ValueError:
                return None
            if not isinstance(found, dict) or not all(isinstance(found.get(k), kind) for k, kind in shape.items()):
                return None
            return {"blanked": None, "uefi": None, **found}
    return None


# --- what a user says about one machine's installation, examined on the controller before anything happens


#: What may come after the # of an image in a registry: switches of the shipped image command.
_SWITCHES = ("cosign-key", "file", "plain-http", "stall")


@dataclass(frozen=True)
class Inputs:
    """One machine's installation, complete and checked; ``local``: the image when it lies on the controller."""

    spec: specs.Spec
    local: Path | None


def examine(
    given: Mapping[str, Any],
    name: str,
    read_file: Callable[[str], bytes],
    find_file: Callable[[str], str],
    with_disks: bool = True,
) -> tuple[Inputs | None, list[str]]:
    """Check the options of robot_installimage; returns the inputs, or None and every finding.

    ``find_file``: where Ansible finds a file of the controller. ``with_disks: false`` is for a look ahead of time,
    when the disks are not known yet.
    """
    findings: list[str] = []
    image, local = _image(given, find_file, findings)
    bootstrap = read_bootstrap(given, read_file, findings)
    if bootstrap is not None:
        try:
            bootstrap.decode("utf-8")
        except UnicodeDecodeError:
            findings.append("bootstrap_data: it is no UTF-8 text; give cloud-init user data")
            bootstrap = None
    devices = list(given.get("root_devices") or [])
    findings += _check_devices(devices) if with_disks else []
    spec: specs.Spec = {
        "machine": name,
        "hostname": given.get("hostname") or name,
        "image": image,
        "devices": devices,
        "swraid": given["swraid"],
        "swraid_level": given["swraid_level"],
        "partitions": [_plain(part) for part in given["partitions"]],
        "logical_volumes": [_plain(volume) for volume in given["logical_volumes"]],
        "subvolumes": [_plain(volume) for volume in given["subvolumes"]],
        "autosetup": dict(given["autosetup"]),
        "crypt_password": given["crypt_password"] or "",
        "remote_unlock": given["remote_unlock"],
        "post_install_script": given["post_install_script"] or "",
        "bootstrap_data": bootstrap.decode("utf-8") if bootstrap else None,
        "network_config": given["network_config"],
        "uefi": given["uefi"],
        "command": given["command"],
    }
    findings += check_token(given.get("oci_registry_auth_token"))
    findings += specs.findings(spec, with_disks)
    return (None if findings else Inputs(spec, local)), findings


def _image(
    given: Mapping[str, Any], find_file: Callable[[str], str], findings: list[str]
) -> tuple[specs.Image, Path | None]:
    image = {key: value for key, value in given["image"].items() if value is not None}
    kind = next((kind for kind in (specs.URL, specs.PATH, specs.FILE, specs.NAME) if kind in image), specs.NAME)
    value = str(image.get(kind, ""))
    digest = image.get("digest", "")
    made: specs.Image = {"kind": kind, "location": value, "shown": value, "file_name": "", "digest": digest}
    if kind == specs.URL and value.lower().startswith("oci:"):
        switches = urllib.parse.parse_qs(value.partition("#")[2])
        title = switches.get("file", [""])[0].rpartition("/")[2]
        made.update({"kind": specs.OCI, "shown": image_url.redact(value)})
        made["file_name"] = str(image.get("name") or title)
        findings += _check_reference(value, made, given["require_digest"])
        return made, None
    if kind == specs.URL:
        made["shown"] = image_url.redact(value)
        path = urllib.parse.unquote(made["shown"].rpartition("/")[2])
        made["file_name"] = str(image.get("name") or path)
        findings += _check_url(value, made, given["require_digest"])
        return made, None
    if kind == specs.NAME:
        path = f"{specs.IMAGES}/{value}"
        made.update({"location": path, "shown": path, "file_name": value})
        if "/" in value:
            findings.append(f"image.name {shown(value)}: give the name of a file in {specs.IMAGES}, or use image.path")
        return made, None
    made["file_name"] = value.rpartition("/")[2]
    if kind == specs.PATH:
        return made, None
    return made, _local(value, made, find_file, findings)


def _check_url(url: str, made: specs.Image, require_digest: bool) -> list[str]:
    where = f"image.url {shown(made['shown'])}"
    try:
        image_url.check_image_url(url)
    except image_url.InvalidImageURL as exc:
        return [f"{where}: {exc}"]
    if not url.lower().startswith(("http://", "https://")):
        return [f"{where}: use an http, https or oci URL, or image.path for a file that the rescue can read"]
    if not url.isascii() or any(character in url for character in ' <>"{}|\\^`'):
        return [f"{where}: it holds characters that must be percent-encoded"]
    if "#" in url:
        return [f"{where}: what stands behind the # is not read here; give the digest as image.digest: sha256:…"]
    try:
        web.split_url(url)
    except ValueError:
        # stricter than Go; the error's text may hold a piece of the login
        return [f"{where}: its address or its port is none"]
    if require_digest and not made["digest"]:
        return [
            f"{where}: image.digest is missing; give sha256:… of the file, or set require_digest: false to install "
            "whatever the server sends"
        ]
    return []


def _check_reference(url: str, made: specs.Image, require_digest: bool) -> list[str]:
    """Findings about the image of a registry; its client finds the rest before a disk is written."""
    where = f"image.url {shown(made['shown'])}"
    place, _hash, fragment = url.partition("#")
    if "@" in place.partition("://")[2].partition("/")[0]:
        return [f"{where}: a login in it would be seen by many; give it as oci_registry_auth_token"]
    reference = image_url.OCI_REFERENCE.match(place)
    if not reference or not (reference.group("tag") or reference.group("digest")):
        return [f"{where}: give oci://REGISTRY/NAME@sha256:… or oci://REGISTRY/NAME:TAG, in lower case"]
    found = []
    unknown = sorted(set(urllib.parse.parse_qs(fragment, keep_blank_values=True)) - set(_SWITCHES))
    if unknown:
        words = ", ".join(shown(one) for one in unknown)
        found.append(f"{where}: {words} behind the # is not known here; known are {', '.join(_SWITCHES)}")
    if not made["file_name"]:
        found.append(
            f"{where}: image.name is missing; give the name that the file gets, such as {EXAMPLE}, since installimage "
            "reads distribution, version and architecture from it"
        )
        # instead of an error about a name that was not given
        made["file_name"] = EXAMPLE
    if require_digest and not made["digest"] and not reference.group("digest"):
        found.append(
            f"{where}: it names no digest; give NAME@sha256:… instead of a tag, or image.digest of the file, or set "
            "require_digest: false to install whatever the tag means by then"
        )
    return found


def _local(value: str, made: specs.Image, find_file: Callable[[str], str], findings: list[str]) -> Path | None:
    try:
        path = Path(find_file(value))
        is_empty, found = not path.stat().st_size, image_file.digest_of(str(path))
    except (AnsibleError, OSError) as exc:
        findings.append(f"image.file {shown(value)}: it cannot be read ({one_line(str(exc), 1000)})")
        return None
    if is_empty:
        findings.append(f"image.file {shown(value)}: it is empty; give the image")
    elif made["digest"] and made["digest"] != found:
        findings.append(f"image.file {shown(value)}: its digest is {found}, image.digest says {made['digest']}")
    made.update({"digest": found, "shown": path.name, "location": path.name})
    return path


def _check_devices(devices: list[str]) -> list[str]:
    try:
        options.check_root_devices(devices)
    except InvalidName as exc:
        return [f"root_devices {shown(devices)}: {exc}"]
    return [
        f"root_devices {shown(name)}: this name may belong to another disk after the next boot; give its WWN or its "
        "name below /dev/disk/by-id, as machine_disks returns them"
        for name in devices
        if is_kernel_name(name)
    ]


def _plain(entry: Mapping[str, Any]) -> Any:
    return {key: value for key, value in entry.items() if value is not None}
