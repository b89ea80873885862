# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a playbook on this machine, by the payload's ansible-core, with what the command line asks for.

Options become variables of the roles base and join, typed by the roles' own argument specs.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files
from ansible_collections.kubenode.provision.plugins.module_utils._common.safe_files import replacing
from ansible_collections.kubenode.provision.plugins.plugin_utils import role_specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from provision import RunError, UsageError
from provision.state_folder import private_folder

TOKEN_VARIABLE = "PROVISION_TOKEN"
_LARGEST = 4 * 1024 * 1024


def gather(chosen: argparse.Namespace) -> dict[str, Any]:
    """The variables of a run: files first, then --set, then the options of their own; UsageError when one is wrong."""
    known = role_specs.variables(*user_data.ROLES)
    result: dict[str, Any] = {}
    for name in chosen.files:
        result.update(_from_file(name, known))
    for text in chosen.values:
        name, value = _assignment(text, known)
        result[name] = value
    result.update(_options(chosen))
    if chosen.prebake:
        result["base_prebake"] = True
    if chosen.phase != "base" and not result.get("join_api_server"):
        raise UsageError(
            f"--phase {chosen.phase} joins a cluster: name its API server by --api-server https://host:6443"
        )
    _refuse(result, user_data.ROLES if chosen.phase == "all" else (chosen.phase,))
    return result


def _refuse(variables: Mapping[str, Any], running: Sequence[str]) -> None:
    """Refuse what the roles would refuse, before anything is done, as no second try helps against it."""
    name = variables.get("join_ca_file")
    if "join" in running and isinstance(name, str) and name and not variables.get("join_ca_cert"):
        text = _checked(f"join_ca_file {name}", user_data.certificates, _read("join_ca_file", name))
        variables = {**variables, "join_ca_cert": text}
    refused = user_data.findings(variables, running)
    if refused:
        raise UsageError("\n".join(refused))


def _options(chosen: argparse.Namespace) -> dict[str, Any]:
    """What the options with a name of their own say."""
    result: dict[str, Any] = {}
    if chosen.kubelet_version is not None:
        result["base_kubernetes_version"] = _checked("--kubelet-version", user_data.version, chosen.kubelet_version)
    if chosen.cloud_provider is not None:
        result["join_cloud_provider"] = _checked("--cloud-provider", user_data.cloud_provider, chosen.cloud_provider)
    if chosen.api_server is not None:
        result["join_api_server"] = _checked("--api-server", user_data.api_server, chosen.api_server)
    if chosen.ca_cert is not None:
        text = _read("--ca-cert", chosen.ca_cert)
        result["join_ca_cert"] = _checked(f"--ca-cert {chosen.ca_cert}", user_data.certificates, text)
    if chosen.cloud_config is not None:
        _read("--cloud-config", chosen.cloud_config)
    token = _token(chosen)
    if token is not None:
        result["join_token"] = token
    return result


def _token(chosen: argparse.Namespace) -> str | None:
    """The bootstrap token, from the first place that has it; --token was put into the environment by now."""
    if chosen.token_file is not None:
        return _checked(f"--token-file {chosen.token_file}", user_data.token, _read("--token-file", chosen.token_file))
    if os.environ.get(TOKEN_VARIABLE):
        return _checked(f"--token or {TOKEN_VARIABLE}", user_data.token, os.environ[TOKEN_VARIABLE])
    return None


