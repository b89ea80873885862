# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built program on this host: what it hands to the playbooks, how it ends, what it leaves."""

import ast
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev.toolchain import release
from dev.toolchain.paths import CHECKOUT
from provision import state_folder
from tests.waiting import until

pytestmark = pytest.mark.root

#: where a cluster is, and what proves that it is this one
API = ["--api-server", "https://192.0.2.1:6443", "--set", f"join_discovery={{ca_hashes: ['sha256:{'0' * 64}']}}"]
TOKEN = "a1b2c3.0a1b2c3d4e5f6a7b"
#: every process from a module up to the program: its command line and environment
SPY = """#!/bin/sh
pid=$$
while [ "$pid" -gt 1 ]; do
    tr '\\0' '\\n' <"/proc/$pid/cmdline" >>"$REPORT_DIR/cmdlines"
    tr '\\0' '\\n' <"/proc/$pid/environ" >>"$REPORT_DIR/environs.$pid"
    tr '\\0' ' ' <"/proc/$pid/cmdline" | grep -q -- --state-dir && break
    pid=$(awk '/^PPid/ {print $2}' "/proc/$pid/status")
done
"""


def variables(machine) -> dict:
    return json.loads((machine.reported / "variables.json").read_text(encoding="utf-8"))


def has_reported(process, machine) -> None:
    """Wait until a run has reported its variables."""

    def reported() -> bool:
        ended = process.poll() is not None
        found = (machine.reported / "variables.json").exists()
        assert found or not ended, "the run ended early"
        return found

    until(reported, "the variables of the run")


def run_folders(machine) -> list[Path]:
    """The files of variables that runs with this state folder have left."""
    name = hashlib.sha256(str(machine.state.resolve()).encode()).hexdigest()[:16]
    return list(Path("/run/kubenode-provision", name).glob("vars.yml"))


def test_two_builds_are_the_same_bytes(program, sources):
    again = release.provision_program(reversed(sources), "1.2.3", preset=0)
    assert hashlib.sha256(again).digest() == hashlib.sha256(program.read_bytes()).digest()


def test_no_tests_and_no_lab_inside(machine):
    machine.run("--phase", "base")
    (payload,) = (path for path in machine.state.iterdir() if path.is_dir())
    assert sorted(path.name for path in payload.iterdir()) == [state_folder.MARK, "collections", "launch.py", "site"]
    collection = payload / "collections/ansible_collections/kubenode/provision"
    inside = {path.name for path in collection.iterdir()}
    assert {"COPYING", "LICENSES", "galaxy.yml", "meta", "playbooks", "plugins", "roles"} == inside
    assert not list(payload.rglob("*.so"))
    assert not (payload / "site/ansible_test").exists()
    assert payload.stat().st_mode & 0o777 == 0o700
    assert machine.state.stat().st_mode & 0o777 == 0o700


def test_variables_arrive_as_they_were(used, tmp_path):
    machine = used()
    text = "{{ lookup('pipe', 'id') }} 'x' \"y\" \\ \u2028 \x85 😀 #"
    extra = {"base_containerd_config": {"x": text}, "base_ipvs": True}
    (tmp_path / "vars.json").write_text(json.dumps(extra), encoding="utf-8")
    (tmp_path / "vars.yml").write_text(
        "base_sysctls: {vm.swappiness: '{{ 1 + 1 }}', a: 1.5, b: null}\n", encoding="utf-8"
    )
    files = [word for name in ("vars.json", "vars.yml") for word in ("--vars", str(tmp_path / name))]
    sets = ["--set", "base_packages_extra=[jq, 'yq']", "--set", "base_mirror=http://x/y"]
    machine.run("--phase", "base", *files, *sets, "--kubelet-version", "v1.36.4")
    reported = variables(machine)
    assert (
        reported.items()
        >= {
            **extra,
            "base_sysctls": {"vm.swappiness": "{{ 1 + 1 }}", "a": 1.5, "b": None},
            "base_packages_extra": ["jq", "yq"],
            "base_mirror": "http://x/y",
            "base_kubernetes_version": "1.36.4",
        }.items()
    )
    assert "base_prebake" not in reported


