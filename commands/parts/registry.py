# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads manifests and blobs from a registry (OCI distribution API)."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.parse

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import LARGEST_NUMBER

from commands.parts.errors import HttpStatus, Refused
from commands.parts.login import Login, whole
from commands.parts.oci_url import DIGEST, OciUrl
from commands.parts.transfer import Transfer

DOCUMENT_LIMIT = 4 << 20  # the least that the specification asks of registries
ACCEPTED = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


class Descriptor:
    """What a manifest says about a blob or another manifest."""

    def __init__(self, value):
        if not isinstance(value, dict):
            raise Refused("image: the manifest is damaged: a descriptor is no object")
        digest, size = value.get("digest"), value.get("size")
        if not isinstance(digest, str) or not re.fullmatch(DIGEST, digest):
            raise Refused("image: the manifest is damaged: %.100r is no digest" % digest)
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= LARGEST_NUMBER:
            raise Refused("image: the manifest is damaged: %.100r is no size" % size)
        self.digest, self.size = digest, size
        self.media_type = str(value.get("mediaType") or "")
        annotations = value.get("annotations")
        self.annotations = annotations if isinstance(annotations, dict) else {}
        platform = value.get("platform")
        self.platform = platform if isinstance(platform, dict) else {}
        self.algorithm, _colon, self.hex = self.digest.partition(":")

    @property
    def title(self) -> str:
        """The file name that an artifact gives it, harmless to print."""
        return re.sub("[^ -~]", "?", str(self.annotations.get("org.opencontainers.image.title", "")))[:200]


class Registry:
    """One repository of a registry."""

    def __init__(self, url: OciUrl, token: str, agent: str, say, pause: float = 0.5):
        self.url, self.agent, self.say, self.pause = url, agent, say, pause
        self.login = Login(url, token, agent, pause, say)

    def manifest(self, reference: str) -> tuple:
        """Return a manifest or index by tag or digest, as an object, and its digest."""
        asked = RegistryTransfer(self, "manifests", reference)
        data = whole(asked, DOCUMENT_LIMIT)
        algorithm = reference.partition(":")[0] if ":" in reference else "sha256"
        digest = "%s:%s" % (algorithm, hashlib.new(algorithm, data).hexdigest())
        if ":" in reference and digest != reference:
            raise Refused("%s: the registry sent a manifest with the digest %s, expected %s; nothing of it is used" % (
                self.url.shown, digest, reference
            ))  # fmt: skip
        return as_object(data, "manifest"), digest

    def document(self, descriptor: Descriptor, what: str) -> dict:
        """Return a small blob as an object."""
        return as_object(self.small_blob(descriptor, what), what)

    def small_blob(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a small blob, proven."""
        if descriptor.size > DOCUMENT_LIMIT:
            raise Refused("image: its %s has %d bytes, refused" % (what, descriptor.size))
        data = whole(self.blob(descriptor), DOCUMENT_LIMIT)
        if hashlib.new(descriptor.algorithm, data).hexdigest() != descriptor.hex:
            raise Refused("image: its %s is damaged: another digest than %s" % (what, descriptor.digest))
        return data

    def blob(self, descriptor: Descriptor) -> Blob:
        """Return the source of a blob."""
        return Blob(self, descriptor)


class RegistryTransfer(Transfer):
    """Something that a registry sends to those who may read it."""

    content_addressed = True  # blobs are; manifests are never asked for from the middle

    def __init__(self, registry: Registry, kind: str, reference: str):
        url = registry.url
        super().__init__(url.shown, registry.agent, url.stall, registry.pause, registry.say)
        self.registry, self.kind = registry, kind
        self.challenges: list[str] = []
        self.location = url.location(kind, reference)

    def request(self):
        """Ask, and log in as the registry wants it."""
        headers = {"Accept": ", ".join(ACCEPTED)} if self.kind == "manifests" else {}
        for _attempt in range(3):
            try:
                return self.ask(self.location, headers, self.registry.login.header)
            except HttpStatus as error:
                if error.status != 401 or not self.challenges or not self.registry.login.renew(self.challenges):
                    raise
                last = error
        raise last

    def judge(self, error: urllib.error.HTTPError) -> Exception:
        """Return what an error status means; remember how the registry wants us to log in."""
        ours = urllib.parse.urlsplit(error.url).netloc == urllib.parse.urlsplit(self.location).netloc
        self.challenges = error.headers.get_all("WWW-Authenticate", []) if error.code == 401 and ours else []
        if error.code not in (401, 403, 404):
            return super().judge(error)
        given = self.registry.login.given
        way = {
            401: "OCI_REGISTRY_AUTH_TOKEN is not accepted; it is user:password, or a token"
            if given
            else "log in: set OCI_REGISTRY_AUTH_TOKEN to user:password, or to a token",
            403: "whoever OCI_REGISTRY_AUTH_TOKEN belongs to may not read it" if given else "it is not public",
            404: "there is no such %s; check registry, name and tag" % self.kind[:-1],
        }[error.code]
        text = (self.shown, error.code, error.reason, error_code(error), way)
        return HttpStatus(error.code, "%s: HTTP %d %s%s; %s" % text)


class Blob(RegistryTransfer):
    """The bytes that a digest names; a transfer that broke off goes on where it stopped."""

    def __init__(self, registry: Registry, descriptor: Descriptor):
        super().__init__(registry, "blobs", descriptor.digest)
        self.size = self.told = descriptor.size

    def begin(self, size: int | None, validator: str) -> None:
        """Compare the size with the manifest's."""
        if size is not None and size != self.told:
            raise Refused("%s: a blob has %d bytes, its manifest says %d" % (self.shown, size, self.told))

    def chunks(self):
        """Yield the bytes; not more than the manifest says."""
        for chunk in super().chunks():
            if self.received > self.told:
                raise Refused("%s: a blob has more than the %d bytes of its manifest" % (self.shown, self.told))
            yield chunk


def as_object(data: bytes, what: str) -> dict:
    """Return JSON that must be an object."""
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("image: its %s is no JSON object" % what)
    return found


def error_code(error: urllib.error.HTTPError) -> str:
    """Return the registry's own word for an error, in brackets, if it gives one."""
    try:
        code = json.loads(error.read(4096))["errors"][0]["code"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return " (%s)" % code if isinstance(code, str) and re.fullmatch("[A-Z_]{1,40}", code) else ""
