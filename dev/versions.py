# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/versions: regenerates the checksums of roles/base/vars/main/versions.yml from the projects' own sum files."""

import argparse
import hashlib
import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parents[1] / "roles/base/vars/main/versions.yml"
ARCHITECTURES = ("amd64", "arm64")
#: the line of the data file below which everything is written by this program
_BELOW = "  checksums:\n"
_SECONDS = 60
#: requests at once; the projects' servers have many users
_PARALLEL = 6

Sums = dict[str, dict[str, dict[str, str]]]


class VersionsError(Exception):
    """Something a person has to look at; the text names the URL or the version."""


@dataclass(frozen=True)
class Source:
    """Where a project publishes a file, and the sum of it."""

    file: str
    #: what is appended to the file's URL, or a whole file name beside it; empty: the project publishes no sums
    sums: str

    def file_url(self, version: str, arch: str) -> str:
        return self.file.format(version=version, arch=arch)

    @property
    def digits(self) -> int:
        """How many hexadecimal digits its sums have."""
        return 128 if "sha512" in self.sums else 64

    def sums_url(self, version: str, arch: str) -> str:
        """URL of the sum file."""
        url = self.file_url(version, arch)
        return url + self.sums if self.sums.startswith(".") else f"{url.rpartition('/')[0]}/{self.sums}"


NODE_ARCHIVE = "kubernetes-node"
_KUBERNETES = "https://dl.k8s.io/release/v{version}/bin/linux/{arch}/"
_CONTAINERD = "https://github.com/containerd/containerd/releases/download/v{version}/"
_CNI = "https://github.com/containernetworking/plugins/releases/download/v{version}/"
_CRICTL = "https://github.com/kubernetes-sigs/cri-tools/releases/download/v{version}/"
_RUNC = "https://github.com/opencontainers/runc/releases/download/v{version}/"
_CRI_DOCKERD = "https://github.com/Mirantis/cri-dockerd/releases/download/v{version}/"
SOURCES = {
    "kubelet": Source(_KUBERNETES + "kubelet", ".sha256"),
    "kubeadm": Source(_KUBERNETES + "kubeadm", ".sha256"),
    "kubectl": Source(_KUBERNETES + "kubectl", ".sha256"),
    # what base takes kubelet and kubeadm out of where it knows no sums of theirs
    NODE_ARCHIVE: Source("https://dl.k8s.io/release/v{version}/kubernetes-node-linux-{arch}.tar.gz", ".sha512"),
    "crictl": Source(_CRICTL + "crictl-v{version}-linux-{arch}.tar.gz", ".sha256"),
    "cni-plugins": Source(_CNI + "cni-plugins-linux-{arch}-v{version}.tgz", ".sha256"),
    "containerd": Source(_CONTAINERD + "containerd-{version}-linux-{arch}.tar.gz", ".sha256sum"),
    "containerd-static": Source(_CONTAINERD + "containerd-static-{version}-linux-{arch}.tar.gz", ".sha256sum"),
    "runc": Source(_RUNC + "runc.{arch}", "runc.sha256sum"),
    # published without sums: the file is fetched over TLS and summed here, once
    "cri-dockerd": Source(_CRI_DOCKERD + "cri-dockerd-{version}.{arch}.tgz", ""),
}
_NEWEST = "https://dl.k8s.io/release/stable-%s.txt"
_WITH_KUBELET = ("kubelet", "kubeadm", "kubectl")


