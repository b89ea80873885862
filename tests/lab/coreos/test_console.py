# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a console, how a machine is put together, and what is said of one that does not boot."""

import base64
import hashlib
from pathlib import Path

import pytest

from lab.coreos.boot import Machine, Reader, Written, boot, command
from lab.errors import ImageError


def read(*lines: str) -> Reader:
    reader = Reader()
    for line in lines:
        reader.line(line + "\r\n")
    return reader


def reported(config: bytes) -> list[str]:
    digest, text = hashlib.sha256(config).hexdigest(), base64.b64encode(config).decode()
    parts = [text[at : at + 76] for at in range(0, len(text), 76)]
    return [f"lab-coreos 3.10 ignition {digest} {len(config)}", *(f"lab-coreos-data {part}" for part in parts)]


def test_facts_of_a_boot() -> None:
    config = b'{"ignition": {"version": "3.2.0"}}' * 20
    seen = read(
        "[    0.000000] Linux version 6.1.0",
        "lab-coreos 3.05 begin 6.1.0",
        "lab-coreos 3.06 arguments a=1 b",
        *reported(config),
        "lab-coreos 3.30 profile 00ff eth0 two.nmconnection",
        "lab-coreos 3.40 root medium 00aa /dev/sr0",
        "lab-coreos 3.50 file 0640 00bb /etc/a b",
        "lab-coreos 3.60 unit enabled x.service",
        "lab-coreos 3.70 start x.service /bin/a b",
        "lab-coreos 3.70 start x.service /bin/c",
        "lab-coreos 3.80 user 2 core",
        "lab-coreos 3.90 end",
    ).seen
    assert (seen.kernel, seen.arguments, seen.ignition, seen.ignition_state) == ("6.1.0", "a=1 b", config, "read")
    assert seen.profiles == {"eth0 two.nmconnection": "00ff"}
    assert (seen.root, seen.rootfs_sha256) == ("medium", "00aa")
    assert seen.files == {"/etc/a b": Written(0o640, "00bb")}
    assert (seen.units, seen.keys) == ({"x.service": "enabled"}, {"core": 2})
    assert seen.starts == {"x.service": ["/bin/a b", "/bin/c"]}
    assert seen.uptime["begin"] == 3.05
    assert seen.ended
    assert not seen.failed


def test_ignition_that_lost_a_line_is_not_believed() -> None:
    lines = reported(b"x" * 300)
    seen = read(*lines[:2], *lines[3:], "lab-coreos 4.00 end").seen
    assert seen.ignition is None
    assert "not the one whose digest was printed" in seen.failed


@pytest.mark.parametrize("state", ["none", "ignored"])
def test_boot_without_ignition(state: str) -> None:
    seen = read(f"lab-coreos 3.00 ignition {state}", "lab-coreos 4.00 end").seen
    assert (seen.ignition, seen.ignition_state, seen.failed) == (None, state, "")


def test_failure_is_reported_with_its_reason() -> None:
    assert read("lab-coreos 3.00 failed cannot fetch http://192.0.2.1/").seen.failed == "cannot fetch http://192.0.2.1/"


def test_url_of_a_drive_cannot_add_options(tmp_path: Path) -> None:
    line = command(Machine(cd="http://127.0.0.1:1/a.iso,driver=file"), tmp_path)
    assert any("url=http://127.0.0.1:1/a.iso,,driver=file," in word for word in line)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine(), "give one of them"),
        (Machine(cd="a.iso", script="http://a/"), "give one of them"),
        (Machine(script="tftp://a/"), "'tftp://a/' is no http or https URL"),
        (Machine(cd="a.iso", firmware="open"), "'open' is not one of bios, uefi"),
    ],
    ids=["nothing", "both", "tftp", "firmware"],
)
def test_machine_that_cannot_be(machine: Machine, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=message):
        command(machine, tmp_path)


def test_image_that_is_not_there_is_reported_with_the_error_of_qemu(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"none.iso: it went off before its end\n.*No such file"):
        boot(Machine(cd=str(tmp_path / "none.iso")))


def test_machine_that_stays_on_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "empty.iso").write_bytes(bytes(65536))
    with pytest.raises(ImageError, match="did not come to its end within 2 s"):
        boot(Machine(cd=str(tmp_path / "empty.iso")), limit=2)
