# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make release`: the same bytes in two checkouts at two times, and what a person does with each of its files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dev.toolchain import SetupError, release
from dev.toolchain.paths import CHECKOUT, tracked_files
from tests.documents import anchors, links

GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))
VERSION = GALAXY["version"]
TARBALL = f"kubenode-provision-{VERSION}.tar.gz"
WHEEL = f"hetzner_lab-{VERSION}-py3-none-any.whl"
AUTHOR = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a maintainer"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "maintainer@example.com"),
    **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-26T23:30:00+0000"),
}


def run(*command: str | Path, folder: Path, umask: int = 0o022, **variables: str) -> str:
    """What a program prints on either stream; it has to end well."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        umask=umask,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass
class Releases:
    """A release, the repository and the clone that it was made of, and its collection as it is installed."""

    first: Path
    origin: Path
    clone: Path
    collection: Path


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    folder = tmp_path_factory.mktemp("release")
    origin = folder / "origin"
    for name in tracked_files():
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, origin / name, follow_symlinks=False)
    run("git", "init", "--quiet", folder=origin)
    run("git", "add", "--all", folder=origin)
    run("git", "commit", "--quiet", "--message=a release", folder=origin, **AUTHOR)
    run("git", "clone", "--quiet", origin, folder / "one", folder=folder)
    # what is not committed is in no release
    (folder / "one/plugins/modules/draft.py").touch()
    run(folder / "one/dev/release", "--output", folder / "first", folder=folder, TZ="UTC", PYTHONHASHSEED="1")
    collection = installed(folder / "installed", "--offline", folder / "first" / TARBALL)
    return Releases(folder / "first", origin, folder / "one", collection)


def installed(folder: Path, *what: str | Path) -> Path:
    """The collection after ``ansible-galaxy collection install``, by a user who has no other."""
    folder.mkdir()
    run(
        "ansible-galaxy",
        "collection",
        "install",
        "-p",
        folder,
        *what,
        folder=folder,
        ANSIBLE_COLLECTIONS_PATH=str(folder),
    )
    return folder / "ansible_collections/kubenode/provision"


@pytest.mark.long
def test_two_clones_make_the_same_bytes(releases: Releases, tmp_path: Path):
    run("git", "clone", "--quiet", releases.origin, tmp_path / "two", folder=tmp_path, umask=0o077)
    # whenever the files were written, and in which order the folders have them
    (tmp_path / "two/README.md").write_text("a draft")
    os.utime(tmp_path / "two/galaxy.yml", (10**9, 10**9))
    other = {"TZ": "Pacific/Auckland", "PYTHONHASHSEED": "2", "SOURCE_DATE_EPOCH": "0"}
    second = tmp_path / "second"
    run(tmp_path / "two/dev/release", "--output", second, folder=tmp_path, umask=0o077, **other)
    names = sorted(path.name for path in releases.first.iterdir())
    commands = sorted(name for name in names if name.startswith("image-url-command-"))
    assert len(commands) == 3
    assert names == sorted([*commands, TARBALL, WHEEL, "SHA256SUMS", "image-server", "provision"])
    assert (releases.first / "SHA256SUMS").read_text() == (second / "SHA256SUMS").read_text()
    for folder in (releases.first, second):
        assert run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", folder=folder) == ""
        assert len((folder / "SHA256SUMS").read_text().splitlines()) == len(names) - 1


def test_the_collection_has_its_changelog_and_nothing_of_the_repository(releases: Releases):
    shipped = {path.name for path in releases.collection.iterdir()}
    assert shipped - set(GALAXY["build_ignore"]) == shipped
    assert not (releases.collection / "plugins/modules/draft.py").exists()
    changelog = yaml.safe_load((releases.collection / "changelogs/changelog.yaml").read_text())
    assert changelog["releases"][VERSION]["release_date"] == "2026-11-26"
    modules = {entry["name"] for entry in changelog["releases"][VERSION]["modules"]}
    assert modules == {path.stem for path in (CHECKOUT / "plugins/modules").glob("[a-z]*.py")}
    for name in ("CHANGELOG.md", "CHANGELOG.rst"):
        assert f"v{VERSION}" in (releases.collection / name).read_text().replace("\\", "")
    assert list((releases.collection / "changelogs/fragments").glob("*.y*ml")) == []


def test_the_collection_installs_from_git_as_from_the_tarball(releases: Releases, tmp_path: Path):
    wanted = {"collections": [{"name": f"git+file://{releases.clone}", "type": "git", "version": "HEAD"}]}
    (tmp_path / "requirements.yml").write_text(yaml.safe_dump(wanted))
    other = installed(tmp_path / "installed", "-r", tmp_path / "requirements.yml")
    assert {path.name for path in releases.collection.iterdir()} >= {path.name for path in other.iterdir()}

    def digests(collection: Path) -> dict[str, str]:
        folders = [collection / name for name in ("docs", "meta", "playbooks", "plugins", "roles")]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(collection)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    assert digests(other) == digests(releases.collection)


def test_the_programs_run_as_they_are(releases: Releases, tmp_path: Path):
    said = run(releases.first / "provision", "--version", folder=tmp_path, KUBENODE_PYTHON=sys.executable)
    assert said.startswith(f"provision {VERSION} (")
    assert "usage: " in run(sys.executable, releases.first / "image-server", "--help", folder=tmp_path)
    for command in releases.first.glob("image-url-command-*"):
        assert os.access(command, os.X_OK)
        assert zipfile.is_zipfile(command)


def test_the_wheel_is_the_lab(releases: Releases, tmp_path: Path):
    with zipfile.ZipFile(releases.first / WHEEL) as archive:
        archive.extractall(tmp_path)
    # not the checkout's
    words = [sys.executable, "-m", "lab", "up", "--explain", "--kind=dry", "--name=wheel"]
    said = run(*words, folder=tmp_path, PYTHONPATH=str(tmp_path), KUBENODE_LAB_DIR=str(tmp_path / "labs"))
    assert said.startswith("lab 'wheel' would do on this host:")
    assert not (tmp_path / "labs").exists(), "explained, and done nothing"
    assert "hetzner-lab = lab.cli:main" in (tmp_path / f"hetzner_lab-{VERSION}.dist-info/entry_points.txt").read_text()


def dead(document: Path, collection: Path) -> list[str]:
    """Links of a document in the collection that lead out of it or nowhere, also those to the repository's files."""
    pages = f"{GALAXY['repository']}/blob/main/"
    wrong = []
    for link in links(document):
        path, _hash, anchor = link.partition("#")
        if path.startswith(pages):
            target, top = CHECKOUT / path.removeprefix(pages), CHECKOUT
        elif "://" in path:
            continue
        else:
            target, top = (document.parent / path if path else document), collection
        inside = target.resolve().is_relative_to(top.resolve())
        if not (inside and target.exists() and (not anchor or anchor in anchors(target))):
            wrong.append(link)
    return wrong


