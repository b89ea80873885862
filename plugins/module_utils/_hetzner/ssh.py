# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Ask a machine by SSH which system it runs, and ask it to reboot; all of its output is untrusted."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .._common import intents, probe, safe_files, ssh_access
from .._common.text import ascii_words, json_object
from .api_failures import FleetError, MachineError

#: The most bytes that are read from either stream.
LONGEST_OUTPUT = 65536
#: What a program that had to be killed returns here.
KILLED = -1

SILENT, DENIED, SYSTEM = "silent", "denied", "system"

#: The types of host keys, each with the algorithms that ask for it.
_KEY_KINDS = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"),
)

# A POSIX shell reads the program, also when the login shell is another one.
_PROBE = "exec sh -c " + shlex.quote(probe.SCRIPT)

# Detached, so that the answer gets out before the system goes down.
_REBOOT = "exec sh -c " + shlex.quote(
    r"""command -v reboot >/dev/null || PATH=$PATH:/usr/sbin:/sbin
if [ "$(id -u)" = 0 ]; then how=reboot; else how="sudo -n reboot"; fi
nohup sh -c "sleep 1; $how" >/dev/null 2>&1 </dev/null &
"""
)

_USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_HOSTNAME = re.compile(r"^[A-Za-z0-9._-]{1,253}\Z")
#: What OpenSSH says of a port that accepts connections and speaks no SSH, or not with us.
_ACCEPTED = re.compile(
    "kex_exchange|banner|Connection (reset|closed)|closed by remote|Host key verification|Bad packet"
)


