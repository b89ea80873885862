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
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from . import SetupError, environments, say, step
from .paths import CHECKOUT, NAME, NAMESPACE
from .release_programs import collection_version

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
                _run(["antsibull-changelog", "release", "--date", date], clone, environment)
        with step("the collection"):
            _run(["ansible-galaxy", "collection", "build", "--output-path", scratch, str(clone)], clone, environment)
            (built,) = Path(scratch).glob("*.tar.gz")
            (made / built.name).write_bytes(repacked(built.read_bytes(), seconds))
        with step("the programs and the image commands"):
            _run([str(clone / "dev/provision"), "--output", str(made / "provision")], clone, environment)
            _run([str(clone / "dev/image-commands"), "--output", str(made)], clone, environment)
            server = [str(clone / "dev/image-server"), "--any-python", "--output", str(made / "image-server")]
            _run(server, clone, environment)
        with step("the wheel of the lab"):
            environment["PYTHONPATH"] = str(wheel_maker)
            # without the folder in front of the search path: the lab has modules with names of the standard library's
            _run(["python", "-P", "-c", _WHEEL, str(made)], clone / "lab", environment)
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
    _run(["git", "clone", "--quiet", "--shared", "-c", "core.autocrlf=false", str(CHECKOUT), str(target)], CHECKOUT)
    if _run(["git", "status", "--porcelain"], CHECKOUT).strip():
        say("changes that are not committed are no part of the release")
    commit, seconds = _run(["git", "log", "-1", "--format=%H %ct"], target).split()
    day = _run(
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


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """What a program prints; SetupError with all of it when it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SetupError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    return done.stdout
