# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that travels, stable names of disks, and the options as a user gives them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import image_file, rescue_program
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import installer as install
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.processes import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.spec import autosetup
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import rescue_programs
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import robot_installimage as action
from tests.folders import put
from tests.unit.disks import recorded
from tests.waiting import until

NAME = "Debian-1200-bookworm-amd64-base.tar.zst"
SHA = "sha256:" + "0" * 64
MIB = 1024 * 1024


def given(**fields) -> dict:
    """Options as the argument spec leaves them."""
    spec = options.robot_installimage_spec()
    values = {name: option.get("default") for name, option in spec.items()}
    return {**values, "image": {"name": NAME}, "root_devices": ["wwn-0x5002538d40aa0001"], **fields}


def examined(find=lambda path: path, **fields):
    return action.examine(given(**fields), "node-1", lambda path: Path(path).read_bytes(), find)


# --- options


def test_an_image_by_name():
    inputs, findings = examined()
    assert findings == []
    assert inputs.spec["image"] == {
        "kind": "name", "location": f"{specs.IMAGES}/{NAME}", "shown": f"{specs.IMAGES}/{NAME}", "file_name": NAME,
        "digest": "",
    }  # fmt: skip
    assert (inputs.spec["hostname"], inputs.local) == ("node-1", None)


def test_an_image_by_url_keeps_its_login_to_itself():
    url = f"https://user:secret@x.example/{NAME}?token=abcdef"
    inputs, findings = examined(image={"url": url, "digest": SHA})
    assert findings == []
    assert inputs.spec["image"]["location"] == url
    assert inputs.spec["image"]["shown"] == f"https://x.example/{NAME}"
    assert inputs.spec["image"]["file_name"] == NAME


def test_an_image_by_url_may_get_another_name():
    inputs, _findings = examined(image={"url": "https://x.example/download/7", "name": NAME, "digest": SHA})
    assert inputs.spec["image"]["file_name"] == NAME


def test_an_image_of_a_registry_has_a_digest_and_a_name():
    for url, more in (
        (f"oci://x.example:5000/a/node@{SHA}", {"name": NAME}),
        ("oci://x.example/node:v1", {"name": NAME, "digest": SHA}),
        (f"oci://x.example/node:v1@{SHA}#file={NAME}&stall=5", {}),
    ):
        inputs, findings = examined(image={"url": url, **more}, oci_registry_auth_token="user:geheim")
        assert findings == []
        image = inputs.spec["image"]
        assert (image["kind"], image["location"], image["file_name"]) == ("oci", url, NAME)
        assert image["shown"] == url.partition("#")[0]
        assert "geheim" not in json.dumps(inputs.spec)
    assert examined(image={"url": "oci://x/node:v1", "name": NAME}, require_digest=False)[1] == []


def test_a_local_image_gets_its_digest(tmp_path):
    (tmp_path / NAME).write_bytes(b"x")
    inputs, findings = examined(image={"file": NAME}, find=lambda path: str(tmp_path / path))
    assert findings == []
    assert inputs.local == tmp_path / NAME
    assert inputs.spec["image"]["digest"] == "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def test_a_local_image_that_is_empty_is_found_on_the_controller(tmp_path):
    (tmp_path / NAME).write_bytes(b"")
    _inputs, findings = examined(image={"file": NAME}, find=lambda path: str(tmp_path / path))
    assert findings == [f'image.file "{NAME}": it is empty; give the image']


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"image": {"url": f"https://x/{NAME}"}}, "image.digest is missing"),
        ({"image": {"url": f"ftp://x/{NAME}", "digest": SHA}}, "use an http, https or oci URL"),
        ({"image": {"url": f"oci://x/{NAME}", "digest": SHA}}, "give oci://REGISTRY/NAME@sha256:…"),
        ({"image": {"url": "oci://x/node", "name": NAME, "digest": SHA}}, "give oci://REGISTRY/NAME@sha256:…"),
        ({"image": {"url": "oci://u:p@x/node:v1", "name": NAME}}, "give it as oci_registry_auth_token"),
        ({"image": {"url": "oci://x/node:v1", "name": NAME}}, "it names no digest"),
        ({"image": {"url": f"oci://x/node@{SHA}"}}, "image.name is missing"),
        ({"image": {"url": f"oci://x/node@{SHA}", "name": "node.tar.gz"}}, "the architecture from the name"),
        ({"image": {"url": f"oci://x/node@{SHA}#layout=x", "name": NAME}}, '"layout" behind the # is not known here'),
        ({"oci_registry_auth_token": "a\nb"}, "oci_registry_auth_token holds a control character"),
        ({"image": {"url": f"https://x/ü/{NAME}", "digest": SHA}}, "percent-encoded"),
        ({"image": {"url": f"https://x/{NAME}#{SHA}", "digest": SHA}}, "what stands behind the # is not read here"),
        ({"image": {"url": "https://x/image", "digest": SHA}}, "unpacks only"),
        ({"image": {"name": f"../{NAME}"}}, "image.path"),
        ({"image": {"path": f"images/{NAME}"}}, "plain path"),
        ({"image": {"path": f"/x y/{NAME}"}}, "plain path"),
        ({"image": {"file": "/nowhere/x.tar"}}, "cannot be read"),
        ({"root_devices": []}, "the list is empty"),
        ({"root_devices": ["sda"]}, "another disk after the next boot"),
        ({"root_devices": ["nvme0n1"]}, "another disk after the next boot"),
        ({"root_devices": ["/dev/sda"]}, "holds a '/'"),
        ({"root_devices": ["wwn-0x1", "wwn-0x1"]}, "named twice"),
        ({"root_devices": ["wwn-0x1 wwn-0x2"]}, "not a device name"),
        ({"bootstrap_data": " "}, "bootstrap_data is empty"),
        ({"bootstrap_data": "x", "bootstrap_data_file": "y"}, "both set"),
        ({"hostname": "a b"}, "hostname"),
    ],
)
def test_what_is_refused_on_the_controller(fields, fix):
    inputs, findings = examined(**fields)
    assert inputs is None
    assert [text for text in findings if fix in text], findings


