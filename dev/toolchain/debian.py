# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages this checkout needs: looked up, installed as root, or asked for."""

from __future__ import annotations

import os
import shutil
import subprocess

from .paths import CHECKOUT
from .report import SetupError, say, step

LIST = CHECKOUT / "dev" / "debian-packages.txt"


def wanted(groups: list[str]) -> list[str]:
    """Package names of these groups; a `[group]` line begins each group of the list."""
    packages: dict[str, list[str]] = {}
    current = ""
    for raw in LIST.read_text(encoding="utf-8").splitlines():
        line = raw.partition("#")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            current = line[1:-1]
            packages.setdefault(current, [])
        elif line:
            packages[current].append(line)
    unknown = [group for group in groups if group not in packages]
    if unknown:
        raise SetupError("group %s is not in %s; it has %s" % (unknown[0], LIST, ", ".join(packages)))
    return [package for group in groups for package in packages[group]]


def missing(packages: list[str]) -> list[str]:
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


def ensure(groups: list[str]) -> None:
    """Install what is missing of these groups; without root say the exact line and go on."""
    packages = wanted(groups)
    if not (shutil.which("dpkg-query") and shutil.which("apt-get")):
        say("no Debian or Ubuntu here; the following must be there by other means: " + " ".join(packages))
        return
    lacking = missing(packages)
    if not lacking:
        say("Debian packages (%s): all %d there" % (", ".join(groups), len(packages)))
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *lacking]
    if os.geteuid() != 0:
        say("Debian packages are missing and this is not root; please run: sudo " + " ".join(install))
        return
    with step("Debian packages: installing " + " ".join(lacking)):
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        for command in (["apt-get", "update"], install):
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            # a failed update may still leave usable lists; a failed installation never does
            if done.returncode and command is install:
                raise SetupError("%s failed:\n%s" % (" ".join(command), done.stdout.decode(errors="replace")[-3000:]))
