# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's entry and its settings: flags (those of image-customization-controller and some more) and variables.

It ends with 0 by a signal, 1 when it cannot go on, 2: wrong settings."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.nmstate.conversion import CHOICES

from .listener import Limits
from .publisher import address

LEVELS = ("debug", "info", "warning", "error")
SECRET_VARIABLE = "KUBENODE_IMAGES_SECRET_FILE"
_PORT = re.compile(r"[0-9]{1,5}\Z")
_PORT_OF_IMAGES = 8084
_LONGEST_SIGNED = 366 * 24 * 3600


@dataclass(frozen=True)
class Settings:
    """All settings but the agent's inputs."""

    bind: tuple[str, int]
    publish: str
    nmstate_dir: str
    overlays_dir: str
    namespace: str
    metrics: tuple[str, int] | None
    secret_file: str
    pull_secret_file: str
    unguessable: bool  # paths are made of the secret
    guessable: bool  # asked for, with any content
    signed: int
    tls_cert: str
    tls_key: str
    limits: Limits
    urls_file: str
    cache_dir: str
    nmstate: str
    log_level: str
    iso: str
    initramfs: str
    shared_dir: str

    @property
    def static(self) -> bool:
        """Whether folders say what is served, rather than a Kubernetes cluster."""
        return bool(self.nmstate_dir or self.overlays_dir)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The settings; ImageError names what is wrong. Help and unknown flags end the program."""
    given = _parser(environ).parse_args(argv)
    if bool(given.tls_cert) != bool(given.tls_key):
        raise ImageError("tls-cert and tls-key belong together; give both or neither")
    if not 0 <= given.signed_urls <= _LONGEST_SIGNED:
        raise ImageError(f"signed-urls {given.signed_urls} is not within 0 to {_LONGEST_SIGNED} seconds")
    for name, least in (("max_connections", 1), ("max_connections_per_address", 0)):
        if not least <= getattr(given, name) <= 1_000_000:
            option = name.replace("_", "-")
            raise ImageError(f"{option} {getattr(given, name)} is not within {least} to 1000000")
    if given.unguessable and given.guessable:
        raise ImageError("unguessable and guessable exclude each other; give one of them")
    static = given.nmstate_dir or given.overlays_dir
    if given.nmstate_dir and given.overlays_dir and _same(given.nmstate_dir, given.overlays_dir):
        raise ImageError(f"overlays-dir {given.overlays_dir} is nmstate-dir, too; give another folder")
    if static and (given.unguessable or given.signed_urls) and not given.secret_file:
        raise ImageError(
            f"unguessable and signed-urls need a secret: give secret-file ({SECRET_VARIABLE}), which is made when "
            "it is not there"
        )
    if given.overlays_dir and not given.secret_file and not given.guessable:
        raise ImageError(
            "overlays-dir: its images may hold secrets, and their names can be guessed; give secret-file "
            f"({SECRET_VARIABLE}), which "
            "is made when it is not there, or guessable"
        )
    iso, initramfs = environ.get("DEPLOY_ISO", ""), environ.get("DEPLOY_INITRD", "")
    if not iso and not initramfs and not (static and not given.nmstate_dir):
        raise ImageError("DEPLOY_ISO and DEPLOY_INITRD are not set; give the paths of the base images")
    bind = bound("images-bind-addr", given.images_bind_addr)
    metrics = None if given.metrics_addr in ("", "0") else bound("metrics-addr", given.metrics_addr)
    return Settings(
        bind=bind,
        publish=address(given.images_publish_addr or _own_url(*bind, secured=bool(given.tls_cert))),
        nmstate_dir=given.nmstate_dir,
        overlays_dir=given.overlays_dir,
        namespace=given.namespace,
        metrics=metrics,
        secret_file=given.secret_file,
        pull_secret_file=given.pull_secret_file,
        unguessable=bool(given.secret_file) and not given.guessable,
        guessable=given.guessable,
        signed=given.signed_urls,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        limits=Limits(given.max_connections, given.max_connections_per_address),
        urls_file=given.urls_file,
        cache_dir=given.cache_dir,
        nmstate=given.nmstate,
        log_level=given.log_level,
        iso=iso,
        initramfs=initramfs,
        shared_dir=environ.get("IMAGE_SHARED_DIR", ""),
    )


def bound(name: str, text: str) -> tuple[str, int]:
    """Address and port to listen on: :8084, 192.0.2.1:8084, [2001:db8::1]:8084."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not _PORT.match(port) or int(port) > 65535:
        raise ImageError(f"{name} {text!r} is no address and port such as :8084 or 192.0.2.1:8084")
    return host, int(port)