def _checked(name: str, check: Callable[[str], str], value: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None


def _read(option: str, name: str) -> str:
    """A file the user named, - for standard input where that makes sense."""
    try:
        if name == "-" and option == "--token-file":
            return sys.stdin.read(_LARGEST)
        path = Path(name)
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise UsageError(f"{option} {name} is larger than {_LARGEST >> 20} MiB: name the right file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{option} {name} is no text (UTF-8): name the right file") from None


def _from_file(name: str, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    option = f"--vars {name}"
    try:
        # PyYAML reads JSON's surrogate pairs as two characters
        loaded = (json.loads if name.endswith(".json") else yaml.safe_load)(_read("--vars", name))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        # the text around the error may be a secret, so the message has only its place
        raise UsageError(f"{option}{where}: this is no YAML or JSON") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(f"{option}: must be a dictionary of variables (base_…, join_…)")
    for key in loaded:
        _known(option, str(key), known)
    return loaded


def _assignment(text: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, Any]:
    """NAME=VALUE with the value in the variable's type."""
    name, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--set {name} has no value: write --set NAME=VALUE")
    spec = _known("--set", name, known)
    if spec.get("no_log"):
        raise UsageError(f"--set {name} is a secret, which the process list would show: put it into a file for --vars")
    kind = spec.get("type", "str")
    if kind in ("str", "raw", "path"):
        return name, value
    try:
        parsed = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        parsed = value
    wanted: Any = {"bool": bool, "int": int, "float": (int, float), "list": list, "dict": dict}[kind]
    if not isinstance(parsed, wanted) or (kind != "bool" and isinstance(parsed, bool)):
        raise UsageError(f"--set {name} is {value!r}; it must be a {kind} (YAML)")
    return name, parsed


def _known(option: str, name: str, known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "the variables are those of the roles base and join"
    raise UsageError(f"{option}: {name!r} is no variable: {hint}")


class _Dumper(yaml.SafeDumper):
    """Tags strings `!unsafe`, but for keys: these are no templates in Ansible."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        pairs = [(self._key(key), self.represent_data(value)) for key, value in mapping.items()]
        return yaml.MappingNode(tag, pairs, flow_style=flow_style)

    def _key(self, key: Any) -> yaml.Node:
        """Numbers stay numbers."""
        is_text = isinstance(key, str)
        return self.represent_scalar("tag:yaml.org,2002:str", key, '"') if is_text else self.represent_data(key)

    def text(self, value: object) -> yaml.Node:
        """A string; dates and all other types of YAML come as their text."""
        return self.represent_scalar("!unsafe", str(value), '"')


_KINDS = (type(None), bool, int, float, list, tuple, dict)
_Dumper.yaml_representers = {kind: yaml.SafeDumper.yaml_representers[kind] for kind in _KINDS}
_Dumper.add_multi_representer(object, _Dumper.text)


def document(values: Mapping[str, Any]) -> str:
    """The variables as YAML in which Ansible finds no template, in printable ASCII."""
    return yaml.dump(dict(sorted(values.items())), Dumper=_Dumper, width=float("inf"))


KEPT = Path("/etc/kubernetes/cloud-config")


def keep_cloud_config(source: Path, *, check: bool, target: Path = KEPT) -> bool:
    """Make `target` what `source` is, readable by root only; True when it differed. With `check` nothing is written.

    The kubelet no longer reads this file of the original design, but cloud components on the node do.
    """
    try:
        content = source.read_bytes()
        same = target.is_file() and target.read_bytes() == content and target.stat().st_mode & 0o777 == 0o600
        if same or check:
            return not same
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with replacing(str(target)) as (file, _draft):
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"--cloud-config {source}: {target}: {error.strerror}") from None
    return True


#: in memory, so that a power cut leaves no secret on a disk
RUN = Path("/run/kubenode-provision")
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin")
_DROPPED = ("ANSIBLE_", "PYTHON")
#: Ansible looks at its one worker a hundred times a second, not a thousand.
_SETTINGS = "[defaults]\ninternal_poll_interval = 0.01\n"
#: Seconds that an interrupted Ansible has for its end.
PATIENCE = 20.0


def run(payload: Path, folder: Path, playbook: str, variables: Mapping[str, Any], flags: list[str], plain: bool) -> int:
    """Run it to its end and return the exit code of ansible-playbook, below 0 when it was interrupted."""
    _write(folder / "vars.yml", document({**variables, "kubenode_hosts": "localhost"}))
    here = {"ansible_connection": "ansible.builtin.local", "ansible_python_interpreter": sys.executable}
    _write(folder / "inventory.yml", document({"all": {"hosts": {"localhost": here}}}))
    _write(folder / "ansible.cfg", _SETTINGS)
    command = [sys.executable, "-I", str(payload / "launch.py"), "-i", str(folder / "inventory.yml")]
    command += ["-e", f"@{folder / 'vars.yml'}", *flags, playbook]
    environment = _environment(payload, folder, plain)
    with _Interrupts() as interrupts:
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL) as child:
            interrupts.go_to(child)
            code = child.wait()
    return -signal.SIGINT if interrupts.came and code else code


@contextmanager
def run_folder(state: Path) -> Iterator[Path]:
    """A private folder for the files of a run, empty at its begin and gone at its end. For the holder of the lock."""
    folder = private_folder(RUN) / hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
    _remove(folder)
    try:
        yield private_folder(folder)
    finally:
        with contextlib.suppress(RunError):
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        safe_files.remove(str(folder))
    except OSError as error:
        raise RunError(f"{error.filename or folder}: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as handle:
        handle.write(text)


def _environment(payload: Path, folder: Path, plain: bool) -> dict[str, str]:
    """What the run sees: nothing of other Ansibles or Pythons here, and not the token."""
    result = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_DROPPED) and name not in (TOKEN_VARIABLE, "KUBENODE_PYTHON")
    }
    path = [entry for entry in result.get("PATH", "").split(os.pathsep) if entry]
    result["PATH"] = os.pathsep.join(dict.fromkeys([*path, *_PATH]))
    # Ansible refuses other encodings, and programs whose output is read must speak English
    result["LC_ALL"] = "C.UTF-8"
    result.setdefault("HOME", "/root")
    callback = "ansible.builtin.default" if plain else "kubenode.provision.node_steps"
    settings = {
        "CONFIG": folder / "ansible.cfg",
        "HOME": folder / "home",
        "LOCAL_TEMP": folder / "local",
        "REMOTE_TEMP": folder / "remote",
        "COLLECTIONS_PATH": payload / "collections",
        "COLLECTIONS_SCAN_SYS_PATH": "false",
        "STDOUT_CALLBACK": callback,
        # module arguments go by standard input, and not to the system log
        "PIPELINING": "true",
        "NO_TARGET_SYSLOG": "true",
        "RETRY_FILES_ENABLED": "false",
        "FORKS": "1",
    }
    result.update({f"ANSIBLE_{name}": str(value) for name, value in settings.items()})
    return result


class _Interrupts:
    """Hands what would end this program to its child, so that the child can clean up, from before it is started.

    Ctrl-C reaches the child by the terminal. Ansible loses an interrupt that arrives while it forks a worker, so a
    child that goes on is ended a while later.
    """

    def __init__(self) -> None:
        self.came = False
        self._waits = False
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            # nohup has SIGHUP ignored
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._insist)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def go_to(self, child: subprocess.Popen[bytes]) -> None:
        """Send interrupts to this child; first the one that came while it was started."""
        self._child = child
        if self._waits:
            child.send_signal(signal.SIGINT)

    def _end(self, number: int, _frame: object) -> None:
        self.came = True
        if self._child is None:
            self._waits = True
        elif number != signal.SIGINT:
            self._child.send_signal(signal.SIGINT)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)

    def _insist(self, _number: int, _frame: object) -> None:
        if self._child is not None:
            self._child.terminate()
