# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror as its clients see it: files under their makers' paths, sums that match, a repository that verifies."""

import gzip
import hashlib
import http.client
import io
import subprocess
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from lab import mirror
from lab.mirror import repository
from lab.running import RunningLab

pytestmark = [pytest.mark.root, pytest.mark.mirror]


def _get(url: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    with urllib.request.urlopen(request, timeout=6000) as response:
        return response.status, response.read(), response.headers


def _status(url: str) -> int:
    """The status of a GET whose path is sent exactly as it is written."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=600)
    connection.request("GET", parts.path)
    status = connection.getresponse().status
    connection.close()
    return status


def test_every_packaged_file_has_its_sum_and_its_programs(lab_dry: RunningLab) -> None:
    sums = mirror.checksums("containerd", "containerd-static", "runc", "cni-plugins")
    parts = mirror.packaged()
    assert {part.name for part in parts} == set(sums)
    for part in parts:
        _code, body, headers = _get(f"{lab_dry.mirror_url}/{part.path}")
        assert hashlib.sha256(body).hexdigest() == sums[part.name][part.version]["amd64"], part
        assert headers["Content-Encoding"] is None
        if part.name == "runc":
            assert body[:4] == b"\x7fELF"
            continue
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            names = set(tar.getnames())
        wanted = {"./bridge", "./loopback", "./host-local", "./portmap"}
        if part.name != "cni-plugins":
            wanted = {"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"}
        assert wanted <= names


def test_containerd_of_every_schema_is_there(lab_dry: RunningLab) -> None:
    assert lab_dry.mirror_url
    majors = {part.version.rpartition(".")[0] for part in mirror.packaged() if part.name == "containerd"}
    assert {"1.6", "1.7"} < majors
    assert any(major.startswith("2.") for major in majors)


def test_current_kubelets_are_there_without_the_control_plane(lab_dry: RunningLab, tmp_path: Path) -> None:
    _code, body, _headers = _get(f"{lab_dry.mirror_url}/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet")
    program = tmp_path / "kubelet"
    program.write_bytes(body)
    program.chmod(0o755)
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Kubernetes v1.36.4"


def test_parts_of_files_are_answered(lab_dry: RunningLab) -> None:
    part = next(part for part in mirror.packaged() if part.name == "runc")
    url = f"{lab_dry.mirror_url}/{part.path}"
    whole = part.file.read_bytes()
    assert _get(url, Range="bytes=100-")[:2] == (206, whole[100:])
    assert _get(url, Range="bytes=0-9")[:2] == (206, whole[:10])


@pytest.mark.parametrize("suite", sorted(repository.IMAGES))
def test_repository_verifies_from_key_to_package(lab_dry: RunningLab, suite: str, tmp_path: Path) -> None:
    root = f"{lab_dry.mirror_url}/apt"
    key, release = tmp_path / "key.gpg", tmp_path / "InRelease"
    armored = _get(f"{root}/key.asc")[1]
    dearmored = subprocess.run(["gpg", "--dearmor"], input=armored, capture_output=True, check=True)
    key.write_bytes(dearmored.stdout)
    release.write_bytes(_get(f"{root}/{suite}/InRelease")[1])
    subprocess.run(["gpgv", "--keyring", str(key), str(release)], capture_output=True, check=True)
    packed = _get(f"{root}/{suite}/Packages.gz")[1]
    line = f" {hashlib.sha256(packed).hexdigest()} {len(packed)} Packages.gz"
    assert line in release.read_text().splitlines()
    stanzas = gzip.decompress(packed).decode().strip().split("\n\n")
    packages = {
        fields["Package"]: fields
        for fields in (
            dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
            for stanza in stanzas
        )
    }
    wanted = {name for group in repository.packages(suite) for name in group}
    in_the_image = {"gnupg", "jq", "python3-yaml", "xfsprogs", "systemd-timesyncd"}
    assert wanted - set(packages) <= in_the_image
    body = _get(f"{root}/{suite}/{packages['conntrack']['Filename']}")[1]
    assert hashlib.sha256(body).hexdigest() == packages["conntrack"]["SHA256"]


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "apt/noble/InRelease",
        "apt/bookworm/nothing",
        "apt/secret.asc",
        "apt/bookworm/../../key/secret.asc",
        "apt/bookworm/%2e%2e/%2e%2e/key/secret.asc",
        "apt/bookworm/..%2F..%2Fkey%2Fsecret.asc",
        "apt/../key/secret.asc",
        "key/secret.asc",
        "dl.k8s.io/release/v9.9.9/bin/linux/amd64/kubelet",
        "github.com/opencontainers/runc/releases/download/v0.0.1/runc.amd64",
        "images/pause-0.tar",
    ],
)
def test_what_is_not_published_is_not_found(lab_dry: RunningLab, path: str) -> None:
    assert _status(f"{lab_dry.mirror_url}/{path}") == 404
