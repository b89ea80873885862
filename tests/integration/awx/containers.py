# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's podman with a storage of its own, and a base image that stands for ``python:3.13-slim-trixie``.

Settings are in files that environment variables name, since ansible-runner calls podman by itself, too. The base image
has the same system and the same Python version; a registry is not needed.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from lab import cache
from lab.apt import apt_options, sources

BASE = "localhost/kubenode-test/python:3.13-slim-trixie"
PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-pip")
LIMIT = 1500  # seconds until a command counts as hanging
_STORAGE = """[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""
#: crun refuses hybrid control groups, and name spaces of the network are the lab's matter
_CONTAINERS = """[containers]
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = "{folder}/tmp"
"""
#: The base image has pip as the one that it stands for has it: not of a package, and for the system's own Python.
_PIP = (
    'rm "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
    'chroot "$1" python3 -m pip install --quiet --ignore-installed --root-user-action ignore "pip<27"',
    'chroot "$1" apt-get --quiet --yes purge --autoremove python3-pip',
    'ln -s /usr/bin/python3 "$1"/usr/local/bin/python3',
)


class Engine:
    """Podman; images and containers are below a folder and end with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in {"storage.conf": _STORAGE, "containers.conf": _CONTAINERS}.items():
            (folder / name).write_text(text.format(folder=folder))
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    @classmethod
    @contextmanager
    def of(cls, folder: Path) -> Iterator[Self]:
        """An engine that has the base image."""
        made = cls(folder)
        try:
            made.do("import", str(_base()), BASE)
            yield made
        finally:
            made.do("rm", "--all", "--force", "--time", "0")
            made.do("rmi", "--all", "--force")
            shutil.rmtree(folder, ignore_errors=True)

    def do(self, *words: str, **more: str) -> str:
        """What a command of podman prints; ``more`` are further environment variables."""
        done = subprocess.run(
            ["podman", *words], env={**self.environment, **more}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        assert done.returncode == 0, f"podman {shlex.join(words)}\n{done.stdout[-6000:]}"
        return done.stdout

    def build(self, context: Path, file: Path, image: str, *options: str) -> None:
        self.do("build", "--isolation", "chroot", "--file", str(file), "--tag", image, *options, str(context))


def _base() -> Path:
    """The root file system of the base image, made once."""
    # a network with a certificate authority of its own has put it into the system's store
    settings = {"cert": "/etc/ssl/certs/ca-certificates.crt", "index-url": os.environ.get("PIP_INDEX_URL", "")}
    files = {
        "etc/pip.conf": "[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items() if value),
        "etc/apt/apt.conf.d/90host": "".join(f"{setting};\n" for setting in apt_options()),
        "etc/dpkg/dpkg.cfg.d/docker": "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n",
    }
    total = hashlib.sha256(repr((PACKAGES, files, _PIP, sources("trixie"))).encode())

    def build(folder: Path) -> None:
        early = folder / "early"
        for name, text in files.items():
            (early / name).parent.mkdir(parents=True, exist_ok=True)
            (early / name).write_text(text)
        subprocess.run(
            [
                "mmdebstrap", "--mode=root", "--variant=apt", "--architectures=amd64", "--format=tar",
                f"--include={','.join(PACKAGES)}", '--aptopt=APT::Install-Recommends "false"',
                *(f"--aptopt={option}" for option in apt_options()),
                "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=force-unsafe-io", f'--customize-hook=cp -r {shlex.quote(str(early))}/. "$1"/',
                '--customize-hook=cp /etc/ssl/certs/ca-certificates.crt "$1"/etc/ssl/certs/',
                *(f"--customize-hook={command}" for command in _PIP),
                "trixie", str(folder / "base.tar"), *sources("trixie"),
            ],
            check=True, stdin=subprocess.DEVNULL, timeout=LIMIT,
            # a place for compiled files that only our own Python knows would be filled in the tree
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )  # fmt: skip

    folder = cache.root() / f"containers-{total.hexdigest()[: cache.DIGITS]}"
    return cache.once(folder, build, "containers") / "base.tar"
