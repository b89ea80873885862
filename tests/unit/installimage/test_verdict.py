# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an installation ended: from terminal, debug.txt and the post-install script's own lines to one reason."""

from __future__ import annotations

import base64
import json
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import installer, post_install
from tests.folders import put_programs
from tests.unit.installimage.specifications import specified

NONCE = "5f0c9d"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
WELL = f"""\
:   kubenode-post-install {NONCE} begin
:   hello from the script
:   kubenode-post-install {NONCE} scripted
:   kubenode-post-install {NONCE} host-key {KEY} root@node1
:   kubenode-post-install {NONCE} root /dev/mapper/vg0-root ext4 rw,relatime
:   kubenode-post-install {NONCE} done
"""
TERMINAL = "\n".join(f" {n:>2}/3 : {text} ... done" for n, text in enumerate(["partitions", "extract", "boot"], 1))


def judged(code=0, terminal=TERMINAL + "\n INSTALLATION COMPLETE\n", debug="", said=WELL):
    steps = installer.Steps()
    for line in terminal.splitlines():
        steps.take(line)
    return installer.judge(code, terminal, debug, post_install.Report(said, NONCE), steps)


def test_all_three_signs_make_a_success():
    assert judged() is None
    assert judged(terminal=TERMINAL, debug="INSTALLATION COMPLETE") is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"code": 1}, "ended|exit code 1"),
        ({"terminal": TERMINAL}, "exit code 0"),
        ({"said": ""}, "did not run"),
        ({"said": WELL.replace(f"{NONCE} done", "")}, "come to its end"),
        ({"said": WELL.replace(NONCE, "f00")}, "did not run"),
        ({"code": None}, r"killed at the time limit in step installimage 3/3: boot"),
    ],
)
def test_each_missing_sign_is_a_failure(change, reason):
    failure = judged(**change)
    assert failure is not None
    assert re.search(reason, failure.reason)
    assert not failure.permanent


#: As the real one begins its debug.txt: hwdata's report names disks, errors and much else.
HEAD = """
[19:31:02] # starting installimage
[19:31:02] -------------------------------------
[19:31:02] :   Hardware data:
[19:31:02] :   CPU1: AMD Ryzen 5 3600 6-Core Processor (Cores 12)
[19:31:02] :   Memory:  64243 MB (ECC)
[19:31:02] :   Disk /dev/nvme0n1: 512 GB (=> 476 GiB) doesn't contain a valid partition table
[19:31:02] :   Disk /dev/nvme1n1: 512 GB (=> 476 GiB), 2 errors, device is busy
[19:31:02] :   Total capacity 3576 GiB with 2 Disks
[19:31:02] :   ERROR: ESP missing or multiple ESP found
[19:31:02] :   tar: No space left on device
[19:31:02] :   eth0  LINK: yes
[19:31:02] -------------------------------------
[19:31:02] # make clean config
[19:31:03] # validating config ...
[19:31:03] Image info:
[19:31:03] :   DISTRIB ID:               debian
"""
#: What one finds on the terminal before a step: the configuration, in which every word of the user is.
BEFORE = """
Found AUTOSETUP file '/autosetup'
Running unattended installimage installation ...

DRIVE1 /dev/nvme0n1
HOSTNAME no-such-device-error
IMAGE /x/Debian-1200-error-not-found-amd64-base.tar.zst
"""


def stamped(text):
    return "".join(f"[19:31:04] {line}\n" for line in text.splitlines())


def refused(sentence, head=HEAD):
    said = stamped(f":   {sentence}") if sentence else ""
    return judged(1, BEFORE + "Cancelled.\n", head + said, "")


def failed(said, title="Extracting image (local)", head=HEAD):
    """The step before says things that sound bad and mean nothing."""
    debug = f"""\
# executing installfile ...
# Mounting partitions
:   mount: unexpected end of file, no such device, error
# {title}
{said}
=> FAILED"""
    terminal = (
        f"{BEFORE}   4/15  :  Mounting partitions \x1b[60G busy \x1b[60G done \n   5/15  :  {title} \x1b[60G busy "
    )
    return judged(1, terminal + "\x1b[60Gfailed\n", head + stamped(debug), "")