def test_plain_lines_for_a_log(used):
    done = used().run("--phase", "base")
    lines = done.stdout.splitlines()
    assert any(re.fullmatch(r"changed: Tell the variables \(changed, \d+\.\d s\)", line) for line in lines)
    assert any(re.fullmatch(r"ok: Do nothing \(\d+\.\d s\)", line) for line in lines)
    assert re.fullmatch(r"provision: base: done \(\d+ s\)", lines[-1])
    assert "Compute" not in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_a_terminal_sees_each_step_as_it_goes(used):
    machine = used()
    parent, child = pty.openpty()
    with machine.start("--phase", "base", stdout=child, stderr=child) as process:
        os.close(child)
        seen = b""
        while True:
            try:
                seen += os.read(parent, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait() == 0
    os.close(parent)
    text = re.sub(r"\x1b\[[0-9;]*[mK]", "", seen.decode())
    assert "… Do nothing" in text
    assert re.search(r"✓ Do nothing +\d+\.\d s", text)


def test_prebake_means_base(used):
    machine = used()
    machine.run("--prebake")
    assert variables(machine)["base_prebake"] is True


def test_check_changes_nothing(used):
    machine = used()
    done = machine.run("--phase", "base", "--check")
    assert not (machine.reported / "variables.json").exists()
    assert "nothing was changed" in done.stdout


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("option", marks=pytest.mark.long),
        pytest.param("file", marks=pytest.mark.long),
        "stdin",
        "environment",
    ],
)
def test_a_token_is_in_no_command_line_environment_or_output(used, tmp_path, way):
    machine = used()
    spy = tmp_path / "spy.sh"
    spy.write_text(SPY)
    machine.environment = {"SPY_SCRIPT": str(spy)}
    arguments = ["--phase", "base", "--verbose"]
    (tmp_path / "token").write_text(TOKEN + "\n")
    if way == "environment":
        machine.environment["PROVISION_TOKEN"] = TOKEN
    else:
        arguments += {
            "option": ["--token", TOKEN],
            "file": ["--token-file", str(tmp_path / "token")],
            "stdin": ["--token-file", "-"],
        }[way]
    done = machine.run(*arguments, stdin=TOKEN)
    assert variables(machine)["join_token"] == TOKEN
    lines = (machine.reported / "cmdlines").read_text()
    assert "launch.py" in lines
    assert "--state-dir" in lines
    assert TOKEN not in lines + done.stdout + done.stderr
    holders = [path for path in machine.reported.glob("environs.*") if TOKEN in path.read_text()]
    # the program's own environment only: root's, and gone with it
    assert len(holders) <= (way in ("option", "environment"))
    assert not run_folders(machine)


def test_a_failed_run_says_why(used):
    machine = used()
    done = machine.run("--phase", "base", "--set", "base_packages_extra=[fail]", code=1)
    assert "failed: Fail with a reason" in done.stdout
    assert "    this is why" in done.stdout
    assert "run it again to continue" in done.stderr
    assert not run_folders(machine)


def test_one_run_at_a_time_and_the_payload_is_kept(used):
    machine = used()
    with machine.start("--phase", "base", "--set", "base_packages_extra=[wait]") as first:
        has_reported(first, machine)
        kept = [(path, path.stat().st_mtime_ns) for path in machine.state.iterdir() if path.is_dir()]
        second = machine.run("--phase", "base", code=1)
        assert f"another run is at work here (process {first.pid})" in second.stderr
        (machine.reported / "go").touch()
        first.communicate(timeout=180)
        assert first.returncode == 0
    machine.run("--phase", "base", "--check")
    assert [(path, path.stat().st_mtime_ns) for path in machine.state.iterdir() if path.is_dir()] == kept


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_leaves_nothing_behind(used, number):
    machine = used()
    arguments = ["--phase", "base", "--set", "base_packages_extra=[wait]"]
    with machine.start(*arguments, start_new_session=True) as process:
        has_reported(process, machine)
        # Ctrl-C goes to the whole group of the terminal, a service manager's end to the program
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 130, stderr
    assert not run_folders(machine)


