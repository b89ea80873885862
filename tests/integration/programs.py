# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our modules and Ansible's programs as processes, without the second that each imports: a server imports and forks.

A run of Ansible that is forked starts its modules on this host by an interpreter of ours: it forks, too, from a server
that has imported the libraries of modules, but nothing of Ansible and nothing of the collection.

A process has its own environment, folder, session and standard streams, as a new one has; only what it imports is
there before. A server ends with the process that started it.
"""

import contextlib
import functools
import gc
import hashlib
import importlib
import json
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_MODULES = "ansible_collections.kubenode.provision.plugins.modules."
_CONSTANTS = "ansible.constants"
#: What the programs of Ansible import with any arguments.
_PROGRAMS = {"ansible": "ansible.cli.adhoc", "ansible-playbook": "ansible.cli.playbook"}
#: Settings that Ansible reads again when a program begins. It may read any other one only when it is imported.
_TAKEN_LATE = {
    "ANSIBLE_CALLBACKS_ENABLED", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_FORKS", "ANSIBLE_HOME",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING", "ANSIBLE_LOAD_CALLBACK_PLUGINS", "ANSIBLE_LOCALHOST_WARNING",
    "ANSIBLE_LOCAL_TEMP", "ANSIBLE_PIPELINING", "ANSIBLE_REMOTE_TEMP", "ANSIBLE_RETRY_FILES_ENABLED",
    "ANSIBLE_SSH_ARGS", "ANSIBLE_SSH_CONTROL_PATH_DIR", "ANSIBLE_SSH_PIPELINING", "ANSIBLE_TIMEOUT",
}  # fmt: skip
#: Settings that the server of Ansible's programs has when it imports them.
_TAKEN_EARLY = ("ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_NOCOLOR")
#: Seconds between two looks of Ansible at its workers (its setting ``internal_poll_interval``). Without it there are a
#: thousand a second, which cost as much as a tenth of a run.
_LOOK_EVERY = 0.01
#: What modules import that is neither Python's nor Ansible's nor ours.
_LIBRARIES = ("yaml", "requests", "hcloud", "kubernetes.config.kube_config", "kubernetes.client.api.core_v1_api")
#: The interpreter: has a module run by the server with its own streams, and passes signals on to it.
_INTERPRETER = """#!/usr/bin/python3 -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if words and not os.path.basename(words[0]).startswith("AnsiballZ_"):
    os.execv({python!r}, [{python!r}, *words])
wire = socket.socket(socket.AF_UNIX)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _frame: wire.send(b"%d\\n" % number))
wire.connect({address!r})
request = {{"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "streams": []}}
socket.send_fds(wire, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
code = int(wire.makefile().read().split()[1])
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
#: Beginnings of the names of modules that stand for one file each.
_NAMED = ("ansible.modules.", "ansible_collections.")
#: What else it looks at when it is imported; a run with other values is no fork.
_OF_THE_USER = ("HOME", "LANG", "LC_ALL")


class Process:
    """A program that a server forked: what the tests use of a ``subprocess.Popen``."""

    def __init__(self, request: Mapping[str, Any], address: str) -> None:
        self._wire = socket.socket(socket.AF_UNIX)
        self._wire.connect(address)
        self._wire.sendall(json.dumps(request).encode() + b"\n")
        self._answers = self._wire.makefile("rb")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        if self.returncode is None:
            if not select.select([self._wire], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._wire.close()
        return self.returncode


class _Server:
    """A server, and where it is asked; it ends with the pipe to its standard input."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        """``kind``: of programs, which are ``ansible``'s, our ``modules`` or what an ``interpreter`` runs."""
        # apart, since the path of a socket may have a hundred bytes only
        self._folder = tempfile.TemporaryDirectory(prefix="kubenode-programs-")
        self.address = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, kind, self.address],
            env={
                **os.environ,
                "ANSIBLE_HOME": self._folder.name,
                "ANSIBLE_LOCAL_TEMP": self._folder.name,
                **environment,
            },
            cwd=self._folder.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"


@functools.cache
def _server(kind: str, early: tuple[tuple[str, str], ...] = ()) -> _Server:
    return _Server(kind, {"PYTHONPATH": os.environ["ANSIBLE_COLLECTIONS_PATH"]} if kind == "modules" else dict(early))


@functools.cache
def _interpreter() -> str:
    address = _server("interpreter").address
    path = Path(address).with_name("python")
    path.write_text(_INTERPRETER.format(python=sys.executable, address=address))
    path.chmod(0o755)
    return str(path)


def module(
    name: str, options: Mapping[str, Any], environment: Mapping[str, str], folder: Path, limit: float
) -> subprocess.CompletedProcess[str]:
    """Run a module in a folder with this environment; what it printed, and its exit code."""
    streams = [folder / stream for stream in ("stdin", "stdout", "stderr")]
    streams[0].write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options}))
    request = {
        "words": [name],
        "environment": dict(environment),
        "folder": str(folder),
        "streams": [str(stream) for stream in streams],
    }
    code = Process(request, _server("modules").address).wait(limit)
    return subprocess.CompletedProcess([name], code, streams[1].read_text(), streams[2].read_text())