def test_the_digest_may_be_left_to_the_server_on_request():
    assert examined(image={"url": f"https://x/{NAME}"}, require_digest=False)[1] == []


def test_secrets_are_in_no_finding():
    fields = {"image": {"url": "https://user:geheim@x/i?t=geheim", "digest": "x"}, "crypt_password": "geheim geheim",
              "bootstrap_data": "geheim", "hostname": "-"}  # fmt: skip
    _inputs, findings = examined(**fields)
    assert len(findings) >= 4
    assert "geheim" not in json.dumps(findings)


def test_a_look_ahead_of_time_needs_no_disks():
    fields = given(root_devices=None, swraid=1, swraid_level=10)
    assert action.examine(fields, "n", Path.read_bytes, str, with_disks=False)[1] == []  # type: ignore[arg-type]


# --- what only the rescue knows


CLIENT = """\
import json, os, sys
flag, path, room, output, url = sys.argv[1:]
print("image: found")
if os.environ["OCI_REGISTRY_AUTH_TOKEN"] != "user:geheim":
    sys.exit("HTTP 401 of the registry")
open(path, "wb").write(CONTENT)
print(json.dumps({"flag": flag, "room": int(room) > 0, "url": url}))
"""
PACKED_ZST = b"\x28\xb5\x2f\xfd" + bytes(600)


def pulled(folder: Path, content: bytes = PACKED_ZST, token: str = "user:geheim", digest: str = "") -> dict:
    """Run the program's part that asks a registry, with another client in its place."""
    client = folder / specs.REGISTRY_CLIENT
    client.parent.mkdir()
    client.write_text(CLIENT.replace("CONTENT", repr(content)))
    image = {"url": f"oci://x.example/node@{SHA}", "name": NAME, **({"digest": digest} if digest else {})}
    (folder / specs.WORK / "images").mkdir(parents=True)
    one = rescue_program.Program(spec_for(image=image), str(folder), time.monotonic() + 60, token)
    return {"path": Path(one._image()), "digest": one.result["image_digest"]}


def test_the_client_of_registries_alone_gets_the_token(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OCI_REGISTRY_AUTH_TOKEN", "unused")
    found = pulled(tmp_path)
    assert found["path"] == tmp_path / specs.WORK / "images" / NAME
    assert found["digest"] == image_file.digest_of(found["path"])
    printed = capfd.readouterr()
    assert "image: found" in printed.out
    assert "geheim" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"token": "user:other"}, "HTTP 401 of the registry"),
        ({"digest": SHA}, "its digest is sha256:"),
        ({"content": b"\x1f\x8b" + bytes(600)}, "the image is packed by gzip; let the name end with .tar.gz or .tgz"),
        ({"content": bytes(257) + b"ustar" + bytes(250)}, "the image is packed by tar; let the name end with .tar"),
        ({"content": bytes(510) + b"\x55\xaa"}, "the image is no tar archive"),
    ],
)
def test_what_a_registry_gives_is_looked_at_before_a_disk_is_written(tmp_path, more, reason):
    with pytest.raises(Refused, match=re.escape(reason)):
        pulled(tmp_path, **more)
    assert not (tmp_path / specs.WORK / "images" / NAME).exists()


