# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What every request for an image keeps to: where a redirect may lead, and where its login may go."""

from __future__ import annotations

import base64
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from .text import json_object

#: Who we say we are; the version is that of galaxy.yml.
AGENT, VERSION = "kubenode.provision", "1.0.0"
#: Unredirected headers that urllib makes for each request.
_OF_ONE_REQUEST = ("Host", "Content-length", "Content-type")


class BadRedirect(ValueError):
    """The server redirects to where we do not go, of which the text says the ``scheme`` alone."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"the server redirects from {old} to {new}, refused")
        self.scheme = new


class Redirects(urllib.request.HTTPRedirectHandler):
    """Never from https to http, never with a private header to another host, and with the method of the request.

    A header is private when the request holds it as an unredirected one.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = split_url(req.full_url), split_url(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise BadRedirect(old.scheme, new.scheme)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is None:
            return None
        request.method = req.get_method()
        if (old.scheme, old.netloc) == (new.scheme, new.netloc):
            for name, value in req.unredirected_hdrs.items():
                if name not in _OF_ONE_REQUEST:
                    request.add_unredirected_header(name, value)
        return request


def split_url(url: str) -> urllib.parse.SplitResult:
    """A URL in its parts; raises ValueError, also for a port that is none."""
    parts = urllib.parse.urlsplit(url)
    if parts.port == 0:
        raise ValueError("no server has the port 0")
    return parts


def is_http_url(text: object) -> bool:
    """Whether it is an http or https URL with a host, and with a port that can be one where it has one."""
    try:
        parts = split_url(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def split_login(url: str) -> tuple[str, str]:
    """A URL without its login and fragment, and the login as a header; raises ValueError, whose text may hold both."""
    parts = split_url(url)
    login, at, host = parts.netloc.rpartition("@")
    bare = urllib.parse.urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    if not at:
        return bare, ""
    user, _colon, password = (urllib.parse.unquote_to_bytes(part) for part in login.partition(":"))
    return bare, basic(user + b":" + password)


def basic(login: bytes) -> str:
    """The header of a login, given as bytes."""
    return "Basic " + base64.b64encode(login).decode("ascii")


def parse_challenge(text: str) -> tuple[str, dict[str, str]]:
    """A WWW-Authenticate header taken apart: scheme in lower case, parameters."""
    scheme, dummy, rest = text.strip().partition(" ")
    pairs = re.findall(r'([A-Za-z]+)=(?:"([^"]*)"|([^",\s]+))', rest)
    return scheme.lower(), {name.lower(): quoted or bare for name, quoted, bare in pairs}


# --- Registries (OCI distribution API): places and logins

#: What a tag or digest may lead to: an index or a manifest.
MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


def registry_place(host: str, name: str) -> tuple[str, str]:
    """The server that is asked for an image, and the image's name there."""
    if host != "docker.io":
        return host, name
    return "registry-1.docker.io", name if "/" in name else "library/" + name


def registry_logins(token: str) -> tuple[str, list[str]]:
    """What a token is sent as: the header of ``user:password`` (or empty), else those that may be tried in turn."""
    data = token.encode("utf-8", "surrogateescape")
    if ":" in token:
        return basic(data), []
    # as it is, and as CAPH hands it over: ghcr.io takes access tokens in base64
    return "", ["Bearer " + token, "Bearer " + base64.b64encode(data).decode("ascii")] if token else []


def token_server(values: Mapping[str, str], scheme: str, name: str) -> tuple[str, str]:
    """Where a challenge wants us to ask for a token to read the repository ``name``: the URL, and its host.

    ``scheme``: the registry's own. Raises ValueError for what is no URL, :class:`BadRedirect` for one without TLS.
    """
    realm = split_url(values["realm"])
    if realm.scheme not in (("https", "http") if scheme == "http" else ("https",)) or not realm.hostname:
        raise BadRedirect(scheme, realm.scheme)
    query = urllib.parse.parse_qsl(realm.query)
    query += [("service", values["service"])] if "service" in values else []
    query.append(("scope", values.get("scope") or f"repository:{name}:pull"))
    return urllib.parse.urlunsplit(realm._replace(query=urllib.parse.urlencode(query), fragment="")), realm.hostname


def token_in(answer: bytes) -> str:
    """The token that such a server hands out; empty when there is none."""
    found = json_object(answer) or {}
    token = found.get("token") or found.get("access_token")
    return token if isinstance(token, str) and re.match(r"[!-~]+\Z", token) else ""
