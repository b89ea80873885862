# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How an image command is started, what it is asked for, and how it ends.

It is given an image URL, a machine, its bootstrap data with SSH keys, and its root device. It ends with progress, exit
code, marker, and what became of the disk.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import re
import signal
import struct
import sys
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..._common.names import is_command_name
from ..._common.text import json_object, to_whole_seconds
from ..._common.web import registry_place, split_login
from .basics import MIB, Refused, Terminated
from .filesystems import workplace
from .root_device import Disk


class Switched:
    """An image URL as far as its switches go; the fragment that holds them is never sent to a server."""

    SWITCHES: tuple[str, ...] = ()

    def __init__(self, fragment: str) -> None:
        self.switches = self._switches(fragment)

    @classmethod
    def _switches(cls, fragment: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in urllib.parse.parse_qsl(fragment, keep_blank_values=True):
            if name not in cls.SWITCHES or name in found:
                why = "is given twice" if name in found else f"is unknown; known are {', '.join(cls.SWITCHES)}"
                # what looks like no switch may be the end of a secret that holds a #
                is_plain = re.fullmatch("[a-z0-9-]{1,20}", name) or name.lower() in cls.SWITCHES
                what = f"the switch {name!r}" if is_plain else "a switch"
                raise Refused(f"image URL: {what} behind the # {why}")
            found[name] = value
        for name in ("adapt", "grow", "keys", "plain-http"):
            if found.get(name, "yes") not in ("yes", "no"):
                raise Refused(f"image URL: {name}={found[name]} is neither yes nor no")
        if not re.fullmatch("[1-9][0-9]{0,3}", found.get("stall", "30")):
            raise Refused(f"image URL: stall={found['stall']} is not a number of seconds from 1 to 9999")
        return found

    def wants(self, name: str, default: str = "yes") -> bool:
        """Whether a switch with yes and no is on."""
        return self.switches.get(name, default) == "yes"

    @property
    def stall(self) -> float:
        """Seconds without a byte after which a connection counts as dead."""
        return float(self.switches.get("stall", "30"))


class ImageUrl(Switched):
    """The image URL taken apart: where to read, how to log in, and the switches of its fragment."""

    SWITCHES: tuple[str, ...] = ("sha256", "sha512", "adapt", "grow", "keys", "stall")

    def __init__(self, text: str) -> None:
        left_out = re.search("(sha256|sha512)[=:]…", text)
        if left_out:
            raise Refused(f"image URL: {left_out.group()} stands for a digest; write its hex digits instead of …")
        if not re.fullmatch("[!-~]+", text):
            raise Refused("image URL: spaces, control and non-ASCII characters must be percent-encoded")
        try:
            self.parts = urllib.parse.urlsplit(text)
            host, port = self.parts.hostname or "", self.parts.port
        except ValueError:
            # its text may hold a piece of the login
            raise Refused("image URL: its address or its port is none") from None
        if self.parts.scheme not in ("http", "https", "file"):
            raise Refused(f"image URL: scheme {self.parts.scheme!r} is not supported; use http, https or file")
        if self.parts.scheme != "file" and not host:
            raise Refused(f"image URL: the host is missing; write {self.parts.scheme}://HOST/PATH")
        if port == 0:
            raise Refused("image URL: no server has the port 0")
        if not self.parts.path.strip("/"):
            raise Refused("image URL: the path of the image is missing")
        self.netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        self.authorization = split_login(text)[1]
        super().__init__(self.parts.fragment)

    def location(self, suffix: str = "") -> str:
        """What is really requested: without login and fragment, the suffix behind the path."""
        return urllib.parse.urlunsplit((self.parts.scheme, self.netloc, self.parts.path + suffix, self.parts.query, ""))

    def shown(self, suffix: str = "") -> str:
        """What may be printed and recorded: no login, no query, no fragment."""
        return urllib.parse.urlunsplit((self.parts.scheme, self.netloc, self.parts.path + suffix, "", ""))


HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
NAME_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
DIGEST = r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}"
REFERENCE = re.compile(
    rf"oci://(?P<host>{HOST})/(?P<name>{NAME_PART}(?:/{NAME_PART})*)"
    rf"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}))?(?:@(?P<digest>{DIGEST}))?"
)


