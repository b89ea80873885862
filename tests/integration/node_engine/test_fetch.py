# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Artifacts over real HTTP: whole, verified and resumed, or an error and nothing installed."""

import hashlib
import os
import random
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node import fetch, node_artifacts
from ansible_collections.kubenode.provision.plugins.module_utils._node import node_artifacts as install_
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Host, Pending
from ansible_collections.kubenode.provision.plugins.module_utils._node.node_artifacts import ADOPTED, read_record
from lab.mirror.upstream import tarball
from tests.integration.node_engine.artifact_site import Web, cut, serving, status, trickle
from tests.web_servers import certificate

DATA = random.Random(1).randbytes(3 << 20)
SHA = hashlib.sha256(DATA).hexdigest()
OTHER = random.Random(2).randbytes(1 << 20)


@pytest.fixture
def web(monkeypatch):
    """A server with DATA at /data, past any proxy."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as made:
        made.files["/data"] = DATA
        yield made


def get(web: Web, part: Path, path: str = "/data", **options) -> int:
    """Fetch it; returns the bytes that came."""
    given = {"retries": 3, "timeout": 120, **options}
    return fetch.Fetcher(**given).fetch(web.url(path), str(part), SHA)


def test_whole_and_once(web, tmp_path):
    assert get(web, tmp_path / "part") == len(DATA)
    assert (tmp_path / "part").read_bytes() == DATA
    assert get(web, tmp_path / "part") == 0
    assert len(web.requests) == 1


def test_a_cut_connection_is_resumed_where_it_ended(web, tmp_path):
    web.answers = [cut(DATA, 1 << 20)]
    assert get(web, tmp_path / "part") == len(DATA)
    assert (tmp_path / "part").read_bytes() == DATA
    assert web.ranges_asked() == ["", f"bytes={1 << 20}-"]


def test_the_next_run_resumes_what_the_last_one_left(web, tmp_path):
    web.answers = [cut(DATA, 2 << 20)]
    with pytest.raises(fetch.FetchError, match="ended after 2097152 of 3145728 bytes"):
        get(web, tmp_path / "part", retries=0)
    assert get(web, tmp_path / "part") == 1 << 20
    assert (tmp_path / "part").read_bytes() == DATA


def test_a_server_without_ranges_begins_again(web, tmp_path):
    web.ranges = False
    web.answers = [cut(DATA, 1000)]
    assert get(web, tmp_path / "part") == len(DATA) + 1000
    assert (tmp_path / "part").read_bytes() == DATA


@pytest.mark.parametrize("left", [OTHER, DATA + b"more", b"x"])
def test_a_part_of_another_file_does_not_spoil_it(web, tmp_path, left):
    (tmp_path / "part").write_bytes(left)
    get(web, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == DATA


def test_another_range_than_asked_for_begins_again(web, tmp_path):
    (tmp_path / "part").write_bytes(DATA[:1000])
    web.answers = [status(206, Content_Range="bytes 0-9/10")]
    get(web, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == DATA
    assert web.ranges_asked() == ["bytes=1000-", ""]


def test_the_wrong_content_is_named_and_thrown_away(web, tmp_path):
    web.files["/data"] = OTHER
    with pytest.raises(fetch.FetchError) as caught:
        get(web, tmp_path / "part")
    text = str(caught.value)
    assert web.url("/data") in text
    assert f"expected sha256 {SHA}" in text
    assert f"got {hashlib.sha256(OTHER).hexdigest()}" in text
    assert (tmp_path / "part").read_bytes() == b""
    assert len(web.requests) == 1, "it is not asked for again"


def test_a_missing_file_is_not_asked_for_again(web, tmp_path):
    with pytest.raises(fetch.FetchError, match=r"/nothing cannot be fetched: HTTP 404 Not Found"):
        get(web, tmp_path / "part", "/nothing")
    assert len(web.requests) == 1


def test_a_server_that_is_busy_is_asked_again(web, tmp_path):
    web.answers = [status(503, Retry_After="0"), status(429, Retry_After="0"), status(502, Retry_After="0")]
    assert get(web, tmp_path / "part") == len(DATA)
    web.answers = [status(500, Retry_After="0")] * 4
    with pytest.raises(fetch.FetchError, match="HTTP 500"):
        get(web, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_no_server_listens(tmp_path):
    with serving() as gone:
        pass
    with pytest.raises(fetch.FetchError, match="refused"):
        get(gone, tmp_path / "part", retries=1)


def test_a_slow_server_has_its_time(web, tmp_path):
    web.answers = [trickle(web.stop)]
    with pytest.raises(fetch.FetchError, match=r"did not come within its time|cannot be fetched"):
        get(web, tmp_path / "part", timeout=2)


def test_what_does_not_fit_is_not_begun(web, tmp_path):
    web.answers = [status(200, Content_Length=str(1 << 60))]
    with pytest.raises(fetch.FetchError, match=r"needs 1152921504606846976 bytes in .* where \d+ are free"):
        get(web, tmp_path / "part")


def test_redirects_do_not_carry_the_secret_to_another_host(web, tmp_path):
    headers = {"Authorization": "Bearer hunter2", "X-Key": "hunter2"}
    with serving() as other:
        other.files["/data"] = DATA
        web.answers = [status(302, Location=other.url("/data"))]
        get(web, tmp_path / "part", headers=headers)
        assert web.requests[0][1]["Authorization"] == "Bearer hunter2"
        assert "hunter2" not in repr(other.requests)
    web.answers = [status(302, Location="/data")]
    get(web, tmp_path / "again", headers=headers)
    assert web.requests[-1][1]["X-Key"] == "hunter2"


def test_a_password_in_the_url_is_sent_and_not_shown(web, tmp_path):
    url = f"http://user:p%40ss@127.0.0.1:{web.port}/nothing?sig=hunter2hunter2"
    with pytest.raises(fetch.FetchError) as caught:
        fetch.Fetcher().fetch(url, str(tmp_path / "part"), SHA)
    assert web.requests[0][1]["Authorization"] == "Basic dXNlcjpwQHNz"
    assert "ss@" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_tls_needs_a_trusted_certificate_and_stays(web, tmp_path):
    pair = certificate(tmp_path)
    with serving(pair) as safe:
        safe.files["/data"] = DATA
        url, part = safe.url("/data", scheme="https"), str(tmp_path / "part")
        with pytest.raises(fetch.FetchError, match="certificate that is not trusted"):
            fetch.Fetcher().fetch(url, part, SHA)
        trusting = fetch.Fetcher(extra_ca=[pair[0].read_text()], retries=0)
        assert trusting.fetch(url, part, SHA) == len(DATA)
        safe.answers = [status(302, Location=web.url("/data"))]
        with pytest.raises(fetch.FetchError, match="which is not https"):
            trusting.fetch(url, str(tmp_path / "other"), SHA)
        assert web.requests == []


def artifact(web: Web, name: str = "tool", **fields: object) -> dict:
    """A binary at /data."""
    made = {"name": name, "version": "1.0", "url": web.url("/data"), "sha256": SHA, "kind": "binary"}
    return {**made, "install": [{"path": f"/usr/local/bin/{name}", "mode": "0755"}], "links": [], **fields}


def bring(host: Host, *artifacts: dict) -> list[str | None]:
    """One run without the module around it; the error of each that was missing."""
    missing = [one for one, reason in zip(artifacts, node_artifacts.plan(host, artifacts, 2), strict=True) if reason]
    with node_artifacts.locked(host, 60):
        fetcher = fetch.Fetcher(retries=0, timeout=120)
        return [error for _came, _seconds, error in node_artifacts.apply(host, missing, fetcher, Pending(host), 2)]


def test_a_proven_artifact_needs_no_network(web, tmp_path):
    host, wanted = Host(str(tmp_path)), artifact(web, links=[{"path": "/usr/local/bin/t", "target": "tool"}])
    assert node_artifacts.plan(host, [wanted], 1) == ["is not installed"]
    assert bring(host, wanted) == [None]
    assert (tmp_path / "usr/local/bin/t").read_bytes() == DATA
    assert Pending(host).ids() == {"artifact:tool"}
    assert list((tmp_path / node_artifacts.CACHE.lstrip("/")).iterdir()) == []
    assert node_artifacts.plan(host, [wanted], 1) == [None]
    assert len(web.requests) == 1
    for spoil, reason in (
        (lambda path: path.write_bytes(DATA[:-1] + b"x"), "another content"),
        (lambda path: path.chmod(0o700), "another mode"),
        (lambda path: path.unlink(), "is not there"),
        (lambda path: path.with_name("t").unlink(), "link /usr/local/bin/t is not there"),
    ):
        spoil(tmp_path / "usr/local/bin/tool")
        assert reason in node_artifacts.plan(host, [wanted], 1)[0]
        assert bring(host, wanted) == [None]
        assert node_artifacts.plan(host, [wanted], 1) == [None]
    assert "version 1.0 is installed" in node_artifacts.plan(host, [{**wanted, "sha256": "1" * 64}], 1)


def test_what_was_fetched_before_is_installed_without_a_network(web, tmp_path):
    host, tool = Host(str(tmp_path)), artifact(web)
    lost = artifact(web, "lost", url=web.url("/nothing"))
    with node_artifacts.locked(host, 0):
        fetched = node_artifacts.fetch_only(host, [tool, lost], fetch.Fetcher(retries=0, timeout=60), 2)
    assert fetched[0][0] == len(DATA)
    assert fetched[0][2] is None
    assert "/nothing cannot be fetched: HTTP 404" in str(fetched[1][2])
    assert read_record(host, "tool") is None
    assert not (tmp_path / "usr").exists()
    asked = len(web.requests)
    web.files.clear()
    assert bring(host, tool) == [None]
    assert len(web.requests) == asked
    assert read_record(host, "tool")


def test_a_lost_link_needs_no_network(web, tmp_path):
    web.files["/tar"] = packed = tarball({"bin/tool": b"tool"})
    install = [{"member": "bin/*", "directory": "/opt/tool", "mode": "0755"}]
    link = {"path": "/usr/bin/tool", "target": "/opt/tool/tool"}
    wanted = artifact(web, url=web.url("/tar"), sha256=hashlib.sha256(packed).hexdigest(), kind="tar")
    wanted.update(install=install, links=[link])
    host = Host(str(tmp_path))
    assert bring(host, wanted) == [None]
    (tmp_path / "usr/bin/tool").unlink()
    assert bring(host, wanted) == [None]
    assert os.readlink(tmp_path / "usr/bin/tool") == "/opt/tool/tool"
    assert install_.plan(host, [wanted], 1) == [None]
    assert len(web.requests) == 1


def test_programs_of_an_archive_with_a_sha512_are_installed_and_proven(web, tmp_path):
    packed = tarball({"kubernetes/node/bin/" + name: name.encode() for name in ("kubelet", "kubeadm", "kubectl")})
    web.files["/node"], host = packed, Host(str(tmp_path))
    install = [
        {"member": "kubernetes/node/bin/" + name, "path": "/usr/local/bin/" + name} for name in ("kubelet", "kubeadm")
    ]
    wanted = artifact(web, url=web.url("/node"), sha512="0" * 128, kind="tar", install=install)
    del wanted["sha256"]
    (error,) = bring(host, wanted)
    assert f"expected sha512 {'0' * 128}, got {hashlib.sha512(packed).hexdigest()}" in error
    wanted["sha512"] = hashlib.sha512(packed).hexdigest()
    assert bring(host, wanted) == [None]
    assert sorted(path.read_text() for path in (tmp_path / "usr/local/bin").iterdir()) == ["kubeadm", "kubelet"]
    assert install_.plan(host, [wanted], 1) == [None]
    assert "version 1.0 is installed" in install_.plan(host, [{**wanted, "sha512": "1" * 128}], 1)


def test_a_binary_that_was_always_there_is_only_recorded(web, tmp_path):
    host = Host(str(tmp_path))
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "usr/local/bin/tool").write_bytes(DATA)
    (tmp_path / "usr/local/bin/tool").chmod(0o755)
    assert node_artifacts.plan(host, [artifact(web)], 1) == [ADOPTED]
    assert bring(host, artifact(web)) == [None]
    assert node_artifacts.plan(host, [artifact(web)], 1) == [None]
    assert web.requests == []
    assert Pending(host).ids() == set()


def test_what_a_person_changed_or_put_in_its_place_is_named(web, tmp_path):
    """An operator replaced programs by hand, and no diff said that they would be lost."""
    web.files["/tar"] = packed = tarball({name: name.encode() for name in ("bridge", "loopback", "vlan")})
    wanted = artifact(web, url=web.url("/tar"), sha256=hashlib.sha256(packed).hexdigest(), kind="tar")
    wanted["install"] = [{"member": "*", "directory": "/opt/cni/bin", "mode": "0755"}]
    host, folder = Host(str(tmp_path)), tmp_path / "opt/cni/bin"
    assert node_artifacts.as_it_is(host, wanted) == []
    folder.mkdir(parents=True)
    (folder / "bridge").write_text("mine")
    lost = "/opt/cni/bin has files that are not ours (bridge); those with names of its own are replaced"
    assert node_artifacts.plan(host, [wanted], 1) == [f"is not installed, but {lost}"]
    assert node_artifacts.as_it_is(host, wanted) == [lost]
    assert bring(host, wanted) == [None]
    assert node_artifacts.as_it_is(host, wanted) == ["1.0"]
    (folder / "bridge").write_text("mine again")
    (folder / "vlan").unlink()
    changes = ["/opt/cni/bin/bridge has another content", "/opt/cni/bin/vlan is not there"]
    assert node_artifacts.as_it_is(host, wanted) == ["1.0", *changes]
    newer = {**wanted, "version": "2.0", "sha256": "0" * 64}
    assert node_artifacts.plan(host, [newer], 1) == ["version 1.0 is installed"]
    assert node_artifacts.as_it_is(host, newer) == ["1.0", *changes], "an upgrade replaces them, too"
    other = artifact(web, "other", url=web.url("/tar"), sha256="0" * 64, kind="tar", install=wanted["install"])
    assert node_artifacts.plan(host, [other], 1) == ["is not installed"], "these are ours"


def test_one_that_fails_leaves_the_old_file_and_stops_no_other(web, tmp_path):
    host = Host(str(tmp_path))
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "usr/local/bin/bad").write_bytes(b"old")
    web.files["/bad"] = OTHER
    bad, good = artifact(web, "bad", url=web.url("/bad")), artifact(web)
    first, second = bring(host, bad, good)
    assert first is not None
    assert first.startswith("bad 1.0: http://127.0.0.1:")
    assert second is None
    assert (tmp_path / "usr/local/bin/bad").read_bytes() == b"old"
    assert (tmp_path / "usr/local/bin/tool").read_bytes() == DATA
    assert read_record(host, "bad") is None
    foreign = "/usr/local/bin/bad is there, is not ours, and is replaced"
    assert node_artifacts.plan(host, [bad, good], 2) == [f"is not installed, but {foreign}", None]
    web.files["/bad"] = DATA
    assert bring(host, bad, good) == [None]