@pytest.mark.parametrize(
    ("sentence", "reason", "permanent"),
    [
        ("ERROR: ESP missing or multiple ESP found", "exactly one partition {mount: /boot/efi", True),
        ("ERROR: can not determine image arch from filename", "tells no architecture", True),
        ("ERROR: can not install an arm64 image on a x86_64 system", "another architecture", True),
        ("ERROR: we do not yet support rockylinux 810 on EFI systems", "under UEFI; use a newer", True),
        ("ERROR: Not enough disks for RAID level 5", "another number of disks", True),
        ("ERROR: You need to select at least 2 disks for creating software raid!", "another number of disks", True),
        ("ERROR: There are identical mountpoints in the config (swap)", "something is mounted twice", True),
        ("ERROR: /boot must be mounted on a primary partition", "one of the first three", True),
        ("ERROR: You are going to use more space than your drives have available.", "do not fit", True),
        ("ERROR: DRIVE2 is busy - cannot access device /dev/sdb", "reset the machine into a fresh rescue", False),
        ("ERROR: Value for DRIVE1 is not correct: /dev/sdz ", "does not take a disk", False),
        ("Duplicate DRIVE definition. /dev/sda used for DRIVE1 and DRIVE2", "refused its configuration", True),
        ("ERROR: the moon is not in the right place", "refused its configuration", True),
        ("", "installimage refused its configuration with exit code 1", False),
    ],
)
def test_a_refusal_is_recognised_by_its_sentence(sentence, reason, permanent):
    failure = refused(sentence)
    assert reason in failure.reason
    assert sentence.strip() in failure.reason
    assert failure.permanent == permanent
    assert "RAID level" not in failure.reason or "RAID" in sentence or "at least 2 disks" in sentence


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (":   tar: ./usr/x: Cannot write: No space left on device\n:   tar: Error is not recoverable", "was full"),
        (":   tar: var/big: Wrote only 4608 of 10240 bytes\n:   tar: Exiting with failure status", "was full"),
        (":   /*stdin*\\ : Read error (39) : premature end", "cannot be unpacked"),
        (":   gzip: stdin: unexpected end of file\n:   tar: Child returned status 1", "cannot be unpacked"),
        (":   xz: (stdin): Compressed data is corrupt", "cannot be unpacked"),
        (":   tar: This does not look like a tar archive", "cannot be unpacked"),
    ],
)
def test_what_a_failing_step_says_is_a_guess_and_never_permanent(said, reason):
    failure = failed(said)
    assert reason in failure.reason
    assert failure.reason.endswith("(installimage ended with exit code 1 in step 5/15 (Extracting image (local)))")
    assert not failure.permanent


def test_a_step_that_says_nothing_has_no_reason_of_the_machine_or_of_another_step():
    failure = failed(":   some words")
    assert failure.reason == "installimage failed in step 5/15 (Extracting image (local)) with exit code 1"
    assert not failure.permanent
    assert failed(":   grub-install: cannot find a GRUB drive").reason.endswith(
        "with exit code 1: grub-install: cannot find a GRUB drive"
    )


def test_a_step_without_a_line_in_debug_txt_begins_at_the_one_before():
    """As "Executing additional commands", whose parts alone are in debug.txt."""
    terminal = "  1/2 : Extracting image (local) done\n  2/2 : Executing additional commands\n  : Ramdisk failed\n"
    debug = HEAD + stamped("# Mounting\n:   an old error\n# Extracting image (local)\n# Ramdisk\n:   no such kernel")
    failure = judged(1, terminal, debug, "")
    assert failure.reason.endswith(
        "in step 2/2 (Executing additional commands: Ramdisk) with exit code 1: no such kernel"
    )


