# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image URL that a shipped command can never take is refused on the controller, in the words of the command."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import Progress
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import rescue_programs
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.image_inputs import examine
from tests.folders import put

OCI, RAW, TAR = "image-url-command-oci", "image-url-command-raw-disk", "image-url-command-rootfs-tar"
HEX = "ab" * 32
IMAGECOMMAND = "ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand."


def findings(url: str, command: str, folder: Path | str = "/nowhere/at/all", **more: object) -> list[str]:
    """What the check of the whole fleet, and the step itself, say about a machine."""
    spec = {"name": "node-1", "image_url": url, "command": command, "root_devices": ["sda"], **more}
    return examine(spec, str(folder), lambda path: b"")[1]


def refusal(url: str, command: str) -> str:
    """Why the command itself refuses the URL in a rescue; empty when it goes on to its other arguments."""
    install = importlib.import_module(IMAGECOMMAND + rescue_programs.IMAGE_COMMANDS[command]).install
    with pytest.raises(Refused) as caught:
        install(url, "/nowhere/at/all", "node-1", "sda", Progress(Path("/nowhere/output.json")), "")
    return "" if str(caught.value).startswith("bootstrap data: /nowhere/at/all") else str(caught.value)


#: what raw-disk and rootfs-tar never take, and a piece of the reason
OF_FILES = [
    ("ftp://files.example/d.raw.zst", "scheme 'ftp' is not supported; use http, https or file"),
    ("custom://files.example/d.raw.zst", "scheme 'custom' is not supported; use http, https or file"),
    ("oci://r.example/a:v1", "scheme 'oci' is not supported; use http, https or file"),
    ("/srv/d.raw", "scheme '' is not supported; use http, https or file"),
    ("*", "scheme '' is not supported; use http, https or file"),
    ("http:/images.example/d.raw.zst", "the host is missing; write http://HOST/PATH"),
    ("https:images.example/d.raw.zst", "the host is missing; write https://HOST/PATH"),
    ("https:///d.raw.zst", "the host is missing; write https://HOST/PATH"),
    ("https://images.example/", "the path of the image is missing; correct the URL"),
    ("https://images.example:0/d.raw", "no server has the port 0; correct the URL"),
    ("https://images.example:65536/d.raw", "its address or its port is none; correct the URL"),
    ("https://images.example/d raw", "must be percent-encoded; correct the URL"),
    ("https://images.example/d\u00e4.raw", "must be percent-encoded; correct the URL"),
    (
        "http://images.example/debian.raw.zst#sha256=aa",
        "cannot take it: sha256=aa is not 64 hex digits; correct the URL",
    ),
    (f"http://images.example/d.raw#sha512={HEX}", f"sha512={HEX} is not 128 hex digits; correct the URL"),
    ("http://images.example/d.raw#sha256=", "sha256= is not 64 hex digits; correct the URL"),
    (f"http://images.example/d.raw#sha256={HEX}&sha512={HEX * 2}", "give sha256 or sha512, not both"),
    (f"http://images.example/d.raw#{HEX}", "a switch behind the # is unknown; known are sha256, sha512, "),
    ("http://images.example/d.raw#sha265=aa", "the switch 'sha265' behind the # is unknown; known are sha256, "),
    (f"http://images.example/d.raw#SHA256={HEX}", "the switch 'SHA256' behind the # is unknown; known are sha256, "),
    (
        "http://images.example/d.raw#keys=no&sha256=…",
        "cannot take it: sha256=… stands for a digest; write its hex digits instead of …",
    ),
    ("http://images.example/d.raw#keys=no&keys=no", "the switch 'keys' behind the # is given twice; correct the URL"),
    ("http://images.example/d.raw#keys=never", "keys=never is neither yes nor no; correct the URL"),
    ("http://images.example/d.raw#stall=0", "stall=0 is not a number of seconds from 1 to 9999; correct the URL"),
    ("http://images.example/d.raw#plain-http=yes", "the switch 'plain-http' behind the # is unknown; known are "),
]
OF_LAYOUTS = [
    ("layout=/:zfs", "layout=: /: 'zfs' is none of ext4, xfs, btrfs; correct the URL"),
    ("layout=/boot:ext4:1G", "layout=: the root / is missing; add /:ext4"),
    ("layout=/:ext4,/var:ext4", "layout=: only the last partition can take the rest; give the others a size"),
    ("layout=/:ext4:1M", "layout=: /: ext4 needs at least 16M; correct the URL"),
    ("layout=/:ext4:x%0Ay", "layout=: /: 'x\\ny' is no size such as 512M or 20G; correct the URL"),
]
OF_REGISTRIES = [
    ("https://r.example/a:v1", "not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case"),
    ("oci:/r.example/a:v1", "not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case"),
    ("OCI://r.example/a:v1", "not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case"),
    ("oci://r.example/A:v1", "not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case"),
    ("oci://r.example/a@sha256:aa", "not oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:…, in lower case"),
    ("oci://r.example/a@sha256:…", "cannot take it: sha256:… stands for a digest; write its hex digits instead of …"),
    ("oci://r.example/a", "it names neither a tag nor a digest; add :TAG or @sha256:…"),
    ("oci://r.example:0/a:v1", "no registry has the port 0; correct the URL"),
    ("oci://r.example:65536/a:v1", "no registry has the port 65536; correct the URL"),
    ("oci://me:s3cret-pw@r.example/a:v1", "a login in it would be seen by many; give it as OCI_REGISTRY_AUTH_TOKEN"),
    ("oci://r.example/a:v1?x=y", "not oci://REGISTRY/NAME:TAG"),
    (f"oci://r.example/a:v1#sha256={HEX}", "the switch 'sha256' behind the # is unknown; known are keys, "),
    ("oci://r.example/a:v1#plain-http=1", "plain-http=1 is neither yes nor no; correct the URL"),
    ("oci://r.example/a:v1#cosign-key=x", "cosign-key= is not the base64 lines of a cosign.pub; correct the URL"),
    ("oci://r.example/a:v1#layout=/:ext4&grow=no", "layout= is for a root file system and grow= for a raw image; "),
]
NEVER = [
    *((command, url, why) for command in (RAW, TAR) for url, why in OF_FILES),
    (RAW, "http://images.example/d.raw#layout=/:ext4", "the switch 'layout' behind the # is unknown; known are "),
    (RAW, "http://images.example/d.raw#adapt=maybe", "adapt=maybe is neither yes nor no; correct the URL"),
    (RAW, "http://images.example/d.raw#grow=", "grow= is neither yes nor no; correct the URL"),
    (TAR, "http://images.example/d.tar#grow=no", "the switch 'grow' behind the # is unknown; known are "),
    (TAR, "http://images.example/d.tar#adapt=no", "the switch 'adapt' behind the # is unknown; known are "),
    *((TAR, f"http://images.example/d.tar#{switch}", why) for switch, why in OF_LAYOUTS),
    *((OCI, f"oci://r.example/a:v1#{switch}", why) for switch, why in OF_LAYOUTS),
    *((OCI, url, why) for url, why in OF_REGISTRIES),
]
TAKEN = [
    *((command, url) for command in (RAW, TAR) for url in (
        "https://images.example/d.zst",
        "HTTPS://me:s3cret@images.example:8443/d.lz4?sig=s3cret",
        "http://[2001:db8::1]:81/d",
        "file:///srv/d#sha256=none",
        f"http://images.example/d#sha256={HEX.upper()}&keys=no&stall=9999",
        f"http://images.example/d#sha512={HEX * 2}",
    )),
    (RAW, "http://images.example/d.raw#adapt=no&grow=no"),
    (TAR, "http://images.example/d.tar#layout=/boot:ext4:1G,swap:4G,/:xfs"),
    (OCI, "oci://r.example/a/b:v1"),
    (OCI, f"oci://[::1]:5000/a:v1@sha256:{HEX}#plain-http=yes&keys=no&stall=5&file=a.raw&grow=no"),
    (OCI, "oci://docker.io/debian:13#layout=/:ext4"),
    (OCI, f"oci://r.example/a:v1#cosign-key={'A' * 60}"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "url", "why"), NEVER)