def fetch(url: str, mirror: str = "") -> bytes:
    """What the URL answers, or its place MIRROR/HOST/PATH. VersionsError when it answers with an error."""
    place = f"{mirror.rstrip('/')}/{url.partition('://')[2]}" if mirror else url
    request = urllib.request.Request(place, headers={"User-Agent": "kubenode.provision dev/versions"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except (urllib.error.URLError, OSError) as error:
        raise VersionsError(f"{place}: {error}") from error


def read_sum(text: str, name: str, url: str, digits: int = 64) -> str:
    """The file's digest in a sum file: a bare one, or lines of digest and name. VersionsError when there is none."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    digests = [row[0] for row in rows if len(row) == 1 or (len(row) == 2 and row[1].lstrip("*./") == name)]
    if len(digests) != 1 or not re.fullmatch(f"[0-9a-f]{{{digits}}}", digests[0]):
        raise VersionsError(f"{url} does not tell one sha{digits * 4} of {name}")
    return digests[0]


def in_changelog(file: Path, version: str, arch: str) -> str:
    """The SHA-512 of the archive of a node's programs in a change log of Kubernetes, among its downloads."""
    url = SOURCES[NODE_ARCHIVE].file_url(version, arch).replace("/release/", "/")
    row = re.compile(rf"\[[^]]*\]\({re.escape(url)}\) \| `?([0-9a-f]{{128}})`?")
    found = {match.group(1) for match in map(row.fullmatch, file.read_text(encoding="utf-8").splitlines()) if match}
    if len(found) != 1:
        raise VersionsError(f"{file} does not tell one sha512 of {url}")
    return found.pop()


def published(component: str, version: str, arch: str, mirror: str = "") -> str:
    source = SOURCES[component]
    file = source.file_url(version, arch)
    if not source.sums:
        return hashlib.sha256(fetch(file, mirror)).hexdigest()
    url = source.sums_url(version, arch)
    return read_sum(fetch(url, mirror).decode("ascii", "replace"), file.rpartition("/")[2], url, source.digits)


def newest(minor: str, mirror: str = "") -> str:
    url = _NEWEST % minor
    text = fetch(url, mirror).decode("ascii", "replace").strip()
    if not re.fullmatch(rf"v{re.escape(minor)}\.[0-9]+", text):
        raise VersionsError(f"{url} says {text!r}, which is no release of {minor}")
    return text[1:]


def wanted(data: dict[str, Any], added: list[str], mirror: str = "") -> list[tuple[str, str]]:
    """(component, version) of all the file is to hold: what it has, the newest Kubernetes patches, what was named."""
    found = [(component, version) for component, known in data["checksums"].items() for version in known]
    if added:
        for item in added:
            component, _sign, version = item.partition("=")
            if component not in SOURCES or not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
                raise VersionsError(f"{item!r}: use COMPONENT=VERSION with one of {', '.join(SOURCES)}")
            companions = _WITH_KUBELET if component in _WITH_KUBELET else (component,)
            found += [(name, version) for name in companions]
    else:
        for minor in sorted(data["defaults"]["crictl"]):
            found += [(component, newest(minor, mirror)) for component in _WITH_KUBELET]
    return list(dict.fromkeys(found))


def collect(
    data: dict[str, Any],
    pairs: list[tuple[str, str]],
    mirror: str = "",
    again: bool = True,
    changelog: Path | None = None,
) -> Sums:
    """Sums of all pairs. A sum that changed for a version the file already has is an error: releases do not change.

    Without ``again``, only what the file does not have yet is asked for. ``changelog`` has the sums of archives.
    """

    def asked(job: tuple[str, str, str]) -> str:
        if changelog and job[0] == NODE_ARCHIVE:
            return in_changelog(changelog, job[1], job[2])
        return published(job[0], job[1], job[2], mirror)

    known: Sums = data["checksums"]
    result: Sums = {component: {} for component in SOURCES}
    jobs = []
    for component, version in pairs:
        have = known.get(component, {}).get(version, {})
        for arch in ARCHITECTURES:
            if arch in have:
                result[component].setdefault(version, {})[arch] = have[arch]
            if again or arch not in have:
                jobs.append((component, version, arch))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        digests = pool.map(asked, jobs)
        for (component, version, arch), digest in zip(jobs, digests, strict=True):
            before = result[component].setdefault(version, {}).setdefault(arch, digest)
            if before != digest:
                text = "%s %s for %s was %s and is published as %s now; find out why before anything is written"
                raise VersionsError(text % (component, version, arch, before, digest))
    return result


def rendered(text: str, sums: Sums) -> str:
    """The data file's text with these checksums; what is above them stays as it is."""
    head, below, _rest = text.partition(_BELOW)
    if not below:
        raise VersionsError(f"{FILE.name} has no line {_BELOW.strip()!r}")
    lines = []
    for component in SOURCES:
        by_version = sums.get(component)
        if not by_version:
            continue
        lines.append(f"    {component}:")
        for version in sorted(by_version, key=lambda text: [int(part) for part in text.split(".")], reverse=True):
            lines.append(f'      "{version}":')
            lines += [f"        {arch}: {by_version[version][arch]}" for arch in ARCHITECTURES]
    return head + below + "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, file: Path = FILE) -> int:
    """0 when the file is as the projects say (or was made so); 1 when --check finds a difference; 2 for errors."""
    parser = argparse.ArgumentParser(prog="dev/versions", description=__doc__.partition(": ")[2])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the file would change")
    parser.add_argument("--mirror", default="", metavar="URL", help="fetch https://HOST/PATH from URL/HOST/PATH")
    parser.add_argument(
        "--changelog", type=Path, metavar="FILE",
        help=f"take the sums of {NODE_ARCHIVE} from Kubernetes' own CHANGELOG-X.YY.md, which its Go module brings",
    )  # fmt: skip
    parser.add_argument("added", nargs="*", metavar="COMPONENT=VERSION", help="ask for these only, keep all others")
    chosen = parser.parse_args(arguments)
    text = file.read_text(encoding="utf-8")
    data = yaml.safe_load(text)["base_versions"]
    try:
        pairs = wanted(data, chosen.added, chosen.mirror)
        new = rendered(text, collect(data, pairs, chosen.mirror, not chosen.added, chosen.changelog))
    except VersionsError as error:
        print(f"dev/versions: {error}", file=sys.stderr)
        return 2
    if new == text:
        print(f"{file.name}: nothing to change")
        return 0
    if chosen.check:
        print(f"{file.name}: not what the projects publish; run dev/versions", file=sys.stderr)
        return 1
    file.write_text(new, encoding="utf-8")
    print(f"{file.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
