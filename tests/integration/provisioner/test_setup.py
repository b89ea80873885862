# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""setup.sh as a machine runs it, with a small program in place of `provision` and a server that misbehaves."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import user_data
from tests.unit.node_userdata.examples import rendered, written

TOKEN = "a1b2c3.0a1b2c3d4e5f6a7b"
#: notes how it was called, and ends with the codes of a list, one a run
PROGRAM = b"""\
import os, pathlib, sys
folder = pathlib.Path(%r)
with (folder / "calls").open("a") as calls:
    print(*sys.argv[1:], sep="|", file=calls)
codes = (folder / "codes").read_text().split()
(folder / "codes").write_text(" ".join(codes[1:]))
print("output of the program")
sys.exit(int(codes[0]))
"""


class Boot:
    """A first boot below a folder instead of /."""

    def __init__(self, web, root: Path) -> None:
        self.web, self.root = web, root
        self.program = PROGRAM % str(root)
        self.folder = root / "etc/kubenode/provision"
        self.environment = {"PATH": os.environ["PATH"]}
        web.site.files["/provision"] = self.program

    def write(self, **changed) -> None:
        """Write what the user data writes; the folders that setup.sh makes are moved below the root."""
        inputs = {
            "provision_source": f"{self.web.site.url}/provision?key=geheim#sha256={self.digest()}",
            "phase": "base",
            "token": TOKEN,
            "vars": {"base_ipvs": True},
            "attempts": 4,
            "pause": 1,
            **changed,
        }
        for path, (mode, content) in written(rendered(inputs), "cloud-init").items():
            target = self.root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = content.replace(f"'{user_data.PROGRAMS}'", f"'{self.root}/programs'")
            target.write_text(text.replace(f"'{user_data.PYTHON_HOME}'", f"'{self.root}/python'"), encoding="utf-8")
            target.chmod(mode)

    def write_with_python(self, folder: Path) -> None:
        """The same, with an archive of this folder as the Python to take."""
        archive = self.root / "python.tar.gz"
        subprocess.run(["tar", "-czf", archive, "-C", folder.parent, folder.name], check=True)
        self.web.site.files["/python.tar.gz"] = data = archive.read_bytes()
        source = f"{self.web.site.url}/python.tar.gz#sha256={hashlib.sha256(data).hexdigest()}"
        self.write(python_source=source)

    def digest(self) -> str:
        return hashlib.sha256(self.program).hexdigest()

    def run(self, *codes: int, ends: int = 0) -> str:
        """What setup.sh prints, which has to end with this code; the program will end with these."""
        (self.root / "codes").write_text(" ".join(map(str, codes)))
        command = ["/bin/sh", str(self.folder / "setup.sh")]
        done = subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == ends, done.stdout
        return done.stdout

    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def secrets(self) -> set[str]:
        return {name for name in ("token", "vars.json", "settings") if (self.folder / name).exists()}

    def leave_out(self, *missing: str) -> Path:
        """Let the PATH be a new folder with what setup.sh needs, but without some programs; returns it."""
        folder = self.root / "bin"
        folder.mkdir()
        for name in [
            "sh",
            "awk",
            "chmod",
            "cat",
            "cp",
            "cut",
            "dirname",
            "mkdir",
            "mv",
            "rm",
            "sha256sum",
            "sleep",
            "tar",
            "gzip",
            "python3",
            "curl",
            "wget",
        ]:
            found = shutil.which(name)
            if found and name not in missing:
                (folder / name).symlink_to(Path(found).resolve() if name == "python3" else found)
        self.environment["PATH"] = str(folder)
        return folder


@pytest.fixture
def boot(web, tmp_path: Path) -> Boot:
    return Boot(web, tmp_path)


ONCE = [f"--phase|base|--vars|{user_data.FOLDER}/vars.json|--token-file|{user_data.FOLDER}/token"]


def test_good_path_and_second_run(boot):
    boot.write()
    said = boot.run(0)
    assert boot.calls() == ONCE
    assert "output of the program" in said
    assert boot.secrets() == set()
    assert boot.folder.stat().st_mode & 0o777 == 0o700
    again = boot.run()
    assert "set up already" in again
    assert boot.calls() == ONCE
    assert len(boot.web.site.seen) == 1
    assert TOKEN not in said + again
    assert "geheim" not in said + again


def test_other_inputs_run_again_without_a_second_download(boot):
    boot.write()
    boot.run(0)
    boot.write(hostname="other")
    boot.run(0)
    assert boot.calls() == ONCE * 2
    assert len(boot.web.site.seen) == 1


