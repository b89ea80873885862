# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live images on the lab: made for two hosts, served, compared byte for byte, booted until their Ignition is read."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import random
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dev.image_stage import Booted, ImageStage
from dev.stage import CHECKOUT

HOSTS: dict[str, dict[str, Any]] = {
    "web-1": {
        "kubenode_image_outputs": ["iso"],
        "kubenode_image_kernel_arguments": {"append": ["console=ttyS0", "quiet", "demo.host=web-1"]},
        "kubenode_image_network": {
            "interfaces": [
                {
                    "name": "bond0", "type": "bond", "state": "up",
                    "link-aggregation": {"mode": "802.3ad", "port": ["eth1", "eth2"]},
                    "ipv4": {"enabled": False}, "ipv6": {"enabled": False},
                },
                {
                    "name": "bond0.7", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 7},
                    "ipv4": {"enabled": True, "address": [{"ip": "192.0.2.21", "prefix-length": 24}]},
                    "ipv6": {"enabled": False},
                },
            ],
            "routes": {
                "config": [
                    {"destination": "0.0.0.0/0", "next-hop-address": "192.0.2.1", "next-hop-interface": "bond0.7"},
                ]
            },
            "dns-resolver": {"config": {"server": ["192.0.2.1"]}},
        },
    },
    "web-2": {
        "kubenode_image_outputs": ["iso", "minimal_iso", "pxe"],
        "kubenode_image_kernel_arguments": {"append": ["console=ttyS0", "quiet", "demo.host=web-2"]},
        "kubenode_image_files": [{"path": "/etc/demo", "content": "of web-2 alone\n", "mode": "0600"}],
    },
}  # fmt: skip
COMMON = {
    "kubenode_image_agent_image": "registry.example/ironic-agent:1",
    "kubenode_image_ironic_urls": ["https://ironic.example"],
    "kubenode_image_pull_secret": '{"auths": {"registry.example": {"auth": "ZGVtbzpkZW1v"}}}',
}
#: what is booted: image, how, its host, where its root file system comes from
BOOTS = (
    ("web-1.iso", ("--cd",), "web-1", "medium"),
    ("web-2-minimal.iso", ("--firmware", "uefi", "--cd"), "web-2", "network"),
    ("web-2.ipxe", ("--script",), "web-2", "network"),
)
READER = ("127.0.0.2", 0)  # who compares: not the address of machines, so that the server's log tells them apart
RANGES = 300  # of each image
LARGEST = 256 * 1024  # bytes of a range
STATIC = {"bond0.nmconnection", "bond0.7.nmconnection", "eth1.nmconnection", "eth2.nmconnection"}


def say(line: str) -> None:
    """One line of the demo's own, apart from what the tools print."""
    print(f"demo: {line}", flush=True)


def compare(url: str, file: Path, chance: random.Random) -> str:
    """Read an image whole and in random ranges; what is wrong, or nothing."""
    content = file.read_bytes()
    spans = [(0, len(content))]
    for _number in range(RANGES):
        start = chance.randrange(len(content))
        spans.append((start, min(len(content), start + chance.randrange(1, LARGEST))))
    place = urllib.parse.urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(place.netloc, timeout=60, source_address=READER)) as connection:
        for start, stop in spans:
            whole = stop - start == len(content)
            connection.request("GET", place.path, headers={} if whole else {"Range": f"bytes={start}-{stop - 1}"})
            reply = connection.getresponse()
            if (reply.status, reply.read()) != (200 if whole else 206, content[start:stop]):
                return f"bytes {start} to {stop} differ from {file} (status {reply.status})"
    return ""


def judge(name: str, host: str, root: str, booted: Booted, embedded: bytes) -> list[str]:
    """What is wrong with a boot."""
    told = booted.told
    files = {path: file["sha256"] for path, file in told["files"].items()}
    expected = {
        "Ignition": (booted.ignition, embedded),
        "root file system": (told["root"], root),
        "agent's unit": (told["units"].get("ironic-agent.service"), "enabled"),
        "kernel argument": (f"demo.host={host}" in told["arguments"].split(), True),
        "network profiles": (set(told["profiles"]), STATIC if host == "web-1" else set()),
    }
    if host == "web-2":
        expected["/etc/demo"] = (files.get("/etc/demo"), hashlib.sha256(b"of web-2 alone\n").hexdigest())
    return [f"{name}: {what} is {found!r:.200}, not {wanted!r:.200}" for what, (found, wanted) in expected.items()
            if found != wanted]  # fmt: skip


def table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they must be; the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  " + "   ".join(cells).rstrip(), flush=True)


def boot_all(stage: ImageStage) -> list[str]:
    """Boot every image, show where the time went; what is wrong."""
    rows: list[tuple[str, ...]] = [
        ("image", "firmware, boot loader", "kernel", "Ignition", "root file system", "files and units", "all")
    ]
    wrong: list[str] = []
    for name, options, host, root in BOOTS:
        url = stage.published(name) if options[-1] == "--script" else stage.url(name)
        say(f"a machine boots {url}")
        booted = stage.boot(name, *options, url)
        wrong += judge(name, host, root, booted, stage.embedded(f"{host}.iso"))
        say(f"  its initramfs read an Ignition of {len(booted.ignition)} bytes, SHA-256 "
            f"{hashlib.sha256(booted.ignition).hexdigest()[:16]}…")  # fmt: skip
        for unit, commands in booted.told["starts"].items():
            say(f"  {unit} would start {commands[0][:100]}…")
        times = (
            booted.firmware, booted.kernel, booted.between("begin", "ignition"), booted.between("ignition", "root"),
            booted.between("root", "end"), booted.told["seconds"],
        )  # fmt: skip
        rows.append((name, *(f"{seconds:.1f}" for seconds in times)))
    say("where the time went, in seconds of a virtual machine without KVM")
    table(rows)
    return wrong


def show(stage: ImageStage, chance: random.Random) -> list[str]:
    """The whole show; what is wrong."""
    say("descriptors of a few KB for the server, made by the playbook")
    stage.write_inventory(HOSTS, COMMON)
    started = time.monotonic()
    stage.publish(say)
    say(f"published in {time.monotonic() - started:.1f} s; the same again: nothing may change")
    wrong = ["the second run changed something"] if stage.publish() else []
    say("the same images as whole files, to compare with")
    stage.write_files()
    names = sorted(path.name for path in stage.files.iterdir() if not path.name.startswith("."))
    stage.await_images([*names, *(name for name, *_how in BOOTS)])
    urls = json.loads((stage.folder / "urls.json").read_text())
    rows = [("image", "bytes", "URL", "compared")]
    for name in names:
        file = stage.files / name
        found = compare(stage.url(name), file, chance)
        rows.append((name, str(file.stat().st_size), urls.get(name, "?"), "differs" if found else "equal"))
        wrong += [found] if found else []
    say(f"every image read whole and in {RANGES} random ranges, beside the file")
    table(rows)
    return wrong + boot_all(stage)


def main() -> int:
    """Exit code 0 when every byte was right and every Ignition came back as it was embedded."""
    parser = argparse.ArgumentParser(prog="dev/demo-images", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the random ranges (default: %(default)s)")
    chosen = parser.parse_args()
    say("building a live image like CoreOS's (the first time) and starting the image server")
    with ImageStage(CHECKOUT / "build" / "demo-images", lambda line: say(f"  server: {line}")) as stage:
        wrong = show(stage, random.Random(chosen.seed))
    for line in wrong:
        say(line)
    if not wrong:
        say("every byte was right, every Ignition came back as it was embedded")
    say(f"images, consoles and the server's log: {stage.folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
