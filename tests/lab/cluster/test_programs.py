# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own programs for nodes: crictl without a runtime, pause, and the archive it comes in."""

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from lab import cache
from lab.cluster import Programs, ensure, go_build
from lab.cluster.tools import oci_archive

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def programs() -> Programs:
    return ensure()


@pytest.fixture
def crictl(programs: Programs, tmp_path: Path) -> Path:
    path = tmp_path / "crictl"
    path.write_bytes(programs.crictl("1.36.0"))
    path.chmod(0o755)
    return path


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def test_crictl_prints_the_version_it_was_asked_to_have(crictl: Path, programs: Programs) -> None:
    assert run(crictl, "--version").stdout == "crictl version v1.36.0\n"
    with pytest.raises(ValueError, match="is longer than"):
        programs.crictl("1.36.0-with-a-very-long-name-behind-it")


@pytest.mark.parametrize("command", ["version", "info", "pods", "ps", "images"])
def test_crictl_without_a_runtime_says_so(crictl: Path, tmp_path: Path, command: str) -> None:
    done = run(crictl, "--runtime-endpoint", f"unix://{tmp_path}/nothing.sock", command)
    assert done.returncode == 1
    assert f"connect endpoint 'unix://{tmp_path}/nothing.sock'" in done.stderr
    assert done.stdout == ""


def test_crictl_reads_its_configuration_and_refuses_a_wrong_one(crictl: Path, tmp_path: Path) -> None:
    config = tmp_path / "crictl.yaml"
    config.write_text(f"runtime-endpoint: unix://{tmp_path}/from-config.sock\ntimeout: 10\ndebug: false\n")
    assert "from-config.sock" in run(crictl, "--config", config, "info").stderr
    config.write_text("runtime-endpiont: unix:///x\n")
    refused = run(crictl, "-c", config, "info")
    assert refused.returncode == 1
    assert "runtime-endpiont" in refused.stderr


def test_crictl_refuses_what_it_does_not_know(crictl: Path) -> None:
    assert run(crictl, "conjure").returncode == 1
    assert run(crictl, "images", "--colour").returncode != 0


def test_builds_are_made_once_and_removed_when_they_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    built: list[str] = []

    def build(folder: Path) -> None:
        built.append(folder.name)

    long_ago, recent, other, new = (
        tmp_path / f"{name}-{digit * 16}" for name, digit in zip("aaba", "1234", strict=True)
    )
    for folder in (long_ago, recent, other, new, new):
        go_build.once(folder, build, built.append)
        if folder in (long_ago, other):
            os.utime(folder / "complete", (0, 0))
    assert len(built) == 8  # of each of the four its build and its progress
    assert [path.exists() for path in (long_ago, recent, other, new)] == [False, True, True, True]

    def broken(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        go_build.once(tmp_path / f"a-{'5' * 16}", broken, built.append)
    assert not (tmp_path / f"a-{'5' * 16}").exists()


def test_our_own_programs_do_not_wait_for_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    built: list[str] = []
    with cache.locked("kubernetes"):  # as while a quarter of an hour of Kubernetes is built
        go_build.once(tmp_path / f"kubernetes-tools-{'1' * 16}", lambda folder: built.append(folder.name), print)
    assert built == [f".kubernetes-tools-{'1' * 16}.part"]


def test_pause_speaks_waits_and_ends(programs: Programs) -> None:
    pause = programs.tools / "pause"
    assert run(pause, "exit", "3").returncode == 3
    with subprocess.Popen([str(pause), "say", "hello", "pod"], stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "hello pod\n"
        assert waiting.poll() is None
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(60) == 0


def test_the_archive_is_the_same_every_time_and_whole() -> None:
    archive = oci_archive(b"program", "pause", "registry.k8s.io/pause:3.10.1")
    assert archive == oci_archive(b"program", "pause", "registry.k8s.io/pause:3.10.1")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "registry.k8s.io/pause:3.10.1"
    manifest = json.loads(files[_blob(entry["digest"])])
    config = json.loads(files[_blob(manifest["config"]["digest"])])
    layer = gzip.decompress(files[_blob(manifest["layers"][0]["digest"])])
    assert config["config"]["Entrypoint"] == ["/pause"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(entry.name, entry.mode) for entry in tar] == [("pause", 0o755)]


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"
