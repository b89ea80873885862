# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows a registry who we are: by basic authentication, or by a token that another server hands out for a login."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse

from ansible_collections.kubenode.provision.plugins.module_utils._common.web import parse_challenge

from commands.parts.errors import HttpStatus, Refused
from commands.parts.oci_url import OciUrl
from commands.parts.transfer import Transfer

TOKEN_LIMIT = 1 << 20


class Login:
    """The Authorization header for one repository; renewed when the registry no longer takes it."""

    def __init__(self, url: OciUrl, token: str, agent: str, pause: float, say):
        self.url, self.agent, self.pause, self.say = url, agent, pause, say
        self.basic = ""
        self.ways: list = []  # headers that are still to be tried for a token without a user
        self.header = ""
        if ":" in token:
            self.basic = "Basic " + base64.b64encode(token.encode("utf-8", "surrogateescape")).decode()
        elif token:
            if not re.fullmatch("[!-~]+", token):
                raise Refused("OCI_REGISTRY_AUTH_TOKEN: it is neither user:password nor a token (characters)")
            # as it is, and as CAPH hands it over: ghcr.io takes access tokens in base64
            self.ways = ["Bearer " + token, "Bearer " + base64.b64encode(token.encode()).decode()]
            self.header = self.ways.pop(0)
        self.given = bool(token)

    def renew(self, challenges: list) -> bool:
        """Answer the challenges of a 401; return whether there is a new header to try."""
        if self.ways:
            self.header = self.ways.pop(0)
            return True
        for scheme, values in map(parse_challenge, challenges):
            if scheme == "bearer" and values.get("realm") and (self.basic or not self.given):
                self.header = "Bearer " + self._fetch(values)
                return True
            if scheme == "basic" and self.basic and self.header != self.basic:
                self.header = self.basic
                return True
        return False

    def _fetch(self, values: dict) -> str:
        try:
            realm = urllib.parse.urlsplit(values["realm"])
            realm.port  # noqa: B018 - raises ValueError when it is none
        except ValueError as error:
            text = "%s: the registry wants the login sent to what is no URL: %s"
            raise Refused(text % (self.url.shown, error)) from None
        if realm.scheme not in (("https", "http") if self.url.scheme == "http" else ("https",)) or not realm.hostname:
            raise Refused("%s: the registry wants the login sent to %s, refused" % (self.url.shown, realm.scheme))
        query = urllib.parse.parse_qsl(realm.query)
        query += [("service", values["service"])] if "service" in values else []
        query.append(("scope", values.get("scope") or "repository:%s:pull" % self.url.name))
        location = urllib.parse.urlunsplit(realm._replace(query=urllib.parse.urlencode(query), fragment=""))
        server = TokenServer("token server %s" % realm.hostname, self.agent, self.url.stall, self.pause, self.say)
        server.location, server.login = location, self.basic
        try:
            answer = json.loads(whole(server, TOKEN_LIMIT))
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = ""
        except HttpStatus as error:
            why = "OCI_REGISTRY_AUTH_TOKEN is not accepted" if self.given else "set OCI_REGISTRY_AUTH_TOKEN"
            raise HttpStatus(error.status, "%s: no token from %s: HTTP %d; %s" % (
                self.url.shown, realm.hostname, error.status, why
            )) from None  # fmt: skip
        if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
            raise Refused("%s: %s handed out no token" % (self.url.shown, realm.hostname))
        return token


class TokenServer(Transfer):
    """What a token server answers."""

    location = login = ""

    def request(self):
        """Ask for a token."""
        return self.ask(self.location, {}, self.login)


def whole(transfer: Transfer, limit: int) -> bytes:
    """Return all bytes of a transfer; refuse more than the limit."""
    data = b""
    for chunk in transfer.chunks():
        data += chunk
        if len(data) > limit:
            raise Refused("%s: the answer is longer than %d bytes" % (transfer.shown, limit))
    return data
