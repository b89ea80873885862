# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks, the Python environments and packages that are made of them when first needed, Debian packages, dev/run."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import SetupError, output_of, say, step
from .paths import CHECKOUT, REQUIREMENTS, cache, linked_tree

#: locks with all of their hashes, for those who do not read hashes.txt
COMPLETE = ("image-server", "bundle", "uv")
HASHES = "hashes"

#: a pin such as ``name==1.2 ; python_version < "3.12"`` → its lines of hashes, each after a backslash
Lock = dict[str, str]

_PIN = re.compile(r"^([a-z0-9][^\\\n]*==[^\\\n]+?)((?: \\\n    --hash=\S+)*)$", re.M)


def parsed(text: str) -> Lock:
    return {match[1]: match[2] for match in _PIN.finditer(text)}


def written(lock: Lock) -> str:
    return "# made by dev/lock\n" + "".join(pin + hashes + "\n" for pin, hashes in lock.items())


def whole(name: str, folder: Path = REQUIREMENTS) -> Lock:
    """A lock with the hashes of every pin; installers refuse a pin for which none are found."""
    known = {_release(pin): hashes for other in (HASHES, *COMPLETE) for pin, hashes in _read(folder, other).items()}
    return {pin: hashes or known.get(_release(pin), "") for pin, hashes in _read(folder, name).items()}


def split(locks: Mapping[str, Lock]) -> dict[str, Lock]:
    """What to write for whole locks, the hashes among it."""
    result = {name: lock if name in COMPLETE else dict.fromkeys(lock, "") for name, lock in locks.items()}
    beside = {_release(pin) for name in COMPLETE for pin in locks.get(name, ())}
    known = {_release(pin): hashes for lock in locks.values() for pin, hashes in lock.items()}
    return {**result, HASHES: {pin: known[pin] for pin in sorted(known.keys() - beside)}}


def _read(folder: Path, name: str) -> Lock:
    path = folder / (name + ".txt")
    return parsed(path.read_text(encoding="ascii")) if path.exists() else {}


def _release(pin: str) -> str:
    """Name and version, without what follows."""
    return pin.partition(" ")[0]


Version = tuple[int, int]

_PROBE = "import sys, ssl, venv; print('%d.%d' % sys.version_info[:2])"


@functools.cache
def version_of(interpreter: Path) -> Version | None:
    """Version of an interpreter, or None when it does not run or lacks ssl or venv (pyenv's shims exit 127)."""
    try:
        answer = subprocess.run(
            [str(interpreter), "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=120,  # for hangs: a busy machine is slow
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"([0-9]+)\.([0-9]+)", answer.stdout.decode().strip())
    return (int(match[1]), int(match[2])) if match and answer.returncode == 0 else None


def folders() -> list[Path]:
    """Where interpreters are looked for: the system's, PATH, pyenv's versions, uv's installations."""
    entries = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry.startswith("/")]
    found = [Path("/usr/bin"), *entries]
    pyenvs = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")]
    # the shims of a pyenv lie beside its versions
    pyenvs += [entry.parent for entry in entries if entry.name == "shims"]
    for pyenv in pyenvs:
        found += sorted((pyenv / "versions").glob("*/bin"))
    found += sorted(uv_folder().glob("*/bin"))
    # dict, so that the order stays and nothing is probed twice
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def uv_folder() -> Path:
    """Where interpreters that uv installs for us are kept."""
    return cache() / "python"


def find(minimum: Version, maximum: Version) -> Path | None:
    """The oldest running interpreter within the two versions, both included; the system's own comes first."""
    for minor in range(minimum[1], maximum[1] + 1):
        for folder in folders():
            candidate = folder / f"python3.{minor}"
            if candidate.exists() and version_of(candidate) == (3, minor):
                return candidate
    return None


def search_path(every_python: bool = False) -> list[str]:
    """Folders of PATH without those whose Pythons do not run; on request every real interpreter's in front."""
    real = []
    for minor in range(8, 20) if every_python else ():
        interpreter = find((3, minor), (3, minor))
        # /usr/bin keeps its place: in front it would hide the tools of an environment
        if interpreter and interpreter.parent != Path("/usr/bin"):
            real.append(str(interpreter.parent))
    entries = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    return [*dict.fromkeys([*real, *(entry for entry in entries if not _is_broken(Path(entry)))])]


