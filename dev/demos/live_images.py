# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live images on the lab: made for two hosts, served, compared byte for byte, booted until their Ignition is read."""

import argparse
import base64
import contextlib
import grp
import hashlib
import http.client
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import requests
import yaml

from dev.demos import say
from dev.testbed import CHECKOUT

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
READER = ("127.0.0.2", 0)  # who compares: not the address of machines, so that the server's log distinguishes them
RANGES = 300  # of each image
LARGEST = 256 * 1024  # bytes of a range
GATEWAY = "10.0.2.2"  # where machines of the lab's live image find this host
PATIENCE = 60  # seconds for a server on this host
STATIC = {"bond0.nmconnection", "bond0.7.nmconnection", "eth1.nmconnection", "eth2.nmconnection"}


@dataclass(frozen=True)
class Booted:
    """One boot as `python -m lab.coreos boot` reports it."""

    facts: Mapping[str, Any]

    @property
    def ignition(self) -> bytes:
        """The Ignition that the initramfs read and echoed back."""
        return base64.b64decode(self.facts["ignition"] or "")

    @property
    def firmware(self) -> float:
        """Seconds from power on to the kernel's first instruction."""
        return float(self.facts["at"]["begin"] - self.facts["uptime"]["begin"])

    @property
    def kernel(self) -> float:
        """Seconds of the kernel, until its initramfs started."""
        return float(self.facts["uptime"]["begin"])

    def between(self, first: str, second: str) -> float:
        """Seconds from one fact to the next."""
        return float(self.facts["at"][second] - self.facts["at"][first])


