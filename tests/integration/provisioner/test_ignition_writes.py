# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real Ignition writes user data into a root file system, as it does in an initramfs; presets enable the unit."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from tests.unit.node_userdata.examples import FULL, SMALL, rendered, written

pytestmark = [pytest.mark.root, pytest.mark.cluster]
STAGES = ("fetch-offline", "fetch", "kargs", "disks", "mount", "files")
ACCOUNTS = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
    "shadow": "root:*:20000::::::\ncore:*:20000::::::\n",
    "group": "root:x:0:\ncore:x:1000:\n",
    "gshadow": "root:*::\ncore:*::\n",
}


@pytest.fixture
def root() -> Iterator[Path]:
    """A root file system as far as Ignition looks at it; others than root pass through what is above it."""
    above = Path(tempfile.mkdtemp(prefix="kubenode-ignition-"))
    above.chmod(0o755)
    folder = above / "root"
    for name in ("etc", "root", "home/core", "usr/lib/systemd/system", "run", "var"):
        (folder / name).mkdir(parents=True)
    for name, content in ACCOUNTS.items():
        (folder / "etc" / name).write_text(content)
    os.chown(folder / "home/core", 1000, 1000)
    (folder / "usr/lib/systemd/system/multi-user.target").write_text("[Unit]\nDescription=All\n")
    yield folder
    shutil.rmtree(above)


def apply(real_ignition: Path, config: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run its stages; the last one that ran."""
    folder = root.parent
    (folder / "config.ign").write_text(config)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "IGNITION_CONFIG_FILE": str(folder / "config.ign"),
    }
    places = [f"--config-cache={folder}/cache.json", f"--state-file={folder}/state", f"--neednet={folder}/neednet"]
    command = [real_ignition, "--log-to-stdout", "--platform=file", f"--root={root}", *places]
    for stage in STAGES:
        done = subprocess.run(
            [*command, f"--stage={stage}"], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode:
            break
    return done


@pytest.mark.parametrize(("inputs", "user"), [(SMALL, None), (FULL, "core"), ({**FULL, "ssh_user": "root"}, "root")])
def test_it_writes_every_file_and_nothing_is_open(
    real_ignition: Path, root: Path, inputs: dict, user: str | None
) -> None:
    text = rendered(inputs, "ignition")
    done = apply(real_ignition, text, root)
    assert done.returncode == 0, done.stdout + done.stderr
    files = written(text, "ignition")
    assert len(files) >= 3
    for name, (mode, content) in files.items():
        path = root / name.lstrip("/")
        status = path.stat()
        assert (path.read_text(), status.st_mode & 0o777, status.st_uid, status.st_gid) == (content, mode, 0, 0), name
    assert (root / user_data.FOLDER.lstrip("/")).stat().st_mode & 0o777 == 0o700
    if user:
        keys = root / {"root": "root", "core": "home/core"}[user] / ".ssh/authorized_keys"
        assert keys.read_text().splitlines() == inputs["ssh_authorized_keys"]
        assert (keys.stat().st_uid, keys.stat().st_mode & 0o777) == ({"root": 0, "core": 1000}[user], 0o600)


def test_systemd_enables_the_unit_by_its_preset(real_ignition: Path, root: Path) -> None:
    (root / "usr/lib/systemd/system-preset").mkdir()
    (root / "usr/lib/systemd/system-preset/99-default.preset").write_text("disable *\n")
    assert apply(real_ignition, rendered(SMALL, "ignition"), root).returncode == 0
    subprocess.run(["systemctl", f"--root={root}", "preset-all"], check=True, capture_output=True)
    wanted = root / "etc/systemd/system/multi-user.target.wants" / user_data.SETUP_UNIT
    assert wanted.is_symlink()
    assert (root / "etc/systemd/system" / user_data.SETUP_UNIT).is_file()


def test_it_refuses_what_is_wrong(real_ignition: Path, root: Path) -> None:
    """Were it silent, the tests above would show less."""
    done = apply(real_ignition, rendered(SMALL, "ignition").replace("3.3.0", "3.9.0"), root)
    assert done.returncode != 0
    assert "unsupported config version" in done.stdout + done.stderr
    assert not (root / "etc/kubenode").exists()