#: What the real one printed and wrote where no card of the machine had an address.
REAL_TERMINAL = """\
   9/15  :  Setting up network config \x1b[60G\x1b[1;36m busy \x1b[00m/x/network_config.functions.sh: line 559: \
/installimage.VKN8T/hdd/etc/network/interfaces: No such file or directory
\x1b[60G\x1b[1;32m done \x1b[00m
  10/15  :  Executing additional commands
         :    Generating nothing \x1b[60G\x1b[1;36m busy \x1b[00m\x1b[60G\x1b[1;32m done \x1b[00m
         :    Setting hostname \x1b[60G\x1b[1;36m busy \x1b[00mDevice "" does not exist.
\x1b[60G\x1b[1;31mfailed\x1b[00m

\x1b[1;31m         An error occured while installing the new system!\x1b[00m
\x1b[1;31m          See the debug file /root/debug.txt for details.\x1b[00m

Please check our wiki for a description of the error:

https://docs.hetzner.com/robot/dedicated-server/operating-systems/installimage/

If your problem is not described there, try booting into a fresh
rescue system and restart the installation. If the installation
fails again, please contact our support via Hetzner Robot, providing
the IP address of the server and a copy of the debug file.

  https://robot.hetzner.com/

/root/ii/install/swraid.functions.sh: line 28: /proc/sys/dev/raid/speed_limit_max: No such file or directory
"""
REAL_DEBUG = stamped("""\
# make clean config
# Extracting image (local)
# Setting up network config
# setup network config
# setting up /etc/network/interfaces
:   bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)
mtab is already a symlink
# Setting hostname
=> FAILED
# report installation
cleaning up
""")


def test_the_reason_names_the_part_that_failed_and_its_output_and_not_the_advice_behind_it():
    failure = judged(1, REAL_TERMINAL, REAL_DEBUG, "")
    assert failure.reason == (
        "installimage failed in step 10/15 (Executing additional commands: Setting hostname) with exit code 1: "
        'Device "" does not exist.'
    )
    assert not failure.permanent
    steps = []
    terminal = installer.Terminal(lambda line: None, steps.append)
    terminal.take(REAL_TERMINAL.encode())
    terminal.end()
    assert steps[0] == "installimage 9/15: Setting up network config"
    assert steps[1:] == ["installimage 10/15: Executing additional commands"]


def test_a_part_counts_until_it_is_done():
    for rest, part in (
        (" busy", "Setting hostname"),
        (" busy failed", "Setting hostname"),
        (" busy noise\n   failed", "Setting hostname"),
        (" busy done", ""),
        (" busy noise\n   done", ""),
        (" busy done\n  11/15  :  Next", ""),
    ):
        steps = installer.Steps()
        for line in f"  10/15  :  Executing\n         :    Setting hostname {rest}".splitlines():
            steps.take(line)
        assert steps.part == part, rest


def test_the_passphrase_that_installimage_prints_is_not_passed_on():
    said = []
    terminal = installer.Terminal(said.append, lambda text: None, "correct-horse")
    terminal.take(b"CRYPTPASSWORD corr")
    terminal.take(b"ect-horse\nPART / ext4 all crypt\n")
    terminal.end()
    assert said == ["CRYPTPASSWORD ********", "PART / ext4 all crypt"]
    assert "correct-horse" not in terminal.text


def test_a_log_whose_head_was_cut_begins_at_its_first_error_or_step():
    cut = stamped(":   Total capacity 3576 GiB with 2 Disks\n:   an error of old")
    assert "another number of disks" in refused("ERROR: Not enough disks for RAID level 6", head=cut).reason
    assert failed(":   some words", head=cut).reason.endswith("(Extracting image (local)) with exit code 1")
    assert judged(1, "", cut, "").reason == "installimage failed with exit code 1"
    assert judged(1, "", "", "").reason == "installimage failed with exit code 1"


def test_a_disk_in_use_before_the_first_step():
    terminal = f"{BEFORE}ERROR unmounting device(s):\n/mnt\nCannot continue, device(s) seem to be in use.\n"
    failure = judged(1, terminal, HEAD, "")
    assert "reset the machine into a fresh rescue" in failure.reason
    assert not failure.permanent


SAID = st.lists(st.sampled_from([
    "# make clean config", "# Extracting image (local)", ":   ERROR: Not enough disks for RAID level 5", "=> FAILED",
    ":   No space left on device", "ERROR: ESP missing or multiple ESP found", "", ":   ", "Cancelled", "not a disk",
    "  5/15  :  Extracting image (local) busy failed", " 1/15 : \x1b[60G busy", "[19:31:04] # x", "device is busy",
]) | st.text(max_size=20), max_size=8).map("\n".join)  # fmt: skip