def _is_broken(folder: Path) -> bool:
    """Whether a folder of PATH offers a python3.N that does not run."""
    shims = (path for path in folder.glob("python3.*") if re.fullmatch(r"python3\.[0-9]+", path.name))
    return any(version_of(shim) is None for shim in shims)


COLLECTIONS = REQUIREMENTS / "collections.txt"
#: what of a user's shell must not reach our runs, by the beginnings of the names
DROPPED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "ANSIBLE_")


@dataclass(frozen=True)
class Environment:
    """One environment: its lock and the Pythons it supports."""

    name: str
    minimum: Version
    maximum: Version
    purpose: str

    @property
    def folder(self) -> Path:
        """Where the environment lies; another lock means another folder."""
        return _folder("venv", self.name)


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("main", (3, 11), (3, 13), "ansible-core 2.19, the lab, all tests, most linters, documentation"),
        Environment("core-2.18", (3, 11), (3, 13), "sanity and unit tests on ansible-core 2.18"),
        Environment("core-2.20", (3, 12), (3, 14), "sanity and unit tests on ansible-core 2.20"),
        Environment("core-2.21", (3, 12), (3, 14), "sanity and unit tests on ansible-core 2.21"),
        Environment("awx", (3, 11), (3, 13), "ansible-builder and ansible-runner, for the tests of AWX"),
        Environment("docs", (3, 11), (3, 13), "the documentation as HTML"),
        Environment("importer", (3, 11), (3, 13), "galaxy-importer"),
    )
}

#: ansible-core version → environment
CORES = {"2.18": "core-2.18", "2.19": "main", "2.20": "core-2.20", "2.21": "core-2.21"}


def ensure(name: str) -> Path:
    """Folder of the named environment, made when it is not there."""
    environment = ENVIRONMENTS[name]
    oldest, newest = (".".join(map(str, version)) for version in (environment.minimum, environment.maximum))

    def make(folder: Path) -> None:
        # uv installs one when it is given a version of which it finds none
        python = str(find(environment.minimum, environment.maximum) or oldest)
        hint = f"it needs Python {oldest} … {newest}; please install one if none runs here (PATH, pyenv, uv)"
        run_uv(["venv", "--quiet", "--python", python, str(folder)], hint=hint)
        # compiled once here instead of by many short-lived processes at the same time
        _install(name, ["--python", _python(folder), "--compile-bytecode"])

    return _once(environment.folder, f"environment {name} ({environment.purpose})", make)


def unpacked(name: str, options: list[str]) -> Path:
    """A folder with the packages of a lock, unpacked and not compiled; ``options`` of uv say for which machine."""

    def make(folder: Path) -> None:
        _install(name, ["--no-deps", "--only-binary", ":all:", "--target", str(folder), *options])

    return _once(_folder("packages", name), f"packages of {name}", make)


def collections() -> Path:
    """A folder for ANSIBLE_COLLECTIONS_PATH with the collections of others that collections.txt chooses of ansible."""
    lines = (line.partition("#")[0].strip() for line in COLLECTIONS.read_text(encoding="utf-8").splitlines())
    chosen = [line for line in lines if line]

    def make(folder: Path) -> None:
        # uv cannot download a package, and installing this one whole unpacks thirty thousand files
        pip = [_python(uv().parents[1]), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        wheels = folder / "wheels"
        _run([*pip, "--no-cache-dir", "--require-hashes", "--dest", str(wheels), "-r", str(_lock("bundle"))])
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in chosen:
                prefix = f"ansible_collections/{name.replace('.', '/')}/"
                members = [member for member in archive.namelist() if member.startswith(prefix)]
                if not members:
                    raise SetupError(f"collection {name} of {COLLECTIONS} is not in {wheel.name}")
                archive.extractall(folder, members)
        shutil.rmtree(wheels)

    return _once(_folder("collections", "bundle", *chosen), "collections " + " ".join(chosen), make)


def variables(name: str = "main", trees: list[Path] | None = None, every_python: bool = False) -> dict[str, str]:
    """A whole process environment for commands of the named environment; ``trees`` have the collections.

    With `every_python` all interpreters of this machine are on PATH, for ansible-test to check old syntax with.
    """
    folder = ensure(name)
    trees = [linked_tree(), collections()] if trees is None else trees
    result = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
    result["PATH"] = os.pathsep.join([str(folder / "bin"), *search_path(every_python)])
    result["VIRTUAL_ENV"] = str(folder)
    result["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join(str(tree) for tree in trees)
    # not as the user's shell sets compiled files: without them each of the many processes compiles all it imports
    result.pop("PYTHONDONTWRITEBYTECODE", None)
    result["PYTHONPYCACHEPREFIX"] = str(cache() / "pyc")
    # the lab is run as `python -m lab`, from any folder
    result["PYTHONPATH"] = str(CHECKOUT)
    if not result.get("LC_ALL", result.get("LANG", "")).upper().replace("-", "").endswith("UTF8"):
        # Ansible refuses to run in a locale without UTF-8
        result["LC_ALL"] = "C.UTF-8"
    return result


def uv() -> Path:
    """The uv of this checkout's lock, in an environment of its own; the rest is installed with it."""

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)], hint="is the Debian package python3-venv installed?")
        _run([_python(folder), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(_lock("uv"))])

    return _once(_folder("tool", "uv"), "uv, the installer", make) / "bin" / "uv"


