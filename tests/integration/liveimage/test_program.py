# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as an operator meets it: how it begins and ends, what it refuses, names, signatures, TLS, metrics."""

import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import requests

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import pack_program
from tests.certificates import pair
from tests.folders import put
from tests.integration.liveimage.program import COMMAND, COMPILED, ENVIRONMENT, FOLDER, PATIENCE, Program
from tests.unit.liveimage.maker import Layout, make
from tests.waiting import until
from tests.web_servers import certificate

SECRET = "0123456789abcdef" * 4


@pytest.fixture
def folder(folder: Path) -> Path:
    """With one host."""
    (folder / "web-1.yaml").write_text("")
    return folder


def refused(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and words of a program that does not begin."""
    own = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(FOLDER),
        "PYTHONPYCACHEPREFIX": str(COMPILED),
        **(environ or {}),
    }
    done = subprocess.run(
        [*COMMAND, "--metrics-addr", "0", *arguments],
        env=own, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_port_in_use(bases, folder):
    environ = {**ENVIRONMENT, "DEPLOY_ISO": str(bases / "live.iso"), "DEPLOY_INITRD": str(bases / "live.img")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        code, err = refused("--nmstate-dir", str(folder), "--images-bind-addr", place, environ=environ)
        assert code == 1
        assert f"images-bind-addr {place} cannot be used: Address already in use" in err
        free = ["--nmstate-dir", str(folder), "--images-bind-addr", "127.0.0.1:0", "--metrics-addr", place]
        code, err = refused(*free, environ=environ)
        assert code == 1
        assert f"metrics-addr {place} cannot be used: Address already in use" in err


def test_the_end_waits_for_downloads(folder, tmp_path):
    place = tmp_path / "large"
    place.mkdir()
    make(place / "live.iso", Layout(rootfs=40_000_000))
    (place / "live.img").write_bytes(b"INITRD" * 3335)
    with Program("--nmstate-dir", str(folder), bases=place) as server:
        whole = server.get("/web-1.iso").content
        with server.get("/web-1.iso", stream=True) as reply:
            begun = reply.raw.read(4096)
            server.signal(signal.SIGTERM)
            until(lambda: not _listens(server.port), "the server takes no connection any more")
            assert begun + reply.raw.read() == whole
        assert server.ended() == 0
        assert server.log[-1].endswith("ended")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def test_an_idle_connection_does_not_hold_the_end_up(bases, folder):
    with Program("--nmstate-dir", str(folder), bases=bases) as server, requests.Session() as session:
        assert session.head(server.url("/web-1.iso"), timeout=PATIENCE).status_code == 200
        server.signal(signal.SIGINT)
        assert server.ended() == 0


def test_unguessable_names(bases, folder, tmp_path):
    secret, table = tmp_path / "secret", tmp_path / "urls.json"
    arguments = ["--nmstate-dir", str(folder), "--secret-file", str(secret), "--urls-file", str(table)]
    found = []
    for _start_ in range(2):
        with Program(*arguments, "--images-publish-addr", "http://192.0.2.1:8084", bases=bases) as server:
            urls = until(lambda: table.exists() and json.loads(table.read_text()), "the table of URLs")
            assert stat.S_IMODE(table.stat().st_mode) == stat.S_IMODE(secret.stat().st_mode) == 0o600
            path = urls["web-1.iso"].removeprefix("http://192.0.2.1:8084")
            assert len(path) <= 64
            assert path.endswith(".iso")
            assert server.status(path) == 200
            assert server.status("/web-1.iso") == 404
            assert server.status("/") == 404
            assert path not in "\n".join(server.log) + server.watch("/status") + server.watch("/metrics")
            found.append(urls)
            (folder / "db.yaml").write_text("")
            until(lambda: "db.iso" in json.loads(table.read_text()), "a row for the host")
            (folder / "db.yaml").unlink()
            until(lambda: "db.iso" not in json.loads(table.read_text()), "no row for the host")
    assert found[0] == found[1]


def test_a_file_name_that_is_no_text_hurts_its_own_host_only(bases, folder, tmp_path):
    def bad(name: bytes) -> Path:
        return folder / os.fsdecode(name)

    bad(b"\xff.yaml").write_text("")
    table = tmp_path / "urls.json"
    arguments = ["--nmstate-dir", str(folder), "--secret-file", str(tmp_path / "secret"), "--urls-file", str(table)]
    with Program(*arguments, bases=bases) as server:
        url = until(lambda: table.exists() and json.loads(table.read_text()), "the table of URLs")["web-1.iso"]
        assert server.status(url.removeprefix("http://127.0.0.1:8084")) == 200
        bad(b"\xfe.yaml").write_text("")
        (folder / "db.yaml").write_text("")
        until(lambda: "db.iso" in json.loads(table.read_text()), "a row for the host")
        assert sorted(json.loads(table.read_text())) == sorted(
            [f"{name}.{kind}" for name in ("db", "web-1") for kind in ("iso", "initramfs")]
            + [f"boot-x86_64.{kind}" for kind in ("kernel", "rootfs")]
        )
        until(lambda: len(server.problems()) == 2, "a problem for each bad name", show=server.problems)
        assert all("is not one by RFC 1123" in problem for problem in server.problems().values())
        assert not any("Traceback" in line for line in server.log)


def test_signed_urls(bases, folder, tmp_path):
    secret, table = tmp_path / "secret", tmp_path / "urls.json"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o400)
    arguments = ["--nmstate-dir", str(folder), "--guessable", "--signed-urls", "2", "--secret-file", str(secret)]
    with Program(*arguments, "--urls-file", str(table), bases=bases) as server:
        first = until(lambda: table.exists() and json.loads(table.read_text()), "the table of URLs")["web-1.iso"]
        path = first.removeprefix("http://127.0.0.1:8084")
        assert server.status("/web-1.iso") == 403
        assert server.status(path.replace("web-1", "web-2")) == 403
        until(lambda: json.loads(table.read_text())["web-1.iso"] != first, "another URL")
        # it has expired, while the table has one that has not
        until(lambda: server.status(path) == 403, f"{path} is refused")

        def fresh() -> bool:
            return (
                server.status(json.loads(table.read_text())["web-1.iso"].removeprefix("http://127.0.0.1:8084")) == 200
            )

        until(fresh, "a URL of the table that is served")


def test_tls_is_renewed(bases, folder, tmp_path):
    crt, key = certificate(tmp_path)
    first = crt.read_text()
    arguments = ["--tls-cert", str(crt), "--tls-key", str(key)]
    with Program("--nmstate-dir", str(folder), *arguments, bases=bases, scheme="https") as server:
        assert server.head("/web-1.iso", verify=str(crt)).status_code == 200

        def served() -> str:
            return ssl.get_server_certificate(("127.0.0.1", server.port), timeout=PATIENCE)

        assert served() == first
        (tmp_path / "second").mkdir()
        other_crt, other_key = certificate(tmp_path / "second")
        other_crt.rename(crt)
        server.signal(signal.SIGHUP)  # half of a pair: the one before stays
        assert "the certificate that was there before is used" in until(
            lambda: server.problems().get("TLS"), "the problem in the status"
        )
        assert served() == first
        other_key.rename(key)
        server.signal(signal.SIGHUP)
        until(lambda: not server.problems(), "the problem is over")
        assert served() == crt.read_text() != first
        assert server.head("/web-1.iso", verify=str(crt)).status_code == 200


def test_a_certificate_that_clients_refuse_is_used_and_said(bases, folder, tmp_path):
    first, old, good = pair("images.example"), pair("127.0.0.1", begin=-9, end=-1), pair("127.0.0.1")
    crt, key = put(tmp_path / "crt", first.crt), put(tmp_path / "key", first.pem)
    arguments = ["--tls-cert", str(crt), "--tls-key", str(key), "--images-publish-addr", "https://127.0.0.1"]
    with Program("--nmstate-dir", str(folder), *arguments, bases=bases, scheme="https") as server:

        def seen(words: str) -> bool:
            problem = server.problems().get("TLS", "")
            return words in problem if words else not problem

        for one, words in ((first, "not for 127.0.0.1, by which clients reach"), (old, "has expired"), (good, "")):
            put(crt, one.crt)
            put(key, one.pem)
            server.signal(signal.SIGHUP)
            until(partial(seen, words), words or "the end of the problem")
            assert server.watch("/readyz") == "ok\n"
            assert ssl.get_server_certificate(("127.0.0.1", server.port), timeout=PATIENCE) == one.crt
        assert server.head("/web-1.iso", verify=str(crt)).status_code == 200
        for words in ("not for 127.0.0.1", "has expired"):
            assert any(" WARNING TLS: " in line and words in line for line in server.log)
        assert any(line.endswith(" INFO TLS: mended") for line in server.log)


def test_systemd_is_notified(bases, folder, tmp_path):
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reported:
        reported.bind(str(place))
        reported.settimeout(PATIENCE)
        environ = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "300000"}
        with Program("--nmstate-dir", str(folder), bases=bases, environ=environ) as server:
            seen = {reported.recv(100)}
            while seen != {b"READY=1", b"WATCHDOG=1"}:
                seen.add(reported.recv(100))
            server.signal(signal.SIGTERM)
            while reported.recv(100) != b"STOPPING=1":
                pass
            assert server.ended() == 0


def test_those_who_look_after_it(bases, folder):
    with Program("--nmstate-dir", str(folder), bases=bases) as server:
        size = len(server.get("/web-1.iso").content)
        assert server.watch("/readyz") == server.watch("/healthz") == "ok\n"
        metrics = server.watch("/metrics")
        assert f'kubenode_image_server_host_sent_bytes_total{{host="web-1"}} {size}\n' in metrics
        assert "kubenode_image_server_images 4\n" in metrics  # two, and what boots without an ISO
        assert "kubenode_image_server_hosts_failed 0\n" in metrics
        until(lambda: any("web-1: 127.0.0.1 fetched" in line for line in server.log), "a line in the log")
        assert "/metrics" in server.watch("/elsewhere")
        for request in (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.metrics_port), PATIENCE) as client:
                client.sendall(request)
                assert client.recv(100).startswith(b"HTTP/1.1 40")


def test_names_of_every_kind(bases, folder):
    names = ["a b", "50%", "what?", "x#y", "ümläut", "a;b&c", "line\nbreak", "a%2Fb", "tab\t", "'quoted\""]
    for number, name in enumerate(names):
        (folder / f"{name}.yaml").write_text("")
        (folder / f"{name}.host.yml").write_text(f"hostname: host-{number}\n")
    arguments = ["--nmstate-dir", str(folder), "--images-publish-addr", "http://192.0.2.1/images/"]
    table = folder.parent / "urls.json"
    with Program(*arguments, "--urls-file", str(table), bases=bases) as server:
        urls = until(lambda: table.exists() and json.loads(table.read_text()), "the table of URLs")
        for name in names:
            url = urls[f"{name}.iso"]
            assert url.isascii()
            path = url.removeprefix("http://192.0.2.1")
            assert path.startswith("/images/")
            for asked in (path, path.removeprefix("/images")):  # whether a proxy takes the prefix away or not
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
                    client.sendall(f"HEAD {asked} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("ascii"))
                    assert client.recv(12) == b"HTTP/1.1 200", asked
        assert server.problems() == {}
        assert all("\n" not in line for line in server.log)


def test_a_host_is_there_as_soon_as_the_port_is(bases, folder, tmp_path):
    for number in range(150):
        (folder / f"host-{number}.yaml").write_text("interfaces: [{name: eth0, type: ethernet, state: up}]")
    server = Program("--nmstate-dir", str(folder), bases=bases)
    try:
        server.port = server._port_of("images")
        for number in (149, 0, 77):
            assert server.status(f"/host-{number}.iso") == 200
        assert server.status("/host-150.iso") == 404
    finally:
        server.__exit__()


def test_one_file(bases, folder, tmp_path):
    """make image-server: the same program in one file, the same bytes each time."""
    target = tmp_path / "image-server"
    data = pack_program.program_bytes_here()
    assert data == pack_program.program_bytes_here()
    target.write_bytes(data)
    (tmp_path / "elsewhere").mkdir()
    shutil.move(target, tmp_path / "elsewhere")
    command = [sys.executable, "-I", str(tmp_path / "elsewhere" / "image-server")]
    with Program("--nmstate-dir", str(folder), bases=bases, command=command) as server:
        assert server.status("/web-1.iso") == 200
        server.signal()
        assert server.ended() == 0
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "--nmstate-dir" in done.stdout


def test_a_cache_folder_that_cannot_be_used_is_said_once(bases, folder, tmp_path):
    (folder / "a.yaml").write_text("")
    (tmp_path / "file").write_text("")
    for place, said in ((tmp_path / "file", 1), (tmp_path / "file/below", 1), (tmp_path / "new/cache", 0)):
        with Program("--nmstate-dir", str(folder), "--cache-dir", str(place), bases=bases) as server:
            assert server.status("/a.iso") == 200
        lines = [line for line in server.log if "cache-dir" in line]
        assert len(lines) == said
        assert all(f"WARNING cache-dir {place} cannot be used: " in line for line in lines)