def test_every_link_of_the_collection_leads_somewhere(releases: Releases):
    documents = [path for path in releases.collection.rglob("*.md") if path.name != "CHANGELOG.md"]
    assert len(documents) > 20
    assert sum(len(links(document)) for document in documents) > 100
    found = {str(path.relative_to(releases.collection)): dead(path, releases.collection) for path in documents}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_dead_links_are_found(releases: Releases, tmp_path: Path):
    pages = f"{GALAXY['repository']}/blob/main"
    names = ["lab/README.md", "../outside.md", "#no-such-heading", f"{pages}/nowhere.md"]
    alive = ["#a-heading", f"{pages}/lab/README.md#files", "https://example.com/x"]
    (tmp_path / "inner").mkdir()
    (tmp_path / "outside.md").touch()
    page = tmp_path / "inner/page.md"
    page.write_text("# A heading\n" + "".join(f"[x]({link})" for link in [*names, *alive]))
    assert dead(page, tmp_path / "inner") == names


def of_the_repository(text: str) -> list[str]:
    """The headings of a document below which commands of a checkout stand, and no word of it there or at its top."""
    parts = re.split(r"(?m)^(?=##+ )", text)
    if "in a checkout" in " ".join(parts[0].split()):
        return []
    named = [part for part in parts if re.search(r"(?:`|^ *|\$ )(?:make|(?:\./)?dev/)[ a-z]", part, re.MULTILINE)]
    return [part.splitlines()[0] for part in named if not re.search(r"\b(checkout|clone|repository)\b", part)]