class OciUrl(Switched):
    """oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, with switches behind the #."""

    SWITCHES = ("keys", "stall", "grow", "layout", "file", "plain-http", "cosign-key")

    def __init__(self, text: str) -> None:
        place, _hash, fragment = text.partition("#")
        super().__init__(fragment)
        if "@" in place.partition("://")[2].partition("/")[0]:
            raise Refused("image URL: a login in it would be seen by many; give it as OCI_REGISTRY_AUTH_TOKEN")
        found = REFERENCE.fullmatch(place)
        left_out = re.search("(sha256|sha512):…", place)
        if left_out:
            raise Refused(f"image URL: {left_out.group()} stands for a digest; write its hex digits instead of …")
        if not found:
            raise Refused("image URL: not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case")
        self.host, self.name = found.group("host"), found.group("name")
        self.tag, self.digest = found.group("tag") or "", found.group("digest") or ""
        if not self.tag and not self.digest:
            raise Refused("image URL: it names neither a tag nor a digest; add :TAG or @sha256:…")
        port = self.host.rpartition("]")[2].rpartition(":")[2] if ":" in self.host.rpartition("]")[2] else "443"
        if not 0 < int(port) <= 65535:
            raise Refused(f"image URL: no registry has the port {port}")
        self.host, self.name = registry_place(self.host, self.name)
        self.shown = place
        self.scheme = "http" if self.wants("plain-http", "no") else "https"

    @property
    def reference(self) -> str:
        """What to ask the registry for; a digest wins over a tag."""
        return self.digest or self.tag

    def location(self, kind: str, reference: str) -> str:
        """Where a manifest or a blob is."""
        return f"{self.scheme}://{self.host}/v2/{self.name}/{kind}/{reference}"


# --- The SSH keys that opened the rescue, for the new system to accept as well.


KEY_FIELDS = {  # kinds of public keys, and what they are made of: a text means itself, a number means a length
    b"ssh-ed25519": (32,),
    b"ssh-rsa": (None, None),
    b"ecdsa-sha2-nistp256": (b"nistp256", 65),
    b"ecdsa-sha2-nistp384": (b"nistp384", 97),
    b"ecdsa-sha2-nistp521": (b"nistp521", 133),
    b"sk-ssh-ed25519@openssh.com": (32, None),
    b"sk-ecdsa-sha2-nistp256@openssh.com": (b"nistp256", 65, None),
}


def authorized_keys(path: Path) -> list[str]:
    """Return the plain public keys of an authorized_keys file, each one once, in order; none without such a file."""
    try:
        if not path.is_file():
            return []
        with path.open("rb") as stream:
            text = stream.read(MIB)
    except OSError as error:
        raise Refused(f"SSH keys of the rescue: {path}: {error.strerror}") from None
    found: dict[str, str] = {}
    for line in text.split(b"\n"):  # as sshd does; splitlines() would find keys inside of comments
        key = plain_key(line)
        if key:
            found.setdefault(key.split(" ")[1], key)
    return list(found.values())


def plain_key(line: bytes) -> str:
    """Return one line as `kind base64 [comment]`, or nothing: a key with options must not lose its restrictions."""
    shown = line.lstrip(b" \t").rstrip(b" \t\r")
    parts = re.fullmatch(rb"([!-~]+)[ \t]+([A-Za-z0-9+/]+={0,2})(?:[ \t]+(.*))?", shown, re.S)
    if not parts or not well_formed(parts.group(1), parts.group(2)):
        return ""
    comment = parts.group(3) or b""
    words = [parts.group(1), parts.group(2), comment if re.fullmatch(rb"[ -~]+", comment) else b""]
    return b" ".join(filter(None, words)).decode("ascii")


def well_formed(kind: bytes, text: bytes) -> bool:
    """Whether the base64 text holds exactly the fields of a key of this kind."""
    try:
        rest, fields = base64.b64decode(text, validate=True), []
        while rest:
            (length,) = struct.unpack_from(">I", rest)
            if length > len(rest) - 4:
                return False
            fields.append(rest[4 : 4 + length])
            rest = rest[4 + length :]
    except (ValueError, struct.error):
        return False
    wanted = KEY_FIELDS.get(kind)
    if wanted is None or len(fields) != 1 + len(wanted) or fields[0] != kind:
        return False
    return all(field and rule in (None, field, len(field)) for rule, field in zip(wanted, fields[1:]))


class Bootstrap:
    """The bootstrap data, and the SSH keys that go with it."""

    def __init__(self, data: bytes, keys: list[str]) -> None:
        self.data, self.keys = data, keys
        self.kind = kind_of_bootstrap(data)


def kind_of_bootstrap(data: bytes) -> str:
    """The kind of bootstrap data, by its content: cloud-init, ignition or none."""
    text = data
    if data.startswith(b"\x1f\x8b"):  # cloud-init takes compressed user data as well
        with contextlib.suppress(zlib.error):
            text = zlib.decompressobj(31).decompress(data, 4096)
    text = text.lstrip()
    if not text:
        return "none"
    heads = rb"#!|#cloud-|#include|#part-handler|##\s*template:\s*jinja|content-type\s*:|mime-version\s*:"
    if re.match(heads, text, re.I):
        return "cloud-init"
    found = (json_object(text) or {}).get("ignition")
    if isinstance(found, dict) and "version" in found:
        return "ignition"
    raise Refused(
        "bootstrap data: neither cloud-init (#cloud-config, #!, #include, MIME, jinja template) "
        'nor Ignition ({"ignition": {"version": …})'
    )


