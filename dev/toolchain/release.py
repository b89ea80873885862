# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/release: the files of a release in dist/: collection, programs, image commands, the lab's wheel, their sums.

All of them are made in a clone of the commit, so that equal commits give equal bytes at any time and in any checkout.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from plugins.module_utils._common.zip_program import zip_program
from plugins.plugin_utils.image_server import pack_program

from . import SetupError, environments, output_of, say, step
from .paths import CHECKOUT, NAME, NAMESPACE, linked_tree, tracked_files

IMAGE_COMMANDS = CHECKOUT / "build" / "image-commands"
IMAGE_SERVER = CHECKOUT / "build" / "image-server"
PROVISION = CHECKOUT / "build" / "provision"


def _image_command_files() -> dict[str, bytes]:
    if str(linked_tree()) not in sys.path:
        sys.path.append(str(linked_tree()))
    from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import rescue_programs

    return {name: rescue_programs.image_command(name) for name in rescue_programs.IMAGE_COMMANDS}


def write_image_commands(folder: Path = IMAGE_COMMANDS) -> list[Path]:
    """Write the commands; return their paths."""
    return [_write_program(folder / name, content) for name, content in _image_command_files().items()]


def _write_program(path: Path, content: bytes) -> Path:
    """One that is run meanwhile is a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(0o755)
    return draft.replace(path)


def image_commands(arguments: list[str] | None = None) -> int:
    """dev/image-commands: the image commands as files, for CAPH and others that run them in a rescue; their digests."""
    parser = argparse.ArgumentParser(prog="dev/image-commands", description="write the image commands, one file each")
    parser.add_argument(
        "--output", type=Path, default=IMAGE_COMMANDS, metavar="FOLDER", help="default: build/image-commands"
    )
    for path in write_image_commands(parser.parse_args(arguments).output):
        data = path.read_bytes()
        print(f"{path} ({len(data) >> 10} KiB)  sha256:{hashlib.sha256(data).hexdigest()}")
    return 0


def image_server(arguments: list[str] | None = None) -> int:
    """dev/image-server: the program `image-server`, packed as the role image_server packs it; its digest."""
    return pack_program.main(["--output", str(IMAGE_SERVER), *(sys.argv[1:] if arguments is None else arguments)])


PROVISION_SOURCES = CHECKOUT / "provision"
#: the packages of one platform, on any machine: their Python part fits all platforms
PROVISION_PLATFORM = ["--python-platform", "x86_64-manylinux2014", "--python-version", "3.11"]
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
    site = environments.unpacked("provision", PROVISION_PLATFORM)
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
    members["launch.py"] = (PROVISION_SOURCES / "launch.py").read_bytes()
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
    members = {f"{_PACKAGE}/{path.name}": path.read_bytes() for path in PROVISION_SOURCES.glob("*.py")}
    members["__main__.py"] = members.pop(_PACKAGE + "/start.py")
    del members[_PACKAGE + "/launch.py"]
    members[_PACKAGE + "/payload.sha256"] = (digest + "\n").encode("ascii")
    members[_PACKAGE + "/version"] = f"provision {version} (payload {digest[:16]})\n".encode("ascii")
    members[_PACKAGE + "/payload.tar.xz"] = packed
    return zip_program((PROVISION_SOURCES / "start.sh").read_bytes(), members)


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
    _write_program(chosen.output, data)
    print(f"{chosen.output} ({len(data) >> 10} KiB)  #sha256={hashlib.sha256(data).hexdigest()}")
    return 0


OUTPUT = CHECKOUT / "dist"
SUMS = "SHA256SUMS"
#: the standard way to build a wheel (PEP 517), without an installer that would look for setuptools in the network
_WHEEL = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev/release", description=(__doc__ or "").partition(": ")[2].splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FOLDER", help="default: dist")
    parser.add_argument("--tag", help="refuse what is not the release of this tag: the version, with its changelog")
    chosen = parser.parse_args(arguments)
    # the modes of files are part of what is built
    os.umask(0o022)
    environments.ensure("main")
    wheel_maker = environments.unpacked("wheel", [])
    with tempfile.TemporaryDirectory(prefix="kubenode-release-") as scratch:
        clone, made = Path(scratch, "ansible_collections", NAMESPACE, NAME), Path(scratch, "made")
        made.mkdir()
        commit, seconds, date = _cloned(clone)
        version = collection_version(clone)
        fragments = sorted(path.name for path in (clone / "changelogs/fragments").glob("*.y*ml"))
        if chosen.tag is not None:
            check_tag(chosen.tag, version, fragments)
        environment = environments.variables(trees=[Path(scratch)])
        environment.update(PYTHONPATH=str(clone), SOURCE_DATE_EPOCH=str(seconds))
        if fragments:
            with step(f"the changelog of {version}, of {len(fragments)} fragments"):
                output_of(["antsibull-changelog", "release", "--date", date], clone, environment)
        with step("the collection"):
            output_of(
                ["ansible-galaxy", "collection", "build", "--output-path", scratch, str(clone)], clone, environment
            )
            (built,) = Path(scratch).glob("*.tar.gz")
            (made / built.name).write_bytes(repacked(built.read_bytes(), seconds))
        with step("the programs and the image commands"):
            output_of([str(clone / "dev/provision"), "--output", str(made / "provision")], clone, environment)
            output_of([str(clone / "dev/image-commands"), "--output", str(made)], clone, environment)
            server = [str(clone / "dev/image-server"), "--any-python", "--output", str(made / "image-server")]
            output_of(server, clone, environment)
        with step("the wheel of the lab"):
            environment["PYTHONPATH"] = str(wheel_maker)
            # without the folder in front of the search path: the lab has modules with names of the standard library's
            output_of(["python", "-P", "-c", _WHEEL, str(made)], clone / "lab", environment)
        _put(made, chosen.output)
    print((chosen.output / SUMS).read_text(encoding="utf-8"), end="")
    say(f"{NAME} {version} of commit {commit[:12]} is in {chosen.output}")
    return 0


def check_tag(tag: str, version: str, fragments: list[str]) -> None:
    """Raise SetupError unless the tag is this version and all fragments are in the changelog."""
    if tag != version:
        raise SetupError(f"tag {tag} is not version {version} of galaxy.yml; tag the commit of the release")
    if fragments:
        names = ", ".join(fragments[:3] + ["…"] * (len(fragments) > 3))
        raise SetupError(
            f"changelogs/fragments has {names}, which a release does not: run dev/run antsibull-changelog release, "
            "commit what it changed, and tag that commit"
        )


def repacked(tarball: bytes, seconds: int) -> bytes:
    """The same collection with its files in order and all of them of one time; its manifests agree with that."""
    contents: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            contents[member.name] = member, file.read() if file else b""
    files = json.loads(contents["FILES.json"][1])
    files["files"].sort(key=lambda entry: str(entry["name"]))
    listing = _json(files)
    manifest = json.loads(contents["MANIFEST.json"][1])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(listing).hexdigest()
    changed = {"FILES.json": listing, "MANIFEST.json": _json(manifest)}
    packed = io.BytesIO()
    # the two manifests first, since Galaxy reads no further for them
    names = [*sorted(changed, reverse=True), *sorted(contents.keys() - changed.keys())]
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=seconds) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in names:
                old, content = contents[name]
                content = changed.get(name, content)
                # a new one: the old one may have its time in fractions of a second beside the one that is changed
                member = tarfile.TarInfo(name)
                member.type, member.mode, member.linkname = old.type, old.mode, old.linkname
                member.mtime, member.size = seconds, len(content)
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _json(value: object) -> bytes:
    """As ansible-galaxy writes it."""
    return json.dumps(value, indent=True).encode("utf-8")


def _cloned(target: Path) -> tuple[str, int, str]:
    """A clone of the checkout's commit; its id, and its time in seconds and as a date."""
    output_of(
        ["git", "clone", "--quiet", "--shared", "-c", "core.autocrlf=false", str(CHECKOUT), str(target)], CHECKOUT
    )
    if output_of(["git", "status", "--porcelain"], CHECKOUT).strip():
        say("changes that are not committed are no part of the release")
    commit, seconds = output_of(["git", "log", "-1", "--format=%H %ct"], target).split()
    day = output_of(
        ["git", "log", "-1", "--date=format-local:%Y-%m-%d", "--format=%cd"], target, {**os.environ, "TZ": "UTC"}
    )
    return commit, int(seconds), day.strip()


def _put(made: Path, target: Path) -> None:
    """Write the sums, and put all of it into the place of the release that was there before."""
    files = sorted(path for path in made.iterdir() if path.is_file())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    target.mkdir(parents=True, exist_ok=True)
    for name in re.findall(r"(?m)^[0-9a-f]{64}  ([^/\n]+)$", _text(target / SUMS)):
        (target / name).unlink(missing_ok=True)
    for path in files:
        shutil.move(str(path), str(target / path.name))
    (target / SUMS).write_text(sums, encoding="utf-8")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
