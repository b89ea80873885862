# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""image_url_command on machines that really boot a rescue."""

import hashlib

import pytest

pytestmark = pytest.mark.nspawn

DONE = "echo IMAGE_URL_DONE\n"
#: In the rescue: what comes on stdin is cut after a megabyte, once, and counted later on.
CUT = """cat >/usr/local/bin/cat <<'END'
#!/bin/sh
[ $# -eq 0 ] || exec /usr/bin/cat "$@"
[ ! -e /root/half ] || exec tee -a /root/sent
head -c 1000000; touch /root/half; exec sleep infinity
END
chmod 755 /usr/local/bin/cat"""


def test_a_command_runs_once_and_is_fully_logged(controller):
    controller.machine("cmd-a")
    command = controller.install(
        "plain", 'echo ran >>/root/runs; echo "$@"; echo trace >&2; cat "$2"; sleep 0.3\n' + DONE
    )
    run = controller.command("cmd-a", command, bootstrap_data="#cloud-config\n", root_devices=["sda", "sdb"]).ok()
    assert (run["changed"], run["attached"], run["rc"], run["in_rescue"]) == (True, False, 0, True)
    assert (run["hostname"], run["boot_state"]) == ("rescue", "RunningImageCommand")
    assert [(change["from"], change["to"]) for change in run["transitions"]] == [
        ("BootingToRescue", "RunningImageCommand")
    ]
    # the bootstrap data that it printed is masked
    stdout = "https://images.example/a.raw /root/bootstrap.data cmd-a sda sdb\n********\nIMAGE_URL_DONE\n"
    assert controller.log("cmd-a", "stdout") == stdout
    assert controller.log("cmd-a", "stderr") == "trace\n"
    assert run["stdout_tail"] == stdout.splitlines()
    assert run["stderr_tail"] == ["trace"]
    assert run["interleaved_tail"] == controller.log("cmd-a").splitlines()
    streams = [line.split(" ", 2)[1:] for line in controller.log("cmd-a").splitlines()]
    assert ["err", "trace"] in streams
    assert [text for stream, text in streams if stream == "out"] == stdout.splitlines()
    for file in (controller.logs / "cmd-a").iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    modes = controller.ssh("cmd-a", "stat -c '%a %n' /root/image-url-command /root/bootstrap.data /root/.kubenode")
    assert modes.split() == [
        "700", "/root/image-url-command", "600", "/root/bootstrap.data", "700", "/root/.kubenode",
    ]  # fmt: skip
    assert "commands" not in controller.ssh("cmd-a", "ls /root/.kubenode").split()

    again = controller.command("cmd-a", command, bootstrap_data="#cloud-config\n", root_devices=["sda", "sdb"]).ok()
    assert (again["changed"], again["attached"], again["rc"]) == (False, True, 0)
    assert controller.log("cmd-a", "stdout") == stdout
    other = controller.command("cmd-a", command, bootstrap_data="#cloud-config\nother: 1\n")
    assert (other.failed, other["attached"]) == (False, False)
    assert controller.ssh("cmd-a", "cat /root/runs") == "ran\nran\n"


def test_an_interrupted_run_is_continued_and_the_disk_is_written_once(controller):
    controller.machine("cmd-b")
    command = controller.install(
        "writer",
        "echo begin >>/root/runs; i=0\n"
        "while [ $i -lt 50 ]; do printf '%04d' $i | dd of=/dev/sda bs=4 seek=$i conv=notrunc 2>/dev/null\n"
        "while [ $i -ge 25 ] && [ ! -e /root/go ]; do sleep 0.1; done\n"
        "i=$((i+1)); sleep 0.2; echo wrote $i; done\n" + DONE,
    )
    first = controller.start_command("cmd-b", command, "-v")
    first.until("wrote 3")
    assert first.interrupt().failed
    assert "wrote 3" in controller.log("cmd-b")
    controller.ssh("cmd-b", "touch /root/go")

    second = controller.command("cmd-b", command).ok()
    assert (second["attached"], second["changed"]) == (True, True)
    assert second["seconds"] >= 10
    assert controller.ssh("cmd-b", "cat /root/runs") == "begin\n"
    written = controller.ssh("cmd-b", "head -c 200 /dev/sda")
    assert written == "".join(f"{number:04d}" for number in range(50))
    assert controller.log("cmd-b", "stdout").count("wrote") == 50


