# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: python -m lab up | down | purge | status | images | machines | env | nodes | cluster."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from lab.cluster.programs import ensure
from lab.cluster.running_cluster import RunningCluster, status
from lab.images.recipe import RECIPES
from lab.machines import backend, leftovers, nspawn, qemu
from lab.machines.host_commands import PACKAGES, find
from lab.robot.tls import HOST

from . import cache, daemon, delays, images
from .daemon import Options
from .errors import PROGRAM, LabError
from .machines import KINDS
from .state import LabClientError, State, StateError, call_lab

Command = Callable[[argparse.Namespace], int]
_PURGE = "remove from this host what labs left that are gone, whatever their name; labs that are up stay untouched"
TOKEN_VARIABLE = "KUBENODE_LAB_TOKEN"
#: two lines of work for two cores; the recipes of one suite share a cache of packages and wait for each other
_BUILD_LINES = (("rescue", "debian", "tarball", "share"), ("debian13", "coreos", "mirror"))
_CLUSTER_ACTIONS = ("build", "up", "down", "status", "kubeconfig", "token")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors a user can act on are one line, not a traceback."""
    options = _parser().parse_args(arguments)
    try:
        command: Command = options.run
        return command(options)
    except (StateError, LabClientError, LabError) as error:
        _note(f"lab: {error}")
        return 1
    except KeyboardInterrupt:
        _note("lab: interrupted")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="An emulated Hetzner: Cloud API, Robot, and machines that boot."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *, table: bool = False
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--name", default="default", help="name of the lab (default: %(default)s)")
        if table:
            sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    up = command("up", _up, "start a lab in the background", table=True)
    _add_options(up)
    up.add_argument("--token", help=f"API token (default: ${TOKEN_VARIABLE}, else a new one; others can see arguments)")
    up.add_argument("--foreground", action="store_true", help="stay until Ctrl-C instead of going to the background")
    up.add_argument("--explain", action="store_true", help="only say what it would install and change on this host")
    _add_options(command("serve", _serve, "be the background process of 'up' (internal)"))
    command("down", _down, "stop a lab and clean up, also after a crash")
    purge = commands.add_parser("purge", help=_PURGE, description=_PURGE)
    purge.set_defaults(run=_purge)
    command("status", _status, "say whether a lab is up, and what it is", table=True)
    command("machines", _machines, "list the machines of a lab", table=True)
    command("env", _env, "print shell lines that aim clients at a lab")
    command("nodes", _nodes, "print as JSON what machines need here to become nodes: programs, packages").add_argument(
        "--kubernetes", action="append", default=[], metavar="VERSION",
        help="with the sums of a release that starts, which is built when it is not there (a quarter of an hour, once)",
    )  # fmt: skip
    _add_cluster_arguments(command("cluster", _cluster, "a Kubernetes control plane for a lab", table=True))
    images = command("images", _images, "list the built images, or build them", table=True)
    images.add_argument("action", nargs="?", choices=("list", "build"), default="list")
    images.add_argument("--all", action="store_true", help="build all: also the tarball, the mirror, the live image")
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    default = Options()
    profiles = tuple(delays.PROFILES)
    add = parser.add_argument
    add("--kind", choices=("auto", *KINDS), default=default.kind, help="kind of machine (default: %(default)s)")
    add(
        "--profile",
        choices=profiles,
        default=default.profile,
        help="how long the platform takes (default: %(default)s)",
    )
    add("--port", type=int, default=default.port, help="port of the API on loopback (default: any free one)")
    add("--robot-port", type=int, default=default.robot_port, help="port of Robot on loopback (default: any free one)")
    add("--limit", type=_positive, default=default.limit, help="API requests an hour (default: %(default)s)")
    add("--servers", type=_positive, default=default.servers, help="servers of a project (default: %(default)s)")
    add("--seed", type=int, default=default.seed, help="seed of the drawn delays (default: %(default)s)")
    add("--datacenters", action="store_true", help="answer with data centers, as until July 2026")
    add("--dedicated", type=Path, metavar="FILE", help="YAML list of dedicated servers to begin with")
    add("--robot-tls", type=Path, metavar="DIR", help=f"serve Robot as https://{HOST} too; its CA becomes DIR/ca.pem")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _options(options: argparse.Namespace) -> Options:
    return Options(**{field.name: getattr(options, field.name) for field in fields(Options)})


def _up(options: argparse.Namespace) -> int:
    dedicated = daemon.dedicated(options.dedicated)
    state = State(options.name)
    changes = host_changes(options.kind, state, dedicated=bool(dedicated))
    if options.explain:
        _say(f"lab '{state.name}' would do on this host:")
        for line in changes:
            _say(f"  {line}")
        return 0
    state.make()
    with state.locked():
        values = state.running()
        already = values is not None
        if values is None:
            daemon.stop(state)
            for line in changes:
                _note(f"lab '{state.name}': {line}")
            token = options.token or os.environ.get(TOKEN_VARIABLE)
            values = daemon.start(state, _options(options), token, _note)
    try:
        _report_up(state, values, already, options)
        if options.foreground:
            daemon.wait(values["pid"], values["pid_start"])
    except KeyboardInterrupt:
        if not options.foreground:
            raise
        with state.locked():
            daemon.stop(state)
    return 0


def _report_up(state: State, values: dict[str, Any], already: bool, options: argparse.Namespace) -> None:
    if options.json:
        _say(json.dumps(values | {"token_file": str(state.token), "already_up": already}, indent=1))
        return
    _say(f"lab '{state.name}' {'was up already' if already else 'is up'}")
    _describe(state, values)
    if options.foreground:
        _note("Ctrl-C stops the lab")


def _serve(options: argparse.Namespace) -> int:
    daemon.serve(State(options.name), _options(options))
    return 0


def _down(options: argparse.Namespace) -> int:
    state = State(options.name)
    if not state.folder.is_dir():
        _say(f"lab '{state.name}' is not up")
        return 0
    with state.locked():
        was_up = daemon.stop(state)
    _say(f"lab '{state.name}' is {'down' if was_up else 'not up'}")
    return 0


def _purge(_options: argparse.Namespace) -> int:
    removed, kept = asyncio.run(leftovers.purge())
    for line in removed:
        _say(f"removed: {line}")
    for line in kept:
        _say(f"left alone: {line}")
    if not removed:
        _say("nothing was left of labs that are gone")
    return 0


def _status(options: argparse.Namespace) -> int:
    state = State(options.name)
    values = state.running()
    if values is None or not values["ready"]:
        text = "is starting" if values else "is not up"
        _say(json.dumps({"name": state.name, "up": False}) if options.json else f"lab '{state.name}' {text}")
        return 1
    live = call_lab(values["endpoint"], state.token.read_text(), "GET", "/status")
    if options.json:
        _say(json.dumps(values | live | {"up": True}, indent=1))
    else:
        _say(f"lab '{state.name}' is up with {live['servers']} cloud and {live['dedicated']} dedicated servers")
        _describe(state, values)
    return 0


def _describe(state: State, values: dict[str, Any]) -> None:
    rows = {
        "endpoint": values["endpoint"],
        "token": f"in {state.token}",
        "robot": f"{values['robot']['endpoint']} (password in {values['robot']['password_file']})",
        "kind": f"{values['kind']} ({values['reason']})",
        "profile": values["profile"],
        "images": f"{values['images_url']}/debian.raw.zst" if values["kind"] != "dry" else values["images_url"] + "/",
        "log": values["log"],
        "use it": f'eval "$({PROGRAM} env --name {state.name})"',
    }
    for key, value in rows.items():
        _say(f"  {key + ':':10} {value}")


def _machines(options: argparse.Namespace) -> int:
    state, values = _running(options)
    rows = call_lab(values["endpoint"], state.token.read_text(), "GET", "/machines")["machines"]
    if options.json:
        _say(json.dumps(rows, indent=1))
        return 0
    table = [("NAME", "KIND", "STATUS", "RESCUE", "ADDRESS", "LAST BOOT")]
    for row in rows:
        boot = row["boots"][-1]["source"] if row["boots"] else "never"
        name = row["name"] if row["kind"] == "cloud" else f"{row['name']} #{row['number']}".strip()
        rescue = "armed" if row["rescue_enabled"] else "-"
        table.append((name, row["kind"], row["status"], rescue, row["address"], boot))
    _print_table(table)
    return 0


def _env(options: argparse.Namespace) -> int:
    state, values = _running(options)
    _say(f"export HCLOUD_TOKEN={shlex.quote(state.token.read_text())}")
    _say(f"export HCLOUD_ENDPOINT={shlex.quote(values['endpoint'])}")
    _say(f"export HROBOT_API_USER={shlex.quote(values['robot']['user'])}")
    _say(f"export HROBOT_API_PASSWORD={shlex.quote(state.robot_password.read_text())}")
    _say(f"export HROBOT_ENDPOINT={shlex.quote(values['robot']['endpoint'])}")
    return 0


def _nodes(options: argparse.Namespace) -> int:
    from . import mirror
    from .mirror import REAL
    from .mirror.repository import IMAGES
    from .nodes import SHARED_GROUPS, SHARED_KERNEL

    unknown = sorted(set(options.kubernetes) - set(REAL))
    if unknown:
        raise StateError(f"--kubernetes {unknown[0]}: the lab builds {', '.join(REAL)}")
    _state, values = _running(options)
    names = ("containerd", "runc", "cni-plugins", "crictl", "kubelet")
    about = {
        "mirror_url": values["mirror_url"],
        "checksums": mirror.checksums(*names, real=tuple(options.kubernetes)),
        "cloud_config": {suite: mirror.cloud_config(values["mirror_url"], suite) for suite in IMAGES},
        "container_script": SHARED_KERNEL,
        "container_kubelet_config": SHARED_GROUPS,
    }
    _say(json.dumps(about, indent=1))
    return 0


def _images(options: argparse.Namespace) -> int:
    from . import images

    try:
        if options.action == "build":
            names = tuple(RECIPES) if options.all else ("rescue", "debian")
            for line in build_changes(names):
                _note(f"lab: {line}")
            if options.all:
                _build_all()
                return 0
            for name in names:
                images.ensure(name, _note)
        listing = images.listing()
    except images.ImageError as error:
        raise StateError(str(error)) from error
    if options.json:
        rows = [{"name": i.name, "files": {k: str(p) for k, p in i.files.items()}, "sha256": i.sha256} for i in listing]
        _say(json.dumps(rows, indent=1))
        return 0
    table = [("NAME", "FILE", "SIZE", "SHA256")]
    for image in listing:
        for key, path in image.files.items():
            size = f"{path.stat().st_blocks * 512 / 2**20:.0f} MiB" if path.is_file() else "-"
            table.append((image.name, str(path), size, image.sha256.get(key, "-")[:16]))
    _print_table(table)
    return 0


def _build_all() -> None:
    """Build what is missing of the images, the live image and the mirror; some three minutes with an empty cache."""
    from . import coreos, images, mirror

    others = {"share": images.share, "coreos": coreos.ensure, "mirror": mirror.prepare}

    def line(names: tuple[str, ...]) -> None:
        for name in names:
            if name in others:
                others[name](_note)
            else:
                images.ensure(name, _note)

    with ThreadPoolExecutor(len(_BUILD_LINES)) as pool:
        for done in [pool.submit(line, names) for names in _BUILD_LINES]:
            done.result()


def _running(options: argparse.Namespace) -> tuple[State, dict[str, Any]]:
    state = State(options.name)
    values = state.running()
    if values is None or not values["ready"]:
        raise StateError(f"lab '{state.name}' is not up; start it with: {PROGRAM} up --name {state.name}")
    return state, values


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")


def _add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """What comes after ``cluster``, beside the lab's name."""
    parser.add_argument(
        "action", choices=_CLUSTER_ACTIONS,
        help="build: only the programs (15 minutes, once); up, down: start or end it; status; kubeconfig: print the "
        "path of the administrator's; token: print a new bootstrap token",
    )  # fmt: skip
    parser.add_argument("--ttl", type=float, default=3600, help="seconds a token is valid (default: %(default)s)")