def run_limited(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Run ``argv`` without a shell and without input; returns (exit code or KILLED, stdout, stderr) as text."""
    # AnsibleModule.run_command can limit neither, and what is read here may come from a hostile machine.
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise FleetError(
            f"the program '{argv[0]}' cannot be run on the controller ({error}); install the OpenSSH client"
        ) from error
    if process.stdout is None or process.stderr is None:
        raise AssertionError("both are pipes")
    guard = threading.Timer(seconds, process.kill)
    guard.start()
    try:
        output = process.stdout.read(LONGEST_OUTPUT)
        if len(output) == LONGEST_OUTPUT:
            process.kill()
        errors = process.stderr.read(LONGEST_OUTPUT)
        if len(errors) == LONGEST_OUTPUT:
            process.kill()
        returncode = process.wait()
    finally:
        guard.cancel()
        process.stdout.close()
        process.stderr.close()
    return (
        returncode if returncode >= 0 else KILLED,
        output.decode("utf-8", "replace"),
        errors.decode("utf-8", "replace"),
    )


class Login(NamedTuple):
    """How an installed system is reached that does not let us in as a rescue does; None: as a rescue."""

    user: str | None
    port: int | None
    private_key: str | None


@dataclass(frozen=True)
class Answer:
    """What came back: ``kind`` is SILENT, DENIED or SYSTEM; the rest is known for a SYSTEM only."""

    kind: str
    detail: str = ""
    hostname: str | None = None
    boot_id: str | None = None
    os_name: str | None = None
    installed: dict[str, str] | None = None
    origin: probe.Origin = field(default_factory=probe.Origin)
    #: What another run wrote into the rescue that answers.
    intent: dict[str, Any] | None = None
    #: Its own IP addresses.
    addresses: tuple[str, ...] = ()
    #: Whether it has come to its end; half of one may not show what is installed.
    whole: bool = True

    @property
    def in_rescue(self) -> bool:
        """Whether the rescue answered, as root."""
        return self.kind == SYSTEM and self.origin.is_rescue

    @property
    def listens(self) -> bool:
        """Whether a server accepted the connection, with any protocol; it may have been a jump host in between."""
        return self.kind != SILENT or bool(_ACCEPTED.search(self.detail))

    def describe(self) -> str:
        """One clause for a message."""
        if self.kind == SYSTEM:
            text = f"hostname '{self.hostname or '?'}' ({self.os_name or 'unknown system'}) answers"
            text += "" if self.whole else f", but {self.detail}"
            called_so = self.hostname == "rescue" and not self.in_rescue
            return text + (f", which is no rescue: {self.origin.why_no_rescue}" if called_so else "")
        if self.kind == DENIED:
            return f"SSH answers but does not accept the key ({self.detail})"
        return f"SSH does not answer ({self.detail})"


def parse_probe(output: str) -> Answer:
    """The Answer in the output of the probe; anything that does not look right is left out."""
    fields = probe.fields_of(output)
    if fields is None:
        return Answer(SYSTEM, f"it did not run the probe: {ascii_words(output)}")
    hostname, boot_id = fields.get("hostname", ""), probe.boot_id_of(fields) or None
    if fields.get("end") != "1":
        return Answer(SYSTEM, "its answer is not whole", boot_id=boot_id, whole=False)
    return Answer(
        SYSTEM,
        hostname=hostname if _HOSTNAME.match(hostname) else None,
        boot_id=boot_id,
        os_name=ascii_words(fields.get("os", "")) or None,
        installed=_record(json_object(fields.get("record", ""))),
        origin=probe.Origin.parse(fields),
        intent=intents.parse(fields.get("intent", "")),
        addresses=probe.addresses_of(fields),
    )


def parse_failure(returncode: int, errors: str) -> Answer:
    """The Answer when the probe itself gave no usable output."""
    lines = [line for line in errors.splitlines() if line.strip()]
    last = ascii_words(lines[-1]) if lines else f"no error text, exit code {returncode}"
    if "Permission denied" in errors or "Too many authentication failures" in errors:
        return Answer(DENIED, last)
    if returncode != 255:
        return Answer(SYSTEM, f"it did not run the probe (exit code {returncode})")
    return Answer(SILENT, last)


@contextlib.contextmanager
def ssh_of(params: Mapping[str, Any]) -> Generator[Ssh, None, None]:
    """An Ssh from the options of a module; without ``known_hosts_dir``, its host keys go when the block ends."""
    folder = params["known_hosts_dir"] or tempfile.mkdtemp(prefix="kubenode-known-hosts-")
    try:
        yield make_ssh(params, folder)
    finally:
        if not params["known_hosts_dir"]:
            shutil.rmtree(folder, ignore_errors=True)


def make_ssh(params: Mapping[str, Any], known_hosts_dir: str) -> Ssh:
    """An Ssh from the ``ssh_*`` options of a module; raises FleetError for options that cannot work."""
    user, port = params["ssh_user"], params["ssh_port"]
    if not _USER.match(user):
        raise FleetError(f"ssh_user: {user!r} is no user name; use letters, digits, '-', '_' and '.'")
    if not 0 < port < 65536:
        raise FleetError(f"ssh_port: {port} is no port; use a number from 1 to 65535")
    try:
        extra_args = shlex.split(params["ssh_args"] or "")
    except ValueError as error:
        raise FleetError(f"ssh_args: {params['ssh_args']!r} cannot be split into words ({error})") from error
    if '"' in known_hosts_dir or "\n" in known_hosts_dir:
        raise FleetError(f"known_hosts_dir: {known_hosts_dir!r} must not contain quotes or line breaks")
    try:
        os.makedirs(known_hosts_dir, mode=0o700, exist_ok=True)
    except OSError as error:
        raise FleetError(f"known_hosts_dir: '{known_hosts_dir}' cannot be made ({error})") from error
    return Ssh(
        known_hosts_dir,
        user,
        port,
        params["ssh_private_key"],
        extra_args,
        systems=_systems(params.get("access") or [], port),
        host_keys=_host_keys(params.get("access") or []),
        ways={str(one.get("name")): shlex.split(one.get("ssh_args") or "") for one in params.get("access") or []},
    )


def _systems(given: Iterable[Mapping[str, Any]], of_rescue: int) -> dict[str, Login]:
    """Name → user, port and key of the installed system, from the option ``access``; raises FleetError.

    A port is None where it is ``of_rescue``.
    """
    systems: dict[str, Login] = {}
    for one in given:
        findings = ssh_access.access_findings(one)
        if findings:
            raise FleetError(f"nothing was changed, because of: {one.get('name')}: {'; '.join(findings)}")
        user, port, key = (one.get(field) for field in ("os_user", "os_port", "os_private_key"))
        own = int(port) if port and int(port) != of_rescue else None
        if (user, own, key) != (None, None, None):
            systems[str(one.get("name"))] = Login(user, own, os.path.expanduser(key) if key else None)
    return systems


def _not_pinned(path: str, error: OSError) -> MachineError:
    """A full disk of the controller ends one machine's run, not the fleet's."""
    if safe_files.is_full(error):
        return MachineError(f"the host key of its rescue: {safe_files.unwritable(path, error)}")
    return MachineError(f"the host key of its rescue cannot be kept in {path}: {error.strerror or error}")


def _host_keys(given: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Name → the host keys of the installed system that are known, as ``type base64``."""
    return {
        str(one.get("name")): {" ".join(key.split()[:2]) for key in one["host_keys"] if isinstance(key, str)}
        for one in given
        if isinstance(one.get("host_keys"), list)
    }


class Ssh:
    """Runs the OpenSSH client for one user, port and key, with host keys in files of our own."""

    def __init__(
        self,
        known_hosts_dir: str,
        user: str = "root",
        port: int = 22,
        private_key: str | None = None,
        extra_args: Iterable[str] = (),
        systems: Mapping[str, Login] | None = None,
        host_keys: Mapping[str, set[str]] | None = None,
        ways: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._known_hosts_dir = known_hosts_dir
        self._user = user
        self._port = port
        self._private_key = private_key
        self._extra_args = list(extra_args)
        self._connect_timeout = 5
        #: How installed systems are reached that do not let us in as a rescue does: name → user, port, key.
        self._systems = dict(systems or {})
        self._host_keys = dict(host_keys or {})
        #: More arguments of ssh for a machine, such as those of its jump host.
        self._ways = dict(ways or {})
        #: Where a plain connection leads to: machine and address → address and port; None behind a jump host.
        self._direct: dict[tuple[str, str], tuple[str, int] | None] = {}
        #: How each machine was reached last.
        self._access: dict[str, Login | None] = {}

    def pin_file(self, name: str, phase: str = "rescue") -> str:
        """The known_hosts file of a machine in one phase; the host keys of a rescue live for one boot only."""
        return os.path.join(self._known_hosts_dir, ssh_access.known_hosts_name(name, phase))

    def proved_system(self, name: str) -> bool:
        """Whether an earlier run proved the machine's installed system, and no run began to write it again since."""
        try:
            with open(self.pin_file(name, "os"), encoding="utf-8", errors="replace") as file:
                return file.readline().startswith(ssh_access.PROVEN)
        except OSError:
            return False

    def argv(
        self,
        name: str,
        address: str,
        known_hosts: str,
        command: str,
        alias: str | None = None,
        login: bool = True,
        system: Login | None = None,
        options: Iterable[str] = (),
    ) -> list[str]:
        """The command line; neither a shell of ours nor an option of ssh can come from a machine's data.

        With ``alias``, only the keys that ``known_hosts`` has for that name are accepted. Without ``login``, the
        connection ends after the host has shown its key. ``system``: another user, port and key than a rescue's.
        """
        user, port, key = system or Login(None, None, None)
        options = list(options) + ([] if login else ["PreferredAuthentications=none"])
        options += [
            # Arguments of the user's may have another one.
            f"HostKeyAlias={alias or self.alias(name)}",
            "BatchMode=yes",
            f"StrictHostKeyChecking={'yes' if alias else 'accept-new'}",
            f"UserKnownHostsFile={ssh_access.quoted(known_hosts)}",
            "GlobalKnownHostsFile=/dev/null",
            "UpdateHostKeys=no",
            "HashKnownHosts=no",
            "ControlMaster=no",
            "ControlPath=none",
            "RemoteCommand=none",
            "PermitLocalCommand=no",
            "ClearAllForwardings=yes",
            "ForwardAgent=no",
            "ConnectionAttempts=1",
            f"ConnectTimeout={self._connect_timeout}",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=2",
            "LogLevel=ERROR",
        ]
        line = ["ssh", "-T"]
        for option in options:
            line += ["-o", option]
        identity = key or self._private_key
        if identity:
            line += ["-o", "IdentitiesOnly=yes", "-i", identity]
        login_as = ["-p", str(port or self._port), "-l", user or self._user]
        return [*line, *self._extra_args, *self._ways.get(name, ()), *login_as, "--", address, command]

    def probe(self, name: str, address: str) -> Answer:
        """Which system answers now? Its host key is taken as it comes and pinned only when ``pin`` is called."""
        answer = self._probe(name, address, None)
        system = self._systems.get(name)
        if system is None or answer.kind == SYSTEM:
            return answer
        # No rescue: perhaps a system that is reached in another way.
        other = self._probe(name, address, system)
        return answer if other.kind == SILENT and answer.kind == DENIED else other

    def probe_elsewhere(self, name: str, address: str) -> Answer | None:
        """Which system answers on the port of the installed one? None: it has none of its own."""
        system = self._systems.get(name)
        return self._probe(name, address, system) if system is not None and system[1] else None

    def _probe(self, name: str, address: str, system: Login | None) -> Answer:
        known_hosts = self.pin_file(name, "probe")
        _remove(known_hosts)
        self._access[name] = system
        return _answer(*self._run(self.argv(name, address, known_hosts, _PROBE, system=system)))

    def probe_pinned(self, name: str, address: str) -> Answer:
        """Which system answers with a host key that is in this machine's file for its rescue?"""
        return _answer(*self._run(self.argv(name, address, self.pin_file(name), _PROBE, alias=self.alias(name))))

    def host_keys(self, name: str, address: str) -> list[str]:
        """The host keys shown now, as ``type base64`` each; without a login, and without trusting them."""
        direct = self._direct_address(name, address)
        if direct is not None:
            return scan(*direct, self._connect_timeout)
        # Jump hosts and the like are in arguments and files of ssh, and ssh-keyscan takes none of them.
        shown = self._shown_key(name, address)
        for kinds in _KEY_KINDS if shown else ():
            if not any(key.split()[0] in kinds for key in shown):
                shown += self._shown_key(name, address, f"HostKeyAlgorithms={','.join(kinds)}")
        return shown

    def _direct_address(self, name: str, address: str) -> tuple[str, int] | None:
        """Where ssh-keyscan reaches what ssh would reach; None when it cannot."""
        if (name, address) not in self._direct:
            line = self.argv(name, address, self.pin_file(name, "shown"), "true", options=["CanonicalizeHostname=no"])
            code, settings, _errors = self._run([line[0], "-G", *line[1:]])
            self._direct[name, address] = ssh_access.direct_address(settings) if code == 0 else None
        return self._direct[name, address]

    def _shown_key(self, name: str, address: str, *options: str) -> list[str]:
        """The one host key that a connection shows."""
        known_hosts = self.pin_file(name, "shown")
        _remove(known_hosts)
        self._run(self.argv(name, address, known_hosts, "true", login=False, options=options))
        shown = _keys_in(known_hosts)
        _remove(known_hosts)
        return shown

    def keys_of_last_probe(self, name: str) -> list[str]:
        """The host keys that the system showed which was asked last."""
        return _keys_in(self.pin_file(name, "probe"))

    def where_another_key_is(self, name: str) -> str:
        """Where the host keys of the machine's system are, when the one that was asked last showed none of them."""
        shown, given = set(self.keys_of_last_probe(name)), self._host_keys.get(name)
        if given:
            return "" if given & shown else "kubenode_host_keys"
        path = self.pin_file(name, "os")
        known = set(_keys_in(path)) if self.proved_system(name) else set()
        # Of another kind of key, which a client may choose at another time, nothing is known.
        kinds = {key.split(" ")[0] for key in known}
        alike = {key for key in shown if key.split(" ")[0] in kinds}
        return path if alike and not alike & known else ""

    def shows_a_known_key(self, name: str) -> bool:
        """Whether the system that was asked last showed a host key that only the machine's own system has."""
        known = self._host_keys.get(name, set()).union(_keys_in(self.pin_file(name, "os")))
        return bool(known.intersection(self.keys_of_last_probe(name)))

    @staticmethod
    def alias(name: str) -> str:
        """The name under which the SSH phase looks up the keys of a machine's rescue."""
        return ssh_access.alias(name, "rescue")

    def pin_keys(self, name: str, keys: list[str]) -> None:
        """Only these keys (``type base64``) are this machine's rescue, for every later task and run."""
        try:
            with safe_files.replacing(self.pin_file(name)) as (file, _draft):
                file.write(ssh_access.known_hosts(self.alias(name), keys).encode("utf-8"))
        except OSError as error:
            raise _not_pinned(self.pin_file(name), error) from error

    def pin(self, name: str) -> None:
        """Keep the host key of the last probe as that of this machine's rescue, for every later task and run."""
        try:
            os.replace(self.pin_file(name, "probe"), self.pin_file(name))
        except OSError as error:
            raise _not_pinned(self.pin_file(name), error) from error

    def reboot(self, name: str, address: str) -> bool:
        """Ask the system to reboot; returns whether it took the order."""
        system = self._access.get(name)
        return self._run(self.argv(name, address, self.pin_file(name, "probe"), _REBOOT, system=system))[0] == 0

    def _run(self, line: Sequence[str]) -> tuple[int, str, str]:
        seconds = self._connect_timeout * 3
        returncode, output, errors = run_limited(line, seconds)
        if returncode == KILLED:
            return 255, "", f"no end within {seconds} s"
        return returncode, output, errors


def scan(address: str, port: int, seconds: int) -> list[str]:
    """The host keys that ``address`` shows by ssh-keyscan, as ``type base64`` each; none when it is silent."""
    line = ["ssh-keyscan", "-T", str(seconds), "-p", str(port), "-t", "ed25519,ecdsa,rsa", "--", address]
    return ssh_access.key_lines(run_limited(line, seconds * 3)[1])


def _keys_in(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return ssh_access.key_lines(file.read(LONGEST_OUTPUT))
    except FileNotFoundError:
        return []


def _answer(returncode: int, output: str, errors: str) -> Answer:
    return parse_probe(output) if returncode == 0 else parse_failure(returncode, errors)


def _record(record: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The texts of an installed record, fit to be printed."""
    if record is None:
        return None
    return {ascii_words(str(key)): ascii_words(value) for key, value in record.items() if isinstance(value, str)}


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        return