def test_it_is_tried_again(boot):
    boot.web.site.faults["/provision"] = [("status", 503), ("cut", 10)]
    boot.write()
    said = boot.run(1, 0)
    assert boot.calls() == ONCE * 2
    assert said.count("fetching provision failed") == 2
    assert re.findall(r"attempt \d of 4 failed, the next one begins in (\d) s", said) == ["1", "2", "4"]
    assert len(boot.web.site.seen) == 3


def test_another_digest_is_never_run(boot):
    boot.write(attempts=2)
    boot.web.site.files["/provision"] = b"import os; os.abort()\n"
    assert f"has another SHA-256 than the expected {boot.digest()}" in boot.run(0, ends=1)
    assert boot.calls() == []
    assert list((boot.root / "programs").iterdir()) == []
    assert boot.secrets() == {"token", "vars.json", "settings"}
    boot.web.site.files["/provision"] = boot.program
    boot.run(0)
    assert boot.calls() == ONCE
    assert boot.secrets() == set()


def test_wrong_use_is_not_tried_again(boot):
    boot.write()
    assert "trying again will not help" in boot.run(2, 0, ends=2)
    assert boot.calls() == ONCE


def test_it_gives_up(boot):
    boot.write(attempts=2)
    assert "failed after 2 attempts; to try again: sh " in boot.run(1, 1, 0, ends=1)
    assert boot.calls() == ONCE * 2


@pytest.mark.parametrize("missing", [("curl",), ("curl", "wget")])
def test_each_program_that_can_fetch_is_used(boot, missing):
    boot.leave_out(*missing)
    boot.write()
    boot.run(0)
    assert boot.calls() == ONCE


def test_an_interrupted_download_of_an_earlier_boot_is_no_program(boot):
    boot.write()
    (boot.root / "programs").mkdir()
    (boot.root / "programs" / f"provision-{boot.digest()}").write_bytes(boot.program[:20])
    boot.run(0)
    assert boot.calls() == ONCE


def test_a_python_of_its_own_where_the_system_has_none(boot, tmp_path):
    home = tmp_path / "standalone/python/bin"
    home.mkdir(parents=True)
    # what runs is this very Python; a real archive brings its own
    (home / "python3").write_text(f'#!/bin/sh\nexec {shutil.which("python3")} "$@"\n')
    (home / "python3").chmod(0o755)
    boot.leave_out("python3")
    boot.write_with_python(tmp_path / "standalone/python")
    boot.run(0)
    assert boot.calls() == ONCE
    assert (tmp_path / "python/bin/python3").exists()
    assert sorted(path.name for path in (tmp_path / "programs").iterdir()) == [f"provision-{boot.digest()}"]


def test_a_python_of_another_user_in_its_place_is_kept(boot, tmp_path):
    boot.leave_out("python3")
    (tmp_path / "new/bin").mkdir(parents=True)
    (tmp_path / "new/bin/python3").symlink_to(Path(shutil.which("python3")).resolve())
    boot.write_with_python(tmp_path / "new")
    for name in ("python", "python.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text(name)
    boot.run(0)
    assert boot.calls() == ONCE
    assert (tmp_path / "python/bin/python3").exists()
    assert (tmp_path / "python.replaced/mine").read_text() == "python.replaced"
    assert (tmp_path / "python.replaced.1/mine").read_text() == "python"


def test_a_python_by_the_package_manager(boot, tmp_path):
    folder = boot.leave_out("python3")
    real = shutil.which("python3")
    # an old system: its own python3 does not fit, and of the newer ones it knows one
    apt_get = f"""#!/bin/sh
echo "$*" >>{tmp_path}/apt
case "$*" in
    *" install "*" python3") printf '#!/bin/sh\nexit 1\n' >{folder}/python3 ;;
    *" install "*" python3.11") printf '#!/bin/sh\nexec {real} "$@"\n' >{folder}/python3.11 ;;
    *" install "*) exit 100 ;;
esac
chmod 0755 {folder}/python3*
"""
    (folder / "apt-get").write_text(apt_get)
    (folder / "apt-get").chmod(0o755)
    boot.write()
    boot.run(0)
    assert boot.calls() == ONCE
    asked = [line.split()[-1] for line in (tmp_path / "apt").read_text().splitlines()]
    assert asked == ["update", "python3", "python3.12", "python3.11"]


def test_no_python_and_no_package_manager(boot):
    boot.leave_out("python3")
    boot.write(attempts=1)
    assert "give python_source" in boot.run(0, ends=1)
    assert boot.calls() == []