def run_uv(words: list[str], text: str = "", hint: str = "") -> None:
    """Run uv, with a text on its standard input; SetupError with what it printed when it fails."""
    _run([str(uv()), *words], text, hint)


def _lock(name: str) -> Path:
    return REQUIREMENTS / (name + ".txt")


def _folder(kind: str, name: str, *more: str) -> Path:
    """The place in the cache of what is made from a lock; its name has the digest of the lock with all hashes."""
    text = written(whole(name)) + "\n".join(more)
    return cache() / f"{kind}-{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _once(folder: Path, what: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made by one process at a time; one that is not complete is made again."""
    if not (folder / "complete").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(folder.name + ".lock").open("w", encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                with step(what):
                    shutil.rmtree(folder, ignore_errors=True)
                    make(folder)
                    (folder / "complete").touch()
    return folder


def _install(name: str, options: list[str]) -> None:
    """Install the packages of a lock, each only with one of its hashes."""
    lock = written(whole(name))
    run_uv(["pip", "install", "--quiet", "--require-hashes", *options, "-r", "-"], text=lock)


def _python(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _run(command: list[str], text: str = "", hint: str = "") -> None:
    """Run one installation step; its output is shown only when it fails."""
    environment = dict(os.environ)
    # one folder holds everything; hard links from uv's cache into the environments need one file system
    environment.update(UV_CACHE_DIR=str(cache() / "uv-cache"), UV_PYTHON_INSTALL_DIR=str(uv_folder()))
    environment.setdefault("UV_HTTP_TIMEOUT", "120")
    # 60 s by default, which a machine that does other work may take for one large file
    environment.setdefault("UV_COMPILE_BYTECODE_TIMEOUT", "600")
    # a network with a certificate authority of its own has put it into the system's store
    environment.setdefault("UV_SYSTEM_CERTS", "true")
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    output_of(command, environment=environment, text=text, hint=hint)


DEBIAN_LIST = CHECKOUT / "dev" / "debian-packages.txt"


def wanted_packages(groups: list[str]) -> list[str]:
    """Package names of these groups; a `[group]` line begins each group of the list."""
    packages: dict[str, list[str]] = {}
    current = ""
    for raw in DEBIAN_LIST.read_text(encoding="utf-8").splitlines():
        line = raw.partition("#")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            current = line[1:-1]
            packages.setdefault(current, [])
        elif line:
            packages[current].append(line)
    unknown = [group for group in groups if group not in packages]
    if unknown:
        raise SetupError(f"group {unknown[0]} is not in {DEBIAN_LIST}; it has {', '.join(packages)}")
    return [package for group in groups for package in packages[group]]


def missing_packages(packages: list[str]) -> list[str]:
    """Those of the packages that are not installed."""
    if not packages:
        return []
    answer = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    ).stdout.decode()
    installed = {line.split()[0] for line in answer.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def ensure_debian(groups: list[str]) -> None:
    """Install what is missing of these groups; without root say the exact line and go on."""
    packages = wanted_packages(groups)
    if not (shutil.which("dpkg-query") and shutil.which("apt-get")):
        say("no Debian or Ubuntu here; the following must be there by other means: " + " ".join(packages))
        return
    lacking = missing_packages(packages)
    if not lacking:
        say(f"Debian packages ({', '.join(groups)}): all {len(packages)} there")
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *lacking]
    if os.geteuid() != 0:
        say("Debian packages are missing and this is not root; please run: sudo " + " ".join(install))
        return
    with step("Debian packages: installing " + " ".join(lacking)):
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        # a failed update may still leave usable lists; a failed installation never does
        with contextlib.suppress(SetupError):
            output_of(["apt-get", "update"], environment=environment)
        output_of(install, environment=environment)


def setup(arguments: list[str] | None = None) -> int:
    """dev/setup: provide Debian packages and environments; idempotent."""
    parser = argparse.ArgumentParser(prog="dev/setup", description="provide what commands of this checkout need")
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help="default: main")
    parser.add_argument("--debian", default="base", metavar="GROUPS", help="groups of dev/debian-packages.txt")
    chosen = parser.parse_args(arguments)
    names = chosen.environments or ["main"]
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        parser.error(f"environment {unknown[0]} is unknown; there are {', '.join(ENVIRONMENTS)}")
    ensure_debian([group for group in chosen.debian.split(",") if group])
    for name in names:
        ensure(name)
    if "main" in names:
        collections()
        linked_tree()
    say(f"{', '.join(names)} ready in {cache()}")
    return 0


