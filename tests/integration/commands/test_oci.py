# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images come out of a real registry whole and proven, or not at all."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import subprocess
import tarfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import OciUrl
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.oci import (
    Blob,
    OciImage,
    check_signature,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.oci import Registry as Client
from tests.integration.commands.conftest import OCI, Target
from tests.integration.commands.disks import CLOUD_CONFIG, MIB, mount, node
from tests.integration.commands.image_site import Web
from tests.integration.commands.registry import INDEX, LOGIN, MANIFEST, Front, Registry, sha256, with_password
from tests.integration.commands.trees import archive, member, pack, tiny
from tests.web_servers import Handler, Server, certificate

pytestmark = pytest.mark.root
BLOB = "/blobs/"
MANIFESTS = "/manifests/"


@pytest.fixture(scope="module")
def registry(tmp_path_factory, debianish) -> Iterator[Registry]:
    """A registry with an image for two architectures in it."""
    found = with_password(tmp_path_factory.mktemp("registry"))
    amd64 = found.artifact("node/image", "amd64", {"disk.raw.gz": gzip.compress(debianish, 1)})
    arm64 = found.artifact("node/image", "arm64", {"disk.raw": b"another architecture" * 999})
    found.index("node/image", "v1", {"arm64": arm64, "amd64": amd64})
    yield found
    found.close()


@pytest.fixture
def disk(target) -> Target:
    """A target for this command, with the login."""
    target.program, target.token = OCI, LOGIN
    return target


def url(front: Front, rest: str = "node/image:v1", switches: str = "") -> str:
    """The image URL by way of the front."""
    return f"oci://{front.host}/{rest}#plain-http=yes{switches}"


def failed(outcome, *words: str) -> None:
    """The run failed for these reasons, and printed no secret."""
    outcome.fails(*words)
    assert "geheim" not in outcome.stdout + outcome.stderr + outcome.message


def test_an_index_of_two_architectures(front, disk, debianish, tmp_path):
    outcome = disk.install(url(front), CLOUD_CONFIG).ok()
    assert disk.read(MIB, MIB) == debianish[MIB : 2 * MIB]
    assert "geheim" not in outcome.stdout + outcome.stderr + outcome.message
    with mount(node(disk.device, 2), tmp_path / "look") as top:
        record = json.loads((top / "etc/kubenode/installed.json").read_text())
        assert (top / "var/lib/cloud/seed/nocloud/user-data").read_text() == CLOUD_CONFIG
    assert record["image_url"] == f"oci://{front.host}/node/image:v1"
    assert f"{front.host}/node/image:v1 is {record['image_digest']}, for amd64" in outcome.stdout


def test_a_reference_by_digest(front, disk, registry):
    data = registry.send("GET", "/v2/node/image/manifests/v1", Accept=INDEX).read()
    disk.install(url(front, f"node/image@{sha256(data)}"), CLOUD_CONFIG).ok()
    failed(disk.install(url(front, f"node/image@sha256:{'0' * 64}")), "HTTP 404", "MANIFEST_UNKNOWN")


def test_an_architecture_that_is_not_there_is_named(front, disk, registry):
    arm64 = registry.artifact("node/image", "arm64", {"disk.raw": b"another architecture" * 999})
    registry.index("node/image", "arm", {"arm64": arm64})
    failed(disk.install(url(front, "node/image:arm")), "nothing for linux/amd64; there is linux/arm64", "wrote nothing")
    registry.image("node/image", "wrong", [b"x"], "riscv64")
    failed(disk.install(url(front, "node/image:wrong")), "made for linux/riscv64")
    assert disk.untouched()


@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupted_layer_goes_on_where_it_stopped(front, disk, registry, debianish, count):
    registry.artifact("node/image", "plain", {"disk.raw": debianish})
    places = [MIB * 3 + 7, MIB * 5, MIB][:count]
    # the first request is a look at the beginning
    front.proxy.faults = [(BLOB, "none"), *[(BLOB, "cut", place) for place in places]]
    disk.install(url(front, "node/image:plain"), CLOUD_CONFIG).ok()
    reached, wanted = 0, []
    for place in places:
        reached += place
        wanted.append(f"bytes={reached}-")
    assert front.proxy.ranges() == wanted
    assert disk.read(MIB, MIB) == debianish[MIB : 2 * MIB]


def test_a_layer_that_is_not_what_its_digest_says(front, disk):
    front.proxy.faults = [(BLOB, "none"), (BLOB, "flip", 5000)]
    outcome = disk.install(url(front))
    failed(outcome, "unbootable again")
    assert disk.unbootable()


def test_a_manifest_that_is_not_what_its_digest_says(front, disk, registry):
    data = registry.send("GET", "/v2/node/image/manifests/v1", Accept=INDEX).read()
    front.proxy.faults = [(MANIFESTS, "flip", 30)]
    failed(disk.install(url(front, f"node/image@{sha256(data)}")), "sent a manifest with the digest")
    assert disk.untouched()


def test_a_layer_of_another_size_than_the_manifest_says(front, disk):
    front.proxy.faults = [(BLOB, "none"), (BLOB, "short", 4096)]
    failed(disk.install(url(front)), "has 4096 bytes, its manifest says", "this command wrote nothing")
    assert disk.untouched()


def test_a_layer_that_is_gone_in_the_middle_leaves_a_disk_that_does_not_boot(front, disk, registry, debianish):
    registry.artifact("node/image", "plain", {"disk.raw": debianish})
    front.proxy.faults = [(BLOB, "none"), (BLOB, "cut", 9 * MIB), (BLOB, "answer", 404, {})]
    failed(disk.install(url(front, "node/image:plain")), "HTTP 404", "unbootable again")
    assert disk.unbootable()


def opened(front: Front, rest: str = "node/image:v1") -> Client:
    """The registry as the command sees it, without its patience."""
    return Client(OciUrl(url(front, rest)), LOGIN, "tests", lambda text: None, pause=0.01)


def test_a_layer_that_stays_cut_off_is_given_up(front):
    client = opened(front)
    layer = OciImage(client).layers[0]
    front.proxy.faults = [(BLOB, "cut", 70000), *[(BLOB, "cut", 0)] * 9]
    with pytest.raises(Refused, match="given up after 6 connections: the connection ended after 70000 of"):
        list(Blob(client, layer).chunks())


@pytest.mark.parametrize(
    ("token", "way"),
    [("", "set OCI_REGISTRY_AUTH_TOKEN"), ("robot:geheim2", "not accepted"), ("geheim-token", "not accepted")],
)
def test_a_login_that_the_registry_does_not_take(front, disk, token, way):
    disk.token = token
    failed(disk.install(url(front)), "HTTP 401", way, "this command wrote nothing")
    assert disk.untouched()


SERVICE, ISSUER = "test registry", "test tokens"


def in_a_token(data: bytes) -> str:
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class TokenRequest(Handler):
    """Answers to the one login there is."""

    tokens: TokenServer

    def do_GET(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        self.tokens.seen.append((query, self.headers.get("Authorization", "")))
        allowed = self.headers.get("Authorization") == self.tokens.login
        body = json.dumps({"token": self.tokens.token(query)} if allowed else {}).encode()
        self.reply(200 if allowed else 401, body)


class TokenServer:
    """A running token server; `stale` tokens are over before they are handed out."""

    def __init__(self, home: Path, login: str):
        self.login = "Basic " + base64.b64encode(login.encode()).decode()
        self.seen: list[tuple[dict, str]] = []
        self.stale = 0
        bundle, key = certificate(home)
        self.key = serialization.load_pem_private_key(key.read_bytes(), None)
        self.certificate = base64.b64encode(ssl.PEM_cert_to_DER_cert(bundle.read_text())).decode()
        server = Server(type("Bound", (TokenRequest,), {"tokens": self}))
        self.close, realm = server.close, f"{server.url}/token"
        self.auth = {"token": {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(bundle)}}

    def token(self, query: dict) -> str:
        """A signed token for the scope that was asked for, and for pushing."""
        stale, self.stale = self.stale > 0, max(0, self.stale - 1)
        now = int(time.time()) - (3600 if stale else 0)
        kind, name, _actions = query.get("scope", "repository:node/image:pull").split(":")
        access = [{"type": kind, "name": name, "actions": ["pull", "push"]}]
        claims = {
            "iss": ISSUER, "sub": "robot", "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now, "jti": "1",
            "access": access,
        }  # fmt: skip
        head = {"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]}
        text = ".".join(in_a_token(json.dumps(one).encode()) for one in (head, claims))
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{in_a_token(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def test_a_registry_with_a_token_server(tmp_path, disk, debianish):
    tokens = TokenServer(tmp_path, LOGIN)
    strict = Registry(tmp_path, tokens.auth)
    strict.headers["Authorization"] = "Bearer " + tokens.token({})
    strict.artifact("node/image", "v1", {"disk.raw": debianish})
    way = Front(strict)
    tokens.stale = 1  # the first token is over; the registry says so, and a new one is fetched
    disk.install(url(way), CLOUD_CONFIG).ok()
    assert [query["scope"] for query, _login in tokens.seen] == ["repository:node/image:pull"] * 2
    disk.token = "robot:wrong-one"
    failed(disk.install(url(way)), "no token from 127.0.0.1: HTTP 401", "not accepted")
    disk.token = tokens.token({})  # a bearer token of one's own needs no server
    asked = len(tokens.seen)
    disk.install(url(way), CLOUD_CONFIG).ok()
    assert len(tokens.seen) == asked
    for one in (way, strict, tokens):
        one.close()


def test_what_is_not_there(front, disk):
    failed(disk.install(url(front, "node/image:v9")), "HTTP 404", "MANIFEST_UNKNOWN", "there is no such manifest")
    front.proxy.faults = [(BLOB, "answer", 404, {})]
    failed(disk.install(url(front)), "HTTP 404", "there is no such blob")
    front.proxy.faults = [(MANIFESTS, "answer", 403, {})]
    failed(disk.install(url(front)), "HTTP 403", "may not read it")
    assert disk.untouched()


def test_a_busy_registry_is_asked_again_when_it_says(front, disk):
    busy = {"Retry-After": "1"}
    front.proxy.faults = [(MANIFESTS, "answer", 429, busy), (BLOB, "none"), (BLOB, "answer", 503, {})]
    outcome = disk.install(url(front), CLOUD_CONFIG).ok()
    assert "HTTP 429" in outcome.stdout
    front.proxy.faults = [(MANIFESTS, "answer", 429, {"Retry-After": "3600"})]
    failed(disk.install(url(front)), "HTTP 429", "come back in 3600 s")


def test_storage_elsewhere_does_not_get_the_login(front, disk, registry, debianish):
    layer = gzip.compress(debianish, 1)
    registry.artifact("node/image", "far", {"disk.raw.gz": layer})
    storage = Web()
    storage.site.files["/layer"] = layer
    storage.site.faults["/layer"] = [("none",), ("cut", 100_000)]
    there = {"Location": storage.site.url.replace("127.0.0.1", "localhost") + "/layer?signature=geheim"}
    front.proxy.faults = [(sha256(layer), "answer", 307, there)] * 4
    outcome = disk.install(url(front, "node/image:far"), CLOUD_CONFIG)
    storage.close()
    outcome.ok()
    assert all("Authorization" not in headers for _path, headers in storage.site.seen)
    assert storage.site.seen[-1][1]["Range"] == "bytes=100000-"
    assert "geheim" not in outcome.stdout + outcome.stderr


def packed_raw(data: bytes, name: str) -> bytes:
    """A layer that holds a raw image, as people make them with FROM scratch."""
    return archive(member("disk", kind=tarfile.DIRTYPE, mode=0o755), member(name, data))


def test_a_raw_image_in_a_layer(front, disk, registry, debianish):
    registry.image("node/image", "scratch", [gzip.compress(packed_raw(debianish, "disk/node.raw"), 1)])
    disk.install(url(front, "node/image:scratch"), CLOUD_CONFIG).ok()
    assert disk.read(MIB, MIB) == debianish[MIB : 2 * MIB]


def test_a_raw_image_in_a_layer_with_more_in_it(front, disk, registry, debianish):
    layer = archive(member("node.raw", debianish), member("readme", b"x"))
    registry.image("node/image", "more", [layer])
    failed(disk.install(url(front, "node/image:more"), CLOUD_CONFIG), "there is more in the tar archive", "unbootable")
    assert disk.unbootable()


def test_one_file_of_several(front, disk, registry, debianish):
    registry.artifact("node/image", "files", {"README.md": b"read me", "disk.raw": debianish})
    failed(disk.install(url(front, "node/image:files")), "it has 2 files", "README.md, disk.raw")
    assert disk.untouched()
    disk.install(url(front, "node/image:files", "&file=disk.raw"), CLOUD_CONFIG).ok()


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A root file system."""
    top = tiny(tmp_path_factory.mktemp("tree"))
    for name in ("srv/gone", "srv/stays", "opt/old/one", "opt/two"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("lower")
    return top


def test_a_root_file_system_in_layers(front, disk, registry, tree, tmp_path):
    upper = archive(
        member("srv/.wh.gone"), member("opt/new", b"upper"), member("opt/.wh..wh..opq"), member("srv/stays", b"upper"),
    )  # fmt: skip
    registry.image("node/image", "layers", [gzip.compress(pack(tree), 1), gzip.compress(upper)])
    front.proxy.faults = [("/blobs/" + sha256(gzip.compress(upper)), "none"), (BLOB, "none"), (BLOB, "cut", 100_000)]
    disk.install(url(front, "node/image:layers", "&layout=/:ext4:400M"), CLOUD_CONFIG).ok()
    assert front.proxy.ranges() == ["bytes=100000-"]
    with mount(node(disk.device, 3), tmp_path / "look") as top:
        assert sorted(path.name for path in (top / "srv").iterdir()) == ["stays"]
        assert (top / "srv/stays").read_text() == "upper"
        assert sorted(path.name for path in (top / "opt").iterdir()) == ["new"]
        assert json.loads((top / "etc/kubenode/installed.json").read_text())["command"] == "image-url-command-oci"
    assert disk.read(0, 8) == b"BOOTCODE"


def test_a_root_file_system_with_a_wrong_digest_is_not_written(front, disk, registry, tree):
    layer = pack(tree)
    registry.image("node/image", "flipped", [layer])
    front.proxy.faults = [(sha256(layer), "none"), (sha256(layer), "flip", 5000)]
    failed(disk.install(url(front, "node/image:flipped"), CLOUD_CONFIG), "image digest", "this command wrote nothing")
    assert disk.untouched()


def test_a_whiteout_that_leads_out(front, disk, registry, tree):
    registry.image("node/image", "out", [pack(tree), archive(member("srv/.wh..."))])
    failed(disk.install(url(front, "node/image:out"), CLOUD_CONFIG), "names nothing", "unbootable again")
    assert disk.unbootable()


def sign(registry: Registry, home: Path, digest: str, payload_digest: str) -> str:
    """Sign an image as cosign does; return the public key as the image URL takes it."""
    key, public = home / "cosign.key", home / "cosign.pub"
    if not key.exists():
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
        subprocess.run(["openssl", "ec", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    critical = {
        "identity": {"docker-reference": ""}, "image": {"docker-manifest-digest": payload_digest},
        "type": "cosign container image signature",
    }  # fmt: skip
    payload = json.dumps({"critical": critical, "optional": None}).encode()
    (home / "payload").write_bytes(payload)
    command = ["openssl", "dgst", "-sha256", "-sign", key, str(home / "payload")]
    signature = subprocess.run(command, check=True, capture_output=True).stdout
    layer = {
        **registry.blob("node/image", payload),
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "annotations": {"dev.cosignproject.cosign/signature": base64.b64encode(signature).decode()},
    }
    config = registry.blob("node/image", b"{}")
    content = {"mediaType": MANIFEST, "config": config, "layers": [layer]}
    registry.manifest("node/image", digest.replace(":", "-") + ".sig", content)
    return "".join(public.read_text().splitlines()[1:-1])


def test_a_signature_is_asked_for_and_verified(front, disk, registry, debianish, tmp_path):
    digest = registry.artifact("node/image", "signed", {"disk.raw": debianish})["digest"]
    other = tmp_path / "other"
    other.mkdir()
    client = opened(front, "node/image:signed")
    wrong = sign(registry, other, "sha256:" + "1" * 64, digest)
    with pytest.raises(Refused, match="is not signed"):
        check_signature(client, digest, wrong)
    key = sign(registry, tmp_path, digest, "sha256:" + "1" * 64)  # a good signature of something else
    with pytest.raises(Refused, match="no signature that the key"):
        check_signature(client, digest, key)
    sign(registry, tmp_path, digest, digest)
    failed(disk.install(url(front, "node/image:signed", f"&cosign-key={wrong}")), "no signature that the key")
    assert disk.untouched()
    disk.install(url(front, "node/image:signed", f"&cosign-key={key}"), CLOUD_CONFIG).ok()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("oci://robot:geheim@{host}/node/image:v1", "OCI_REGISTRY_AUTH_TOKEN"),
        ("oci://{host}/node/image", "neither a tag nor a digest"),
        ("oci://{host}/Node/Image:v1", "not oci://"),
        ("oci://{host}/node/image:v1?x=y", "not oci://"),
        ("oci://{host}/node/image:v1#sha256=0", "is unknown"),
        ("https://{host}/node/image:v1", "not oci://"),
    ],
)
def test_references_that_are_none(front, disk, text, why):
    failed(disk.install(text.format(host=front.host)), why, "this command wrote nothing")
    assert front.proxy.seen == []


def test_https_is_the_default(front, disk):
    failed(disk.install(f"oci://{front.host}/node/image:v1"), "does not speak TLS")
    assert front.proxy.seen == []


def test_an_image_larger_than_the_disk(front, small, registry, debianish):
    small.program, small.token = OCI, LOGIN
    large = debianish + bytes(128 * MIB)
    registry.image("node/image", "large", [gzip.compress(packed_raw(large, "disk/node.raw"), 1)])
    failed(small.install(url(front, "node/image:large")), f"it has {len(large)} bytes")
    assert small.untouched()
