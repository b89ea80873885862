# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of the initramfs that read an Ignition, run with its own busybox on this host."""

import base64
import gzip
import hashlib
import json
import shlex
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.coreos.live_image import SOURCES

PROGRAM = SOURCES / "initramfs/bin/ignition"
JSON = SOURCES / "initramfs/lib/json.awk"
Run = Callable[..., subprocess.CompletedProcess[str]]

FORMS: dict[str, Callable[[bytes], dict[str, str]]] = {
    "percent": lambda data: {"source": "data:," + urllib.parse.quote(data)},
    "base64": lambda data: {"source": "data:text/plain;base64," + base64.b64encode(data).decode()},
    "gzip": lambda data: {
        "compression": "gzip",
        "source": "data:;base64," + base64.b64encode(gzip.compress(data)).decode(),
    },
}


#: how long a loaded machine takes to draw an example says nothing
CALM = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def run(applets: Path) -> Run:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(applets), "LAB_JSON": str(JSON)}
        command = [str(applets / arguments[0]), *map(str, arguments[1:])]
        done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=600)
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def apply(run: Run, folder: Path, config: Any) -> subprocess.CompletedProcess[str]:
    (folder / "config.ign").write_text(config if isinstance(config, str) else json.dumps(config))
    (folder / "root").mkdir(exist_ok=True)
    return run("sh", PROGRAM, folder / "config.ign", folder / "root", folder / "scratch")


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None, suppress_health_check=CALM)
@given(data=st.binary(max_size=400) | st.text(max_size=100).map(str.encode), mode=st.integers(0o400, 0o777))
def test_files_of_any_content(run: Run, form: str, data: bytes, mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = "/etc/a b/$(id)'\"%41"
        file = {"path": path, "mode": mode, "contents": FORMS[form](data)}
        done = apply(run, folder, {"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}})
        assert done.returncode == 0, done.stdout + done.stderr
        found = folder / "root" / path[1:]
        assert found.read_bytes() == data
        assert found.stat().st_mode & 0o7777 == mode
        assert done.stdout == f"file {mode:04o} {hashlib.sha256(data).hexdigest()} {path}\n"


def test_units_users_and_appended_files(run: Run, tmp_path: Path) -> None:
    unit = '[Service]\n\tExecStart=/bin/podman "a\\\\b" $$x %% … ä 😀\n'
    parts = [FORMS["percent"](b"\nserver a iburst\n"), FORMS["gzip"](b"server b iburst\n")]
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/chrony.conf").write_text("pool c\n")
    config = {
        "ignition": {"version": "3.2.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA someone", "ssh-rsa BBBB"]}]},
        "storage": {"files": [{"path": "/etc/chrony.conf", "append": parts}]},
        "systemd": {"units": [{"name": "a.service", "enabled": True, "contents": unit}, {"name": "b.service"}]},
    }
    done = apply(run, tmp_path, config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["file", "unit", "unit", "user"]
    assert done.stdout.endswith("unit enabled a.service\nunit disabled b.service\nuser 2 core\n")
    assert (tmp_path / "root/etc/chrony.conf").read_text() == "pool c\n\nserver a iburst\nserver b iburst\n"
    assert (tmp_path / "root/etc/systemd/system/enabled/a.service").read_text() == unit
    assert (tmp_path / "root/etc/ssh/keys/core").read_text() == "ssh-ed25519 AAAA someone\nssh-rsa BBBB\n"


VERSION = {"ignition": {"version": "3.2.0"}}
WRONG = {
    "no JSON": ("not JSON", "is no JSON object"),
    "cut off": ('{"ignition": {"version": "3.2', "is no JSON object"),
    "not closed": ('{"ignition": {"version": "3.2.0"}', "is no JSON object"),
    "no version": ({"storage": {}}, "has no ignition.version"),
    "relative path": ({**VERSION, "storage": {"files": [{"path": "etc/x"}]}}, "is not absolute"),
    "content elsewhere": (
        {**VERSION, "storage": {"files": [{"path": "/x", "contents": {"source": "https://example.com/"}}]}},
        "storage.files.0.contents is not inside the config",
    ),
    "twice": (
        {**VERSION, "storage": {"files": [{"path": "/x"}, {"path": "/x"}]}},
        "/x is there already and overwrite is not set",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_ignition_would_refuse_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    config, message = WRONG[name]
    done = apply(run, tmp_path, config)
    assert done.returncode != 0
    assert message in done.stdout


KEYS = st.from_regex(r"[A-Za-z0-9]{1,4}(_[A-Za-z0-9]{1,3})?", fullmatch=True)
LEAVES = (
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
    | st.integers()
    | st.booleans()
    | st.none()
)
TREES = st.dictionaries(
    KEYS, st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))
)


@settings(max_examples=40, deadline=None, suppress_health_check=CALM)
@given(tree=TREES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_json_is_taken_apart_as_python_does(run: Run, tree: Any, indent: int | None, ascii_only: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "file").write_text(json.dumps(tree, indent=indent, ensure_ascii=ascii_only))
        done = run("awk", "-f", JSON, f"{name}/file")
    assert done.returncode == 0, done.stderr
    found = dict(word.split("=", 1) for word in shlex.split(done.stdout))
    assert found == {f"leaf_{path}": value for path, value in leaves(tree, ())}


def test_keys_that_could_be_taken_for_others_are_left_out(run: Run, tmp_path: Path) -> None:
    keys = ("a__b", "_a", "a_", "a-b", "a b", "", "ä", "a;id")
    (tmp_path / "file").write_text(json.dumps({"good": 1, **{key: {"x": 2} for key in keys}}))
    assert run("awk", "-f", JSON, tmp_path / "file").stdout == "leaf_good='1'\n"


def leaves(tree: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, (*place, str(key)))
    else:
        yield "__".join(place), tree if isinstance(tree, str) else json.dumps(tree)