def test_what_a_shipped_command_never_takes_is_one_finding(command, url, why):
    (said,) = findings(url, command)
    shown = image_url.redact(url)
    assert said.startswith(f'image_url "{shown}": {command} cannot take it: ')
    assert why in said
    assert refusal(url, command)
    assert "s3cret" not in said
    assert said.isprintable()


@pytest.mark.parametrize(("command", "url"), TAKEN)
def test_what_a_shipped_command_may_take_is_no_finding(command, url):
    assert findings(url, command) == []
    assert refusal(url, command) == ""


PIECES = st.lists(
    st.sampled_from([
        "http", "https", "oci", "file", "ftp", ":", "//", "/", "@", "h.example", "[::1]", "a", "d.raw.zst", ":5000",
        ":0", ":v1", "@sha256:", "#", "&", "?", "=", HEX, "sha256=", "sha512=", "none", "grow=", "keys=", "adapt=",
        "no", "layout=", "/:ext4", ",", "stall=", "9", "%41", "%0A", "%", " ", "cosign-key=", "plain-http=", "file=",
    ]),
    max_size=14,
)  # fmt: skip
PLACES = st.sampled_from(["", "http://h.example/d", "https://h.example/d#", "oci://r.example/a:v1", "oci://r.example/"])


@pytest.mark.parametrize("command", rescue_programs.IMAGE_COMMANDS)
@given(place=PLACES, pieces=PIECES)
def test_the_controller_refuses_exactly_what_a_shipped_command_refuses(command, place, pieces):
    url = place + "".join(pieces)
    try:
        image_url.check_image_url(url)
    except image_url.InvalidImageURL:
        return  # refused before the command is asked
    assert len(findings(url, command)) == bool(refusal(url, command))