class LiveImageTestbed:
    """``with LiveImageTestbed(folder) as testbed``: the base is built, the server runs and has nothing to serve yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.files, self.overlays = self.folder / "files", self.folder / "overlays"
        self.base: dict[str, str] = {}
        self.log: list[str] = []
        self._server: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        for place in (self.folder, self.files, self.overlays):
            place.mkdir(mode=0o700, parents=True)
        self.base = json.loads(self._lab("build"))
        program = self.folder / "image-server"
        subprocess.run([CHECKOUT / "dev/image-server", "--output", program], check=True, stdout=subprocess.DEVNULL)
        self.port, self.watch_port = _free_ports(2)
        command = [
            sys.executable, str(program), "--overlays-dir", str(self.overlays), "--guessable", "--urls-file",
            str(self.folder / "urls.json"), "--images-bind-addr", f"127.0.0.1:{self.port}",
            "--images-publish-addr", self.published(""), "--metrics-addr", f"127.0.0.1:{self.watch_port}",
        ]  # fmt: skip
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)  # fmt: skip
        self._reader = threading.Thread(target=self._follow, args=(self._server,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._server and self._reader:
            self._server.terminate()
            self._server.wait(PATIENCE)
            self._reader.join(PATIENCE)

    def _follow(self, server: subprocess.Popen[str]) -> None:
        for line in server.stderr or ():
            self.log.append(line.rstrip())
            if "fetched" in line:
                say(f"  server: {line.rstrip()}")
        (self.folder / "image-server.log").write_text("\n".join(self.log) + "\n", encoding="utf-8")

    def url(self, name: str) -> str:
        """Where this host reads an image."""
        return f"http://127.0.0.1:{self.port}/{name}"

    def published(self, name: str) -> str:
        """Where machines read it."""
        return f"http://{GATEWAY}:{self.port}/{name}".rstrip("/")

    def await_images(self, names: list[str]) -> None:
        """Until the server serves all of these, which it notices by itself."""
        deadline = time.monotonic() + PATIENCE
        while missing := [name for name in names if not self._serves(name)]:
            if time.monotonic() > deadline or (self._server and self._server.poll() is not None):
                log = "\n".join(self.log[-20:])
                raise SystemExit(f"the image server does not serve {missing}:\n{log}")
            time.sleep(0.1)

    def _serves(self, name: str) -> bool:
        try:
            return requests.head(self.url(name), timeout=PATIENCE).status_code == 200
        except requests.ConnectionError:
            return False

    def write_inventory(self, hosts: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]) -> None:
        """Hosts with their own variables, and the machine that the images are published on: this one."""
        variables = {
            "kubenode_image_base_iso": self.base["iso"],
            "kubenode_image_base_initramfs": self.base["initramfs"],
            "kubenode_image_publish_url": self.published(""),
            "kubenode_image_group": grp.getgrgid(os.getegid()).gr_name,
            **common,
        }
        here = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "image_server_unguessable": False,  # this server is not the role's: it runs here, and only for the demo
        }
        data = {
            "metal": {"hosts": {name: dict(own) for name, own in hosts.items()}, "vars": variables},
            "image_servers": {"hosts": {"images": here}},
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")

    def publish(self, quiet: bool = False) -> bool:
        """Run the playbook for the server; returns whether anything changed."""
        return self._playbook(self.overlays, "kubenode_image_server=images", quiet=quiet)

    def write_files(self) -> None:
        """Run the playbook for files: the same images, whole."""
        self._playbook(self.files, quiet=True)

    def _playbook(self, dest: Path, *variables: str, quiet: bool) -> bool:
        command = ["ansible-playbook", "-i", "inventory.yml", "kubenode.provision.preprov_images"]
        for variable in ("kubenode_hosts=metal", f"kubenode_image_dest={dest}", *variables):
            command += ["-e", variable]
        if not quiet:
            say(shlex.join(command))
        done = subprocess.run(command, cwd=self.folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env={**os.environ, "ANSIBLE_RETRY_FILES_ENABLED": "false"})  # fmt: skip
        if done.returncode:
            raise SystemExit(f"the playbook failed:\n{done.stdout}")
        for line in [] if quiet else re.findall(r'^[ \t]+"(.*)",?$', done.stdout, re.M):
            say(f"  {line}")
        return any(int(count) for count in re.findall(r"changed=([0-9]+)", done.stdout))

    def boot(self, name: str, *options: str) -> Booted:
        """Boot an image in QEMU; the console's text stays in the folder."""
        log = self.folder / f"console-{name}.log"
        return Booted(json.loads(self._lab("boot", *options, "--log", str(log))))

    def _lab(self, *words: str) -> str:
        done = subprocess.run([sys.executable, "-m", "lab.coreos", *words], cwd=CHECKOUT, check=False,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
        if done.returncode:
            raise SystemExit(done.returncode)
        return done.stdout

    def embedded(self, name: str) -> bytes:
        """The Ignition in a materialised ISO, taken out by programs of others."""
        area = self.folder / "area"
        area.unlink(missing_ok=True)
        extract = ["xorriso", "-osirrox", "on", "-indev", str(self.files / name)]
        subprocess.run([*extract, "-extract", "/images/ignition.img", str(area)], check=True, capture_output=True)
        pipe = "gzip -dcq | cpio --extract --to-stdout --quiet config.ign"
        found = subprocess.run(["sh", "-c", pipe], input=area.read_bytes(), check=True, stdout=subprocess.PIPE)
        area.unlink()
        return found.stdout


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _number in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


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
    facts = booted.facts
    files = {path: file["sha256"] for path, file in facts["files"].items()}
    expected = {
        "Ignition": (booted.ignition, embedded),
        "root file system": (facts["root"], root),
        "agent's unit": (facts["units"].get("ironic-agent.service"), "enabled"),
        "kernel argument": (f"demo.host={host}" in facts["arguments"].split(), True),
        "network profiles": (set(facts["profiles"]), STATIC if host == "web-1" else set()),
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


def boot_all(testbed: LiveImageTestbed) -> list[str]:
    """Boot every image, show where the time went; what is wrong."""
    rows: list[tuple[str, ...]] = [
        ("image", "firmware, boot loader", "kernel", "Ignition", "root file system", "files and units", "all")
    ]
    wrong: list[str] = []
    for name, options, host, root in BOOTS:
        url = testbed.published(name) if options[-1] == "--script" else testbed.url(name)
        say(f"a machine boots {url}")
        booted = testbed.boot(name, *options, url)
        wrong += judge(name, host, root, booted, testbed.embedded(f"{host}.iso"))
        say(f"  its initramfs read an Ignition of {len(booted.ignition)} bytes, SHA-256 "
            f"{hashlib.sha256(booted.ignition).hexdigest()[:16]}…")  # fmt: skip
        for unit, commands in booted.facts["starts"].items():
            say(f"  {unit} would start {commands[0][:100]}…")
        times = (
            booted.firmware, booted.kernel, booted.between("begin", "ignition"), booted.between("ignition", "root"),
            booted.between("root", "end"), booted.facts["seconds"],
        )  # fmt: skip
        rows.append((name, *(f"{seconds:.1f}" for seconds in times)))
    say("where the time went, in seconds of a virtual machine without KVM")
    table(rows)
    return wrong


def show(testbed: LiveImageTestbed, chance: random.Random) -> list[str]:
    say("descriptors of a few KB for the server, made by the playbook")
    testbed.write_inventory(HOSTS, COMMON)
    started = time.monotonic()
    testbed.publish()
    say(f"published in {time.monotonic() - started:.1f} s; the same again: nothing may change")
    wrong = ["the second run changed something"] if testbed.publish(quiet=True) else []
    say("the same images as whole files, to compare with")
    testbed.write_files()
    names = sorted(path.name for path in testbed.files.iterdir() if not path.name.startswith("."))
    testbed.await_images([*names, *(name for name, *_how in BOOTS)])
    urls = json.loads((testbed.folder / "urls.json").read_text())
    rows = [("image", "bytes", "URL", "compared")]
    for name in names:
        file = testbed.files / name
        found = compare(testbed.url(name), file, chance)
        rows.append((name, str(file.stat().st_size), urls.get(name, "?"), "differs" if found else "equal"))
        wrong += [found] if found else []
    say(f"every image read whole and in {RANGES} random ranges, beside the file")
    table(rows)
    return wrong + boot_all(testbed)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when every byte was right and every Ignition came back as it was embedded."""
    parser = argparse.ArgumentParser(prog="dev/demo live-images", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the random ranges (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    say("building a live image like CoreOS's (the first time) and starting the image server")
    with LiveImageTestbed(CHECKOUT / "build" / "demo-images") as testbed:
        wrong = show(testbed, random.Random(chosen.seed))
    for line in wrong:
        say(line)
    if not wrong:
        say("every byte was right, every Ignition came back as it was embedded")
    say(f"images, consoles and the server's log: {testbed.folder}")
    return 1 if wrong else 0
