# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator has who makes live images: a base, an inventory, an image server, and machines that boot."""

from __future__ import annotations

import base64
import grp
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import requests
import yaml

from dev.stage import CHECKOUT

GATEWAY = "10.0.2.2"  # where machines of the lab's live image find this host
_PATIENCE = 60  # seconds for a server on this host


@dataclass(frozen=True)
class Booted:
    """One boot as `python -m lab.coreos boot` tells it."""

    told: Mapping[str, Any]

    @property
    def ignition(self) -> bytes:
        """The Ignition that the initramfs read and echoed back."""
        return base64.b64decode(self.told["ignition"] or "")

    @property
    def firmware(self) -> float:
        """Seconds from power on to the kernel's first instruction."""
        return float(self.told["at"]["begin"] - self.told["uptime"]["begin"])

    @property
    def kernel(self) -> float:
        """Seconds of the kernel, until its initramfs started."""
        return float(self.told["uptime"]["begin"])

    def between(self, first: str, second: str) -> float:
        """Seconds from one fact to the next."""
        return float(self.told["at"][second] - self.told["at"][first])


class ImageStage:
    """``with ImageStage(folder) as stage``: the base is built and the server runs, with nothing to serve yet."""

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        """``note`` gets what is worth a line of the server's log, as it is written."""
        self.folder = folder.resolve()
        self.files, self.overlays = self.folder / "files", self.folder / "overlays"
        self.base: dict[str, str] = {}
        self.log: list[str] = []
        self._note = note
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
            self._server.wait(_PATIENCE)
            self._reader.join(_PATIENCE)

    def _follow(self, server: subprocess.Popen[str]) -> None:
        for line in server.stderr or ():
            self.log.append(line.rstrip())
            if "fetched" in line:
                self._note(line.rstrip())
        (self.folder / "image-server.log").write_text("\n".join(self.log) + "\n", encoding="utf-8")

    def url(self, name: str) -> str:
        """Where this host reads an image."""
        return f"http://127.0.0.1:{self.port}/{name}"

    def published(self, name: str) -> str:
        """Where machines read it."""
        return f"http://{GATEWAY}:{self.port}/{name}".rstrip("/")

    def await_images(self, names: list[str]) -> None:
        """Until the server serves all of these, which it notices by itself."""
        deadline = time.monotonic() + _PATIENCE
        while missing := [name for name in names if not self._serves(name)]:
            if time.monotonic() > deadline or (self._server and self._server.poll() is not None):
                raise SystemExit("the image server does not serve %s:\n%s" % (missing, "\n".join(self.log[-20:])))
            time.sleep(0.1)

    def _serves(self, name: str) -> bool:
        try:
            return requests.head(self.url(name), timeout=_PATIENCE).status_code == 200
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
        here = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
        data = {
            "metal": {"hosts": {name: dict(own) for name, own in hosts.items()}, "vars": variables},
            "image_servers": {"hosts": {"images": here}},
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")

    def publish(self, say: Callable[[str], None] | None = None) -> bool:
        """Run the playbook for the server; returns whether anything changed."""
        return self._playbook(self.overlays, "kubenode_image_server=images", say=say)

    def write_files(self) -> None:
        """Run the playbook for files: the same images, whole."""
        self._playbook(self.files)

    def _playbook(self, dest: Path, *variables: str, say: Callable[[str], None] | None = None) -> bool:
        command = ["ansible-playbook", "-i", "inventory.yml", "kubenode.provision.preprov_images"]
        for variable in ("kubenode_hosts=metal", f"kubenode_image_dest={dest}", *variables):
            command += ["-e", variable]
        if say:
            say(shlex.join(command))
        done = subprocess.run(command, cwd=self.folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env={**os.environ, "ANSIBLE_RETRY_FILES_ENABLED": "false"})  # fmt: skip
        if done.returncode:
            raise SystemExit(f"the playbook failed:\n{done.stdout}")
        if say:
            for line in re.findall(r'^\s+"(.*)",?$', done.stdout, re.M):
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
