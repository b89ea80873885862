# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user says about one machine's image, examined on the controller before anything happens."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.kubenode.provision.plugins.module_utils._common import masking
from ansible_collections.kubenode.provision.plugins.module_utils._common.names import InvalidName, check_machine_name
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options, pre_provision

from ..preflight import controller_paths
from . import rescue_programs

#: A day.
MOST_SECONDS = 86400
#: What the errors of a shipped command about its URL begin with.
_OF_URL = re.compile("image (URL|digest): ")


@dataclass(frozen=True)
class Inputs:
    """One machine's job, complete and checked."""

    name: str
    image_url: str
    command: Command
    bootstrap: bytes
    root_devices: list[str]

    @property
    def arguments(self) -> list[str]:
        """What the runner puts into the command's arguments (it adds the path of the bootstrap data)."""
        return [self.image_url, self.name, " ".join(self.root_devices)]


def examine(
    spec: Mapping[str, Any], command_dir: str, read_file: Callable[[str], bytes]
) -> tuple[Inputs | None, list[str]]:
    """Check everything; returns the inputs, or None and every finding (``field value: why; fix``)."""
    findings: list[str] = []
    url, name = spec.get("image_url") or "", spec.get("command") or ""
    _check(findings, "name", spec["name"], InvalidName, lambda: check_machine_name(spec["name"]))
    if not url:
        findings.append("image_url: missing; give what the image command gets as its first argument")
    if not name:
        findings.append("command: missing; name the image command, such as image-url-command-raw-disk")
    shown, checked = image_url.redact(url), ""
    if url:
        checked = _check(
            findings, "image_url", shown, image_url.InvalidImageURL, lambda: image_url.check_image_url(url)
        )
        if spec.get("require_digest") and not image_url.digest_in(url):
            way = "NAME@sha256:… instead of a tag" if url.lower().startswith("oci:") else "#sha256=… behind it"
            findings.append(
                f"image_url {_shown(shown)}: it names no digest although require_digest is set; give {way}, so that "
                "only the image that you mean is installed"
            )
    command = None
    if name:
        allowed = spec.get("command_names") or options.PREFIXED
        command = _check(findings, "command", name, CommandNotUsable, lambda: find_command(name, command_dir, allowed))
    shipped = command is not None and is_shipped(name, command)
    if checked and shipped:
        checked = _check(findings, "image_url", shown, NotTaken, lambda: check_taken(url, name))
    devices = spec.get("root_devices") or []
    _check(findings, "root_devices", devices, InvalidName, lambda: options.check_root_devices(devices))
    bootstrap = read_bootstrap(spec, read_file, findings)
    if shipped and len(devices) > 1:
        findings.append(f"root_devices {_shown(' '.join(devices))}: {name} writes exactly one disk; name one")
    if shipped and checked and bootstrap is not None:
        error = rescue_programs.bootstrap_error(name, url, bootstrap).removeprefix("bootstrap data: ")
        path = spec.get("bootstrap_data_file")
        given = f"bootstrap_data_file {_shown(path)}" if path else "bootstrap_data"
        findings += [f"{given}: {name} cannot take it: {error}"] if error else []
    if findings or command is None or bootstrap is None:
        return None, findings
    return Inputs(spec["name"], url, command, bootstrap, devices), []


class NotTaken(ValueError):
    """A shipped image command takes no such URL; the text says why, and holds no secret of the URL."""


def check_taken(url: str, name: str) -> str:
    """Ask a shipped command itself whether it may take the URL, which is returned then.

    In the rescue, the disk may be empty by then.
    """
    error = rescue_programs.url_error(name, url)
    if error:
        found = _OF_URL.match(error)
        why = masking.Masker(masking.of_url(url)).text(error[found.end() :] if found else error)
        why = one_line(why, 300)
        raise NotTaken(f"{name} cannot take it: {why}" + ("" if ";" in why else "; correct the URL"))
    return url


def is_shipped(name: str, command: Command) -> bool:
    """Whether it is a shipped command or a copy of it; a user's own one of the same name takes what it likes."""
    if command.shipped or name not in rescue_programs.IMAGE_COMMANDS:
        return command.shipped
    return command.sha256 == hashlib.sha256(rescue_programs.image_command(name)).hexdigest()


def examine_pre_provision(
    spec: Mapping[str, Any], command_dir: str, find_file: Callable[[str], str]
) -> tuple[Command | None, list[str]]:
    """The program that may stop a machine before anything is written, None without one, and every finding."""
    findings: list[str] = []
    given, seconds, command = spec.get("pre_provision_command"), spec.get("pre_provision_timeout"), None
    if given:
        command = _check(
            findings,
            "pre_provision_command",
            given,
            CommandNotUsable,
            lambda: find_pre_provision_command(given, command_dir, find_file),
        )
    if seconds is not None and (isinstance(seconds, bool) or not whole_number(str(seconds), MOST_SECONDS)):
        findings.append(
            f"pre_provision_timeout {_shown(seconds)}: give a whole number of seconds from 1 to {MOST_SECONDS}"
        )
    return command, findings


