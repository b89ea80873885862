# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root file system of packages: the options of mmdebstrap, what is refused, what makes another one."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import debian_root
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.tree import NotPacked
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_image import builds as images

PLAIN = {
    "path": "metal.tar.zst",
    "suite": "trixie",
    "architecture": "amd64",
    "mirrors": [],
    "include": [],
    "kernel": None,
    "keyring": None,
    "apt_options": [],
    "timeout": 60,
    "force": False,
}


def test_the_kernel_and_the_boot_loaders_are_those_of_the_architecture():
    amd64, arm64 = (debian_root.packages({**PLAIN, "architecture": one}) for one in ("amd64", "arm64"))
    assert {"linux-image-amd64", "grub-pc-bin", "grub-efi-amd64-bin"} < set(amd64)
    assert {"linux-image-arm64", "grub-efi-arm64-bin"} < set(arm64)
    assert not [one for one in arm64 if "amd64" in one or one == "grub-pc-bin"]
    assert "apparmor" in amd64  # base wants it, and there may be no network then
    cloud = debian_root.packages({**PLAIN, "kernel": "linux-image-cloud-amd64"})
    assert [one for one in cloud if one.startswith("linux-image")] == ["linux-image-cloud-amd64"]


def test_the_arguments():
    options = {**PLAIN, "mirrors": ["http://mirror.example/debian"], "include": ["nvme-cli"], "keyring": "/k.gpg"}
    words = debian_root.command({**options, "apt_options": ['Acquire::Retries "3";']}, "/t.tar.zst")
    end = words.index("--")
    assert words[end:] == ["--", "trixie", "/t.tar.zst", "http://mirror.example/debian"]
    assert {"--keyring=/k.gpg", '--aptopt=Acquire::Retries "3";', "--format=tar", "--variant=apt"} < set(words[:end])
    (include,) = [word for word in words if word.startswith("--include=")]
    assert "nvme-cli" in include.partition("=")[2].split(",")


