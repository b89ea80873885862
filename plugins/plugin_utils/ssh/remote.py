# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short scripts on a machine, over Ansible's own connection: jump hosts, ports, keys and agents work as everywhere.

The host keys that a machine may show are in one file for each machine and phase.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files, ssh_access
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line, whole_number

from ..progress import display
from . import system_probe
from .system_probe import System

SILENT, REFUSED, OTHER_KEY = "silent", "refused", "other key"
#: Seconds in which an open port answers a connection, and from one such look to the next while a login is waited for.
_LOOK, _LOOKS = 1.0, 5.0
#: Seconds for a handshake where nothing says that the machine is there, and where its open port or its slowness does.
_BRIEF, _LONG = 5, 30
#: Seconds in which a system that got the reboot closes its connections, also a busy one; one that does not is asked
#: again, which costs it a login each time.
_LEAVING = 60.0

#: Seconds for one question of `ask`.
_ASK = 120.0

_PREFIX = re.compile(r"^(Failed to connect to the host via ssh:|ssh:)\s*")
_NOISE = re.compile(r"^(Warning: Permanently added|mux_client|ControlSocket|\Z)")
_NOTHING_THERE = re.compile(r"connect to host \S+ port [0-9]+:|open failed: connect failed: ")
_SLOW = re.compile(r"banner exchange|kex_exchange|during (key exchange|authentication)", re.IGNORECASE)


class Unreachable(Exception):
    """SSH did not get through. ``kind`` says whether no system answered, or another one did."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


def classify(error: str) -> Unreachable:
    """What a failed ssh says of who is there."""
    lines = [_PREFIX.sub("", _PREFIX.sub("", line.strip())) for line in error.splitlines()]
    telling = [line for line in lines if not _NOISE.match(line)]
    detail = one_line(telling[-1] if telling else error) or "no reason given"
    if re.search(r"host key verification failed|host identification has changed|host key is known", error, re.I):
        return Unreachable(OTHER_KEY, "it shows a host key that is not the pinned one")
    if re.search(r"permission denied|too many authentication failures", error, re.IGNORECASE):
        return Unreachable(REFUSED, detail)
    return Unreachable(SILENT, detail)


def why_not_reached(message: str) -> str:
    """What the error of a task says that did not reach its machine, as the beginning of a sentence in one line."""
    if classify(message).kind == OTHER_KEY:
        return (
            "another system answers: its host key is not the one that is known of this machine; "
            "it may be a rescue that a person has booted"
        )
    return f"it does not answer ({one_line(message, 300)})"


def is_silent(message: str) -> bool:
    """Whether the error of a task says that nothing took its connection: no other system, and none that refused us."""
    return classify(message).kind == SILENT and bool(_NOTHING_THERE.search(message))


class KnownHosts:
    """The known_hosts file of one machine in one phase (``rescue`` or ``os``); the user's own stays as it is.

    A rescue makes new host keys at every boot and no cloud API lists them, so the first contact is trusted (a pin). The
    pin counts from the moment the gate proved which system answered, and holds for that boot within that run: another
    run, or a boot that we asked for ourselves, starts with a new first contact. Any other change of the key is refused.
    """

    def __init__(self, directory: str, name: str, phase: str, run: str) -> None:
        self.name = name
        self.path = Path(directory) / ssh_access.known_hosts_name(name, phase)
        self.alias = ssh_access.alias(name, phase)
        self._run = run
        self.strict = False

    def ssh_options(self) -> str:
        """The options for ssh, as one string of shell words."""
        options = {
            "UserKnownHostsFile": ssh_access.quoted(str(self.path)),
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": self.alias,
            "StrictHostKeyChecking": "yes" if self.strict or self.boot_id else "accept-new",
            "UpdateHostKeys": "no",
            "CheckHostIP": "no",
            "HashKnownHosts": "no",
        }
        return " ".join(shlex.quote(f"-o{key}={value}") for key, value in options.items())

    @property
    def boot_id(self) -> str:
        """The boot for which the pin was proven in this or an earlier run; empty when nothing was proven."""
        return ssh_access.proven_in(self._read())[0]

    @property
    def of_this_run(self) -> bool:
        boot, run = ssh_access.proven_in(self._read())
        return bool(boot) and run == self._run

    def prepare(self) -> None:
        """Make the directory, readable for us alone."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def forget(self) -> None:
        """Trust the next contact again; keys that were known in advance stay."""
        if not self.strict:
            with self._kept():
                self.path.unlink(missing_ok=True)

    def forget_unproven(self) -> None:
        """What an unproven contact left does not count."""
        if not self.boot_id:
            self.forget()

    def require(self, keys: list[str]) -> None:
        """Only these keys are the machine's; for which boot they were proven is kept with them."""
        self.strict = True
        wanted = ssh_access.known_hosts(self.alias, keys)
        if ssh_access.without_header(self._read()) != wanted:
            self._write(wanted)

    def require_known(self) -> bool:
        """Only the keys in the file, which an earlier run was given; False when there are none."""
        self.strict = any(line and not line.startswith("#") for line in self._read().splitlines())
        return self.strict

    def prove(self, boot_id: str) -> None:
        """The system that showed these keys is the right one: pin them to this boot."""
        self._write(ssh_access.header(boot_id, self._run) + ssh_access.without_header(self._read()))

    def shows_one_of(self, lines: Iterable[str]) -> bool:
        """Whether a key that was shown is among these public key lines."""
        theirs = {" ".join(line.split()[:2]) for line in lines}
        return not theirs.isdisjoint(ssh_access.key_lines(self._read()))

    def fingerprints(self) -> list[str]:
        """SHA-256 fingerprints of the keys, as ssh-keygen prints them."""
        return ["SHA256:" + ssh_access.sha256_fingerprint(key) for key in ssh_access.key_lines(self._read())]

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _write(self, text: str) -> None:
        with self._kept(), safe_files.replacing(str(self.path)) as (file, _draft):
            file.write(text.encode("utf-8"))

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """A disk that is full is the user's to clear; what ssh began to write on it does not stay."""
        try:
            yield
        except OSError as exc:
            with contextlib.suppress(OSError):
                if not self.strict and not self.boot_id:
                    self.path.unlink()
            # Ansible would add the error to the text.
            raise AnsibleActionFail(safe_files.unwritable(self.path, exc)) from None