def _cluster(options: argparse.Namespace) -> int:
    """Run ``cluster ACTION``; the lab must be up, except for ``build``."""
    if options.action == "build":
        programs = ensure(_note)
        _say(f"{programs.kubernetes}\n{programs.etcd.parent}\n{programs.tools}")
        return 0
    state, values = _running(options)
    control = functools.partial(call_lab, values["endpoint"], state.token.read_text())
    if options.action == "status":
        about = status(control)
        _say(
            json.dumps(about or {"endpoint": None}, indent=1) if options.json else _cluster_status(options.name, about)
        )
        return 0 if about else 1
    if options.action == "up":
        cluster = RunningCluster.started(control, _note)
        _say(f"the API server of lab '{options.name}' answers at {cluster.endpoint}")
        _say(f"  {'kubectl:':10} {cluster.programs.kubectl} --kubeconfig {cluster.kubeconfig}")
        _say(f"  {'CA:':10} {cluster.ca_file}, pin {cluster.ca_hash}")
        return 0
    if options.action == "down":
        was_up = status(control) is not None
        control("DELETE", "/cluster", None, 600)
        _say(f"the control plane of lab '{options.name}' is {'down' if was_up else 'not up'}")
        return 0
    cluster = RunningCluster.found(control)
    _say(str(cluster.kubeconfig) if options.action == "kubeconfig" else cluster.token(options.ttl))
    return 0


