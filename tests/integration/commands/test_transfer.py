# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image gets through a bad network whole, or not at all."""

import bz2
import functools
import gzip
import hashlib
import lzma
import subprocess

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.incoming import Source
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.invocation import ImageUrl
from tests.integration.commands.disks import MIB

pytestmark = pytest.mark.root


def zstd(data: bytes) -> bytes:
    command = ["zstd", "-c", "-q", "-1", f"--stream-size={len(data)}"]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


#: How an image is packed. All tests take the same image, so each form is packed once.
PACK = {
    name: functools.lru_cache(maxsize=1)(pack)
    for name, pack in {
        "none": bytes,
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": zstd,
    }.items()
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def publish(web, data: bytes, fault: tuple = ()) -> str:
    """Serve data as an image and return its URL with the digest."""
    web.site.files["/disk"] = data
    web.site.faults["/disk"] = [fault] if fault else []
    return f"{web.site.url}/disk#sha256={sha256(data)}"


@pytest.mark.parametrize("name", PACK)
def test_every_format_arrives_byte_for_byte(web, target, appliance, name):
    outcome = target.install(publish(web, PACK[name](appliance))).ok()
    assert target.read(0, len(appliance)) == appliance
    assert outcome.message == f"node-1: installed on {target.device}"


def test_digest_file_beside_the_image(web, target, appliance):
    publish(web, appliance)
    web.site.files["/disk.sha256"] = f"{sha256(appliance)}  disk\n".encode()
    target.install(f"{web.site.url}/disk").ok()


def test_sha512(web, target, appliance):
    publish(web, appliance)
    target.install(f"{web.site.url}/disk#sha512={hashlib.sha512(appliance).hexdigest()}").ok()


def test_without_a_digest_nothing_is_written(web, target, appliance):
    publish(web, appliance)
    target.install(f"{web.site.url}/disk").fails("HTTP 404", "#sha256=none")
    assert target.untouched()
    target.install(f"{web.site.url}/disk#sha256=none").ok()


@pytest.mark.parametrize("name", PACK)
def test_wrong_digest_leaves_a_disk_that_does_not_boot(web, target, appliance, name):
    publish(web, PACK[name](appliance))
    outcome = target.install(f"{web.site.url}/disk#sha256={'0' * 64}").fails("expected 000", "unbootable again")
    assert outcome.message.startswith("failed: image digest")
    assert target.unbootable()


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", PACK)
def test_dropped_connection_goes_on_where_it_stopped(web, target, appliance, name, ranges):
    packed = PACK[name](appliance)
    url = publish(web, packed, ("cut", len(packed) // 2 + 7))
    web.site.ranges = ranges
    target.install(url).ok()
    assert target.read(0, len(appliance)) == appliance
    assert web.site.seen[-1][1]["Range"] == f"bytes={len(packed) // 2 + 7}-"
    assert web.site.seen[-1][1]["If-Range"] == '"v1"'


def test_connection_dropped_in_the_first_bytes(web, target, appliance):
    target.install(publish(web, PACK["gz"](appliance), ("cut", 1))).ok()


def test_stalled_connection_is_noticed(web, target, appliance):
    url = publish(web, appliance, ("stall", 3 * MIB))
    outcome = target.install(url + "&stall=10").ok()
    assert "timed out" in outcome.stdout


def test_changed_image_is_not_mixed(web, target, appliance):
    url = publish(web, appliance)
    web.site.faults["/disk"] = [("cut", 9 * MIB), ("tag", '"v2"')]
    target.install(url).fails("changed on the server")
    assert target.unbootable()


@pytest.mark.parametrize("ranges", [True, False])
def test_versions_without_names_are_not_mixed(web, target, appliance, ranges):
    """Neither a digest nor the server would find that the rest is of another image."""
    publish(web, appliance)
    web.site.ranges, web.site.tag = ranges, ""
    web.site.faults["/disk"] = [("cut", 9 * MIB)]
    target.install(f"{web.site.url}/disk#sha256=none").fails("does not say which version of the file it has")
    assert target.unbootable()
    web.site.faults["/disk"] = [("cut", 9 * MIB)]
    target.install(f"{web.site.url}/disk#sha256={sha256(appliance)}").ok()


def test_busy_server_is_asked_again(web, target, appliance):
    url = publish(web, appliance)
    web.site.faults["/disk"] = [("status", 503), ("status", 500)]
    target.install(url).ok()


@pytest.mark.parametrize("status", [404, 401])
def test_http_errors_are_errors(web, target, appliance, status):
    url = publish(web, appliance)
    web.site.faults["/disk"] = [("status", status)]
    target.install(url).fails(f"HTTP {status}")
    assert len(web.site.seen) == 1
    assert target.untouched()


def test_a_server_that_stays_broken_is_given_up(web):
    url = publish(web, b"image")
    web.site.faults["/disk"] = [("status", 500)] * 9
    with pytest.raises(Refused, match="given up after 6 connections: HTTP 500"):
        list(Source(ImageUrl(url), "tests", pause=0.01).chunks())
    assert len(web.site.seen) == 6


def test_a_server_that_drops_for_ever_is_given_up(web):
    url = publish(web, bytes(100))
    web.site.faults["/disk"] = [("cut", 1)] * 99
    with pytest.raises(Refused, match="given up after 50 connections: the connection ended after 50 of 100"):
        list(Source(ImageUrl(url), "tests", pause=0.001).chunks())


def test_nothing_listens(web):
    url = publish(web, b"image")
    web.close()
    with pytest.raises(Refused, match=r"given up after 6 connections: .*refused"):
        list(Source(ImageUrl(url), "tests", pause=0.01).chunks())


@pytest.mark.parametrize("name", ["gz", "bz2", "xz", "zst"])
def test_truncated_file_without_length_and_digest(web, target, appliance, name):
    packed = PACK[name](appliance)
    publish(web, packed[: len(packed) // 2], ("unsized",))
    target.install(f"{web.site.url}/disk#sha256=none").fails("truncated")
    assert target.unbootable() or target.untouched()


def test_raw_image_without_length_and_digest_is_refused(web, target, appliance):
    publish(web, appliance, ("unsized",))
    target.install(f"{web.site.url}/disk#sha256=none").fails("neither digest nor length")
    assert target.untouched()


def test_login_goes_to_its_own_server_only_and_is_never_shown(web, target, appliance):
    url = publish(web, appliance)
    other = web.site.url.replace("127.0.0.1", "localhost") + "/disk"
    web.site.faults["/disk"] = [("redirect", other)]
    outcome = target.install(url.replace("//", "//robot:s3cr3t@").replace("#", "?sig=t0ken#")).ok()
    assert [("Authorization" in headers) for _path, headers in web.site.seen] == [True, False]
    shown = outcome.stdout + outcome.stderr + outcome.message
    assert not any(secret in shown for secret in ("s3cr3t", "t0ken", "robot"))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"<html><body>no such image</body></html>" * 20, "error page"),
        (b"QFI\xfb" + bytes(MIB), "qemu-img convert"),
        (gzip.compress(bytes(257) + b"ustar" + bytes(MIB)), "tar archive"),
        (bytes(MIB), "55 AA"),
    ],
)
def test_what_is_no_image_is_not_written(web, target, data, named):
    target.install(publish(web, data)).fails(named, "this command wrote nothing")
    assert target.untouched()


@pytest.mark.parametrize("name", ["none", "zst"])
def test_image_that_is_known_to_be_too_large_is_not_written(web, small, name, debianish):
    large = debianish + bytes(128 * MIB)
    small.install(publish(web, PACK[name](large))).fails(f"it has {len(large)} bytes")
    assert small.untouched()


def test_image_that_turns_out_too_large(web, small, debianish):
    packed = gzip.compress(debianish + bytes(128 * MIB), 1)
    small.install(publish(web, packed)).fails("larger than the device")
    assert small.unbootable()