class Job:
    """The checked arguments of a command, the image URL aside."""

    def __init__(self, bootstrap_file: str, machine: str, devices: str, with_keys: bool) -> None:
        try:
            data = Path(bootstrap_file).read_bytes()
        except OSError as error:
            raise Refused(f"bootstrap data: {bootstrap_file}: {error.strerror}") from None
        keys = Path(bootstrap_file).with_name(".ssh") / "authorized_keys"
        self.bootstrap = Bootstrap(data, authorized_keys(keys) if with_keys else [])
        # No stricter than the controller: the disk may have been emptied for this name.
        if not is_command_name(machine):
            raise Refused(f"machine name: {machine!r} is not a host name")
        self.machine = machine
        names = devices.split()
        if len(names) != 1:
            raise Refused(f"root devices: {devices!r} are {len(names)} devices; an image needs exactly one")
        self.disk = Disk(names[0])


class Progress:
    """Shows the user the progress of the work: a line on stdout per step, and `message` in output.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = 0.0
        self.outcome = "this command wrote nothing to a disk"  # others may have emptied it before

    def say(self, text: str) -> None:
        """Announce a step."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        self.publish(text)

    def tick(self, text: Callable[[], str], count: Callable[[], tuple[int, int | None]]) -> None:
        """Publish text() and count() when the last message is older than a second; see publish()."""
        if time.monotonic() - self.last >= 1:
            self.publish(text(), count())

    def publish(self, text: str, count: tuple[int, int | None] | None = None) -> None:
        """Replace output.json at once, never half of it. count: bytes done, and bytes in all or None."""
        self.last = time.monotonic()
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # a full RAM disk must not end an installation
            content: dict[str, Any] = {"message": text}
            if count is not None:
                content["bytes"] = {"done": count[0], "total": count[1]}
            draft.write_text(json.dumps(content) + "\n")
            draft.replace(self.path)


# --- How a command is started and how it ends: signals, exit code, marker, and what became of the disk.


MARKER = "IMAGE_URL_DONE"
TOKEN = "OCI_REGISTRY_AUTH_TOKEN"  # the name of a variable, not a secret


def run_program(name: str, install: Callable[..., None], arguments: list[str]) -> int:
    """Run install(image URL, bootstrap file, machine, devices, progress, token); return the exit code.

    The marker is printed only when everything is done. The registry token leaves the environment first, so that no
    tool that is started has it.
    """
    token = os.environ.pop(TOKEN, "")
    if len(arguments) != 4:
        sys.stderr.write(f'usage: {name} IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE"\n')
        return 2

    def end(number: int, _frame: object) -> None:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # cleaning up must not be cut short
        raise Terminated(number)

    caught = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in caught:
        signal.signal(number, end)
    progress = Progress(Path(arguments[1]).with_name("output.json"))
    try:
        install(*arguments, progress, token)
    except (Refused, Terminated, OSError) as error:
        progress.publish(f"failed: {error}")
        sys.stderr.write(f"{name}: {error}; {progress.outcome}\n")
        return 128 + error.number if isinstance(error, Terminated) else 1
    sys.stdout.write(MARKER + "\n")
    return 0


@contextlib.contextmanager
def writing(disk: Disk, progress: Progress) -> Iterator[Path]:
    """Hold the disk and give a private folder; a disk that was written does not boot when the work fails."""
    try:
        with disk.locked(), workplace() as work:
            yield work
    except BaseException as error:
        if disk.touched:
            progress.outcome = f"{disk.path} could not be made unbootable again"
            with contextlib.suppress(OSError):  # of a disk that takes nothing; why it did not is said below
                disk.spoil()
                progress.outcome = f"{disk.path} was made unbootable again"
        if isinstance(error, OSError) and error.errno == errno.EIO:
            raise Refused(
                f"root device {disk.path}: reading or writing it failed ({os.strerror(errno.EIO)}): bad sectors, or a "
                "broken disk or cable. Look at dmesg and smartctl in the rescue, and have the disk replaced"
            ) from error
        raise


# --- The installed record: what the new system says about where it came from.


#: The id of the installation, by which the new system is known again.
INSTALLATION = "KUBENODE_INSTALLATION"
#: What allowed this installation to write; such a word is used up by it.
CONSENT = "KUBENODE_CONSENT"


def installed_record(machine: str, image_url: str, image_digest: str, command: str) -> dict[str, str]:
    """Return what /etc/kubenode/installed.json holds; the URL as it may be shown."""
    installation = os.environ.get(INSTALLATION, "")
    known = {"installation": installation} if re.fullmatch("[0-9a-f]{32}", installation) else {}
    if re.fullmatch("[a-z+]{1,60}", os.environ.get(CONSENT, "")):
        known["consent"] = os.environ[CONSENT]
    return {
        **known,
        "machine": machine,
        "image_url": image_url,
        "image_digest": image_digest,
        "command": command,
        "installed_at": to_whole_seconds(time.time()),
    }
