# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that make no sense: one line that names what and why, exit code 2, and no socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.command_line import (
    USAGE,
    bound,
    main,
    parse,
)

GOOD = {
    "IRONIC_AGENT_IMAGE": "example.test/ipa:1",
    "IRONIC_BASE_URL": "http://ironic.test",
    "DEPLOY_ISO": "/nowhere/live.iso",
    "DEPLOY_INITRD": "/nowhere/live.img",
}
CASES = {
    "no folder": (["--nmstate-dir", "{tmp}/gone"], {}, ["nmstate-dir '{tmp}/gone'", "No such file"]),
    "no overlays": (["--overlays-dir", "{tmp}/gone", "--guessable"], {}, ["overlays-dir '{tmp}/gone'", "No such file"]),
    "no agent": (["--nmstate-dir", "{tmp}"], {"IRONIC_AGENT_IMAGE": ""}, ["agent_image (IRONIC_AGENT_IMAGE) ''"]),
    "no ironic": (["--nmstate-dir", "{tmp}"], {"IRONIC_BASE_URL": ""}, ["IRONIC_BASE_URL", "is empty; give the URL"]),
    "bad ironic": (["--nmstate-dir", "{tmp}"], {"IRONIC_BASE_URL": "x y"}, ["IRONIC_BASE_URL", "'x y' is no http"]),
    "pull secret": (["--nmstate-dir", "{tmp}"], {"IRONIC_AGENT_PULL_SECRET": "S3CRET!"}, ["neither JSON nor base64"]),
    "pull secret file": (["--nmstate-dir", "{tmp}", "--pull-secret-file", "{tmp}/gone"], {}, ["pull-secret-file"]),
    "ca": (["--nmstate-dir", "{tmp}"], {"CA_BUNDLE": "{tmp}/gone"}, ["CA_BUNDLE: file {tmp}/gone cannot be read"]),
    "registries": (["--nmstate-dir", "{tmp}"], {"REGISTRIES_CONF_PATH": "{tmp}"}, ["REGISTRIES_CONF_PATH: file {tmp}"]),
    "no bases": (["--nmstate-dir", "{tmp}"], {"DEPLOY_ISO": "", "DEPLOY_INITRD": ""}, ["DEPLOY_ISO", "are not set"]),
    "pull secret behind a name": (
        ["--nmstate-dir", "{tmp}"], {"IRONIC_AGENT_PULL_SECRET": "eyJhdXRocyI6IHsiYSI6IHsiYXV0aCI6ICJTM0NSRVQifX19"},
        ["the image holds the agent's pull secret", "give secret-file"],
    ),
    "proxy's password behind a name": (
        ["--nmstate-dir", "{tmp}"], {"HTTPS_PROXY": "http://me:S3CRET@proxy.test:3128"}, ["a proxy's password"],
    ),
    "overlays behind names": (["--overlays-dir", "{tmp}"], {}, ["overlays-dir: its images may hold secrets"]),
    "both": (["--nmstate-dir", "{tmp}", "--unguessable", "--guessable"], {}, ["exclude each other"]),
    "no secret": (["--nmstate-dir", "{tmp}", "--unguessable"], {}, ["give secret-file (KUBENODE_IMAGES_SECRET_FILE)"]),
    "readable secret": (
        ["--nmstate-dir", "{tmp}", "--unguessable", "--secret-file", "{tmp}/readable"], {}, ["mode 0644", "chmod 600"],
    ),
    "short secret": (
        ["--nmstate-dir", "{tmp}", "--unguessable"], {"KUBENODE_IMAGES_SECRET_FILE": "{tmp}/short"},
        ["holds 5 characters", "openssl rand -hex 32"],
    ),
    "secret that cannot be made": (
        ["--nmstate-dir", "{tmp}", "--unguessable", "--secret-file", "/proc/secret"], {}, ["cannot be made"],
    ),
    "ironic's password": (
        ["--nmstate-dir", "{tmp}"], {"IRONIC_BASE_URL": "https://user:S3CRET@192.0.2.5"},
        ["ironic_urls (IRONIC_BASE_URL): 'https://********@192.0.2.5' is no http or https URL without credentials"],
    ),
    "password to publish with": (
        ["--nmstate-dir", "{tmp}", "--images-publish-addr", "http://user:S3CRET@x:8084"], {},
        ["images-publish-addr 'http://********@x:8084' is no address"],
    ),
    "password that is no port": (
        ["--nmstate-dir", "{tmp}", "--images-publish-addr", "http://user:S3CRET/@x"], {},
        ["images-publish-addr 'http://********@x' is no URL"],
    ),
    "publish": (["--nmstate-dir", "{tmp}", "--images-publish-addr", "host:8084"], {}, ["addr 'host:8084'"]),
    "bind": (["--nmstate-dir", "{tmp}", "--images-bind-addr", "8084"], {}, ["images-bind-addr '8084' is no address"]),
    "metrics": (["--nmstate-dir", "{tmp}", "--metrics-addr", "x:99999"], {}, ["metrics-addr 'x:99999'"]),
    "half of tls": (["--nmstate-dir", "{tmp}", "--tls-cert", "x"], {}, ["tls-cert and tls-key belong together"]),
    "tls": (
        ["--nmstate-dir", "{tmp}", "--tls-cert", "{tmp}/x", "--tls-key", "{tmp}/x"], {},
        ["cannot be used: No such file"],
    ),
    "no pem": (
        ["--nmstate-dir", "{tmp}", "--tls-cert", "{tmp}/short", "--tls-key", "{tmp}/short"], {},
        ["cannot be used: one of them is not in PEM, or the key has a passphrase"],
    ),
    "signed": (["--nmstate-dir", "{tmp}", "--signed-urls", "-1"], {}, ["signed-urls -1 is not within 0 to"]),
    "connections": (["--nmstate-dir", "{tmp}", "--max-connections", "0"], {}, ["max-connections 0 is not within"]),
    "no nmstatectl": (["--nmstate-dir", "{tmp}", "--nmstate", "nmstatectl"], {}, ["nmstatectl is not installed"]),
    "one folder": (
        ["--nmstate-dir", "{tmp}", "--overlays-dir", "{tmp}/.", "--guessable"], {}, ["overlays-dir", "another folder"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused(case, tmp_path: Path, capsys, monkeypatch):
    for name, text, mode in (("readable", "s" * 64, 0o644), ("short", "short", 0o600)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    arguments, environ, messages = CASES[case]
    own = {**GOOD, **{key: value.format(tmp=tmp_path) for key, value in environ.items()}}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([word.format(tmp=tmp_path) for word in arguments], own) == USAGE
    err = capsys.readouterr().err
    for text in messages:
        assert text.format(tmp=tmp_path) in err
    assert len(err.splitlines()) == 1
    assert "S3CRET" not in err


def test_an_unknown_flag(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--nmstate-dirs", "x"], GOOD)
    assert ended.value.code == 2
    assert "--nmstate-dirs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "place"),
    [(":8084", ("", 8084)), ("192.0.2.1:0", ("192.0.2.1", 0)), ("[2001:db8::1]:80", ("2001:db8::1", 80)),
     ("[::]:8084", ("::", 8084)), ("localhost:8084", ("localhost", 8084))],
)  # fmt: skip
def test_addresses(text, place):
    assert bound("x", text) == place


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ([], "http://127.0.0.1:8084"),
        (["--images-bind-addr", ":18084"], "http://127.0.0.1:18084"),
        (["--images-bind-addr", "192.0.2.1:80"], "http://192.0.2.1:80"),
        (["--images-bind-addr", "[::]:80"], "http://[::1]:80"),
        (["--images-bind-addr", ":443", "--tls-cert", "x", "--tls-key", "x"], "https://127.0.0.1:443"),
        (["--images-bind-addr", ":443", "--images-publish-addr", "http://x:80/"], "http://x:80"),
    ],
)
def test_urls_begin_with_where_images_are_served(arguments, url):
    assert parse(["--nmstate-dir", "x", *arguments], GOOD).publish == url


@pytest.mark.parametrize("text", ["", "8084", "x", ":", ":x", ":-1", ":65536", "2001:db8::1:8084", ":8084x", ": 80"])
def test_addresses_that_are_none(text):
    with pytest.raises(ImageError, match="such as :8084"):
        bound("x", text)


def test_defaults_are_the_peers():
    found = parse(["-nmstate-dir", "hosts"], {**GOOD, "WATCH_NAMESPACE": "a"})
    assert (found.bind, found.publish, found.namespace) == (("", 8084), "http://127.0.0.1:8084", "a")
    assert (found.metrics, found.static) == (("127.0.0.1", 8085), True)
    assert parse(["--metrics-addr", "0"], GOOD).metrics is None
    assert not parse([], GOOD).static
    assert parse(["--overlays-dir", "x", "--guessable"], {}).iso == ""  # descriptors bring their bases


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [([], False), (["--secret-file", "s"], True), (["--secret-file", "s", "--guessable"], False),
     (["--secret-file", "s", "--unguessable"], True)],
)  # fmt: skip
def test_names_are_hidden_where_there_is_a_secret(arguments, hidden):
    assert parse(["--nmstate-dir", "x", *arguments], GOOD).unguessable is hidden
