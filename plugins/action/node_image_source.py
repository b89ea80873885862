# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes image files of the controller readable for machines in their rescue, for as long as the run lasts."""

from __future__ import annotations

import gzip
import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value, one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import run_server


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.node_image_source_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        folder = Path(given["cache_dir"])
        findings, served = [], []
        for image in given["images"]:
            path = Path(image["path"])
            try:
                digest = proven(path, image["sha256"])
                qcow2 = image["kind"] == "disk" and is_qcow2(path)
                if qcow2 and not self._task.check_mode:
                    path = raw_of(path, folder)
                    digest = sha256_of(path)
            except FileNotUsable as exc:
                findings.append(f"{image['name']}: {exc}")
                continue
            switches = "&adapt=no" if image["kind"] == "disk" else ""
            about = {"name": image["name"], "file": str(path), "digest": digest}
            served.append({**about, "switches": switches, "converted": qcow2})
        if findings:
            raise AnsibleActionFail("nothing was created or changed:\n" + "\n".join(f"- {one}" for one in findings))
        answer = {"changed": False, "images": [], "ssh_args": ""}
        if self._task.check_mode or not served:
            return answer
        secret = secrets.token_urlsafe(18)
        paths = {f"/{secret}/{position}.img": one for position, one in enumerate(served)}
        port = _started(paths)
        sources = [
            {
                "name": one["name"],
                "converted": one["converted"],
                "image_url": f"http://127.0.0.1:{port}{path}#sha256={one['digest']}{one['switches']}",
            }
            for path, one in paths.items()
        ]
        return {**answer, "images": sources, "ssh_args": f"-R 127.0.0.1:{port}:127.0.0.1:{port}"}


def _started(files: dict[str, Any]) -> int:
    try:
        return run_server.start("source", files)
    except OSError as error:
        raise AnsibleActionFail(str(error)) from error


# --- an image file on the controller: proven by its digest, and made raw when it is qcow2


PIECE = 1 << 20
_QCOW2 = b"QFI\xfb"
#: Forms that are no image of a disk, or one that cannot be streamed, by how they begin.
_OTHERS = {
    b"KDMV": "VMDK",
    b"vhdxfile": "VHDX",
    b"PK\x03\x04": "zip",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
}


class FileNotUsable(ValueError):
    """The file cannot become an image; the text says why and what to do."""


def proven(path: Path, sha256: str | None) -> str:
    """The file's SHA-256; raises unless it is ``sha256``, if one is given."""
    if not os.path.isfile(path):  # Path.is_file raises where a name is too long
        raise FileNotUsable(f"{path}: there is no such file on the controller")
    try:
        found = sha256_of(path)
    except OSError as exc:
        raise FileNotUsable(f"{path}: it cannot be read ({exc.strerror})") from exc
    if sha256 is not None and found != sha256.lower():
        raise FileNotUsable(
            f"{path}: its sha256 is {found}, not {sha256.lower()}; it is damaged or not the one you meant"
        )
    return found


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_qcow2(path: Path) -> bool:
    """Whether the file is qcow2; raises for what is no image at all."""
    with path.open("rb") as file:
        head = file.read(16)
    for magic, what in _OTHERS.items():
        if head.startswith(magic):
            raise FileNotUsable(f"{path}: it is {what}; give a raw image (perhaps compressed) or qcow2")
    return head.startswith(_QCOW2)


def raw_of(path: Path, folder: Path) -> Path:
    """A qcow2 file as a gzipped raw image in ``folder``, made once; raises for one that is not whole by itself."""
    about = _about(path)
    name = hashlib.sha256(f"{path.resolve()} {path.stat().st_mtime_ns} {path.stat().st_size}".encode()).hexdigest()
    target = folder / f"{name[:32]}.raw.gz"
    if target.exists():
        return target
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    need = int(about["virtual-size"])
    free = shutil.disk_usage(folder).free
    # The raw file is sparse and compressed afterwards; both together never take more than what the disk holds twice.
    if 2 * int(about.get("actual-size") or need) > free:
        raise FileNotUsable(
            f"{folder}: {free >> 20} MiB are free, too few to convert {path}; set kubenode_dir elsewhere"
        )
    with tempfile.TemporaryDirectory(dir=folder) as work:
        raw, packed = Path(work) / "raw", Path(work) / "raw.gz"
        _qemu_img("convert", "-f", "qcow2", "-O", "raw", _named(path), _named(raw))
        with raw.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as sink:
            shutil.copyfileobj(source, sink, PIECE)
        os.replace(packed, target)
    return target


def _about(path: Path) -> dict[str, Any]:
    """What qemu-img says of a qcow2 file; one that would read other files of the controller is refused."""
    about: dict[str, Any] = json_value(_qemu_img("info", "-f", "qcow2", "--output=json", _named(path)))
    inner = (about.get("format-specific") or {}).get("data") or {}
    if about.get("backing-filename") or inner.get("data-file") or inner.get("data-file-raw"):
        raise FileNotUsable(f"{path}: it needs other files (a backing or data file); flatten it with qemu-img convert")
    if about.get("encrypted"):
        raise FileNotUsable(f"{path}: it is encrypted; convert it to an unencrypted image first")
    return about


def _named(path: Path) -> str:
    """A path that qemu-img takes for nothing but a path."""
    return f"file:{path.absolute()}"


def _qemu_img(*words: str) -> str:
    try:
        done = subprocess.run(["qemu-img", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError as exc:
        raise FileNotUsable(
            "qcow2 needs the program qemu-img on the controller; install qemu-utils, or convert the image to raw"
        ) from exc
    if done.returncode:
        raise FileNotUsable(f"qemu-img cannot read it: {one_line(done.stderr, 300)}")
    return done.stdout