#: what `--export` prints: enough to work by hand
EXPORTED = ("PATH", "ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH", "VIRTUAL_ENV", "LC_ALL")


def run(arguments: list[str] | None = None) -> int:
    """dev/run: replace this process by the command, or print the lines for `eval`."""
    parser = argparse.ArgumentParser(
        prog="dev/run",
        description="a command in one of this checkout's environments, or a shell's export lines",
        epilog='examples: dev/run ansible-playbook kubenode.provision.hcloud_image_url; eval "$(dev/run --export)"',
    )
    parser.add_argument("-e", "--environment", default="main", choices=list(ENVIRONMENTS))
    parser.add_argument("--export", action="store_true", help="print export lines for a shell")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if bool(command) == chosen.export:
        parser.error("give either a command or --export")
    environment = variables(chosen.environment)
    if command and os.path.basename(command[0]).startswith("ansible"):
        # a person's run, not one of our tests; where collections are stays ours
        own = {name: value for name, value in os.environ.items() if name.startswith("ANSIBLE_")}
        environment = {**own, **environment}
    if chosen.export:
        for name in EXPORTED:
            if name in environment:
                print(f"export {name}={shlex.quote(environment[name])}")
        return 0
    program = shutil.which(command[0], path=environment["PATH"])
    if not program:
        say(f"command {command[0]} is not on PATH of environment {chosen.environment}")
        return 127
    os.execve(program, command, environment)


#: lock → the oldest Python of its environment, for which it is made; it holds for all newer ones
LOCKS = {
    "main": "3.11",
    "core-2.18": "3.11",
    "core-2.20": "3.12",
    "core-2.21": "3.12",
    "awx": "3.11",
    "docs": "3.11",
    "importer": "3.11",
    "provision": "3.11",
    "wheel": "3.11",
    "image-server": "3.11",
    "bundle": "3.11",
    "uv": "3.9",
}
#: locks of the named packages only, without what these depend on
ALONE = ("bundle", "provision")


def lock(arguments: list[str] | None = None) -> int:
    """dev/lock: write requirements/*.txt from requirements/*.in; `dev/lock --upgrade` takes newer versions."""
    description = "write requirements/*.txt from requirements/*.in; --upgrade takes newer versions"
    parser = argparse.ArgumentParser(prog="dev/lock", description=description)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of `uv pip compile`, such as --upgrade")
    options = parser.parse_args(arguments).options
    locks = {name: _compiled(name, python, options) for name, python in LOCKS.items()}
    for name, lock in split(locks).items():
        path = REQUIREMENTS / (name + ".txt")
        path.write_text(written(lock), encoding="ascii")
        print(f"requirements/{path.name}: {len(lock)} packages")
    return 0


def _compiled(name: str, python: str, options: list[str]) -> Lock:
    """What uv makes of NAME.in; versions that NAME.txt has stay, unless the options say otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "lock.txt"
        draft.write_text(written(whole(name)), encoding="ascii")
        words = ["pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--no-header"]
        words += ["--no-emit-index-url", "--python-version", python, *(["--no-deps"] if name in ALONE else [])]
        run_uv([*words, *options, str(REQUIREMENTS / (name + ".in")), "--output-file", str(draft)])
        return parsed(draft.read_text(encoding="ascii"))
