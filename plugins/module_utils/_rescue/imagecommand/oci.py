# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Installs an image from a registry: a raw image of a whole disk, or a root file system in layers.

Called in a rescue system as: image-url-command-oci IMAGE_URL BOOTSTRAP_FILE MACHINE_NAME "DEVICE".
What it does and every switch of the image URL: docs/commands.md. The registry is read as the OCI distribution API says:
login, manifests, blobs, and signatures of cosign.

robot_installimage calls it as: image-url-command-oci --to-file FILE BYTES OUTPUT_JSON IMAGE_URL, which writes no disk.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import textwrap
import urllib.error
import urllib.parse
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ..._common.mounts import private_mounts
from ..._common.text import LARGEST_NUMBER, json_object, json_value, whole_number
from ..._common.web import MANIFEST_TYPES, BadRedirect, parse_challenge, registry_logins, token_in, token_server
from .basics import MIB, HttpStatus, Refused, Say, run
from .filesystems import Layout
from .incoming import Digest, Transfer
from .invocation import DIGEST, TOKEN, Job, OciUrl, Progress, installed_record, run_program, writing
from .raw_disk import install_raw
from .rootfs_tar import RootFs
from .rootfs_tar import check_bootstrap as check_bootstrap_of_root
from .tar_reader import beginning, kind_of_content, raw_incoming

# --- Shows a registry who we are: by basic authentication, or by a token that another server hands out for a login.


TOKEN_LIMIT = 1 << 20


class Login:
    """The Authorization header for one repository; renewed when the registry no longer takes it."""

    def __init__(self, url: OciUrl, token: str, agent: str, pause: float, say: Say) -> None:
        self.url, self.agent, self.pause, self.say = url, agent, pause, say
        if token and ":" not in token and not re.fullmatch("[!-~]+", token):
            raise Refused("OCI_REGISTRY_AUTH_TOKEN: it is neither user:password nor a token (characters)")
        #: The header of user:password; those that are still to be tried for a token without a user.
        self.basic, self.ways = registry_logins(token)
        self.header = self.ways.pop(0) if self.ways else ""
        self.given = bool(token)

    def renew(self, challenges: list[str]) -> bool:
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

    def _fetch(self, values: dict[str, str]) -> str:
        try:
            location, host = token_server(values, self.url.scheme, self.url.name)
        except BadRedirect as error:
            raise Refused(f"{self.url.shown}: the registry wants the login sent to {error.scheme}, refused") from None
        except ValueError as error:
            text = f"{self.url.shown}: the registry wants the login sent to what is no URL: {error}"
            raise Refused(text) from None
        shown = f"token server {host}"
        server = Transfer(shown, self.agent, self.url.stall, self.pause, self.say, location, self.basic)
        try:
            token = token_in(whole(server, TOKEN_LIMIT))
        except HttpStatus as error:
            why = "OCI_REGISTRY_AUTH_TOKEN is not accepted" if self.given else "set OCI_REGISTRY_AUTH_TOKEN"
            text = f"{self.url.shown}: no token from {host}: HTTP {error.status}; {why}"
            raise HttpStatus(error.status, text) from None
        if not token:
            raise Refused(f"{self.url.shown}: {host} handed out no token")
        return token


def whole(transfer: Transfer, limit: int) -> bytes:
    """Return all bytes of a transfer; refuse more than the limit."""
    data = b""
    for chunk in transfer.chunks():
        data += chunk
        if len(data) > limit:
            raise Refused(f"{transfer.shown}: the answer is longer than {limit} bytes")
    return data


# --- Reads manifests and blobs from a registry (OCI distribution API).


DOCUMENT_LIMIT = 4 << 20  # the least that the specification asks of registries