def check_token(token: str | None) -> list[str]:
    """The registry token travels as one line of a file; its value is never shown."""
    if token and any(character < " " or character == "\x7f" for character in token):
        return ["oci_registry_auth_token holds a control character (a line break?); give the token alone"]
    return []


def check_seconds(given: Mapping[str, Any], **least: float) -> list[str]:
    """Findings about options that are numbers of seconds, given the least value of each."""
    return [
        f"{name} {given[name]}: give a number of seconds, at least {limit}"
        for name, limit in least.items()
        if given[name] < limit
    ]


def check_addresses(given: Mapping[str, Any]) -> list[str]:
    """Findings about the option ``addresses``."""
    found = []
    for one in given["addresses"] or []:
        try:
            ip_network(one, strict=False)
        except ValueError:
            found.append(f"addresses {_shown(one)}: give an IPv4 address or an IPv6 network")
    return found


def file_finder(action: Any, variables: Mapping[str, Any] | None) -> Callable[[str], str]:
    """Finds files of the controller as Ansible does: relative to role or playbook.

    ``variables``: of the host whose variable holds the path, when it comes from a variable of a playbook of ours.
    """
    if variables is None:
        return lambda path: action._find_needle("files", path)
    folder, search = controller_paths.inventory_dir_of(variables), action._task.get_search_path()
    return lambda path: controller_paths.find(path, folder, search)


def file_reader(action: Any, find_file: Callable[[str], str]) -> Callable[[str], bytes]:
    """Reads files of the controller, vault decrypted."""

    def read(path: str) -> bytes:
        found = find_file(path)
        real = action._loader.get_real_file(found)
        try:
            return Path(real).read_bytes()
        finally:
            if real != found:
                action._loader.cleanup_tmp_file(real)

    return read


def read_bootstrap(spec: Mapping[str, Any], read_file: Callable[[str], bytes], findings: list[str]) -> bytes | None:
    """The bootstrap data of a machine, empty when there is none; None when a finding was added."""
    data, path = spec.get("bootstrap_data"), spec.get("bootstrap_data_file")
    if data is not None and path:
        findings.append("bootstrap_data and bootstrap_data_file are both set; use one of them")
        return None
    if path:
        try:
            content = read_file(path)
        except (AnsibleError, OSError) as exc:
            findings.append(f"bootstrap_data_file {_shown(path)}: it cannot be read ({one_line(str(exc), 1000)})")
            return None
        if not content.strip():
            findings.append(
                f"bootstrap_data_file {_shown(path)}: it is empty; leave the option out to hand over nothing"
            )
            return None
        return content
    if data is None:
        return b""
    if not isinstance(data, str) and not (isinstance(data, Mapping) and "ignition" in data):
        what = "a mapping without `ignition`" if isinstance(data, Mapping) else "neither a text nor a mapping"
        findings.append(
            f"bootstrap_data: it is {what}, so neither cloud-init nor Ignition; give cloud-init as a text that begins "
            "with #cloud-config (YAML: bootstrap_data: |)"
        )
        return None
    # Ansible turns text that looks like JSON into a dictionary; Ignition is such text.
    text = data if isinstance(data, str) else json.dumps(data)
    if not text.strip():
        findings.append("bootstrap_data is empty; leave the option out to hand over nothing")
        return None
    return text.encode("utf-8")


def _check(findings: list[str], field: str, value: Any, error: type[Exception], check: Callable[[], Any]) -> Any:
    try:
        return check()
    except error as exc:
        findings.append(f"{field} {_shown(value)}: {exc}")
        return None


def _shown(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), 200)


# --- where an image command lives on the controller


_ELF, _BOM = b"\x7fELF", b"\xef\xbb\xbf"
#: What Linux before 5.1 read of a first line.
_LONGEST_FIRST_LINE = 127
#: Bytes of a command that travels with the call that starts it; a larger one is uploaded before.
LARGEST_SENT_ALONG = 1024 * 1024
_PIECE = 1024 * 1024
#: Where those image commands are found that are put together of modules of the collection.
_COLLECTION = "kubenode.provision"


class CommandNotUsable(ValueError):
    """There is no such image command, or it must not be used; the text says why and what to do."""