@given(SAID, SAID)
def test_only_what_it_refused_itself_before_its_first_step_is_permanent(terminal, debug):
    failure = judged(1, terminal, debug, "")
    assert failure is not None
    assert "exit code 1" in failure.reason
    assert len(failure.reason) < 1000
    if failure.permanent:
        assert "Cancelled" in terminal
        assert "ERROR" in debug


def test_a_failing_script_counts_although_installimage_does_not_notice():
    failure = judged(said=WELL.replace("scripted", "failed 42 the post-install script"))
    assert failure.reason == ("post_install_script failed in the new system with exit code 42: hello from the script")
    assert failure.permanent
    assert judged(said=WELL + f"kubenode-post-install {NONCE} failed 0 bootstrap_data: x").reason == "bootstrap_data: x"


def test_the_report_and_the_output_of_the_script():
    report = post_install.Report(WELL, NONCE)
    assert (report.begun, report.scripted, report.done, report.failure) == (True, True, True, None)
    assert report.host_keys == [KEY]
    assert report.root == "/dev/mapper/vg0-root ext4 rw,relatime"
    assert post_install.output_of(WELL, NONCE) == ":   hello from the script"
    assert post_install.output_of(WELL, "other") == ""


@given(st.text())
def test_without_the_secret_word_no_report_counts(text):
    report = post_install.Report("kubenode-post-install " + text, "cafe" * 8)
    assert not report.done
    assert report.host_keys == []


# --- steps


def test_steps_are_reported_once_as_they_begin():
    said, steps = [], []
    terminal = installer.Terminal(said.append, steps.append)
    for data in (
        b"\x1b[2J\x1b[1;32m  1/16",
        b" : delete partitions \x1b[60G\x1b[1;36m busy \x1b[0m",
        b"\x1b[60G\x1b[1;32m done \x1b[0m\n 2/16 : extract image \xe2\x80\xa6 \x1b[60G busy",
        b"\x1b[60",
        b"Gfailed\x1b[0m\n\n",
    ):
        terminal.take(data)
    terminal.end()
    assert steps == ["installimage 1/16: delete partitions", "installimage 2/16: extract image"]
    assert terminal.steps.failed
    assert said[0].split() == ["1/16", ":", "delete", "partitions", "busy", "done"]
    assert not any("\x1b" in line for line in said)


def test_the_terminal_keeps_the_end_of_a_long_output(monkeypatch):
    monkeypatch.setattr(installer, "MOST", 1000)
    terminal = installer.Terminal(lambda line: None, lambda text: None)
    terminal.take(b"".join(b"line %d\n" % number for number in range(10000)))
    terminal.end()
    assert len(terminal.text) <= 1000
    assert terminal.text.rstrip().endswith("line 9999")


@given(st.binary())
def test_any_output_can_be_read(data):
    terminal = installer.Terminal(lambda line: None, lambda text: None)
    terminal.take(data)
    terminal.end()
    installer.tail(terminal.text)
    installer.telling_line(terminal.text)


