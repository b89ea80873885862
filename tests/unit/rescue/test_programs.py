# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs for a rescue: one file each that runs alone, made of the modules it needs and no others."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import programs, recorder
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_tools
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import rescue_program
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import rescue_programs
from dev.toolchain.paths import CHECKOUT
from tests.folders import put
from tests.waiting import until

COMMANDS = sorted(rescue_programs.IMAGE_COMMANDS)


def members(content: bytes) -> dict[str, bytes]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    return {name.removeprefix(f"{rescue_programs.TOP}/"): archive.read(name) for name in archive.namelist()}


def unpacked_steps(folder: Path) -> Path:
    subprocess.run(["tar", "-xzf-", "-C", folder], input=rescue_programs.steps(), check=True)
    return folder


def program(folder: Path, content: bytes) -> Path:
    return put(folder / "image-url-command", content, 0o700)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_alone_and_says_how_it_is_called(tmp_path, name):
    path = program(tmp_path, rescue_programs.image_command(name))
    words = {"PATH": os.environ["PATH"]}
    done = subprocess.run([path], capture_output=True, text=True, check=False, cwd="/", env=words)
    usage = f'usage: {name} IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE"\n'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", usage)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rescue_without_python_says_so(tmp_path, name):
    path = program(tmp_path, rescue_programs.image_command(name))
    done = subprocess.run([path], capture_output=True, text=True, check=False, env={"PATH": "/nowhere"})
    said = f"{name}: python3 is missing in this rescue; install python3\n"
    assert (done.returncode, done.stdout, done.stderr) == (127, "", said)


def test_a_refused_command_says_why_in_one_line_and_touches_nothing(tmp_path):
    path = program(tmp_path, rescue_programs.image_command("image-url-command-raw-disk"))
    (tmp_path / "data").write_bytes(b"")
    done = subprocess.run(
        [path, "ftp://x/y", tmp_path / "data", "node-1", "nothing"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "image-url-command-raw-disk: image URL: scheme 'ftp' is not supported; use http, https or file; "
        "this command wrote nothing to a disk\n"
    )


def test_a_program_holds_what_it_imports_and_no_more(tmp_path):
    raw_disk = members(rescue_programs.image_command("image-url-command-raw-disk"))
    assert {"_rescue/imagecommand/raw_disk.py", "_rescue/imagecommand/incoming.py", "_common/text.py"} <= set(raw_disk)
    assert not {"_rescue/imagecommand/oci.py", "_rescue/imagecommand/tar_reader.py", "_rescue/job.py"} & set(raw_disk)
    oci = members(rescue_programs.image_command("image-url-command-oci"))
    assert set(raw_disk) < set(oci)
    steps = unpacked_steps(tmp_path) / rescue_programs.TOP
    assert (steps / "_rescue/recorder.py").read_bytes() == Path(recorder.__file__).read_bytes()
    for name in ("_rescue/options.py", "_rescue/imagecommand/oci.py", "_rescue/installimage/rescue_program.py"):
        assert not (steps / name).exists()


@pytest.mark.parametrize("what", ["installimage", "steps"])
def test_a_program_imports_nothing_that_is_not_inside(tmp_path, what):
    if what == "steps":
        path = unpacked_steps(tmp_path)
        names = [str(file.relative_to(path / rescue_programs.TOP)) for file in path.rglob("*/*.py")]
    else:
        path = program(tmp_path, rescue_programs.installimage())
        names = [name for name in members(rescue_programs.installimage()) if name != "__main__.py"]
    modules = [f"{rescue_programs.TOP}.{name[:-3].replace('/', '.').removesuffix('.__init__')}" for name in names]
    code = f"import importlib, sys; sys.path[:0] = [{str(path)!r}]; [importlib.import_module(n) for n in {modules!r}]"
    subprocess.run([sys.executable, "-I", "-c", code], check=True, cwd="/")


def test_a_step_loads_no_http_and_no_tls(tmp_path):
    path, module = unpacked_steps(tmp_path), f"{rescue_programs.TOP}._rescue.steps"
    code = f"import sys; sys.path[:0] = [{str(path)!r}]; import {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not {"ssl", "http.client", "urllib.request"} & set(done.stdout.split())


class Impatient(subprocess.Popen):
    """Of a limit nothing is left once the tool has begun; of the pause after TERM, nothing at all."""

    def communicate(self, input=None, timeout=None):
        if timeout is not None:
            until(lambda: Path(self.args[0]).with_name("begun").exists(), "the tool")
            timeout = 0
        return super().communicate(input, timeout)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_tool_that_does_not_end_is_ended_after_the_limit_it_was_given(tmp_path, monkeypatch, deaf):
    """With what it has started; a tool that takes no TERM gets KILL. What it had said is kept."""
    first = "trap : TERM" if deaf else ""
    tool = f"#!/bin/sh\n{first}\nsleep 3600 &\necho begun $!\n: >{tmp_path}/begun\nwhile :; do sleep 0.1; done\n"
    put(tmp_path / "slow", tool, 0o755)
    tools = disk_tools.Tools(programs.run, [str(tmp_path)], limits=True)
    with monkeypatch.context() as patched:
        patched.setattr(programs.subprocess, "Popen", Impatient)
        code, out, err = tools("slow", limit=7)
    assert (code, err) == (124, "slow did not end within 7 s")
    assert re.fullmatch(r"begun \d+\n", out)
    status = Path("/proc", out.split()[1], "status")

    def over() -> bool:
        try:
            return "State:\tZ" in status.read_text()
        except OSError:
            return True

    until(over, "the end of what it has started")
    put(tmp_path / "quick", "#!/bin/sh\necho done\nexit 3\n", 0o755)
    assert tools("quick") == (3, "done\n", "")
    assert tools("missing") == (127, "", "missing is not there")


def test_installimage_hands_the_limit_of_a_tool_on(tmp_path, monkeypatch):
    limits = []
    monkeypatch.setattr(rescue_program, "run", lambda argv, environ_update, limit: limits.append(limit) or (0, "", ""))
    program = rescue_program.Program({"devices": []}, str(tmp_path), 0.0)
    program._tools("sh", limit=300)
    program._tools("sh")
    assert limits == [300, 120]


def test_a_program_is_made_once_for_all_who_ask_in_the_same_moment():
    made, asked, all_asked = [], threading.Semaphore(0), threading.Event()

    def make() -> str:
        made.append(1)
        all_asked.wait()
        return "program"

    once = rescue_programs._once(make)
    found = []

    def ask() -> None:
        asked.release()
        found.append(once())

    threads = [threading.Thread(target=ask) for _number in range(8)]
    for thread in threads:
        thread.start()
    for _thread in threads:
        asked.acquire()
    all_asked.set()
    for thread in threads:
        thread.join()
    assert (len(made), found) == (1, ["program"] * 8)


@pytest.mark.parametrize(
    "content", [rescue_programs.installimage, *(lambda n=n: rescue_programs.image_command(n) for n in COMMANDS)]
)
def test_what_identifies_a_job_does_not_depend_on_the_zlib_of_a_controller(content):
    entries = zipfile.ZipFile(io.BytesIO(content())).infolist()
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}


def test_make_writes_the_same_commands(tmp_path):
    words = [CHECKOUT / "dev/image-commands", "--output", tmp_path / "made"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/")
    assert [line.split(" ")[0] for line in done.stdout.splitlines()] == [
        str(tmp_path / "made" / name) for name in COMMANDS
    ]
    for path in (tmp_path / "made").iterdir():
        assert path.read_bytes() == rescue_programs.image_command(path.name)
        assert path.stat().st_mode & 0o777 == 0o755
