# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/setup: provide what commands of this checkout need; dev/run: run one of them, or print a shell's export lines."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess

from . import SetupError, environments, say, step
from .paths import CHECKOUT, cache, linked_tree

LIST = CHECKOUT / "dev" / "debian-packages.txt"


def wanted_packages(groups: list[str]) -> list[str]:
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
        raise SetupError(f"group {unknown[0]} is not in {LIST}; it has {', '.join(packages)}")
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
                raise SetupError(f"{' '.join(command)} failed:\n{done.stdout.decode(errors='replace')[-3000:]}")


def main(arguments: list[str] | None = None) -> int:
    """Provide Debian packages and environments; idempotent."""
    parser = argparse.ArgumentParser(prog="dev/setup", description="provide what commands of this checkout need")
    parser.add_argument("environments", nargs="*", metavar="ENVIRONMENT", help="default: main")
    parser.add_argument("--debian", default="base", metavar="GROUPS", help="groups of dev/debian-packages.txt")
    chosen = parser.parse_args(arguments)
    names = chosen.environments or ["main"]
    unknown = [name for name in names if name not in environments.ENVIRONMENTS]
    if unknown:
        parser.error(f"environment {unknown[0]} is unknown; there are {', '.join(environments.ENVIRONMENTS)}")
    ensure_debian([group for group in chosen.debian.split(",") if group])
    for name in names:
        environments.ensure(name)
    if "main" in names:
        environments.collections()
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
    parser.add_argument("-e", "--environment", default="main", choices=list(environments.ENVIRONMENTS))
    parser.add_argument("--export", action="store_true", help="print export lines for a shell")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    chosen = parser.parse_args(arguments)
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    if bool(command) == chosen.export:
        parser.error("give either a command or --export")
    environment = environments.variables(chosen.environment)
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
