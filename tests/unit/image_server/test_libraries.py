# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A library that is missing is one error at the start, and a connection without a reader ends at once."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import listener, monitoring
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon import requests as daemon_requests
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.answers import Answers, Registry
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.command_line import USAGE, main
from tests.unit.image_server.test_main import GOOD


@pytest.mark.parametrize("folder", ["--nmstate-dir", "--overlays-dir"])
def test_httptools_is_asked_for_before_anything_is_begun(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(daemon_requests, "HAS_HTTPTOOLS", False)
    monkeypatch.setattr(listener, "_listen", lambda *_address: pytest.fail("a socket was opened"))
    secret = tmp_path / "secret"
    assert main([folder, str(tmp_path), "--secret-file", str(secret)], GOOD) == USAGE
    assert capsys.readouterr().err == (
        "image-server: the image server needs the Python library httptools; install it: apt install python3-httptools, "
        "or pip install httptools\n"
    )
    assert not secret.exists()


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_whose_reader_cannot_be_made_is_closed(tls, monkeypatch):
    def fail():
        raise NameError("httptools")

    monkeypatch.setattr(listener, "RequestReader", fail)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None

    async def talk() -> tuple[bytes, list[str]]:
        said: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, what: said.append(repr(what["exception"])))
        answers = Answers(Registry(), lambda path: path, lambda _path: False, lambda _path: "")
        server = listener.Listener(answers, monitoring.Metrics(), monitoring.Progress(), tls=context)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.start("127.0.0.1", 0))
        try:
            return await asyncio.wait_for(reader.read(), 5), said
        finally:
            writer.close()
            await server.stop()

    assert asyncio.run(talk()) == (b"", ["NameError('httptools')"])