class Remote:
    """One machine, whichever of its systems runs.

    One ssh stays open to a system; with a password, or over another kind of connection, each script is a call of its
    own, as in every task of Ansible.
    """

    def __init__(self, connection: Any) -> None:
        """``connection``: of Ansible, with its options set; only this object may use it."""
        self._connection = connection
        self._is_ssh = connection.transport == "ssh"
        self._stays_open = self._is_ssh and not _asks_for_password(connection)
        self._ssh_args = (connection.get_option("ssh_args") or "") if self._is_ssh else ""
        self._known_hosts: KnownHosts | None = None
        self._session: Session | None = None
        #: The rescue that the open connection leads to, once it was found right: it stays the same one.
        self.rescue: System | None = None
        self._leaving: tuple[Session, float] | None = None
        self._ended = self._went_down = False
        self._patience = _BRIEF
        self._access: list[str] = []
        self._address: tuple[str, int] | None = None
        self._address_known = False
        if self._is_ssh:
            # We retry ourselves, and know better how long.
            connection.set_option("reconnection_retries", 0)
            # A terminal would end commands with the connection and turn line ends.
            connection.set_option("use_tty", False)

    def use(self, known_hosts: KnownHosts) -> None:
        """Speak under these host keys."""
        if self._known_hosts is None or self._known_hosts.path != known_hosts.path:
            self.close()
        self._known_hosts = known_hosts
        self._set_arguments()

    def log_in(self, user: str | None, port: int | None, private_key: str | None) -> None:
        """From now on, as this user, on this port, with this key; None leaves what the inventory says."""
        access = [f"-oUser={shlex.quote(user)}"] if user else []
        access += [f"-oPort={port}"] if port else []
        if private_key:
            quoted = '"' + private_key.replace("%", "%%") + '"'
            access += ["-oIdentitiesOnly=yes", shlex.quote(f"-oIdentityFile={quoted}")]
        if access != self._access:
            self.close()
            self._access, self._address_known = access, False
        self._set_arguments()

    @property
    def is_open(self) -> bool:
        """Whether the next script goes to the system that answered the last one."""
        return self._session is not None and self._session.alive

    def close(self) -> None:
        """Leave the system that answered last: the next script goes to whichever answers then."""
        self.rescue = None
        if self._session:
            self._session.close()
            self._session = None
        elif self._is_ssh and not self._stays_open:
            self._connection.close()

    def end(self) -> None:
        self.close()
        if self._leaving:
            self._leaving[0].close()
            self._leaving = None

    def leave(self) -> None:
        """The reboot was sent: until the system has closed the connection, it is not asked again."""
        self.rescue = None
        if self._session:
            self._leaving = (self._session, time.monotonic() + _LEAVING)
            self._session, self._patience = None, _BRIEF

    def reboots(self, boot_id: str | None) -> bool:
        """Send the reboot to the rescue that the open connection leads to, if it is this boot; whether that was done.

        False also where it is not known: the system is to be asked who it is then.
        """
        if not (self.is_open and self.rescue and self.rescue.boot_id == boot_id):
            return False
        try:
            return self.run(system_probe.REBOOT, str(boot_id))[1].strip() == "reboot=sent"
        except Unreachable:
            return False

    def look(self, any_boot: bool = False) -> bool:
        """Whether the port of another system than the one that was left is open; False when it is not known.

        ``any_boot``: whether the port of any system will do.

        The port of a system that goes down may be open when its connections are closed: it must have been seen closed.
        Raises :class:`Unreachable` when an ssh would be in vain.
        """
        if self._session or not self._stays_open:
            return False
        if self._leaving:
            session, until = self._leaving
            if session.alive and time.monotonic() < until:
                raise Unreachable(SILENT, "it is going down")
            self._ended, self._went_down = not session.alive, False
            session.close()
            self._leaving = None
        address = self._direct_address()
        if address is None:
            return False
        try:
            _connect(address)
        except Unreachable:
            self._went_down = self._ended
            raise
        if self._patience != _LONG:
            self._patience = _LONG
            self._set_arguments()
        return self._went_down or any_boot

    def run(self, script: str, *arguments: str, data: bytes | None = None) -> tuple[int, str]:
        """Run a POSIX shell script; returns exit code and stdout, or raises :class:`Unreachable`.

        ``data``: what the script finds on its stdin.
        """
        try:
            code, text = (
                self._in_session(script, arguments, data)
                if self._stays_open
                else self._in_call(script, arguments, data)
            )
        except (Lost, AnsibleError) as exc:
            self._session = self.rescue = None
            raise self._failed(str(exc)) from exc
        return code, text.replace("\r\n", "\n")

    def ask(self, data: bytes) -> tuple[int, str]:
        """One ssh whose other side runs what it runs for our key; ``data`` is its stdin, and in no argument.

        Returns its exit code, 255 when the connection ended early, and all that was printed.
        Raises :class:`Unreachable` when there was no connection.
        """
        if not self._stays_open:
            raise Unreachable(REFUSED, "an initramfs is only reached by ssh and a key, without a password")
        try:
            done = subprocess.run(self._command("-T"), input=data, capture_output=True, timeout=_ASK, check=False)
        except subprocess.TimeoutExpired as exc:
            raise Unreachable(SILENT, "it did not answer any more") from exc
        out, error = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        if done.returncode == 255 and not out:
            raise self._failed(error)
        return done.returncode, (out + error).replace("\r\n", "\n")

    def _failed(self, error: str) -> Unreachable:
        """What an ssh says that did not get through; the next one has more time when this one had too little."""
        # On a loaded machine the handshake alone may take longer than an absent machine deserves.
        self._patience = _LONG if _SLOW.search(error) else _BRIEF
        self._set_arguments()
        return classify(error)

    def _in_session(self, script: str, arguments: tuple[str, ...], data: bytes | None) -> tuple[int, str]:
        if self._session is None:
            command = self._command()
            display.detail(self._host, b" ".join(command).decode("utf-8", "replace"))
            self._session = Session(command, gone=self._gone)
        return self._session.run(script, *arguments, data=data)

    def _gone(self) -> str:
        """Why a login waits in vain: the port is closed by now. Empty when it is open, or that is not known."""
        address = self._direct_address()
        try:
            if address is not None:
                _connect(address)
        except Unreachable as exc:
            return exc.detail
        return ""

    def _in_call(self, script: str, arguments: tuple[str, ...], data: bytes | None) -> tuple[int, str]:
        words = " ".join(shlex.quote(argument) for argument in arguments)
        command = f"/bin/sh -c {shlex.quote(script)} sh {words}".rstrip()
        code, out, error = self._connection.exec_command(command, in_data=data, sudoable=False)
        if self._is_ssh and code == 255:
            raise Lost(error.decode("utf-8", "replace"))
        return code, out.decode("utf-8", "replace")

    def _command(self, *more: str) -> list[bytes]:
        """The ssh that Ansible would start, without a command for the other side."""
        connection = self._connection
        return list(connection._build_command(connection.get_option("ssh_executable"), "ssh", *more, self._host))

    @property
    def _host(self) -> str:
        return str(self._connection.get_option("host") or self._connection._play_context.remote_addr)

    def _direct_address(self) -> tuple[str, int] | None:
        """Where a TCP connection leads to the machine; None behind a jump host, where only ssh finds the way."""
        if not self._address_known:
            done = subprocess.run(
                self._command("-G"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            self._address = ssh_access.direct_address(done.stdout) if done.returncode == 0 else None
            self._address_known = True
        return self._address

    def _set_arguments(self) -> None:
        if not self._is_ssh or self._known_hosts is None:
            return
        self._known_hosts.prepare()
        # ssh takes the first value of an option it finds: ours come before the user's.
        ours = [
            self._known_hosts.ssh_options(),
            f"-oConnectTimeout={self._patience}",
            "-oServerAliveInterval=5 -oServerAliveCountMax=3",
            # The connection is ours alone, and no terminal.
            "-oControlMaster=no -oControlPath=none -oRequestTTY=no",
            *self._access,
        ]
        self._connection.set_option("ssh_args", " ".join([*ours, self._ssh_args]).strip())


def _connect(address: tuple[str, int]) -> None:
    """Whether the port is open: raises :class:`Unreachable` when it is not."""
    try:
        socket.create_connection(address, timeout=_LOOK).close()
    except OSError as exc:
        reason = "timed out" if isinstance(exc, TimeoutError) else exc.strerror or str(exc)
        raise Unreachable(SILENT, f"connect to {address[0]} port {address[1]}: {reason}") from exc


def _asks_for_password(connection: Any) -> bool:
    """Whether Ansible would type a password or a PIN, which needs its own way to call ssh."""
    known = connection.get_options() if hasattr(connection, "get_options") else {}
    return any(known.get(name) for name in ("password", "pkcs11_provider")) or bool(
        getattr(connection._play_context, "password", None)
    )


# --- trying again when SSH is lost

#: Seconds for which a machine that has answered may be out of reach; then the loss is an error.
PATIENCE = 60.0
_LONGEST_PAUSE = 5.0


class Patience:
    """How long to try again after SSH was lost: a machine or a network may be slow for some time.

    One object is for one script; its time begins with the first loss.
    """

    def __init__(self, remote: Remote, seconds: float = PATIENCE) -> None:
        self._remote, self._seconds = remote, seconds
        self._since: float | None = None
        self._pause = 0.5

    def bear(self, loss: Unreachable) -> None:
        """Close the connection and wait a little; raises the loss when it has lasted too long, or will last."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if loss.kind == OTHER_KEY or now - self._since >= self._seconds:
            raise loss
        self._remote.close()
        time.sleep(self._pause)
        self._pause = min(_LONGEST_PAUSE, self._pause * 1.6)


# --- one ssh to one system, which stays open: shell scripts go in, what they print comes out, one after the other


#: Runs over there. A request is a line with the size of the data (or "-"), the script, a line with the mark, the data.
#: Lines are read byte by byte and data by its size, so that nothing is read that belongs to the next request.
_LOOP = r"""
m=$1
printf '\n%s 0\n' "$m"
while IFS= read -r size; do
  s=
  while :; do
    IFS= read -r l || exit 0
    [ "$l" = "$m" ] && break
    s="$s$l
"
  done
  if [ "$size" = - ]; then (eval "$s") </dev/null
  else head -c "$size" | { (eval "$s"); r=$?; cat >/dev/null; exit "$r"; }
  fi
  printf '\n%s %s\n' "$m" "$?"
done
"""
#: Bytes of one answer; the largest log that is fetched is half of it. A hostile machine must not fill the memory.
MOST = 512 * 1024 * 1024
#: Seconds until a login that hangs is given up; ssh itself gives up much earlier where no system answers.
LOGIN = 120.0
#: Seconds for an ssh to end after its input was closed.
_CLOSING = 0.5
_CHUNK = 1 << 16


class Lost(Exception):
    """The connection could not be opened, or is gone. The text is the message of ssh."""


class Session:
    """The open connection; one thread at a time may use it."""

    def __init__(self, command: Sequence[bytes | str], login: float = LOGIN, gone: Callable[[], str] = str) -> None:
        """Start ``command`` (ssh, its options, the host), wait for the other side; raises :class:`Lost`.

        ``gone`` is asked every few seconds of that wait: why nothing can come any more, empty while it can.
        """
        mark = f"kubenode-{secrets.token_hex(16)}"
        self._mark, self._ending = mark, f"\n{mark} ".encode()
        self._answer, self._errors = bytearray(), bytearray()
        remote = f"exec /bin/sh -c {shlex.quote(_LOOP)} sh {mark}"
        try:
            self._process = subprocess.Popen(
                [*command, remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as exc:
            raise Lost(f"ssh cannot be started: {exc.strerror}") from exc
        self._pipes = [pipe for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if pipe]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        # What the login prints of its own is dropped.
        self._exchange(b"", time.monotonic() + login, gone)

    def run(self, script: str, *arguments: str, data: bytes | None = None) -> tuple[int, str]:
        """The exit code and stdout of a POSIX shell script; its stdin is ``data``. Raises :class:`Lost`."""
        words = " ".join(shlex.quote(argument) for argument in arguments)
        size = "-" if data is None else str(len(data))
        request = f"{size}\nset -- {words}\n{script}\n{self._mark}\n".encode("utf-8", "surrogateescape")
        return self._exchange(request + (data or b""))

    @property
    def alive(self) -> bool:
        """Whether the other side is still there, as far as ssh knows."""
        # Between two requests nothing is to come but the end.
        return self._process.poll() is None and not select.select([self._pipes[1]], [], [], 0)[0]

    def close(self) -> None:
        """End it. What runs on the machine is not ended."""
        with contextlib.suppress(OSError):
            self._pipes[0].close()
        try:
            self._process.wait(_CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in self._pipes[1:]:
            pipe.close()

    def _exchange(
        self, request: bytes, deadline: float | None = None, gone: Callable[[], str] = str
    ) -> tuple[int, str]:
        """Send, and read until the answer is whole: its exit code and what came before."""
        stdin, stdout, stderr = (pipe.fileno() for pipe in self._pipes)
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(stderr, select.POLLIN)
        if request:
            poll.register(stdin, select.POLLOUT)
        rest, searched = memoryview(request), 0
        while True:
            answer = self._whole(searched)
            if answer is not None:
                return answer
            searched = max(0, len(self._answer) - len(self._ending) - 4)
            left = None if deadline is None else max(0.0, min(_LOOKS, deadline - time.monotonic()))
            ready = dict(poll.poll(None if left is None else left * 1000))
            why = "" if ready else gone() if left else "the login took too long"
            if why:
                raise self._lost(why)
            if stdin in ready:
                try:
                    rest = rest[os.write(stdin, rest[:_CHUNK]) :]
                except BrokenPipeError:  # stdout or stderr will say why
                    rest = rest[len(rest) :]
                if not rest:
                    poll.unregister(stdin)
            if stderr in ready:
                data = os.read(stderr, _CHUNK)
                self._errors = (self._errors + data)[-_CHUNK:]
                if not data:
                    poll.unregister(stderr)
            if stdout in ready:
                data = os.read(stdout, _CHUNK)
                self._answer += data
                if not data:
                    raise self._lost("")
                if len(self._answer) > MOST:
                    raise self._lost(f"it answered with more than {MOST // 1024**2} MiB")

    def _whole(self, searched: int) -> tuple[int, str] | None:
        """The answer that has come wholly, taken out of what was read."""
        found = self._answer.find(self._ending, searched)
        end = self._answer.find(b"\n", found + len(self._ending)) if found >= 0 else -1
        if end < 0:
            return None
        code = whole_number(bytes(self._answer[found + len(self._ending) : end]))
        text = self._answer[:found].decode("utf-8", "replace")
        del self._answer[: end + 1]
        return 255 if code is None else code, text

    def _lost(self, why: str) -> Lost:
        """Close, and say why: what ssh printed last, unless the reason is ours."""
        if not why:
            deadline = time.monotonic() + _CLOSING
            while (left := deadline - time.monotonic()) > 0 and select.select([self._pipes[2]], [], [], left)[0]:
                data = os.read(self._pipes[2].fileno(), _CHUNK)
                if not data:
                    break
                self._errors += data
        self.close()
        return Lost(why or self._errors.decode("utf-8", "replace").strip() or "the connection was closed")