@dataclass(frozen=True)
class Command:
    """An image command, looked at."""

    #: COLLECTION/NAME for a shipped one, which is no file.
    path: str
    shipped: bool
    size: int
    sha256: str
    #: All of it, or the beginning of a large one: what is uploaded is never in memory as a whole.
    head: bytes

    @property
    def is_large(self) -> bool:
        """Whether it is uploaded before it is started."""
        return self.size > LARGEST_SENT_ALONG

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, read again where the head is not all of them."""
        if not self.is_large:
            yield self.head
            return
        with open(self.path, "rb") as file:
            yield from iter(lambda: file.read(_PIECE), b"")


def find_command(name: str, directory: str, allowed: str = options.PREFIXED) -> Command:
    """The command ``name`` of ``directory``, else the one of that name shipped with the collection."""
    try:
        options.check_command_name(name, allowed)
    except InvalidName as exc:
        raise CommandNotUsable(str(exc)) from exc
    path = Path(directory) / name
    if _is_there(path):
        return _read(path, Path(directory))
    if name in rescue_programs.IMAGE_COMMANDS:
        content = rescue_programs.image_command(name)
        return Command(f"{_COLLECTION}/{name}", True, len(content), hashlib.sha256(content).hexdigest(), content)
    raise CommandNotUsable(
        f"there is no {path}, and the collection ships no command of that name "
        f"(it ships: {', '.join(rescue_programs.IMAGE_COMMANDS)}); put the program there or set command_dir"
    )


def find_pre_provision_command(given: str, directory: str, find_file: Callable[[str], str]) -> Command:
    """The program of a user that ``given`` names: the name of a file in ``directory``, or a path.

    ``find_file``: where Ansible finds a file of the controller by its path.
    """
    path = Path(directory) / given
    if "/" in given:
        try:
            path = Path(find_file(os.path.expanduser(given)))
        except AnsibleError as exc:
            looked = str(exc).partition("looked at ")[2].splitlines()[:1]
            where = f" (looked at {looked[0]})" if looked else ""
            raise CommandNotUsable(f"there is no such file{where}; put the program there") from exc
    try:
        pre_provision.check_name(path.name)
    except InvalidName as exc:
        raise CommandNotUsable(str(exc)) from exc
    if not _is_there(path):
        raise CommandNotUsable(f"there is no {path}; put the program there, give its path, or set command_dir")
    return _read(path, path.parent)


def _is_there(path: Path) -> bool:
    """Whether there is a file, a folder or a link, whatever it leads to."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise CommandNotUsable(
            f"{path} cannot be looked at: {exc.strerror}; let the user that runs Ansible read that folder, or set "
            "command_dir to another one"
        ) from exc
    return True


def _read(path: Path, directory: Path) -> Command:
    try:
        real, root = path.resolve(strict=True), directory.resolve(strict=True)
    except (OSError, RuntimeError) as exc:  # RuntimeError: a link that leads to itself, until Python 3.13
        raise CommandNotUsable(f"{path} is a link that leads nowhere; mend the link") from exc
    if not real.is_relative_to(root):
        raise CommandNotUsable(f"{path} leads to {real}, outside of {directory}; copy the program into {directory}")
    mode = real.stat().st_mode
    if not stat.S_ISREG(mode):
        raise CommandNotUsable(f"{path} is not a file")
    if not mode & 0o111:
        raise CommandNotUsable(f"{path} is not executable; chmod +x {path}")
    if not os.access(real, os.R_OK):
        raise CommandNotUsable(f"{path} is not readable for the user that runs Ansible")
    with path.open("rb") as file:
        head = file.read(LARGEST_SENT_ALONG)
        digest, size = hashlib.sha256(head), len(head)
        for piece in iter(lambda: file.read(_PIECE), b""):
            digest.update(piece)
            size += len(piece)
    error = content_error(head)
    if error is not None:
        raise CommandNotUsable(f"{path} {error}")
    return Command(str(path), False, size, digest.hexdigest(), head)


def content_error(content: bytes) -> str | None:
    """Why no machine can run a file that begins so, and what to do; None when nothing speaks against it (pure)."""
    if not content.strip():
        return "is empty; put the program there"
    if content.startswith(_ELF):
        return None
    first = content.partition(b"\n")[0]
    if not first.startswith(b"#!"):
        if first.startswith((_BOM + b"#!", "\ufeff#!".encode("utf-16-le"), "\ufeff#!".encode("utf-16-be"))):
            return "begins with a byte order mark, so that its first line is not seen; save it as UTF-8 without one"
        return "is no program: its first line names no interpreter (#!/bin/sh) and it is no ELF file; add that line"
    if b"\r" in first:
        return "has line ends of Windows (CRLF), so that its interpreter is not found; convert it (dos2unix)"
    words = first[2:].split()
    interpreter = words[0].decode("utf-8", "replace") if words else ""
    if not interpreter.startswith("/") or b"\0" in first:
        return f"names in its first line the interpreter {interpreter[:60]!r}; give an absolute path, such as #!/bin/sh"
    if len(first) > _LONGEST_FIRST_LINE:
        return f"has a first line of more than {_LONGEST_FIRST_LINE} bytes, which kernels cut; make it shorter"
    return None


def interpreter_of(content: bytes) -> str:
    """The interpreter in the first line of a command, for messages; empty when it is none (pure)."""
    first = content.partition(b"\n")[0]
    words = first[2:].split() if first.startswith(b"#!") else []
    return " ".join(word.decode("utf-8", "replace") for word in words)
