# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of a release, each in one file: the image commands, the image server, and provision."""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import os
import re
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from plugins.module_utils._common.zip_program import zip_program
from plugins.plugin_utils.image_server import pack_program

from . import SetupError, environments
from .paths import CHECKOUT, NAME, NAMESPACE, linked_tree, tracked_files

IMAGE_COMMANDS = CHECKOUT / "build" / "image-commands"
IMAGE_SERVER = CHECKOUT / "build" / "image-server"
PROVISION = CHECKOUT / "build" / "provision"


def contents() -> dict[str, bytes]:
    if str(linked_tree()) not in sys.path:
        sys.path.append(str(linked_tree()))
    from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import rescue_programs

    return {name: rescue_programs.image_command(name) for name in rescue_programs.IMAGE_COMMANDS}


def write(folder: Path = IMAGE_COMMANDS) -> list[Path]:
    """Write the commands; return their paths. A command that is run meanwhile is a whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in contents().items():
        draft, path = folder / f".{name}.{os.getpid()}", folder / name
        draft.write_bytes(content)
        draft.chmod(0o755)
        draft.replace(path)
        paths.append(path)
    return paths


def image_commands(arguments: list[str] | None = None) -> int:
    """dev/image-commands: the image commands as files, for CAPH and others that run them in a rescue; their digests."""
    parser = argparse.ArgumentParser(prog="dev/image-commands", description="write the image commands, one file each")
    parser.add_argument(
        "--output", type=Path, default=IMAGE_COMMANDS, metavar="FOLDER", help="default: build/image-commands"
    )
    for path in write(parser.parse_args(arguments).output):
        data = path.read_bytes()
        print(f"{path} ({len(data) >> 10} KiB)  sha256:{hashlib.sha256(data).hexdigest()}")
    return 0


def image_server(arguments: list[str] | None = None) -> int:
    """dev/image-server: the program `image-server`, packed as the role image_server packs it; its digest."""
    return pack_program.main(["--output", str(IMAGE_SERVER), *(sys.argv[1:] if arguments is None else arguments)])


SOURCES = CHECKOUT / "provision"
#: the packages of one platform, on any machine: their Python part fits all platforms
PLATFORM = ["--python-platform", "x86_64-manylinux2014", "--python-version", "3.11"]
#: compiled parts, which PyYAML and MarkupSafe do without; programs; tests; lists of files that are then wrong
_LEFT_OUT = (".so", ".pyc", ".pyx", ".pxd", ".c", "/RECORD", "/INSTALLER", "/REQUESTED")
_LEFT_OUT_FOLDERS = ("ansible_test", "bin")
#: what of the collection a run on a node reads
COLLECTION = ("COPYING", "LICENSES/", "galaxy.yml", "meta/", "playbooks/", "plugins/", "roles/")
#: the image commands run in rescues, never on a node
NOT_NEEDED = ("plugins/module_utils/_rescue/imagecommand/",)
#: names of ansible-core's former plugins, and the collections where they are today
_ROUTES = "site/ansible/config/ansible_builtin_runtime.yml"
_COMMENT = re.compile(rb"^ +#.*\n", re.MULTILINE)
_ROUTE_ELSEWHERE = re.compile(rb"^    [^\s:]+:\n      redirect: (?!ansible\.builtin\.)\S+\n(?!      )", re.MULTILINE)
_NO_ROUTES = re.compile(rb"^(  \w+:)\n(?!   )", re.MULTILINE)
_PACKAGE = "provision"


def collection_files(checkout: Path) -> Iterable[tuple[str, bytes]]:
    """The collection as (path below its folder, content)."""
    for name in tracked_files(checkout):
        path = checkout / name
        if name.startswith(COLLECTION) and not name.startswith(NOT_NEEDED) and path.is_file():
            yield name, path.read_bytes()


def package_files() -> Iterable[tuple[str, bytes]]:
    """Every file of every package of the lock as (path below site-packages, content)."""
    site = environments.unpacked("provision", PLATFORM)
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        folder, slash, _rest = name.partition("/")
        if slash and path.is_file() and folder not in _LEFT_OUT_FOLDERS and not name.endswith(_LEFT_OUT):
            yield name, path.read_bytes()


def payload(collection: Iterable[tuple[str, bytes]], preset: int) -> bytes:
    """The tar archive: launch.py, site/ and collections/."""
    members = {"site/" + name: data for name, data in package_files()}
    folder = f"collections/ansible_collections/{NAMESPACE}/{NAME}/"
    members.update({folder + name: data for name, data in collection})
    members[_ROUTES] = without_routes_elsewhere(members[_ROUTES])
    members["launch.py"] = (SOURCES / "launch.py").read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(members):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(members[name]), 0o644
            archive.addfile(entry, io.BytesIO(members[name]))
    return lzma.compress(buffer.getvalue(), preset=preset)


def without_routes_elsewhere(routes: bytes) -> bytes:
    """The routes of ansible-core without those to collections that are not inside.

    There are thousands, and every run reads them all: half a second without PyYAML's library in C.
    """
    kept = _ROUTE_ELSEWHERE.sub(b"", _COMMENT.sub(b"", routes))
    return _NO_ROUTES.sub(rb"\1 {}\n", kept)


def provision_program(collection: Iterable[tuple[str, bytes]], version: str, preset: int = 6) -> bytes:
    """The whole file; a lower `preset` of xz makes it faster and larger.

    Shell lines that find a Python, then a zip archive: start.py as `__main__`, the folder provision/ as a package, and
    the payload (packages and collection) as one tar archive in it. The same sources make the same bytes.
    """
    packed = payload(collection, preset)
    digest = hashlib.sha256(packed).hexdigest()
    members = {f"{_PACKAGE}/{path.name}": path.read_bytes() for path in SOURCES.glob("*.py")}
    members["__main__.py"] = members.pop(_PACKAGE + "/start.py")
    del members[_PACKAGE + "/launch.py"]
    members[_PACKAGE + "/payload.sha256"] = (digest + "\n").encode("ascii")
    members[_PACKAGE + "/version"] = f"provision {version} (payload {digest[:16]})\n".encode("ascii")
    members[_PACKAGE + "/payload.tar.xz"] = packed
    return zip_program((SOURCES / "start.sh").read_bytes(), members)


def collection_version(checkout: Path) -> str:
    found = re.search(r"^version: *(\S+)$", (checkout / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise SetupError("galaxy.yml has no version")
    return found[1]


def provision(arguments: list[str] | None = None) -> int:
    """dev/provision: the program `provision`; its digest, the way a machine's user data names it."""
    description = "write the program, one file with ansible-core and this collection inside"
    parser = argparse.ArgumentParser(prog="dev/provision", description=description)
    parser.add_argument("--output", type=Path, default=PROVISION, metavar="FILE", help="default: build/provision")
    chosen = parser.parse_args(arguments)
    data = provision_program(collection_files(CHECKOUT), collection_version(CHECKOUT))
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    draft = chosen.output.with_name(f".{chosen.output.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.chmod(0o755)
    draft.replace(chosen.output)
    print(f"{chosen.output} ({len(data) >> 10} KiB)  #sha256={hashlib.sha256(data).hexdigest()}")
    return 0