@pytest.mark.parametrize("command", rescue_programs.IMAGE_COMMANDS)
def test_a_controller_that_cannot_load_a_command_refuses_no_url(monkeypatch, command):
    monkeypatch.setitem(sys.modules, IMAGECOMMAND + rescue_programs.IMAGE_COMMANDS[command], None)
    assert findings(URL, command) == []


def test_what_is_no_url_is_said_once():
    (said,) = findings("http://u:s3cret-pw@x:y/a#sha256=aa", RAW)
    assert said == 'image_url "http://x:y/a": the port after the host is not a number'


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:s3cret-pw@files.example/d?sig=s3cret-sig",
        "https://h.example/d?sig=s3cret-begin#S3cret/s3cret-end",
        "https://h.example/d?sig=s3cret-sig#grow=s3cret-sig",
        "oci://me:pw#s3cret@r.example/a:v1",
    ],
)
def test_no_secret_of_a_url_is_shown(url):
    for command in rescue_programs.IMAGE_COMMANDS:
        for said in findings(url, command):
            assert "s3cret" not in said.lower()


URL = "custom://images.example/d#one=two"


def test_a_command_of_a_user_gets_any_url(tmp_path):
    put(tmp_path / "image-url-command-mine", "#!/bin/sh\n", 0o755)
    assert findings(URL, "image-url-command-mine", tmp_path) == []


@pytest.mark.parametrize("name", rescue_programs.IMAGE_COMMANDS)
def test_a_command_of_a_user_with_the_name_of_a_shipped_one_gets_any_url(tmp_path, name):
    assert len(findings(URL, name, tmp_path)) == 1
    put(tmp_path / name, "#!/bin/sh\n", 0o755)
    assert findings(URL, name, tmp_path) == []


@pytest.mark.parametrize("name", rescue_programs.IMAGE_COMMANDS)
def test_a_copy_of_a_shipped_command_is_asked_as_the_shipped_one(tmp_path, name):
    put(tmp_path / name, rescue_programs.image_command(name), 0o755)
    assert f"{name} cannot take it: " in findings(URL, name, tmp_path)[0]
    shutil.copy(tmp_path / name, tmp_path / "image-url-command-mine")
    assert findings(URL, "image-url-command-mine", tmp_path) == []


def test_a_finding_about_the_command_is_no_finding_about_its_url(tmp_path):
    put(tmp_path / RAW, "#!/bin/sh\n", 0o644)
    (said,) = findings(URL, RAW, tmp_path)
    assert said.startswith(f'command "{RAW}": ')


IGNITION = '{"ignition": {"version": "3.4.0"}}'
TAR_URL, RAW_URL, OCI_URL = "https://images.example/d.tar", "https://images.example/d.raw", "oci://r.example/a:v1"


@pytest.mark.parametrize(
    ("command", "url", "data", "why"),
    [
        (RAW, f"{RAW_URL}#adapt=no", "#cloud-config\n", "adapt=no in the image URL leaves no place for it"),
        (RAW, RAW_URL, "hello: world\n", "neither cloud-init"),
        (TAR, TAR_URL, IGNITION, "it is Ignition, which root file systems do not read; give cloud-init"),
        (TAR, TAR_URL, "hello: world\n", "neither cloud-init"),
        (OCI, f"{OCI_URL}#layout=/:ext4", IGNITION, "it is Ignition, which root file systems do not read"),
        (OCI, OCI_URL, "hello: world\n", "neither cloud-init"),
    ],
)
def test_bootstrap_data_that_a_shipped_command_never_takes_is_one_finding(command, url, data, why):
    (said,) = findings(url, command, bootstrap_data=data)
    assert said.startswith(f"bootstrap_data: {command} cannot take it: ")
    assert why in said


def test_a_file_of_bootstrap_data_that_a_shipped_command_never_takes_is_named():
    spec = {"name": "node-1", "image_url": RAW_URL, "command": RAW, "root_devices": ["sda"]}
    spec["bootstrap_data_file"] = "seed.yml"
    (said,) = examine(spec, "/nowhere/at/all", lambda path: b"hello: world\n")[1]
    assert said.startswith(f'bootstrap_data_file "seed.yml": {RAW} cannot take it: neither cloud-init')


@pytest.mark.parametrize("data", [None, "#cloud-config\n", IGNITION])
def test_bootstrap_data_that_a_shipped_command_may_take_is_no_finding(data):
    assert findings(RAW_URL, RAW, bootstrap_data=data) == []
    assert findings(OCI_URL, OCI, bootstrap_data=data) == []
    assert findings(TAR_URL, TAR, bootstrap_data=data if data != IGNITION else None) == []


def test_a_shipped_command_writes_one_disk(tmp_path):
    (said,) = findings(RAW_URL, RAW, root_devices=["sda", "sdb"])
    assert said == f'root_devices "sda sdb": {RAW} writes exactly one disk; name one'
    put(tmp_path / "image-url-command-mine", "#!/bin/sh\n", 0o755)
    mine = findings(RAW_URL, "image-url-command-mine", tmp_path, root_devices=["sda", "sdb"], bootstrap_data="hello\n")
    assert mine == [], "a user's own command takes what it likes"