def test_the_scripts_write_the_files_and_take_away_what_is_one_hosts(tmp_path):
    for folder in ("etc/ssh", "etc/apt/apt.conf.d", "etc/cloud/cloud.cfg.d", "etc/systemd/network", "etc/default"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/ssh/ssh_host_rsa_key").touch()
    (tmp_path / "etc/hostname").symlink_to(tmp_path / "of-the-host")
    for hook in debian_root.HOOKS:
        if "chroot" not in hook:
            subprocess.run(["sh", "-ec", hook, "sh", tmp_path], check=True)
    assert not list((tmp_path / "etc/ssh").iterdir())
    assert not (tmp_path / "of-the-host").exists()
    assert {path: Path(f"{tmp_path}{path}").read_text() for path in debian_root.FILES} == debian_root.FILES
    assert (tmp_path / "boot/grub").is_dir(), "installimage makes the configuration there before it installs GRUB"
    assert {"/etc/default/grub", "/etc/kernel-img.conf"} < set(debian_root.FILES)
    grub = debian_root.FILES["/etc/default/grub"].splitlines()
    assert "GRUB_TERMINAL=console" in grub, "GRUB's graphical terminal hangs on a server without a graphics card"
    settings = yaml.safe_load(debian_root.FILES["/etc/cloud/cloud.cfg.d/90-node-image.cfg"])
    assert (settings["disable_root"], settings["locale"], settings["datasource_list"][-1]) == (False, False, "None")


def test_an_archive_has_no_host_keys_of_an_initramfs(tmp_path):
    with_server = {**PLAIN, "include": ["dropbear-initramfs"]}
    more = [hook for hook in debian_root.hooks(with_server) if hook not in debian_root.hooks(PLAIN)]
    (tmp_path / "etc/dropbear/initramfs").mkdir(parents=True)
    (tmp_path / "etc/dropbear/initramfs/dropbear_rsa_host_key").touch()
    assert [hook for hook in more if "chroot" in hook] == more[1:], "a new initramfs, as the old one has them, too"
    subprocess.run(["sh", "-ec", more[0], "sh", tmp_path], check=True)
    assert not list((tmp_path / "etc/dropbear/initramfs").iterdir())


#: Each with the words that the finding must have.
WRONG = {
    "suffix": ({"path": "metal.zip"}, "path 'metal.zip'"),
    "suite": ({"suite": "--simulate"}, "suite '--simulate'"),
    "two packages in one": ({"include": ["a,b"]}, "include 'a,b'"),
    "option for a package": ({"include": ["-y"]}, "include '-y'"),
    "kernel": ({"kernel": "linux; reboot"}, "kernel 'linux; reboot'"),
    "mirror": ({"mirrors": ["--hook=reboot"]}, "mirrors '--hook=reboot'"),
    "lines": ({"mirrors": ["deb http://a.example x main\ndeb http://b.example x main"]}, "mirrors 'deb"),
    "setting without an end": ({"apt_options": ['Acquire::Retries "3"']}, "ends with a semicolon"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_work_is_refused(what):
    change, words = WRONG[what]
    (finding,) = debian_root.findings({**PLAIN, **change})
    assert words in finding


@pytest.mark.parametrize("field", ["mirrors", "apt_options"])
def test_a_login_is_refused_and_not_shown(field):
    text = {
        "mirrors": "https://me:hunter2@mirror.example/d",
        "apt_options": 'Acquire::http::Proxy "http://me:hunter2@p";',
    }
    (finding,) = debian_root.findings({**PLAIN, field: [text[field]]})
    assert finding.startswith(f"{field}: a login")
    assert "hunter2" not in finding


@given(st.text(max_size=20), st.sampled_from(["suite", "kernel", "include", "mirrors"]))
def test_no_text_becomes_an_option_of_its_own(text, field):
    options = {**PLAIN, field: [text] if field in ("include", "mirrors") else text}
    if debian_root.findings(options):
        return
    words = debian_root.command(options, "/t.tar.zst")
    end = words.index("--")
    assert len(words) == end + 3 + len(options["mirrors"])
    hooks = [f"--customize-hook={hook}" for hook in debian_root.HOOKS]
    assert all("\n" not in word for word in words if word not in hooks)
    assert len(words[:end]) == len(debian_root.command(PLAIN, "/t.tar.zst")) - 3


def test_how_it_is_fetched_does_not_decide_what_it_is():
    same = [{"keyring": "/k"}, {"apt_options": ["A::B 1;"]}, {"path": "other.tar.xz"}, {"force": True}]
    other = [{"suite": "bookworm"}, {"include": ["jq"]}, {"mirrors": ["http://a.example/d"]}, {"architecture": "arm64"}]
    assert {debian_root.options_digest({**PLAIN, **change}) for change in same} == {debian_root.options_digest(PLAIN)}
    assert len({debian_root.options_digest({**PLAIN, **change}) for change in [{}, *other]}) == 5


class Tool:
    """A stand-in for the host's tools: mmdebstrap writes the given content."""

    def __init__(self, content=b"archive", code=0, err=""):
        self.content, self.code, self.err, self.calls = content, code, err, 0

    def has(self, name):
        return name == "mmdebstrap"

    def __call__(self, _name, *words, limit):
        self.calls += 1
        target = words[words.index("--") + 2]
        if self.content is not None:
            with open(target, "wb") as file:
                file.write(self.content)
        return self.code, "", self.err


def test_it_is_made_once_and_again_when_forced_changed_or_damaged(tmp_path):
    path, tool = tmp_path / "new/metal.tar.zst", Tool()
    options = {**PLAIN, "path": str(path)}
    assert debian_root.run(options, tool, check_mode=True)["changed"]
    assert not path.parent.exists()
    made = debian_root.run(options, tool)
    assert made["changed"]
    assert made["sha256"] == hashlib.sha256(b"archive").hexdigest()
    again = debian_root.run(options, tool)
    assert (again["changed"], again["sha256"], tool.calls) == (False, made["sha256"], 1)
    assert sorted(one.name for one in path.parent.iterdir()) == ["metal.tar.zst", "metal.tar.zst.json"]
    assert debian_root.run({**options, "force": True}, tool)["changed"]
    assert debian_root.run({**options, "include": ["jq"]}, tool)["changed"]
    for damaged in (b"cut", b"Archive"):
        path.write_bytes(damaged)
        assert debian_root.run({**options, "include": ["jq"]}, tool)["changed"]
    path.with_name("metal.tar.zst.json").write_text("[")
    assert debian_root.run({**options, "include": ["jq"]}, tool)["changed"]
    assert tool.calls == 6


def test_a_failure_leaves_the_old_archive_and_says_why(tmp_path):
    path = tmp_path / "metal.tar.zst"
    options = {**PLAIN, "path": str(path)}
    debian_root.run(options, Tool())
    errors = "I: running\nE: Unable to locate package nosuch\x1b[31m\nW: later\n"
    with pytest.raises(NotPacked, match="Unable to locate package nosuch") as caught:
        debian_root.run({**options, "include": ["nosuch"]}, Tool(b"half", 25, errors))
    assert "\x1b" not in str(caught.value)
    assert path.read_bytes() == b"archive"
    assert not debian_root.run(options, Tool())["changed"]
    assert not list(tmp_path.glob(".partial*"))


def test_bad_options_are_reported_before_the_program_is_looked_for(tmp_path):
    with pytest.raises(NotPacked, match="- suite 'X'"):
        debian_root.run({**PLAIN, "suite": "X", "path": str(tmp_path / "a.tar")}, None)


def build(base, **matrix):
    inputs = {"matrix": {"kubernetes": ["1.36.4"], "base": [base], **matrix}, "server_types": {"x86": "a", "arm": "b"}}
    return images.builds({**inputs, "owner": "me", "cache_dir": "/cache", "variables": {}})


def test_builds_of_one_base_share_its_root_file_system():
    base = {"name": "metal", "packages": {"suite": "trixie", "include": ["jq"]}}
    found = build(base, kubernetes=["1.35.8", "1.36.4"], architecture=["x86", "arm"])
    roots = [json.dumps(one["debian"]) for one in found]
    assert len(set(roots)) == 2
    assert [one["debian"]["architecture"] for one in found] == ["amd64", "arm64"] * 2
    assert {one["command"] for one in found} == {"image-url-command-rootfs-tar"}
    assert {one["kind"] for one in found} == {"write"}
    assert all(one["source"] == {**one["source"], "path": one["debian"]["path"], "kind": "root"} for one in found)
    assert all(one["debian"]["path"].startswith("/cache/debian-") for one in found)
    assert len({one["digest"] for one in found}) == 4
    (other,) = build({"name": "metal", "packages": {"suite": "trixie"}})
    (fetched,) = build({"name": "metal", "packages": {"suite": "trixie", "apt_options": ["A::B 1;"]}})
    assert other["digest"] == fetched["digest"] != found[2]["digest"]


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ({"packages": "trixie"}, "packages: a dictionary is needed"),
        ({"packages": {"include": ["jq"]}}, "packages: suite is missing"),
        ({"packages": {"suite": "trixie", "releases": 1}}, "unknown key releases; there are apt_options, include"),
        ({"packages": {"suite": "trixie", "include": "jq"}}, "packages: include: a list of texts"),
        ({"packages": {"suite": 13}}, "packages: suite 13: a text is needed"),
        ({"packages": {"suite": "trixie", "include": ["-o"]}}, "packages.include '-o': this is no name of a package"),
        ({"packages": {"suite": "trixie"}, "image": "debian-13"}, "image and packages exclude each other"),
        ({"packages": {"suite": "trixie"}, "command": "image-url-command-x"}, "command needs image_url"),
    ],
)
def test_a_base_that_cannot_work_is_refused(base, words):
    with pytest.raises(images.BuildsNotUsable) as caught:
        build({"name": "metal", **base})
    assert words in str(caught.value)