def _cluster_status(name: str, about: dict[str, Any] | None) -> str:
    if about is None:
        return f"lab '{name}' has no control plane"
    dead = [program for program, running in about["running"].items() if not running]
    return f"the API server of lab '{name}' is at {about['endpoint']}" + (
        f"; not running: {', '.join(dead)}" if dead else ""
    )


#: images that a lab of a kind that boots opens, and those of dedicated servers
_IMAGES = ("rescue", "debian")
_DEDICATED_IMAGES = ("tarball",)


def host_changes(kind: str, state: State, *, dedicated: bool = False) -> list[str]:
    """One line each: what ``python -m lab up`` will build and change on this host. Nothing is done or changed here.

    ``kind`` is one of KINDS or ``auto``; ``dedicated``: whether there will be dedicated servers from the start.
    """
    lines = []
    if kind == "auto":
        kind = likely_kind()
        lines.append(f"kind auto: most likely {kind}")
    lines.append(f"keeps its state in {state.folder}")
    if kind == "dry":
        return [*lines, "starts one process that listens on 127.0.0.1 only; kind dry needs no root and boots nothing"]
    wanted = (*_IMAGES, *(_DEDICATED_IMAGES if dedicated else ()))
    missing = [name for name in wanted if not images.is_built(name)]
    packages = missing_packages(kind, building=bool(missing))
    lines.append("installs no Debian package on this host" + (
        f"; it lacks some, run first: apt-get install {' '.join(packages)}" if packages else ""))  # fmt: skip
    if missing:
        lines.append(f"builds {', '.join(missing)} of Debian packages in {cache.images()}: minutes, once")
    present, needed = backend.inotify_instances()
    if present < needed:
        setting = "fs.inotify.max_user_instances"
        lines.append(f"raises {setting} from {present} to {needed}; '{PROGRAM} purge' puts it back")
    return [
        *lines,
        f"keeps disks of machines in {leftovers.labs_folder()}, on a file system of its own where that is needed",
        "makes a network namespace with a bridge, and on the host the link knlabN with the address 198.18.N.254 "
        "and a route to 2001:db8:N::/48",
        f"makes control groups, mounts and loop devices; '{PROGRAM} down' removes all of this, also after a crash",
    ]


def missing_packages(kind: str, *, building: bool) -> list[str]:
    """Debian packages that this host lacks for machines of ``kind`` (nspawn or qemu) and, ``building``, for images."""
    programs = nspawn.PROGRAMS if kind == "nspawn" else qemu.PROGRAMS
    lacking = {PACKAGES.get(program, program) for program in programs if not find(program)}
    return sorted(lacking | (images.missing_packages() if building else set()))


def likely_kind() -> str:
    """The kind that ``auto`` will most likely choose; only a boot shows whether KVM works, and none is tried here."""
    if os.geteuid() != 0:
        return "dry"
    known = qemu.kvm_known()
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) if known is None else known[0]
    return "qemu" if (usable and find("qemu-system-x86_64")) or not find("systemd-nspawn") else "nspawn"


def build_changes(names: tuple[str, ...]) -> list[str]:
    """What ``python -m lab images build`` will do for these images; nothing for those that are there."""
    missing = ", ".join(name for name in names if not images.is_built(name))
    return [f"builds {missing} of Debian packages in {cache.root()}; installs nothing on this host"] if missing else []
