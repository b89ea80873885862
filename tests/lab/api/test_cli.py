# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m lab: the lab in the background, as a person or a Makefile starts and stops it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hcloud
import pytest

from dev.toolchain.paths import CHECKOUT
from lab.state import process_start
from tests.waiting import until


def client_of(cli):
    lines = dict(line.removeprefix("export ").split("=", 1) for line in cli.run("env").splitlines())
    return hcloud.Client(lines["HCLOUD_TOKEN"], api_endpoint=lines["HCLOUD_ENDPOINT"])


def wait_for_end(pid):
    until(lambda: process_start(pid) is None, f"the end of process {pid}")


def test_up_use_down(cli):
    state = cli.up()
    assert (state["kind"], state["reason"], state["already_up"]) == ("dry", "asked for", False)
    answer = client_of(cli).servers.create(
        "n1", hcloud.server_types.domain.ServerType(name="cx23"), hcloud.images.domain.Image(name="debian-12")
    )
    answer.action.wait_until_finished()
    answer.next_actions[0].wait_until_finished()
    status = json.loads(cli.run("status", "--json"))
    assert (status["up"], status["servers"], status["endpoint"]) == (True, 1, state["endpoint"])
    (machine,) = json.loads(cli.run("machines", "--json"))
    assert (machine["name"], machine["status"], machine["boots"][0]["source"]) == ("n1", "running", "disk")
    header, row = cli.run("machines").splitlines()
    assert header.split() == ["NAME", "KIND", "STATUS", "RESCUE", "ADDRESS", "LAST", "BOOT"]
    assert row.split()[:4] == ["n1", "cloud", "running", "-"]
    assert cli.run("down") == "lab 'default' is down\n"
    wait_for_end(state["pid"])
    assert cli.run("status", code=1) == "lab 'default' is not up\n"
    assert json.loads(cli.run("status", "--json", code=1)) == {"name": "default", "up": False}
    assert cli.run("down") == "lab 'default' is not up\n"


def test_up_twice_is_the_same_lab(cli):
    first, second = cli.up(), cli.up()
    assert second["already_up"]
    assert (first["pid"], first["endpoint"]) == (second["pid"], second["endpoint"])


def test_two_labs_by_name(cli):
    one, two = cli.up(), cli.up("--name", "second")
    assert one["endpoint"] != two["endpoint"]
    cli.run("down", "--name", "second")
    assert client_of(cli).servers.get_all() == []


def test_only_the_user_can_read_the_token(cli):
    state = cli.up()
    token = Path(state["token_file"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert token.read_text() not in json.dumps(state)
    assert token.read_text() not in cli.run("status") + cli.run("up", "--kind", "dry")
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert token.read_bytes() not in entry.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue


def test_token_of_the_users_choice(cli):
    cli.up(KUBENODE_LAB_TOKEN="from-environment")
    assert "from-environment" in cli.run("env")
    cli.run("down")
    cli.up("--token", "from-argument", KUBENODE_LAB_TOKEN="from-environment")
    assert "from-argument" in cli.run("env")


def test_a_killed_lab_is_cleaned_up_and_started_again(cli):
    first = cli.up()
    os.kill(first["pid"], signal.SIGKILL)
    wait_for_end(first["pid"])
    assert cli.run("status", code=1) == "lab 'default' is not up\n"
    second = cli.up()
    assert not second["already_up"]
    assert second["pid"] != first["pid"]
    os.kill(second["pid"], signal.SIGKILL)
    wait_for_end(second["pid"])
    assert cli.run("down") == "lab 'default' is down\n"


def test_a_process_of_another_program_is_left_alone(cli):
    state = cli.up()
    cli.run("down")
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        forged = {"pid": innocent.pid, "pid_start": "1", "ready": True, **{key: state[key] for key in ("endpoint",)}}
        (cli.folder / "default" / "state.json").write_text(json.dumps(forged))
        assert cli.run("status", code=1) == "lab 'default' is not up\n"
        cli.run("down")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_sigterm_ends_the_lab(cli):
    state = cli.up()
    os.kill(state["pid"], signal.SIGTERM)
    wait_for_end(state["pid"])
    assert not (cli.folder / "default" / "state.json").exists()
    assert not (cli.folder / "default" / "token").exists()


def test_foreground_ends_with_ctrl_c(cli):
    command = [sys.executable, "-m", "lab", "up", "--kind", "dry", "--foreground"]
    process = subprocess.Popen(command, cwd=CHECKOUT, env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"lab 'default' is up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 0
    process.stdout.close()
    assert cli.run("status", code=1) == "lab 'default' is not up\n"


def test_a_lab_that_cannot_start_says_why(cli):
    taken = cli.up()["endpoint"].rpartition(":")[2].removesuffix("/v1")
    error = cli.fails("up", "--kind", "dry", "--name", "other", "--port", taken)
    assert "lab 'other' ended while starting" in error
    assert "Address already in use" in error


def test_limit_is_passed_on(cli):
    cli.up("--limit", "7")
    client = client_of(cli)
    client.servers.get_all()
    assert json.loads(cli.run("status", "--json"))["limit"] == 7


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("machines",), "lab 'default' is not up; start it with: dev/run python -m lab up --name default"),
        (("env",), "lab 'default' is not up"),
        (("up", "--name", "../x"), "lab name '../x' is not"),
        (("nodes", "--kubernetes", "1.2.3"), "--kubernetes 1.2.3: the lab builds 1."),
    ],
)
def test_errors_are_one_line(cli, arguments, text):
    error = cli.fails(*arguments)
    assert error.startswith(f"lab: {text}")
    assert len(error.splitlines()) == 1


def test_a_lab_that_pip_has_installed_names_its_own_program(cli):
    code = "import sys; sys.argv[0] = '/opt/bin/hetzner-lab'; from lab.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "machines"]
    done = subprocess.run(words, cwd=CHECKOUT, env=cli.env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert done.stderr == "lab: lab 'default' is not up; start it with: hetzner-lab up --name default\n"


def test_a_python_without_the_packages_is_one_line():
    command = [sys.executable, "-S", "-m", "lab", "up"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lab: this Python has no aiohttp, cryptography, pydantic, yaml; ")
    assert "pip install ./lab" in done.stderr
    assert len(done.stderr.splitlines()) == 1