@pytest.mark.long
def test_a_large_command_is_uploaded_once_and_goes_on_where_it_was_cut(shared):
    command, content = shared.install_large(
        "large", "echo ran >>/root/large; [ -e /root/large-tried ] || { touch /root/large-tried; exit 1; }\n" + DONE
    )
    shared.ssh("shared", CUT)
    first = shared.start_command("shared", command)
    first.until(lambda: shared.ssh("shared", "ls /root/half 2>&1 || true").strip() == "/root/half", "half of it")
    assert first.interrupt().failed
    assert shared.ssh("shared", "stat -c %s /root/.kubenode/commands/*").strip() == "1000000"

    # what was cut still holds the file open for writing
    done = shared.command("shared", command).fails("ended with exit code 1")
    done.says("shared: uploaded 2 MiB of 2 MiB of the image command\n")
    digest = hashlib.sha256(content).hexdigest()
    facts = "stat -c '%a %U %n' /root/.kubenode/commands /root/.kubenode/commands/* /root/image-url-command*"
    assert shared.ssh("shared", facts).splitlines() == [
        "700 root /root/.kubenode/commands",
        f"700 root /root/.kubenode/commands/{digest}",
        "700 root /root/image-url-command",
    ]
    assert shared.ssh("shared", "sha256sum </root/image-url-command").split()[0] == digest

    again = shared.command("shared", command).ok()
    assert (again["attached"], again["changed"], again["rc"]) == (False, True, 0)
    assert "uploaded" not in again.output
    assert shared.ssh("shared", "stat -c %s /root/sent; cat /root/large; rm /usr/local/bin/cat").split() == [
        str(len(content) - 1_000_000), "ran", "ran",
    ]  # fmt: skip


@pytest.mark.long
def test_a_large_command_that_changed_is_another_job_and_needs_room(shared):
    script = "echo ran >>/root/changed\n" + DONE
    command, content = shared.install_large("changed", script)
    runs = [shared.command("shared", command) for _time in range(2)]
    assert [(run.failed, run["attached"], "uploaded" in run.output) for run in runs] == [
        (False, False, True),
        (False, True, False),
    ]
    _command, other = shared.install_large("changed", script, seed=1)
    shared.reach("absent", "127.0.0.1", ansible_port=1)
    assert shared.command("absent", command, "--check")["msg"].startswith("would run ")

    # the place below it stays as it is
    shared.ssh("shared", "mount -t tmpfs -o size=200M none /root/.kubenode/commands")
    full = shared.command("shared", command)
    shared.ssh("shared", "umount /root/.kubenode/commands")
    assert full.failed
    assert (
        f"kubenode_image_url_command {command}: it needs 5 MiB of the rescue's memory, and 200 MiB are free of which "
        "256 MiB stay with the rescue; "
    ) in full["msg"]
    assert (full["changed"], full["boot_state"], "uploaded" in full.output) == (False, "ProvisioningFailed", False)
    seen = "cat /root/changed; sha256sum </root/image-url-command; ls /root/.kubenode/commands"
    old, new = (hashlib.sha256(one).hexdigest() for one in (content, other))
    assert shared.ssh("shared", seen).split() == ["ran", old, "-", old]

    changed = shared.command("shared", command)
    assert (changed.failed, changed["attached"]) == (False, False), changed.output
    assert changed["job"] != runs[0]["job"]
    assert shared.ssh("shared", seen).split() == ["ran", "ran", new, "-", new]


