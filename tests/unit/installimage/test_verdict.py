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

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import (
    install,
    post_install,
    verdict,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs

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
    steps = verdict.Steps()
    for line in terminal.splitlines():
        steps.take(line)
    return verdict.judge(code, terminal, debug, post_install.Report(said, NONCE), steps)


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


@pytest.mark.parametrize(
    ("debug", "reason"),
    [
        ("ERROR: ESP missing or multiple ESP found", "exactly one partition {mount: /boot/efi"),
        ("can not determine image arch from filename", "tells no architecture"),
        ("can not install an arm64 image on a x86_64 system", "another architecture"),
        ("tar: ./usr/x: Cannot write: No space left on device\ntar: Error is not recoverable", "was full"),
        ("tar: var/big: Wrote only 4608 of 10240 bytes\ntar: Exiting with failure status", "was full"),
        ("/*stdin*\\ : Read error (39) : premature end", "cannot be unpacked"),
        ("gzip: stdin: unexpected end of file\ntar: Child returned status 1", "cannot be unpacked"),
        ("xz: (stdin): Compressed data is corrupt", "cannot be unpacked"),
        ("tar: This does not look like a tar archive", "cannot be unpacked"),
    ],
)
def test_known_refusals_have_a_fix(debug, reason):
    failure = judged(1, TERMINAL.replace("boot ... done", "boot ... failed"), "# something\n" + debug, "")
    assert reason in failure.reason
    assert "step 3/3 (boot)" in failure.reason
    assert failure.permanent


def test_an_unknown_refusal_says_what_debug_txt_says():
    debug = "# reading\nERROR: the moon is not in the right place\n# cleaning up failed\n"
    failure = judged(1, "Cancelled.\n", debug, "")
    assert failure.reason == (
        "installimage refused its configuration with exit code 1: ERROR: the moon is not in the right place"
    )
    assert failure.permanent
    failure = judged(1, TERMINAL, "grub-install: cannot find a GRUB drive\n", "")
    assert failure.reason.endswith("in step 3/3 (boot) with exit code 1: grub-install: cannot find a GRUB drive")
    assert not failure.permanent
    assert judged(1, "", "", "").reason == "installimage failed with exit code 1"


def test_a_failing_script_counts_although_installimage_does_not_notice():
    failure = judged(said=WELL.replace("scripted", "failed 42 the post-install script"))
    assert failure.reason == "post_install_script failed in the new system with exit code 42"
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
def test_nobody_who_does_not_know_the_word_can_report(text):
    report = post_install.Report("kubenode-post-install " + text, "cafe" * 8)
    assert not report.done
    assert report.host_keys == []


# --- steps


def test_steps_are_told_once_as_they_begin():
    said, told = [], []
    terminal = install.Terminal(said.append, told.append)
    for data in (
        b"\x1b[2J\x1b[1;32m  1/16",
        b" : delete partitions \x1b[60G\x1b[1;36m busy \x1b[0m",
        b"\x1b[60G\x1b[1;32m done \x1b[0m\n 2/16 : extract image \xe2\x80\xa6 \x1b[60G busy",
        b"\x1b[60",
        b"Gfailed\x1b[0m\n\n",
    ):
        terminal.take(data)
    terminal.end()
    assert told == ["installimage 1/16: delete partitions", "installimage 2/16: extract image"]
    assert terminal.steps.failed
    assert said[0].split() == ["1/16", ":", "delete", "partitions", "busy", "done"]
    assert not any("\x1b" in line for line in said)


def test_the_terminal_keeps_the_end_of_a_long_output(monkeypatch):
    monkeypatch.setattr(install, "MOST", 1000)
    terminal = install.Terminal(lambda line: None, lambda text: None)
    terminal.take(b"".join(b"line %d\n" % number for number in range(10000)))
    terminal.end()
    assert len(terminal.text) <= 1000
    assert terminal.text.rstrip().endswith("line 9999")


@given(st.binary())
def test_any_output_can_be_read(data):
    terminal = install.Terminal(lambda line: None, lambda text: None)
    terminal.take(data)
    terminal.end()
    verdict.tail(terminal.text)
    verdict.telling_line(terminal.text)


# --- the script


def scripted(**fields) -> str:
    spec = specs.make(hostname="node-1", **fields)
    return post_install.script(spec, NONCE, "iid-1", {"machine": "node-1"})


def embedded(script: str, path: str) -> str:
    """What a ``put`` of the script writes."""
    found = re.search(r"^ *put \d+ %s <<'END'\n(.*?)\nEND$" % re.escape(path), script, re.S | re.M)
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