def _own_url(host: str, port: int, secured: bool) -> str:
    """What URLs begin with when nothing else is known; with the usual port for one that is yet to be found."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http{'s' if secured else ''}://{f'[{host}]' if ':' in host else host}:{port or _PORT_OF_IMAGES}"


def _same(folder: str, other: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(other)


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="image-server",
        allow_abbrev=False,
        description="Serves CoreOS live images made for each host: for the NMState documents of a folder, for overlay "
        "descriptors, or (with neither) for the PreprovisioningImages of a Kubernetes cluster.",
        epilog="The base images come from DEPLOY_ISO, DEPLOY_INITRD and IMAGE_SHARED_DIR; the agent's inputs from "
        "IRONIC_AGENT_IMAGE, IRONIC_BASE_URL and their like.",
    )

    def flag(name: str, metavar: str, text: str, default: str = "") -> None:
        # one dash, too: that is how programs written in Go are often called
        parser.add_argument("--" + name, "-" + name, metavar=metavar, default=default, help=text)

    def number(name: str, metavar: str, text: str, default: int) -> None:
        parser.add_argument("--" + name, "-" + name, metavar=metavar, type=int, default=default, help=text)

    flag("nmstate-dir", "DIR", "NMState documents, one a host; NAME.host.yml beside one holds what else is its own")
    flag("overlays-dir", "DIR", "overlay descriptors made by preprov_image_build, *.json")
    bind = f":{_PORT_OF_IMAGES}"
    flag("images-bind-addr", "ADDR", f"where images are served ({bind})", bind)
    flag("images-publish-addr", "URL", "what image URLs begin with (http://127.0.0.1:8084, or as images-bind-addr and "
         "tls-cert say)")  # fmt: skip
    flag("namespace", "NAMES", "namespaces of a cluster, with commas (WATCH_NAMESPACE; empty: all)",
         environ.get("WATCH_NAMESPACE", ""))  # fmt: skip
    flag("metrics-addr", "ADDR", "/metrics, /healthz, /readyz and /status (127.0.0.1:8085; 0: off)", "127.0.0.1:8085")
    flag("secret-file", "FILE", f"secret of names and signatures, 0600; made when missing ({SECRET_VARIABLE})",
         environ.get(SECRET_VARIABLE, ""))  # fmt: skip
    flag("pull-secret-file", "FILE", "the agent's pull secret, unless IRONIC_AGENT_PULL_SECRET has it "
         "(/run/secrets/pull-secret)")  # fmt: skip
    parser.add_argument("--unguessable", "-unguessable", action="store_true",
                        help="paths that cannot be guessed, not the hosts' names, as with any secret-file")  # fmt: skip
    parser.add_argument("--guessable", "-guessable", action="store_true",
                        help="the hosts' names as paths, with a secret-file or secrets inside, too")  # fmt: skip
    number("signed-urls", "SECONDS", "URLs are signed and good for at least so long (0: for ever)", 0)
    flag("tls-cert", "FILE", "certificate chain in PEM; read again when it changes")
    flag("tls-key", "FILE", "its private key")
    number("max-connections", "N", "connections at once (1024)", Limits().connections)
    number("max-connections-per-address", "N", "connections of one address at once (64; 0: no limit)",
           Limits().per_address)  # fmt: skip
    flag("urls-file", "FILE", "where to write the table of URLs, 0600, as JSON")
    flag("cache-dir", "DIR", "where to keep the digests of bases for the next start (systemd's CACHE_DIRECTORY)",
         environ.get("CACHE_DIRECTORY", "").partition(":")[0])  # fmt: skip
    parser.add_argument(
        "--nmstate", "-nmstate", choices=CHOICES, default="builtin",
        help="what converts NMState documents; auto: nmstatectl where it is installed (builtin)",
    )  # fmt: skip
    parser.add_argument("--log-level", "-log-level", choices=LEVELS, default="info", help="what is logged (info)")
    return parser


# --- the entry: settings, log, limits


FAILED, USAGE = 1, 2


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run until a signal; errors are one line on stderr."""
    gc.disable()  # until all is there: a good part of a start is spent on looking for garbage among modules
    try:
        return _run(argv, environ)
    finally:
        gc.enable()


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        settings = parse(argv, environ)
        logging.basicConfig(
            level=settings.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
        )
        with contextlib.suppress(ValueError, OSError):  # as many connections as the system allows
            _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        from .service import Program

        program = Program(settings, environ)
    except ImageError as error:
        return _failed(error, USAGE)
    try:
        return asyncio.run(program.run())
    except ImageError as error:
        return _failed(error, FAILED)


def trial(argv: Sequence[str], environ: Mapping[str, str], given: Mapping[str, Any]) -> int:
    """Print what keeps the program from starting with these settings, as JSON; nothing is changed.

    ``given``: ``unit``, in whose place it would start, and ``bases`` to look at, see `trial.problems`.
    """
    from . import trial as trying

    try:
        found = [*trying.problems(parse(argv, environ), given["unit"], given["bases"])]
    except ImageError as error:
        found = [("", str(error))]
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _failed(error: ImageError, code: int) -> int:
    sys.stderr.write(f"image-server: {escaped(str(error))}\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