@pytest.mark.long
def test_a_hanging_command_is_killed_at_its_limit_with_all_its_processes(shared):
    command = shared.install(
        "hang",
        "trap '' TERM; setsid -f sh -c 'trap \"\" TERM; exec sleep 600000'; echo hanging; sleep 600000 & wait; wait\n",
    )
    run = shared.command("shared", command, timeout=20).fails(
        "did not end within 20 s and was killed with all its processes"
    )
    assert run["boot_state"] == "ProvisioningFailed"
    assert shared.log("shared", "stdout") == "hanging\n"
    assert "hanging" in shared.log("shared")
    left = shared.ssh("shared", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 600' || true")
    assert left.strip() == "0"


@pytest.mark.parametrize(
    ("name", "script", "options", "failed", "words"),
    [
        ("cmd-d", DONE + "exit 1", {}, True, "but ended with exit code 1"),
        ("cmd-e", DONE + "exit 1", {"success": "marker"}, False, "succeeded"),
        ("cmd-f", DONE + "echo late >&2", {}, False, "succeeded"),
        ("cmd-g", "echo almost", {}, True, "last line of its stdout does not contain IMAGE_URL_DONE"),
    ],
)
def test_what_counts_as_success(shared, name, script, options, failed, words):
    run = shared.command("shared", shared.install(name, f"# {name}\necho log line\n{script}"), **options)
    assert run.failed is failed, run.output
    assert words in run["msg"]
    assert run["boot_state"] == ("ProvisioningFailed" if failed else "RunningImageCommand")
    assert "log line" in shared.log("shared", "stdout")
    assert "log line" in shared.log("shared")


def test_a_failed_command_is_started_again(shared):
    command = shared.install("second", "[ -e /root/tried ] || { : >/root/tried; exit 1; }\n" + DONE)
    assert shared.command("shared", command).failed
    again = shared.command("shared", command)
    assert (again.failed, again["attached"]) == (False, False)


def test_no_secret_is_printed_or_kept(shared):
    command = shared.install(
        "leaky",
        'echo "token $OCI_REGISTRY_AUTH_TOKEN url $1"\n'
        'echo "{\\"message\\": \\"got $OCI_REGISTRY_AUTH_TOKEN\\"}" >/root/output.json\n'
        "sleep 1; tr '\\0' ' ' </proc/$PPID/cmdline; cat \"$2\" >/dev/null\n" + DONE,
    )
    run = shared.command(
        "shared",
        command,
        "-vvvv",
        env={"OCI_REGISTRY_AUTH_TOKEN": "reg:s3cr3t-token"},
        image_url="https://user:s3cr3t-password@images.example/a.raw?signature=s3cr3t-signature#sha256=00",
        bootstrap_data="#cloud-config\npassword: s3cr3t-bootstrap\n",
    ).ok()
    assert run["image_url"] == "https://images.example/a.raw"
    # The options are in the command line that the test itself gave to Ansible; Ansible 2.19 does not print them.
    for secret in ("s3cr3t-token", "s3cr3t-password", "s3cr3t-signature", "s3cr3t-bootstrap"):
        assert secret not in run.output
        for file in (shared.logs / "shared").iterdir():
            assert secret not in file.read_text(), file
    assert "token ********" in shared.log("shared", "stdout")
    assert "shared: got ********" in run.output
    journal = shared.ssh("shared", "journalctl --no-pager; cat /root/.kubenode/state")
    assert "s3cr3t" not in journal


def test_progress_is_shown_and_hostile_output_does_not_reach_the_terminal(shared):
    command = shared.install(
        "hostile",
        "printf 'before \\033]0;owned\\007 \\033[2J after\\n'\n"
        'for i in 1 2 3; do printf \'{"message": "step %s \\\\u001b[31m"}\' $i >/root/output.json.new\n'
        "mv /root/output.json.new /root/output.json; while [ ! -e /root/seen-$i ]; do sleep 0.1; done; done\n" + DONE,
    )
    running = shared.start_command("shared", command, "-v", poll=0.3)
    for step in (1, 2, 3):
        running.until(f"shared: step {step}")
        shared.ssh("shared", f"touch /root/seen-{step}")
    run = running.wait().ok()
    assert "\x1b" not in run.output
    assert "\x07" not in run.output
    assert "before \\x1b]0;owned\\x07 \\x1b[2J after" in run.output
    for step in (1, 2, 3):
        assert run.output.count(f"shared: step {step} \\x1b[31m\n") == 1


def test_a_lost_connection_is_found_again(controller):
    controller.machine("cmd-k")
    command = controller.install(
        "cut",
        "echo ran >>/root/runs; echo begun; while [ ! -e /root/cut ]; do sleep 0.1; done; sleep 1\n"
        "systemctl stop ssh\n"
        "for p in /proc/[0-9]*; do case $(cat $p/comm 2>/dev/null) in sshd*) kill -9 ${p#/proc/};; esac; done\n"
        "sleep 4; mkdir -p /run/sshd; systemd-run --quiet /usr/sbin/sshd -D; sleep 1\n" + DONE,
    )
    running = controller.start_command("cmd-k", command, "-v")
    running.until("out begun")
    controller.ssh("cmd-k", "touch /root/cut")
    run = running.wait().ok()
    assert run["seconds"] >= 6
    assert controller.ssh("cmd-k", "cat /root/runs") == "ran\n"


def test_a_rescue_that_reboots_under_the_command_is_noticed(controller):
    controller.machine("cmd-l")
    command = controller.install("long", "echo started; exec sleep infinity\n")
    running = controller.start_command("cmd-l", command, "-v")
    running.until("out started")
    controller.act("cmd-l", "enable_rescue", {"type": "linux64", "ssh_keys": [controller.key_id]})
    controller.act("cmd-l", "reset")
    running.wait().fails().says("the machine rebooted while the image command ran")
    assert "started" in controller.log("cmd-l")


@pytest.mark.long
def test_another_system_is_no_rescue(controller):
    controller.machine("cmd-m", rescue=False)
    command = controller.install("plain", "echo ran >/root/ran\n" + DONE)
    run = controller.command("cmd-m", command, rescue_timeout=1_000_000)  # which is not waited for
    assert run.failed
    assert (run["in_rescue"], run["boot_state"], run["transitions"]) == (False, "BootingToRescue", [])
    assert "another system answers instead of the rescue (hostname 'cmd-m'" in run["msg"]
    assert controller.ssh("cmd-m", "ls /root") == ""


@pytest.mark.long
def test_the_system_seen_before_the_reset_is_no_rescue(shared):
    command = shared.install("plain", DONE)
    boot_id = shared.command("shared", command)["boot_id"]
    run = shared.command("shared", command, previous_boot_id=boot_id, rescue_timeout=30).fails()
    assert run["in_rescue"] is False
    assert "the system seen before the reset still answers" in run["msg"]


def test_check_mode_checks_and_contacts_no_machine(controller):
    controller.reach("absent", "127.0.0.1", ansible_port=1)
    command = controller.install("plain", DONE)
    run = controller.command("absent", command, "--check", bootstrap_data="x").ok()
    assert run["changed"] is True
    assert run["msg"].startswith("would run ")
    controller.command("absent", command, "--check", image_url="images.example/a.raw", root_devices=["/dev/sda"]).fails(
        'absent: image_url "images.example/a.raw": it is neither an absolute URL',
        "root_devices [\"/dev/sda\"]: '/dev/sda' holds a '/'",
    )


@pytest.mark.long
def test_silence_and_refusal_are_distinguished(shared):
    shared.reach("absent", "127.0.0.1", ansible_port=1)
    command = shared.install("plain", DONE)
    silent = shared.command("absent", command, rescue_timeout=1)
    assert (silent.failed, silent["in_rescue"]) == (True, False)
    assert "no SSH server answers" in silent["msg"]
    address = shared.hosts["shared"]["ansible_host"]
    shared.reach("cmd-o", address)
    shared.command("cmd-o", command)
    shared.reach("cmd-o", address, ansible_ssh_private_key_file=str(shared.new_key("other")))
    refused = shared.command("cmd-o", command, rescue_timeout=8)
    assert refused["in_rescue"] is False
    assert "refuses our key" in refused["msg"]