def test_a_token_in_the_environment_is_gone_when_others_are_started(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OCI_REGISTRY_AUTH_TOKEN", "user:geheim")
    monkeypatch.setattr(rescue_program, "check_command", lambda command: subprocess.run(["env"], check=True))
    monkeypatch.setattr(rescue_program.signal, "signal", lambda number, handler: None)

    def find(wanted, tools):
        raise Refused("no disks")

    monkeypatch.setattr(rescue_program, "find", find)
    (tmp_path / "bootstrap.data").write_bytes(specs.pack(spec_for()))
    assert rescue_program.main(["shown", str(tmp_path / "bootstrap.data")]) == 1
    printed = capfd.readouterr().out
    assert "PATH=" in printed
    assert "geheim" not in printed


def spec_for(**fields) -> dict:
    inputs, findings = examined(**fields)
    assert findings == []
    return inputs.spec


def test_the_rescue_decides_about_the_esp():
    mounts = [part["mount"] for part in rescue_program.check_spec(spec_for(), True, [8192 * MIB], "x86_64").partitions]
    assert mounts == ["/boot/efi", "/boot", "/"]
    without = spec_for(partitions=[{"mount": "/", "filesystem": "ext4", "size": "all"}])
    with pytest.raises(Refused, match="there is no ESP") as caught:
        rescue_program.check_spec(without, True, [8192 * MIB], "x86_64")
    assert caught.value.permanent


@pytest.mark.parametrize(
    ("fields", "uefi", "size", "machine", "reason"),
    [
        ({"uefi": "false"}, True, 8192, "x86_64", "booted in UEFI"),
        ({"uefi": "true"}, False, 8192, "x86_64", "booted in legacy mode"),
        ({}, False, 8192, "aarch64", "the machine is aarch64"),
        ({}, False, 2048, "x86_64", "MiB are left for /"),
    ],
)
def test_what_does_not_fit_the_machine(fields, uefi, size, machine, reason):
    with pytest.raises(Refused, match=reason):
        rescue_program.check_spec(spec_for(**fields), uefi, [size * MIB], machine)


# --- disks that are not installed on


LVM = {
    "partitions": [{"mount": "/boot", "filesystem": "ext4", "size": "1G"},
                   {"mount": "lvm", "filesystem": "vg0", "size": "all"}],
    "logical_volumes": [{"vg": "vg0", "name": "root", "mount": "/", "filesystem": "ext4", "size": "all"}],
}  # fmt: skip


def kept(monkeypatch, pvs: dict, chosen=("sda",), targets=(), lvm2=True, **fields) -> list:
    """What check_disks says of blank disks and others with physical volumes: device → name of its group."""
    content = recorded.content("LVM2_member", "raid", "x")
    disks = {letter: recorded.sata(letter) for letter in "abcd"}
    known = {"pvs": recorded.report("pv", *[{"pv_name": f"/dev/{one}", "vg_name": vg} for one, vg in pvs.items()])}
    blkid = {f"sd{letter}": content if f"sd{letter}" in pvs else recorded.FREE for letter in disks}
    blank = dict.fromkeys(blkid, False)
    raw = disk_facts.Raw(recorded.lsblk(*disks.values()), blkid=blkid, edges=blank, **(known if lvm2 else {}))
    monkeypatch.setattr(rescue_program.disk_gather, "read", lambda tools, health: raw)
    layout = specs.layout_of(spec_for(**fields), False)
    found = {disk["name"]: disk for disk in disk_facts.facts(raw)}
    return rescue_program.check_disks([found[name] for name in chosen], None, layout, [found[name] for name in targets])


def test_a_layout_without_lvm_leaves_all_groups_alone(monkeypatch):
    assert kept(monkeypatch, {"sdb": "topolvm", "sdc": ""}) == []
    assert kept(monkeypatch, {"sdb": "topolvm"}, lvm2=False) == []


def test_a_layout_with_lvm_keeps_the_groups_of_other_disks(monkeypatch):
    assert kept(monkeypatch, {}, **LVM) == []
    assert kept(monkeypatch, {"sdb": "topo.lvm", "sdc": "a+b", "sdd": "a+b"}, **LVM) == ["a+b", "topo.lvm"]
    # what goes is not kept
    assert kept(monkeypatch, {"sda": "old", "sdb": "topolvm"}, targets=["sda"], **LVM) == ["topolvm"]
    assert kept(monkeypatch, {"sda": "", "sdb": ""}, targets=["sda", "sdb"], **LVM) == []


@pytest.mark.parametrize(
    ("pvs", "targets", "lvm2", "reason"),
    [
        ({"sdb": ""}, (), True, "/dev/sdb is a physical volume of no volume group, and would be erased"),
        ({"sda": "data", "sdb": "data"}, ["sda"], True, "volume group data lies on sda, sdb, and not all of them"),
        ({"sdb": "vg0"}, (), True, "the new volume group vg0 is called like vg0"),
        ({"sdb": "myvg01"}, (), True, "the new volume group vg0 is called like myvg01"),
        ({"sdb": "a|b"}, (), True, "has a name that no expression"),
        ({"sdb": "data"}, (), False, "lvm2 is not in this rescue"),
    ],
)
def test_groups_that_a_layout_with_lvm_cannot_keep_are_refused(monkeypatch, pvs, targets, lvm2, reason):
    with pytest.raises(Refused, match=re.escape(reason)) as caught:
        kept(monkeypatch, pvs, targets=targets, lvm2=lvm2, **LVM)
    assert caught.value.permanent
    assert "Nothing was written" in str(caught.value)


def test_a_chosen_disk_with_content_is_refused_with_any_layout(monkeypatch):
    for fields in ({}, LVM):
        with pytest.raises(Refused, match=r"root_devices: sda .* is not empty"):
            kept(monkeypatch, {"sda": "old"}, **fields)


def test_the_kept_groups_are_bound_by_name_in_the_configuration():
    spec = spec_for(**LVM)
    layout = specs.layout_of(spec, False)
    lines = autosetup(spec, layout, ["/dev/sda"], "/x.tar", kept=["a+b", "topo.lvm"]).splitlines()
    (line,) = [line for line in lines if line.startswith("PRESERVE_VG")]
    pattern = line.split()[1]
    for name, there in {
        "a+b": True,
        "topo.lvm": True,
        "aab": False,
        "topoxlvm": False,
        "xa+b": False,
        "": False,
    }.items():
        code = subprocess.run(["bash", "-c", '[[ "$1" =~ $2 ]]', "bash", name, pattern], check=False).returncode
        assert (code == 0) == there, name
    assert "PRESERVE_VG" not in autosetup(spec, layout, ["/dev/sda"], "/x.tar")


# --- the program


def test_the_program_is_the_same_bytes_every_time():
    assert rescue_programs.installimage() == rescue_programs.installimage()
    assert rescue_programs.installimage().startswith(b"#!/usr/bin/python3\nPK")


def run_program(folder: Path, spec: dict) -> tuple[int, dict, str]:
    path = put(folder / "image-url-command", rescue_programs.installimage(), 0o700)
    data = put(folder / "bootstrap.data", specs.pack(spec))
    done = subprocess.run([path, "shown", data, "node-1", "wwn-0x1"], capture_output=True, text=True, check=False)
    found = re.search(rf"^{rescue_program.RESULT}(.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return done.returncode, json.loads(found[1]), done.stdout


def test_the_program_runs_alone_and_says_what_is_wrong(tmp_path):
    code, result, printed = run_program(tmp_path, spec_for(command="/nowhere/installimage"))
    assert code == 1
    assert "there is no program /nowhere/installimage" in result["reason"]
    assert (result["ok"], result["began"], result["permanent"]) == (False, False, True)
    assert rescue_program.MARKER not in printed


DISK = {"name": "sda", "path": "/dev/sda", "size": 9 << 30}
OTHER_NAME = {**DISK, "name": "sdb", "path": "/dev/sdb"}


def installing(tmp_path: Path, monkeypatch, found: list, looks: list) -> tuple[rescue_program.Program, list]:
    """A program, and what it did; what it finds and sees on its disk before the image came, and each time after."""
    done: list = []

    def look(*_given):
        seen = looks.pop(0)
        if isinstance(seen, Exception):
            raise seen
        return seen

    def wipe(_tools, names):
        done.append(["emptied", *names])
        return []

    monkeypatch.setattr(rescue_program, "check_command", lambda path: None)
    monkeypatch.setattr(rescue_program, "is_uefi", lambda: False)
    monkeypatch.setattr(rescue_program.disk_gather, "identities", lambda tools: None)
    monkeypatch.setattr(rescue_program.disk_names, "resolve", lambda names, disks: [found.pop(0)])
    monkeypatch.setattr(rescue_program, "check_disks", look)
    monkeypatch.setattr(rescue_program, "kill_below", lambda path: None)
    monkeypatch.setattr(rescue_program.wiping, "wipe", wipe)
    monkeypatch.setattr(rescue_program.Program, "_image", lambda self: "/image")
    monkeypatch.setattr(rescue_program.Program, "_prepare", lambda self, layout, image, nonce: "config")
    monkeypatch.setattr(rescue_program.Program, "_install", lambda self, config, nonce: done.append("installed"))
    spec = spec_for(image={"path": str(put(tmp_path / NAME, "an image"))})
    return rescue_program.Program(spec, str(tmp_path), time.monotonic() + 600), done


def test_the_disks_are_looked_at_again_when_the_image_has_come(tmp_path, monkeypatch):
    one, done = installing(tmp_path, monkeypatch, [DISK, DISK], [[], []])
    one.run()
    assert (done, one.result["ok"]) == (["installed"], True)


def test_a_check_refuses_what_a_run_would_and_changes_nothing(tmp_path, monkeypatch):
    one, done = installing(tmp_path, monkeypatch, [DISK], [[]])
    before = sorted(tmp_path.rglob("*"))
    one.check()
    assert (done, one.result["began"], sorted(tmp_path.rglob("*"))) == ([], False, before)
    one, done = installing(tmp_path, monkeypatch, [DISK, DISK], [[], []])
    (tmp_path / NAME).unlink()
    for ask in (one.check, one.run):
        with pytest.raises(Refused, match=rf"image.path: there is no file {tmp_path}/{NAME} in the rescue;"):
            ask()
    assert (done, one.result["began"]) == ([], False)


@pytest.mark.parametrize(
    ("later", "look", "reason"),
    [
        (DISK, Refused("root_devices: sda is not empty"), "sda is not empty"),
        (DISK, ["topolvm"], "the volume groups of the other disks have changed"),
        (OTHER_NAME, [], "the disks are called /dev/sdb by now, and were /dev/sda. Nothing was written"),
    ],
)
def test_disks_that_changed_while_the_image_came_are_not_written(tmp_path, monkeypatch, later, look, reason):
    one, done = installing(tmp_path, monkeypatch, [DISK, later], [[], look])
    with pytest.raises(Refused, match=reason):
        one.run()
    assert (done, one.result["began"]) == ([], False)


def test_after_a_failure_the_disks_are_emptied_by_what_they_are_called_by_then(tmp_path, monkeypatch):
    one, done = installing(tmp_path, monkeypatch, [OTHER_NAME], [])
    one._disks, one._drives, one.result["began"] = [DISK], [DISK["path"]], True
    one.fail("a disk was away for a moment", False)
    assert (done, one.result["blanked"]) == ([["emptied", "sdb"]], True)


TARGET = {**DISK, "serial": "s1", "wwn": "w1", "model": "", "content_id": "old"}
SECOND = {**OTHER_NAME, "serial": "s2", "wwn": "w2"}


@pytest.mark.parametrize(
    ("held", "looks", "emptied"),
    [
        ("old", [[], [], Refused("root_devices: sdb is not empty")], [["emptied", "sda"]] * 2),
        ("new", [[], []], []),
    ],
)
def test_a_failure_while_disks_are_emptied_erases_only_those_of_the_word(tmp_path, monkeypatch, held, looks, emptied):
    """A user puts something on the second disk, or on the first one, before installimage has begun."""
    one, done = installing(tmp_path, monkeypatch, [], looks)
    chosen = {"wwn-0x1": DISK, "wwn-0x2": SECOND}
    monkeypatch.setattr(rescue_program.disk_names, "resolve", lambda names, disks: [chosen[name] for name in names])
    monkeypatch.setattr(rescue_program.disk_gather, "read", lambda tools, health: None)
    monkeypatch.setattr(rescue_program.disk_facts, "facts", lambda raw: [{**TARGET, "content_id": held}, SECOND])
    one._spec["devices"] = list(chosen)
    monkeypatch.setattr(one, "_targets", lambda: [TARGET])
    with pytest.raises(Refused) as refused:
        one.run()
    one.fail(str(refused.value), False)
    assert (done, one.result["began"], one.result["installing"]) == (emptied, bool(emptied), False)


GOOD = {"tail": [], "permanent": True, "began": False, "drives": [], "image_digest": "", "host_keys": ["k"],
        "unlock_host_keys": [], "warnings": [], "reason": "x"}  # fmt: skip


def test_the_last_word_of_the_program_is_read():
    said = f"noise\n{rescue_program.RESULT}{json.dumps(GOOD)}\n{rescue_program.MARKER}\n"
    assert action._outcome(said.encode()) == {"blanked": None, "uefi": None, **GOOD}


@pytest.mark.parametrize(
    ("outcome", "changed", "wrote"),
    [
        (None, True, True),
        ({"began": False, "blanked": None, "installing": False}, False, False),
        ({"began": True, "blanked": True, "installing": False}, True, False),
        ({"began": True, "blanked": False, "installing": False}, True, True),
        ({"began": True, "blanked": True, "installing": True}, True, True),
        # of a program that an earlier version of ours has started
        ({"began": True, "blanked": True}, True, True),
    ],
)
def test_the_next_run_writes_without_asking_only_what_installimage_may_have_written(outcome, changed, wrote):
    one = object.__new__(action._Run)
    one.outcome = outcome
    assert (one._touched(), one.wrote()) == (changed, wrote)


def test_what_an_image_prints_is_no_result(capsys):
    rescue_program.say_of_others(rescue_program.RESULT + json.dumps({**GOOD, "reason": "nothing was written"}))
    rescue_program.say_of_others("busy")
    said = capsys.readouterr().out
    assert said.endswith("\nbusy\n")
    assert action._outcome(said.encode()) is None
    for inside in "\v\f\x1c\x85\u2028":  # a terminal stays on its line, and Python's splitlines() does not
        rescue_program.say_of_others(inside + rescue_program.RESULT + json.dumps(GOOD))
    assert action._outcome(capsys.readouterr().out.encode()) is None


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "null", "[" * 100000, json.dumps({**GOOD, "tail": "x"}), json.dumps({**GOOD, "reason": None}),
     json.dumps({**GOOD, "permanent": 1})],
)  # fmt: skip
def test_nonsense_is_no_outcome(line):
    assert action._outcome((rescue_program.RESULT + line).encode()) is None
    assert action._outcome(line.encode()) is None