STUBBORN = """
import sys, time
from pathlib import Path
from provision import playbook
playbook.PATIENCE = 1.0
folder = Path(sys.argv[1])
print(playbook.run(folder, folder, "x.yml", {}, [], True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ansible_that_loses_its_interrupt_is_ended(tmp_path, number):
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    (tmp_path / "launch.py").write_text(deaf + "signal.pause()\n")
    command = [sys.executable, "-c", STUBBORN, str(tmp_path)]
    paths = {"PYTHONPATH": os.pathsep.join([os.environ["ANSIBLE_COLLECTIONS_PATH"], *filter(None, sys.path)])}
    with subprocess.Popen(
        command, env=os.environ | paths, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        assert process.communicate(timeout=180)[0] == f"{-signal.SIGINT}\n"


WHILE_IT_STARTS = """
import os, signal, subprocess, sys
from pathlib import Path
from provision import playbook
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        os.kill(os.getpid(), number)
number = int(sys.argv[2])
signal.signal(number, {"default": signal.SIG_DFL, "ignored": signal.SIG_IGN}[sys.argv[3]])
playbook.subprocess.Popen = Popen
folder = Path(sys.argv[1])
print(playbook.run(folder, folder, "x.yml", {}, [], True))
"""


@pytest.mark.parametrize(
    ("number", "before", "launched", "code"),
    [
        (signal.SIGTERM, "default", "import signal; signal.pause()", -signal.SIGINT),
        (signal.SIGHUP, "default", "import signal; signal.pause()", -signal.SIGINT),
        (signal.SIGINT, "default", "import signal; signal.pause()", -signal.SIGINT),
        (signal.SIGHUP, "ignored", "raise SystemExit(3)", 3),
    ],
    ids=["term", "hangup", "interrupt", "nohup"],
)
def test_an_interrupt_while_ansible_is_started_reaches_it(tmp_path, number, before, launched, code):
    (tmp_path / "launch.py").write_text(launched)
    command = [sys.executable, "-c", WHILE_IT_STARTS, str(tmp_path), str(int(number)), before]
    paths = {"PYTHONPATH": os.pathsep.join([os.environ["ANSIBLE_COLLECTIONS_PATH"], *filter(None, sys.path)])}
    done = subprocess.run(command, env=os.environ | paths, stdout=subprocess.PIPE, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (0, f"{code}\n")


def test_what_a_killed_run_left_is_gone_after_the_next(used):
    machine = used()
    arguments = ["--phase", "base", "--set", "base_packages_extra=[wait]", "--token", TOKEN]
    with machine.start(*arguments, start_new_session=True) as process:
        has_reported(process, machine)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert run_folders(machine)
    machine.run("--phase", "base", "--check")
    assert not run_folders(machine)


def test_a_folder_that_others_can_write_to_is_refused(machine):
    machine.state.mkdir()
    machine.state.chmod(0o777)
    assert "only its owner" in machine.run("--phase", "base", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--phase", "both"], "invalid choice: 'both'"),
        (["--phase", "all"], "name its API server by --api-server"),
        (["--phase", "join", "--prebake"], "--prebake ends after base"),
        (["--token", TOKEN, "--token-file", "/x"], "leave one of them out"),
        (["--phase", "base", "--token", "short"], "--token or PROVISION_TOKEN is no bootstrap token"),
        (["--phase", "base", "--token", ""], "--token is empty"),
        (["--phase", "base", "--token-file", "/nowhere"], "--token-file /nowhere: No such file"),
        (["--phase", "base", "--kubelet-version", "1.36"], "--kubelet-version is '1.36'"),
        (["--phase", "base", "--cloud-provider", "aws"], "--cloud-provider is 'aws'"),
        (["--phase", "base", "--ca-cert", "/dev/null"], "--ca-cert /dev/null holds no certificate"),
        (["--phase", "base", "--api-server", "http://x"], "--api-server is 'http://x'"),
        (["--phase", "base", "--cloud-config", "/nowhere"], "--cloud-config /nowhere: No such file"),
        (["--phase", "base", "--set", "base_prebak=true"], "did you mean base_prebake?"),
        (["--phase", "base", "--set", "base_prebake"], "--set base_prebake has no value"),
        (["--phase", "base", "--set", "base_prebake=maybe"], "it must be a bool"),
        (["--phase", "base", "--set", f"join_token={TOKEN}"], "join_token is a secret"),
        (["--phase", "base", "--vars", "/nowhere"], "--vars /nowhere: No such file"),
        (["--phase", "base", "--set", "base_swap=on"], "base_swap is 'on': use one of off, limited, keep"),
        (["--phase", "base", "--kubelet-version", "1.36.99"], "base_kubernetes_version is '1.36.99'; no sha256"),
        (["--phase", "join", *API, "--set", "join_taints=[a]"], "join_taints: 'a' is no taint"),
        (["--phase", "all", *API, "--set", "join_kubelet_config={maxPod: 1}"], "maxPods? (kubelet 1.37.1)"),
        (["--phase", "join", *API[:2]], "join_ca_cert: there is no CA to trust"),
        (["--phase", "join", *API[:2], "--set", "join_ca_file=/nowhere"], "join_ca_file /nowhere: No such file"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_wrong_use(used, arguments, reported):
    machine = used()
    done = machine.run(*arguments, code=2)
    assert reported in done.stderr
    assert done.stderr.startswith("provision: ")
    assert len(done.stderr.splitlines()) == 1
    assert TOKEN not in done.stderr
    assert not (machine.reported / "variables.json").exists()


@pytest.mark.parametrize("text", ["a: [1", "- a", "5", "\x00", "base_mirrors: !!python/object:os.x {}"])
def test_wrong_files_of_variables(used, tmp_path, text):
    path = tmp_path / "vars.yml"
    path.write_text(text)
    assert len(used().run("--phase", "base", "--vars", str(path), code=2).stderr.splitlines()) == 1


def test_help_and_version_unpack_nothing(machine):
    assert "--kubelet-version" in machine.run("--help").stdout
    assert machine.run("--version").stdout.startswith("provision 1.2.3 (payload ")
    assert not machine.state.exists()


def test_without_a_fitting_python_the_error_names_the_way_out(machine, tmp_path):
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    machine.environment = {"PATH": str(tmp_path)}
    with subprocess.Popen(
        ["/bin/sh", str(machine.program)], env=machine.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        stderr = process.communicate(timeout=180)[1]
    assert process.returncode == 1
    assert re.match(r"provision: Python 3\.11 to 3\.14 is needed and none was found: .*install", stderr)
    assert len(stderr.splitlines()) == 1


def test_an_old_python_ends_with_a_sentence():
    source = (CHECKOUT / "provision/start.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 4))
    assert not re.search(r"\bf[\"']|:=|print\(", source)
    script = "import sys; sys.version_info = (3, 9, 1, 'final', 0); exec(sys.stdin.read())"
    done = subprocess.run([sys.executable, "-c", script], input=source, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "provision: Python 3.11 to 3.14 is needed, this is 3.9.1; run it as ./provision\n"