class Descriptor:
    """What a manifest says about a blob or another manifest."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise Refused("image: the manifest is damaged: a descriptor is no object")
        digest, size = value.get("digest"), value.get("size")
        if not isinstance(digest, str) or not re.fullmatch(DIGEST, digest):
            raise Refused(f"image: the manifest is damaged: {digest!r:.100} is no digest")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= LARGEST_NUMBER:
            raise Refused(f"image: the manifest is damaged: {size!r:.100} is no size")
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

    def __init__(self, url: OciUrl, token: str, agent: str, say: Say, pause: float = 0.5) -> None:
        self.url, self.agent, self.say, self.pause = url, agent, say, pause
        self.login = Login(url, token, agent, pause, say)

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        """Return a manifest or index by tag or digest, as an object, and its digest."""
        asked = RegistryTransfer(self, "manifests", reference)
        data = whole(asked, DOCUMENT_LIMIT)
        algorithm = reference.partition(":")[0] if ":" in reference else "sha256"
        digest = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
        if ":" in reference and digest != reference:
            raise Refused(
                f"{self.url.shown}: the registry sent a manifest with the digest {digest}, expected {reference}; "
                "nothing of it is used"
            )
        return as_object(data, "manifest"), digest

    def small_blob(self, descriptor: Descriptor, what: str) -> bytes:
        """Return a small blob, proven."""
        if descriptor.size > DOCUMENT_LIMIT:
            raise Refused(f"image: its {what} has {descriptor.size} bytes, refused")
        data = whole(Blob(self, descriptor), DOCUMENT_LIMIT)
        if hashlib.new(descriptor.algorithm, data).hexdigest() != descriptor.hex:
            raise Refused(f"image: its {what} is damaged: another digest than {descriptor.digest}")
        return data


class RegistryTransfer(Transfer):
    """Something that a registry sends to those who may read it."""

    content_addressed = True  # blobs are; manifests are never asked for from the middle

    def __init__(self, registry: Registry, kind: str, reference: str) -> None:
        url = registry.url
        location = url.location(kind, reference)
        super().__init__(url.shown, registry.agent, url.stall, registry.pause, registry.say, location)
        self.registry, self.kind = registry, kind
        self.challenges: list[str] = []
        if kind == "manifests":
            self.headers["Accept"] = ", ".join(MANIFEST_TYPES)

    def request(self) -> Any:
        """Ask, and log in as the registry wants it."""
        for _attempt in range(3):
            try:
                return self.ask(self.url, self.headers, {"Authorization": self.registry.login.header})
            except HttpStatus as error:
                if error.status != 401 or not self.challenges or not self.registry.login.renew(self.challenges):
                    raise
                last = error
        raise last

    def judge(self, error: urllib.error.HTTPError) -> Exception:
        """Return what an error status means; remember how the registry wants us to log in."""
        ours = urllib.parse.urlsplit(error.url).netloc == urllib.parse.urlsplit(self.url).netloc
        self.challenges = error.headers.get_all("WWW-Authenticate", []) if error.code == 401 and ours else []
        if error.code not in (401, 403, 404):
            return super().judge(error)
        given = self.registry.login.given
        way = {
            401: "OCI_REGISTRY_AUTH_TOKEN is not accepted; it is user:password, or a token"
            if given
            else "log in: set OCI_REGISTRY_AUTH_TOKEN to user:password, or to a token",
            403: "the user of OCI_REGISTRY_AUTH_TOKEN may not read it" if given else "it is not public",
            404: f"there is no such {self.kind[:-1]}; check registry, name and tag",
        }[error.code]
        text = f"{self.shown}: HTTP {error.code} {error.reason}{error_code(error)}; {way}"
        return HttpStatus(error.code, text)


class Blob(RegistryTransfer):
    """The bytes that a digest names; a transfer that broke off goes on where it stopped."""

    def __init__(self, registry: Registry, descriptor: Descriptor) -> None:
        super().__init__(registry, "blobs", descriptor.digest)
        self.size = self.expected = descriptor.size

    def begin(self, size: int | None, validator: str) -> None:
        """Compare the size with the manifest's."""
        if size is not None and size != self.expected:
            raise Refused(f"{self.shown}: a blob has {size} bytes, its manifest says {self.expected}")

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the bytes; not more than the manifest says."""
        for chunk in super().chunks():
            if self.received > self.expected:
                raise Refused(f"{self.shown}: a blob has more than the {self.expected} bytes of its manifest")
            yield chunk


def as_object(data: bytes, what: str) -> dict[str, Any]:
    found = json_object(data)
    if found is None:
        raise Refused(f"image: its {what} is no JSON object")
    return found


def error_code(error: urllib.error.HTTPError) -> str:
    """Return the registry's own word for an error, in brackets, if it gives one."""
    try:
        code = json_value(error.read(4096))["errors"][0]["code"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return f" ({code})" if isinstance(code, str) and re.fullmatch("[A-Z_]{1,40}", code) else ""


# --- From a reference to the layers for this machine.


ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
EMPTY = "application/vnd.oci.empty.v1+json"


class OciImage:
    """The image of a reference for this machine: layers, in order, and whether they are layers of a file system."""

    def __init__(self, registry: Registry) -> None:
        url, machine = registry.url, platform.machine()
        self.architecture = ARCHITECTURES.get(machine, machine)
        found, self.digest = registry.manifest(url.reference)
        for _depth in range(3):
            if "manifests" not in found:
                break
            if "layers" in found or "config" in found:
                raise Refused(f"image: {url.shown} is index and manifest at once, refused")
            found, _digest = registry.manifest(self._choose(found, url.shown).digest)
        if "manifests" in found or not isinstance(found.get("layers"), list):
            raise Refused(f"image: {url.shown} is no image manifest with layers")
        config = Descriptor(found.get("config"))
        self.container = config.media_type in CONFIGS
        self.layers = [one for one in map(Descriptor, found["layers"]) if one.media_type != EMPTY]
        if not self.layers:
            raise Refused(f"image: {url.shown} has no layers")
        for layer in self.layers:
            if "encrypted" in layer.media_type:
                raise Refused(f"image: {url.shown} has encrypted layers")
        if self.container:
            self._check(as_object(registry.small_blob(config, "configuration"), "configuration"))

    def _choose(self, index: dict[str, Any], shown: str) -> Descriptor:
        entries = index["manifests"] if isinstance(index["manifests"], list) else []
        there = []
        for entry in map(Descriptor, entries):
            words = [entry.platform.get(name) for name in ("os", "architecture", "variant")]
            name = "/".join(re.sub("[^!-~]", "?", str(word))[:40] for word in words if word)
            if words[:2] == ["linux", self.architecture] and (not words[2] or words[2] in ("v1", "v8")):
                return entry
            if name and name not in there and name != "unknown/unknown":
                there.append(name)
        raise Refused(
            f"image: {shown} has nothing for linux/{self.architecture}; there is "
            f"{', '.join(there) or 'nothing with a platform'}"
        )

    def _check(self, config: dict[str, Any]) -> None:
        system, architecture = config.get("os", "linux"), config.get("architecture", self.architecture)
        if (system, architecture) != ("linux", self.architecture):
            raise Refused(
                f"image: it is made for {system!s:.40}/{architecture!s:.40}, this machine is linux/{self.architecture}"
            )

    def only_layer(self, title: str) -> Descriptor:
        """Return the layer with the image in it: the only one, or the one with this title."""
        titles = [layer.title for layer in self.layers if layer.title]
        if title:
            named = [layer for layer in self.layers if layer.title == title]
            if len(named) != 1:
                raise Refused(f"image: file={title!s:.200} is not in it; there is {', '.join(titles) or 'no title'}")
            return named[0]
        if len(self.layers) != 1:
            raise Refused(
                f"image: it has {len(self.layers)} files; name one with #file= behind the image URL: "
                f"{', '.join(titles)}"
            )
        return self.layers[0]


# --- Verifies the signature that cosign made for an image with a key pair; openssl does the arithmetic.


PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"


def check_signature(registry: Registry, digest: str, key: str) -> None:
    """Refuse an image whose digest the holder of the key has not signed; the key is the base64 of a cosign.pub."""
    pem = public_key(key)
    tag = digest.replace(":", "-") + ".sig"
    try:
        found, _digest = registry.manifest(tag)
    except HttpStatus as error:
        if error.status != 404:
            raise
        raise Refused(f"image: {registry.url.shown} is not signed (no {tag} beside it)") from None
    layers = found.get("layers")
    for layer in map(Descriptor, layers if isinstance(layers, list) else []):
        if layer.media_type == PAYLOAD and signed(registry, layer, digest, pem):
            registry.say(f"image: {digest} is signed with the given key")
            return
    raise Refused(f"image: {registry.url.shown} has no signature that the key in cosign-key= verifies")


def public_key(key: str) -> str:
    """Return the PEM form of the key in the image URL, where + may have become a space."""
    text = key.replace(" ", "+")
    if not re.fullmatch("[A-Za-z0-9+/]{40,2000}={0,2}", text):
        raise Refused("image URL: cosign-key= is not the base64 lines of a cosign.pub")
    return "\n".join(["-----BEGIN PUBLIC KEY-----", *textwrap.wrap(text, 64), "-----END PUBLIC KEY-----", ""])


def signed(registry: Registry, layer: Descriptor, digest: str, pem: str) -> bool:
    """Whether this is a signature by the key, and of this digest."""
    payload = registry.small_blob(layer, "signature")
    critical = as_object(payload, "signature").get("critical")
    if not isinstance(critical, dict) or critical.get("type") != "cosign container image signature":
        return False
    image = critical.get("image")
    if not isinstance(image, dict) or image.get("docker-manifest-digest") != digest:
        return False
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
        names = [Path(folder) / name for name in ("key", "signature", "payload")]
        signature = base64.b64decode(str(layer.annotations.get(SIGNATURE, "")), validate=True)
        for path, data in zip(names, (pem.encode(), signature, payload)):
            path.write_bytes(data)
        verified = run(
            "openssl", "dgst", "-sha256", "-verify", str(names[0]), "-signature", str(names[1]), str(names[2]),
            accept=(0, 1),
        )  # fmt: skip
        return verified.strip() == "Verified OK"
    return False


NAME = "image-url-command-oci"
TO_FILE = "--to-file"


def examined(image_url: str) -> tuple[OciUrl, Layout]:
    """Take the image URL apart; refuse what no machine is needed for, which the controller asks for first."""
    url = OciUrl(image_url)
    if "cosign-key" in url.switches:
        public_key(url.switches["cosign-key"])
    if "layout" in url.switches and "grow" in url.switches:
        raise Refused("image URL: layout= is for a root file system and grow= for a raw image; leave one of them out")
    return url, Layout(url.switches.get("layout", ""))


def check_bootstrap(image_url: str, kind: str) -> None:
    """Refuse bootstrap data of a kind that what the URL asks for never reads."""
    if "layout" in OciUrl(image_url).switches:
        check_bootstrap_of_root(image_url, kind)


def install(image_url: str, bootstrap_file: str, machine: str, devices: str, progress: Progress, token: str) -> None:
    """Check every input, write the image, make it this machine's; leave a disk that does not boot on any failure."""
    url, layout = examined(image_url)
    job = Job(bootstrap_file, machine, devices, url.wants("keys"))
    private_mounts()
    job.disk.check()
    registry, image = looked_up(url, token, progress)

    def record() -> dict[str, str]:
        return installed_record(machine, url.shown, image.digest, NAME)

    if image.container and len(image.layers) > 1:
        kind, layers = "rootfs", image.layers
    else:
        layers = [image.only_layer(url.switches.get("file", ""))]
        kind = kind_of_content(beginning(Blob(registry, layers[0])))
    for switch, needed in (("layout", "rootfs"), ("grow", "raw")):
        if switch in url.switches and needed not in kind:
            raise Refused(f"image URL: {switch}= is not for this image, which is a {kind}")
    sources = [(Blob(registry, layer), proof(layer)) for layer in layers]
    if kind == "rootfs":
        with contextlib.closing(RootFs(job, layout, sources, True, progress)) as rootfs:
            with writing(job.disk, progress) as work:
                rootfs.install(work, record)
    else:
        with writing(job.disk, progress) as work:
            install_raw(raw_incoming(*sources[0], kind), job, work, url.wants("grow"), progress, record)
    progress.say(f"{machine}: installed on {job.disk.path}")


def looked_up(url: OciUrl, token: str, progress: Progress) -> tuple[Registry, OciImage]:
    """Return the registry, and what the image URL means there on this machine; signed, when a key is given."""
    registry = Registry(url, token, NAME, progress.say)
    image = OciImage(registry)
    progress.say(f"image: {url.shown} is {image.digest}, for {image.architecture}")
    if "cosign-key" in url.switches:
        check_signature(registry, image.digest, url.switches["cosign-key"])
    return registry, image


def pull(target: Path, room: int, image_url: str, progress: Progress, token: str) -> dict[str, Any]:
    """Bring the one file of an image into a file of at most so many bytes; it gets its name when it is proven.

    Return the digests of the file and of what the image URL means, and the size.
    """
    url = OciUrl(image_url)
    for switch in ("grow", "keys", "layout"):
        if switch in url.switches:
            raise Refused(f"image URL: {switch}= is for a disk, and the image becomes a file")
    registry, image = looked_up(url, token, progress)
    if image.container and len(image.layers) > 1:
        raise Refused(
            f"image: {url.shown} is a container image of {len(image.layers)} layers, and one archive is needed; "
            "push that as a file"
        )
    layer = image.only_layer(url.switches.get("file", ""))
    if layer.size > room:
        raise Refused(
            f"image: it has {-(-layer.size // MIB)} MiB, and the rescue has {room // MIB} MiB of memory for it; "
            "use a smaller image"
        )
    blob, digest = Blob(registry, layer), proof(layer)

    def state() -> str:
        return f"downloaded {blob.received // MIB} of {layer.size // MIB} MiB of the image"

    part = target.with_name(target.name + ".part")
    with open(os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for chunk in digest.watch(blob.chunks()):
            file.write(chunk)
            progress.tick(state, lambda: (blob.received, layer.size))
    digest.check()
    progress.publish(state())
    part.replace(target)
    return {"digest": layer.digest, "image": image.digest, "size": layer.size}


def to_file(arguments: list[str]) -> int:
    """Run pull(); print what it returns as one line of JSON, or why not; return the exit code."""
    token = os.environ.pop(TOKEN, "")
    room = whole_number(arguments[1]) if len(arguments) == 4 else None
    if room is None:
        sys.stderr.write(f"usage: {NAME} {TO_FILE} FILE BYTES OUTPUT_JSON IMAGE_URL\n")
        return 2
    target, progress = Path(arguments[0]), Progress(Path(arguments[2]))
    try:
        sys.stdout.write(json.dumps(pull(target, room, arguments[3], progress, token)) + "\n")
    except (Refused, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def proof(layer: Descriptor) -> Digest:
    return Digest(layer.algorithm, layer.hex)


def main(arguments: list[str]) -> int:
    return to_file(arguments[1:]) if arguments[:1] == [TO_FILE] else run_program(NAME, install, arguments)
