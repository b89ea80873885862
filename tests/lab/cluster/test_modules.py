# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of Go modules, from a proxy that is a folder: what is asked for, what is refused, and what skips tests."""

import functools
import http.server
import json
import socket
import struct
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import testing
from lab.cluster import programs
from lab.cluster.go_build import Recipe, build_recipe
from lab.errors import ClusterError, Unavailable
from tests.web_servers import Server

TOOL, OWN = "example.com/tool", "example.com/own"
MAIN = 'package main\n\nimport "example.com/own"\n\nvar version string\n\nfunc main() { println(own.Name, version) }\n'
FILES = {
    f"{TOOL}@v1.2.0": {
        # as in Kubernetes: its own modules lie in its tree, and are released beside it
        "go.mod": f"module {TOOL}\n\ngo 1.19\n\nrequire {OWN} v0.0.0\n\nreplace {OWN} => ./staging/own\n",
        "go.sum": "",
        "cmd/hello/main.go": MAIN,
    },
    f"{OWN}@v0.2.0": {"go.mod": f"module {OWN}\n\ngo 1.19\n", "own.go": 'package own\n\nconst Name = "own"\n'},
}


def recipe(**changes: object) -> Recipe:
    given = {
        "name": "hello",
        "module": TOOL,
        "version": "v1.2.0",
        "sum": "",
        "programs": {"hello": f"{TOOL}/cmd/hello"},
        "stamps": {"main.version": "v1.2.0"},
        "own": "v0.2.0",
        **changes,
    }
    return Recipe(**given)  # type: ignore[arg-type]


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules, as a proxy has them."""
    for name, files in FILES.items():
        path, _at, version = name.partition("@")
        folder = tmp_path / "proxy" / path / "@v"
        folder.mkdir(parents=True)
        (folder / "list").write_text(f"{version}\n")
        (folder / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
        (folder / f"{version}.mod").write_text(files["go.mod"])
        with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
            for file, text in files.items():
                archive.writestr(f"{name}/{file}", text)
    monkeypatch.setenv("GOPROXY", f"file://{tmp_path}/proxy")
    monkeypatch.setenv("GOSUMDB", "off")
    monkeypatch.setenv("GOTOOLCHAIN", "local")


class Unsteady(http.server.SimpleHTTPRequestHandler):
    """A proxy that breaks the first connections off."""

    broken = 0

    def do_GET(self) -> None:
        if Unsteady.broken:
            Unsteady.broken -= 1
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()  # with nothing that lingers, this is a reset
            self.close_connection = True
        else:
            super().do_GET()

    def finish(self) -> None:
        if self.connection.fileno() != -1:
            super().finish()

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def unsteady(proxy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same modules over HTTP."""
    handler = functools.partial(Unsteady, directory=str(tmp_path / "proxy"))
    with Server(handler) as server:
        monkeypatch.setenv("GOPROXY", server.url)
        yield


@pytest.mark.usefixtures("unsteady")
def test_a_connection_that_breaks_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unsteady, "broken", 2)
    (tmp_path / "folder").mkdir()
    assert sum_of(tmp_path / "folder", recipe())
    assert Unsteady.broken == 0


@pytest.mark.usefixtures("unsteady")
def test_a_proxy_that_always_breaks_off_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unsteady, "broken", 1000)
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match="connection reset by peer"):
        build_recipe(recipe(), tmp_path / "folder", print)


def sum_of(folder: Path, given: Recipe) -> str:
    """The sum of the recipe's module, as the refusal of another one names it."""
    with pytest.raises(ClusterError, match="has the sum h1:") as refused:
        build_recipe(given, folder, print)
    return str(refused.value).split("has the sum ")[1].split(",")[0]


@pytest.mark.usefixtures("proxy")
def test_only_the_module_that_was_noted_is_built(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ClusterError, match="and not h1:other as the lab has noted it") as refused:
        build_recipe(recipe(sum="h1:other"), tmp_path / "folder", print)
    assert not isinstance(refused.value, Unavailable)


@pytest.mark.long
@pytest.mark.usefixtures("proxy")
def test_a_module_is_built_with_the_modules_it_was_released_with(tmp_path: Path) -> None:
    for name in ("asked", "built"):
        (tmp_path / name).mkdir()
    build_recipe(recipe(sum=sum_of(tmp_path / "asked", recipe())), tmp_path / "built", print)
    done = subprocess.run([tmp_path / "built/hello"], capture_output=True, text=True, check=True)
    assert done.stderr == "own v1.2.0\n"
    assert [path.name for path in (tmp_path / "built").iterdir()] == ["hello"]


@pytest.mark.parametrize("how", ["no proxy", "no such version", "no Go"])
@pytest.mark.usefixtures("proxy")
def test_a_missing_module_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    given = recipe()
    if how == "no proxy":
        monkeypatch.setenv("GOPROXY", "off")
    elif how == "no Go":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        given = recipe(version="v9.9.9")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match=TOOL) as refused:
        build_recipe(given, tmp_path / "folder", print)
    assert "\n" not in str(refused.value)


def test_that_it_cannot_be_built_is_found_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def once(folder: Path, *_more: object) -> None:
        asked.append(folder.name)
        raise Unavailable("there is no proxy")

    monkeypatch.setenv("KUBENODE_CACHE", str(tmp_path))
    monkeypatch.setattr(programs.go_build, "once", once)
    monkeypatch.setattr(programs, "_missing", {})
    for _time in range(3):
        with pytest.raises(Unavailable, match="there is no proxy"):
            programs.ensure()
    assert asked == [programs.ETCD.folder]


class Item:
    """What a hook of pytest gets, as far as ours looks at it."""

    fixturenames: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.marks: list[pytest.MarkDecorator] = []

    def get_closest_marker(self, name: str) -> str | None:
        return name if name == "cluster" else None

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [pytest.mark.cluster.mark] if name == "cluster" else []

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)


@pytest.mark.parametrize(("error", "skipped"), [(Unavailable("no proxy"), True), (ClusterError("broken"), False)])
def test_tests_are_skipped_only_where_it_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, error: ClusterError, skipped: bool
) -> None:
    def ensure() -> None:
        raise error

    monkeypatch.setattr("lab.cluster.ensure", ensure)
    item = Item()
    next(testing.pytest_runtest_protocol(item))  # type: ignore[arg-type]
    assert [mark.kwargs for mark in item.marks] == ([{"reason": "no proxy"}] if skipped else [])


def test_a_recipe_names_its_folder() -> None:
    assert programs.KUBERNETES_RECIPE.folder != recipe().folder
    assert recipe(sum="a").folder != recipe(sum="b").folder
    assert recipe().folder == recipe().folder
    assert len(recipe().folder) == len("hello-") + 16


def test_kubernetes_is_one_release_with_its_own_modules() -> None:
    assert programs.KUBERNETES_RECIPE.version == f"v{programs.KUBERNETES}"
    assert programs.KUBERNETES_RECIPE.own == "v0." + programs.KUBERNETES.split(".", 1)[1]
    assert programs.KUBERNETES_RECIPE.stamps["k8s.io/component-base/version.gitVersion"] == f"v{programs.KUBERNETES}"