def test_commands_of_the_repository_are_called_that(releases: Releases):
    documents = [
        path for path in releases.collection.rglob("*.md") if path.name not in ("CHANGELOG.md", "CONTRIBUTING.md")
    ]
    found = {path.name: of_the_repository(path.read_text(encoding="utf-8")) for path in documents}
    assert {name: headings for name, headings in found.items() if headings} == {}
    text = "# A\n`make demo`\n## B\nin a checkout:\n\n    make demo\n## C\n$ dev/run x\n"
    assert of_the_repository(text) == ["# A", "## C"]


def tarball(names: list[str], time: int, manifest: Mapping[str, object]) -> bytes:
    """A collection as ansible-galaxy builds it: in the order of a folder, with times of its files."""
    listing = json.dumps({"files": [{"name": name} for name in names], "format": 1}, indent=True).encode()
    digest = {"file_manifest_file": {"chksum_sha256": hashlib.sha256(listing).hexdigest()}, **manifest}
    files = {"MANIFEST.json": json.dumps(digest, indent=True).encode(), "FILES.json": listing}
    files.update({name: name.encode() for name in names})
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), time + 0.25
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_a_collection_in_another_order_is_the_same():
    manifest = {"collection_info": {"name": "provision"}}
    one = release.repacked(tarball(["b", "a"], 5, manifest), 7)
    assert one == release.repacked(tarball(["a", "b"], 9, manifest), 7)
    assert one != release.repacked(tarball(["a", "b"], 9, {"collection_info": {"name": "other"}}), 7)
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        assert archive.getnames() == ["MANIFEST.json", "FILES.json", "a", "b"]
        assert {member.mtime for member in archive} == {7}
        found, listing = (archive.extractfile(name).read() for name in ("MANIFEST.json", "FILES.json"))
    assert json.loads(found)["file_manifest_file"]["chksum_sha256"] == hashlib.sha256(listing).hexdigest()


def test_a_tag_is_the_version_with_its_changelog():
    release.check_tag("1.0.0", "1.0.0", [])
    with pytest.raises(SetupError, match=r"tag v1\.0\.0 is not version 1\.0\.0"):
        release.check_tag("v1.0.0", "1.0.0", [])
    with pytest.raises(SetupError, match=r"has a\.yml, b\.yml, c\.yml, …, which .* antsibull-changelog release"):
        release.check_tag("1.0.0", "1.0.0", ["a.yml", "b.yml", "c.yml", "d.yml"])


def test_only_what_the_release_before_it_had_is_replaced(tmp_path: Path):
    made, target = tmp_path / "made", tmp_path / "dist"
    for folder in (made, target):
        folder.mkdir()
    (made / "new").write_text("new")
    (target / "SHA256SUMS").write_text(f"{'0' * 64}  old\n{'0' * 64}  ../outside\n")
    for path in (target / "old", target / "kept", tmp_path / "outside"):
        path.write_text("")
    release._put(made, target)
    assert sorted(path.name for path in target.iterdir()) == ["SHA256SUMS", "kept", "new"]
    assert (tmp_path / "outside").exists()
    assert (target / "SHA256SUMS").read_text() == f"{hashlib.sha256(b'new').hexdigest()}  new\n"