def start(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path
) -> Process | subprocess.Popen[bytes]:
    """Begin to run a command in a folder; all that it prints goes to a file."""
    output.touch()
    settings = {name for name in environment if name.startswith("ANSIBLE_")}
    if (
        Path(command[0]).name in _PROGRAMS
        and settings <= _TAKEN_LATE.union(_TAKEN_EARLY)
        and not (folder / "ansible.cfg").exists()
        and all(environment.get(name) == os.environ.get(name) for name in _OF_THE_USER)
    ):
        early = tuple((name, environment[name]) for name in _TAKEN_EARLY if name in environment)
        request = {
            "words": list(command),
            "environment": dict(environment),
            "folder": str(folder),
            "streams": [os.devnull, str(output), str(output)],
            "interpreter": _interpreter(),
        }
        return Process(request, _server("ansible", early).address)
    with output.open("w") as file:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _serve(kind: str, address: str) -> None:
    """Fork for every request, until standard input ends."""
    for name in {"ansible": tuple(_PROGRAMS.values()), "interpreter": _LIBRARIES}.get(kind, ()):
        importlib.import_module(name)
    if kind == "ansible":
        _read_once(Path(sys.modules["ansible"].__path__[0]) / "config/ansible_builtin_runtime.yml")
    _compile_once(kind, Path(address).parent)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    while listening in select.select([listening, 0], [], [])[0]:
        wire = listening.accept()[0]
        request, streams = _received(wire)
        if kind == "modules":
            importlib.import_module(_MODULES + request["words"][0])
            if "kubernetes" in sys.modules:  # imports its classes when they are used
                for name in ("config.kube_config", "client.api.core_v1_api"):
                    importlib.import_module(f"kubernetes.{name}")
        gc.freeze()  # what is imported is no garbage, for our children neither
        if os.fork() == 0:
            listening.close()
            return _answer(kind, wire, request, streams)
        for number in (wire.detach(), *streams):
            os.close(number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _read_once(routing: Path) -> None:
    """Read where the plugins of ``ansible.builtin`` are now; every run would read it again."""
    finder = importlib.import_module("ansible.utils.collection_loader._collection_finder")
    finder._meta_yml_to_dict = functools.cache(finder._meta_yml_to_dict)
    finder._meta_yml_to_dict(routing.read_bytes(), ("ansible.builtin", "runtime.yml"))


def _compile_once(kind: str, folder: Path) -> None:
    """Keep what files compile to that Python has no cache for: those of packed modules, and of collections."""
    if kind == "interpreter":
        zipimport = importlib.import_module("zipimport")
        compile_source = zipimport._compile_source
        zipimport._compile_source = lambda path, source: _compiled(
            folder, source, path.partition(".zip")[2], lambda: compile_source(path, source)
        )
    if kind == "ansible":
        finder = importlib.import_module("ansible.utils.collection_loader._collection_finder")
        loader = finder._AnsibleCollectionPkgLoaderBase
        get_code = loader.get_code

        def code_of(self: Any, name: str) -> types.CodeType | None:
            source = self.get_source(name)
            if not source or self._compiled_code:
                return get_code(self, name)
            text = source if isinstance(source, bytes) else source.encode()
            return _compiled(folder, text, self.get_filename(name) or "", lambda: get_code(self, name))

        loader.get_code = code_of


def _compiled(folder: Path, source: bytes, path: str, compiled: Callable[[], types.CodeType]) -> types.CodeType:
    kept = folder / f"compiled-{hashlib.sha256(path.encode() + source).hexdigest()}"
    with contextlib.suppress(OSError, EOFError, ValueError):
        return marshal.loads(kept.read_bytes())
    code = compiled()
    beside = kept.with_name(f"{kept.name}-{os.getpid()}")
    beside.write_bytes(marshal.dumps(code))
    beside.replace(kept)
    return code


def _received(wire: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One line that says what is to be run, and its standard streams, if they are open already."""
    text, streams = b"", []
    while not text.endswith(b"\n"):
        more, found, _flags, _address = socket.recv_fds(wire, 65536, 3)
        if not more:
            raise ConnectionError("who asked is gone")
        text += more
        streams += found
    return json.loads(text), streams


def _answer(kind: str, wire: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
    """Run the program in one more process, and report its number and its exit code; pass signals on to it."""
    begun, begin = os.pipe()
    child = os.fork()
    if child:
        os.close(begin)
        os.read(begun, 1)  # ends when the child leads its own session, which the test may signal
        wire.sendall(b"%d\n" % child)
        ended = os.pidfd_open(child)
        while ended not in select.select([ended, wire], [], [])[0]:
            _pass_on(wire, child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            wire.sendall(b"%d\n" % code)
        os._exit(0)  # nothing of ours is to be tidied up
    wire.close()
    os.setsid()
    os.close(begun)
    os.close(begin)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for name, flags in zip(request["streams"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=False):
        if flags == os.O_WRONLY:
            flags |= os.O_CREAT | os.O_APPEND
        streams.append(os.open(name, flags, 0o600))
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    sys.argv = request["words"]
    if kind == "modules":
        _run_module(sys.argv[0])
    elif kind == "ansible":
        _run_program(sys.argv[0], request["interpreter"])
    else:
        _run_file(sys.argv)


def _pass_on(wire: socket.socket, child: int) -> None:
    """Signal the session of the program as its caller was; a caller that was killed signals nothing more."""
    try:
        numbers = [int(line) for line in wire.recv(4096).split()] or [signal.SIGKILL]
    except ConnectionResetError:
        numbers = [signal.SIGKILL]
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, number)


def _run_module(name: str) -> None:
    del sys.modules[_MODULES + name]  # it is run once more; what it imports is there
    runpy.run_module(_MODULES + name, run_name="__main__")


def _run_file(words: list[str]) -> None:
    """As Python does: a file that is named, or the text on standard input."""
    source = Path(words[0]).read_text(encoding="utf-8") if words else sys.stdin.read()
    main = types.ModuleType("__main__")
    main.__dict__.update({"__file__": words[0]} if words else {})
    sys.modules["__main__"] = main
    sys.argv = words or ["-"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exec(compile(source, words[0] if words else "<stdin>", "exec"), main.__dict__)


def _run_program(name: str, interpreter: str) -> None:
    sys.executable = interpreter  # of modules on this host
    constants = sys.modules[_CONSTANTS]
    for setting in constants.config.get_configuration_definitions():
        value = constants.config.get_config_value(setting, variables=vars(constants))
        setattr(constants, setting, value)
    constants.DEFAULT_INTERNAL_POLL_INTERVAL = _LOOK_EVERY
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with _packed(Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"), Path(interpreter).parent):
        sys.exit(importlib.import_module(_PROGRAMS[Path(name).name]).main())


@contextlib.contextmanager
def _packed(of_run: Path, folder: Path) -> Iterator[None]:
    """Give a run the modules that earlier runs of this server have packed of the same collections, and keep its own."""
    collections = hashlib.sha256(os.environ["ANSIBLE_COLLECTIONS_PATH"].encode()).hexdigest()
    shared = folder / f"packed-{collections}"
    for one in (shared, of_run):
        one.mkdir(exist_ok=True)
    _link(shared, of_run)
    try:
        yield
    finally:
        _link(of_run, shared)


def _link(of: Path, to: Path) -> None:
    """Give a folder the files of another; a module beside a playbook has no name of its own, and is left out."""
    for path in of.iterdir() if of.is_dir() else ():
        if path.name.startswith(_NAMED) and not path.name.endswith((".lock", "-part")):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(path, to / path.name)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