# --- installimage as a process


def installed(tmp_path: Path, script: str, over=lambda text: False) -> tuple[int | None, str]:
    """Run a program in place of installimage, until the time is ``over``."""
    path = put(tmp_path / "installimage", "#!/bin/sh\n" + script, 0o755)
    terminal = install.Terminal(lambda line: None, lambda text: None)
    installer = install.Installer(str(path), "config", "hook", terminal)
    began = time.monotonic()
    code = installer.run(1e9, lambda: 2e9 if over(terminal.text) else time.monotonic() - began)
    return code, terminal.text


def test_it_gets_its_arguments_an_answer_and_no_terminal(tmp_path):
    script = 'read -r answer; echo "$*; $answer; $TERM; rest=$(cat)"; [ ! -t 1 ] || echo tty; exit 7'
    code, text = installed(tmp_path, script)
    assert (code, text.strip()) == (7, "-a -c config -x hook; x; xterm; rest=")


def test_it_is_killed_at_its_limit_with_its_children(tmp_path):
    script = f"sleep 600 & echo $! >{tmp_path}/child; echo begun; wait"
    code, text = installed(tmp_path, script, over=lambda text: "begun" in text)
    assert (code, text.strip()) == (None, "begun")
    status = Path("/proc", (tmp_path / "child").read_text().strip(), "status")
    until(lambda: not status.exists() or "State:\tZ" in status.read_text(), "the end of the child")


def test_a_child_that_keeps_the_output_open_does_not_hold_it_up(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "LINGER", 0.2)
    assert installed(tmp_path, "sleep 600 & echo done")[0] == 0


def test_one_that_reads_nothing_or_dies_by_a_signal(tmp_path):
    assert installed(tmp_path, "exec <&-; exit 0")[0] == 0
    assert installed(tmp_path, "kill -9 $$")[0] == 137
    os.unlink(tmp_path / "installimage")
    terminal = install.Terminal(lambda line: None, lambda text: None)
    assert install.Installer(str(tmp_path / "none"), "c", "h", terminal).run(1e9) == 127