@pytest.mark.parametrize("word", ["done ", "a busy. ", "… ", "disk is "])
def test_a_line_without_end_is_read_at_its_ends(word):
    """The system that is installed prints, too; patterns would take minutes for such a line."""
    line = "1/2 : it " + word * (65000 // len(word)) + "x"
    terminal = installer.Terminal(lambda line: None, lambda text: None)
    for place in range(0, len(line), 5000):
        terminal.take(line[place : place + 5000].encode())
    terminal.end()
    assert len(terminal.steps.text) < 700
    failure = installer.judge(1, terminal.text, f"# it\n{line}", post_install.Report("", NONCE), terminal.steps)
    assert failure is not None
    assert len(failure.reason) < 2000


# --- the script


def scripted(**fields) -> str:
    spec = specified(hostname="node-1", **fields)
    return post_install.script(spec, NONCE, "iid-1", {"machine": "node-1"}, ["/dev/sda", "/dev/sdb"], False)


def embedded(script: str, path: str) -> str:
    """What a ``put`` of the script writes."""
    found = re.search(rf"^ *put \d+ {re.escape(path)} <<'END'\n(.*?)\nEND$", script, re.S | re.M)
    assert found, script
    return base64.b64decode(found[1]).decode()


@pytest.mark.parametrize(
    "fields",
    [{}, {"post_install_script": "exit 3"}, {"bootstrap_data": "#cloud-config\n"}, {"crypt_password": "correct-horse"}],
)
def test_the_script_is_valid_shell_without_secrets(fields):
    script = scripted(**fields)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert "correct-horse" not in script
    assert not re.search(r"@[A-Z]+@", script)


def test_host_keys_that_the_image_lacks_are_made_before_they_are_reported():
    script = scripted()
    assert (
        script.index("ssh-keygen -A") < script.index("no host keys, and none can be made") < script.index("host-key $(")
    )
    assert "ssh-keygen" not in scripted(bootstrap_data="#cloud-config\nssh_keys:\n  rsa_private: x\n")


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"ssh-keygen": 'echo "ssh-ed25519 AAAA new" >"$KEYS/ssh_host_ed25519_key.pub"', "sshd": ":"}, "made"),
        ({"ssh-keygen": "exit 1", "sshd": ":"}, "failed 0 the new system has an SSH server and no host keys"),
        ({"sshd": ":"}, "failed 0 the new system has an SSH server and no host keys"),
        ({}, ""),
    ],
)
def test_a_system_with_an_ssh_server_gets_keys_or_the_installation_fails(tmp_path, programs, said):
    """The part of the script alone, with a folder of its own in the place of /etc/ssh."""
    put_programs(tmp_path, programs)
    part = post_install._KEYS.replace("/etc/ssh", str(tmp_path)).replace("/usr/sbin/sshd", str(tmp_path / "none"))
    script = (
        'fail() { echo "failed $*"; exit 1; }\n' + part + f"\n[ ! -e {tmp_path}/ssh_host_ed25519_key.pub ] || echo made"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": str(tmp_path), "KEYS": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout.startswith(said)
    assert bool(done.stdout) == bool(said)


def test_warnings_of_the_script_are_kept_once():
    line = f"kubenode-post-install {NONCE} warning not looked at\n"
    assert post_install.Report(f":   {line}{line}", NONCE).warnings == ["not looked at"]


def test_seed_record_and_settings():
    script = scripted(bootstrap_data="#cloud-config\n@NONCE@ END\nü\n", post_install_script="echo @TAG@\nEND\n")
    assert embedded(script, f"{post_install.SEED}/user-data") == "#cloud-config\n@NONCE@ END\nü\n"
    assert embedded(script, f"{post_install.SEED}/meta-data") == 'instance-id: "iid-1"\nlocal-hostname: "node-1"\n'
    assert json.loads(embedded(script, "/etc/kubenode/installed.json")) == {"machine": "node-1"}
    assert embedded(script, '"$dir/script"') == "#!/bin/bash\necho @TAG@\nEND\n"
    settings = embedded(script, "/etc/cloud/cloud.cfg.d/zz-kubenode-installimage.cfg")
    assert "ssh_deletekeys: false\n" in settings
    assert "NoCloud" in settings


def test_without_bootstrap_data_there_is_no_seed():
    script = scripted()
    assert post_install.SEED not in script
    assert "NoCloud" not in embedded(script, "/etc/cloud/cloud.cfg.d/zz-kubenode-installimage.cfg")


def test_a_script_with_its_own_interpreter_keeps_it():
    assert embedded(scripted(post_install_script="#!/bin/sh\n:"), '"$dir/script"') == "#!/bin/sh\n:"


@pytest.mark.parametrize(
    ("data", "own"),
    [("#cloud-config\nssh_keys:\n  x: y\n", True), ('{"ssh_deletekeys": true}', True), ("  ssh_genkeytypes: []", True),
     ("#cloud-config\nssh_authorized_keys: []\n", False), (None, False)],
)  # fmt: skip
def test_bootstrap_data_that_makes_its_own_host_keys(data, own):
    assert post_install.own_host_keys(data) == own
