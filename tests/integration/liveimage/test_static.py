# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Static mode as a process: folders of documents and of descriptors become images, and stay right as they change."""

import base64
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio, iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import identify
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.ignition import content
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay, whole
from tests.integration.liveimage.program import ENVIRONMENT, Program
from tests.unit.liveimage.maker import KARGS, Layout, make
from tests.waiting import until

NETWORK = """
interfaces:
  - {name: eth0, type: ethernet, state: up, ipv4: {enabled: true, address: [{ip: %s, prefix-length: 24}]}}
"""
PROFILE = "/etc/NetworkManager/system-connections/eth0.nmconnection"


def embedded(data: bytes, scratch: Path) -> dict:
    """The Ignition of an image that was fetched."""
    scratch.write_bytes(data)
    return json.loads(iso.inspect(str(scratch)).embedded[iso.IGNITION])


def files(config: dict) -> dict[str, str]:
    entries = config["storage"]["files"]
    return {one["path"]: (content(one.get("contents") or one["append"][0]) or b"").decode() for one in entries}


def ignition(server: Program, name: str, scratch: Path) -> dict:
    reply = server.get(f"/{name}.iso")
    assert reply.status_code == 200, server.log
    return embedded(reply.content, scratch / "fetched.iso")


def test_a_folder_of_documents(bases, folder, tmp_path):
    (folder / "web-1.yaml").write_text(NETWORK % "192.0.2.1")
    (folder / "db.yml").write_text("")
    (folder / "store.json").write_text('{"interfaces": []}')
    (folder / "edge.example.com").write_text("# nothing\n")
    (folder / ".hidden.yaml").write_text("interfaces: wrong")
    (folder / "old.yaml~").write_text("interfaces: wrong")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "pipe.yaml")
    with Program("--nmstate-dir", str(folder), bases=bases) as server:
        names = ["web-1", "db.yml", "store.json", "edge.example.com"]
        for name in names:
            assert server.status(f"/{name}.iso") == server.status(f"/{name}.initramfs") == 200
        assert len(json.loads(server.watch("/status"))["problems"]) == 0
        assert files(ignition(server, "web-1", tmp_path))[PROFILE].count("192.0.2.1") == 1
        reported = [one["contents"] for one in ignition(server, "edge.example.com", tmp_path)["systemd"]["units"]]
        assert any('IPA_DEFAULT_HOSTNAME=edge.example.com"' in text for text in reported)
        assert any(
            'IPA_DEFAULT_HOSTNAME=db"' in one["contents"]
            for one in ignition(server, "db.yml", tmp_path)["systemd"]["units"]
        )
        # the initramfs: the base, and behind it the same Ignition
        reply = server.get("/web-1.initramfs")
        size = (bases / "live.img").stat().st_size
        assert reply.content[:size] == (bases / "live.img").read_bytes()
        assert {one.name for one in cpio.members(reply.content[size:])} >= {
            iso.IGNITION,
            iso.NETWORK + "/eth0.nmconnection",
        }
        # nothing else is there, and nothing is listed
        for path in (
            "/",
            "/web-1",
            "/web-1.yaml",
            "/.hidden.iso",
            "/old.yaml~.iso",
            "/sub.iso",
            "/pipe.iso",
            "/x/web-1.iso",
        ):
            assert server.status(path) == 404, path
        kernel = server.get(f"/boot-{os.uname().machine}.kernel")
        assert (kernel.status_code, kernel.content) == (200, b"KERNEL" * 1000)


def test_every_variable_of_the_peer(bases, folder, tmp_path):
    (folder / "web-1.yaml").write_text("")
    ca, registries, pull = (
        tmp_path / "ca.pem",
        tmp_path / "registries.conf",
        '{"auths": {"example.test": {"auth": "S3CRET"}}}',
    )
    ca.write_text("-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n")
    registries.write_text('[[registry]]\nlocation = "mirror.test"\n')
    environ = {
        "IRONIC_AGENT_IMAGE": "example.test/agent@sha256:" + "a" * 64,
        "IRONIC_BASE_URL": "http://192.0.2.1,https://[2001:db8::1]:1234/x",
        "IRONIC_INSPECTOR_BASE_URL": "http://inspector.test",
        "IRONIC_AGENT_PULL_SECRET": base64.b64encode(pull.encode()).decode(),
        "IRONIC_AGENT_VLAN_INTERFACES": "Always",
        "IRONIC_RAMDISK_SSH_KEY": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== someone\n",
        "REGISTRIES_CONF_PATH": str(registries),
        "CA_BUNDLE": str(ca),
        "IP_OPTIONS": "ip=dhcp,dhcp6 %i \"quoted\" $HOME",
        "HTTP_PROXY": "http://user:p%40ss@proxy.test:3128",
        "HTTPS_PROXY": "http://proxy.test:3129",
        "NO_PROXY": "localhost,.test",
        "ADDITIONAL_NTP_SERVERS": "ntp1.test, ntp2.test,",
    }  # fmt: skip
    with Program("-nmstate-dir", str(folder), "--guessable", bases=bases, environ=environ) as server:
        config = ignition(server, "web-1", tmp_path)
        found = files(config)
        agent = found["/etc/ironic-python-agent.conf"]
        assert "api_url = http://192.0.2.1:6385,https://[2001:db8::1]:1234/x\n" in agent
        assert "inspection_callback_url = http://inspector.test:5050/v1/continue\n" in agent
        assert "enable_vlan_interfaces = all\n" in agent
        assert found["/etc/authfile.json"] == pull
        assert found["/etc/containers/registries.conf"] == registries.read_text()
        assert found["/etc/pki/ca-trust/source/anchors/ca.crt"] == ca.read_text()
        assert found["/etc/chrony.conf"] == "\nserver ntp1.test iburst\nserver ntp2.test iburst\n"
        assert config["passwd"]["users"][0]["sshAuthorizedKeys"] == [environ["IRONIC_RAMDISK_SSH_KEY"].strip()]
        unit = next(one["contents"] for one in config["systemd"]["units"] if one["name"] == "ironic-agent.service")
        assert environ["IRONIC_AGENT_IMAGE"] in unit
        assert '"--env=IPA_COREOS_IP_OPTIONS=ip=dhcp,dhcp6 %%i \\"quoted\\" $$HOME"' in unit
        assert 'Environment="HTTP_PROXY=http://user:p%%40ss@proxy.test:3128"' in unit
        assert "S3CRET" not in "\n".join(server.log) + server.watch("/status") + server.watch("/metrics")
        # files that all have in common are read again, and one that is bad changes nothing but the list of problems
        registries.write_text('[[registry]]\nlocation = "other.test"\n')
        read = "/etc/containers/registries.conf"
        until(lambda: "other.test" in files(ignition(server, "web-1", tmp_path))[read], "the new registries")
        tag = server.head("/web-1.iso").headers["ETag"]
        ca.write_text("no certificate")
        assert "no certificate in PEM" in until(
            lambda: server.problems().get("common inputs"), "the problem in the status"
        )
        assert server.head("/web-1.iso").headers["ETag"] == tag
        ca.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        until(lambda: not server.problems(), "no problem is left")
        assert "AAAA" in files(ignition(server, "web-1", tmp_path))["/etc/pki/ca-trust/source/anchors/ca.crt"]


def test_live_reload(bases, folder, tmp_path):
    (folder / "a.yaml").write_text(NETWORK % "192.0.2.1")
    (folder / "b.yaml").write_text(NETWORK % "192.0.2.2")
    with Program("--nmstate-dir", str(folder), bases=bases) as server:
        tags = {name: server.head(f"/{name}.iso").headers["ETag"] for name in "ab"}

        def tag(name: str) -> str:
            return server.head(f"/{name}.iso").headers.get("ETag", "")

        (folder / "c.yaml").write_text(NETWORK % "192.0.2.3")
        server.until_served("/c.iso")
        (folder / "a.yaml").write_text(NETWORK % "192.0.2.9")
        until(lambda: tag("a") not in ("", tags["a"]), "another tag")
        assert "192.0.2.9" in files(ignition(server, "a", tmp_path))[PROFILE]
        # a bad document: its own image goes away, since the old one would boot into what was taken away
        (folder / "a.yaml").write_text("interfaces: [{name: eth0, type: ethernet, state: up, mtu: large}]")
        reported = until(lambda: server.problems().get("host a"), "the problem in the status")
        assert server.status("/a.iso") == 503
        assert server.head("/a.initramfs").headers["Retry-After"]
        assert str(folder / "a.yaml") in reported
        assert "interfaces[0].mtu: large is no whole number" in reported
        assert "hosts_failed 1" in server.watch("/metrics")
        until(lambda: "large is no whole number" in "\n".join(server.log), "the problem in the log")
        assert (tag("b"), server.status("/c.iso")) == (tags["b"], 200)
        (folder / "a.yaml").write_text(NETWORK % "192.0.2.1")
        until(lambda: not server.problems(), "the problem is over")
        assert tag("a") == tags["a"]  # the same content has the same tag again
        (folder / "b.yaml").unlink()
        until(lambda: server.status("/b.iso") == 404, "/b.iso is gone")
        assert server.status("/b.initramfs") == 404
        # an editor that renames: the host is never gone
        scratch = folder / ".a.yaml.swp"
        scratch.write_text(NETWORK % "192.0.2.1")
        (folder / "a.yaml").rename(folder / "a.yaml~")
        scratch.rename(folder / "a.yaml")
        until(lambda: "a.iso" not in str(server.problems()), "the problem is over")
        assert tag("a") == tags["a"]
    assert len([line for line in server.log if "large is no whole number" in line]) == 1


def test_values_of_one_host(bases, folder, tmp_path):
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(NETWORK % "192.0.2.1")
    (folder / "a.host.yml").write_text("""
hostname: other.example.com
agent_image: example.test/newer:2
kernel_arguments: {append: [console=ttyS0], delete: [ignition.firstboot]}
files: [{path: /etc/motd.d/own, content: "hello\\n", mode: 0600}]
units: {own.service: "[Service]\\nExecStart=/bin/true\\n"}
ssh_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB== someone]
ntp_servers: [own.test]
merge: {storage: {files: [{path: /etc/merged, contents: {source: "data:,merged"}}]}}
""")
    (folder / "r.host.yml").write_text("arch: riscv64\nformats: [iso]\n")
    (folder / "i.host.yml").write_text("ignition: {ignition: {version: 3.4.0}}\nhostname: i\n")
    with Program("--nmstate-dir", str(folder), "--guessable", bases=bases) as server:
        fetched = tmp_path / "fetched.iso"
        config = ignition(server, "a", tmp_path)
        assert iso.inspect(str(fetched)).kernel_arguments.current.split() == [
            *KARGS.replace(" ignition.firstboot", "").split(), "console=ttyS0",
        ]  # fmt: skip
        found = files(config)
        assert (found["/etc/motd.d/own"], found["/etc/merged"]) == ("hello\n", "merged")
        assert next(one["mode"] for one in config["storage"]["files"] if one["path"] == "/etc/motd.d/own") == 0o600
        unit = next(one["contents"] for one in config["systemd"]["units"] if one["name"] == "ironic-agent.service")
        assert "example.test/newer:2" in unit
        assert 'IPA_DEFAULT_HOSTNAME=other.example.com"' in unit
        assert any(one["name"] == "own.service" for one in config["systemd"]["units"])
        assert "own.test" in found["/etc/chrony.conf"]
        other = ignition(server, "b", tmp_path)
        assert "/etc/chrony.conf" not in files(other)
        assert ENVIRONMENT["IRONIC_AGENT_IMAGE"] in str(other)
        # another architecture, one format only
        assert server.head("/r.iso").headers["Content-Length"] == str((bases / "live_riscv64.iso").stat().st_size)
        assert server.status("/r.initramfs") == 404
        assert files(ignition(server, "i", tmp_path)) == {"/etc/hostname": "i\n"}
        # an unknown key is refused with its place
        (folder / "a.host.yml").write_text("kernel_arguments: {apend: [x]}\n")
        reported = until(lambda: server.problems().get("host a"), "the problem in the status")
        assert "a.host.yml: kernel_arguments.apend: unknown key; did you mean append?" in reported
        assert server.status("/a.iso") == 503
        (folder / "a.host.yml").unlink()
        until(lambda: not server.problems(), "the problem is over")
        assert server.status("/a.iso") == 200


def test_two_documents_never_share_an_image(bases, folder):
    (folder / "a.yaml").write_text(NETWORK % "192.0.2.1")
    (folder / "a").write_text(NETWORK % "192.0.2.2")
    with Program("--nmstate-dir", str(folder), bases=bases) as server:
        assert server.status("/a.iso") == 503
        assert "a and a.yaml would share the image name a" in server.problems()["host a"]
        (folder / "a").unlink()
        server.until_served("/a.iso")


def test_icc_15_13_a_mounted_configmap(bases, folder):
    """..data points to a folder with a date; a new one takes its place in one step."""

    def publish(date: str, **documents: str) -> None:
        place = folder / f"..{date}"
        place.mkdir()
        for name, text in documents.items():
            (place / f"{name}.yaml").write_text(text)
        (folder / "..new").symlink_to(place.name)
        (folder / "..new").rename(folder / "..data")
        for name in documents:
            if not (folder / f"{name}.yaml").is_symlink():
                (folder / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")

    publish("2026_01", a=NETWORK % "192.0.2.1", b="")
    with Program("--nmstate-dir", str(folder), bases=bases) as server:
        tags = {name: server.head(f"/{name}.iso").headers["ETag"] for name in "ab"}
        assert server.problems() == {}
        assert server.status("/..data.iso") == 404
        publish("2026_02", a=NETWORK % "192.0.2.7", c="")
        shutil.rmtree(folder / "..2026_01")
        (folder / "b.yaml").unlink()
        until(lambda: server.head("/a.iso").headers.get("ETag") != tags["a"], "another tag")
        server.until_served("/c.iso")
        until(lambda: server.status("/b.iso") == 404, "/b.iso is gone")


def test_icc_15_13_a_missing_base_is_waited_for(bases, folder, tmp_path):
    (folder / "a.yaml").write_text("")
    place = tmp_path / "own"
    with Program("--nmstate-dir", str(folder), bases=place) as server:
        assert server.status("/a.iso") == 503
        assert "base_iso (DEPLOY_ISO)" in str(server.problems())
        assert "there is no file for architecture" in server.watch("/readyz")
        assert server.watch("/healthz") == "ok\n"
        place.mkdir()
        for name in ("live.iso", "live.img"):
            shutil.copy(bases / name, place)
        until(lambda: not server.problems(), "the problem is over")
        assert (server.status("/a.iso"), server.status("/a.initramfs")) == (200, 200)
        assert server.watch("/readyz") == "ok\n"


def test_a_base_that_is_none_makes_the_server_not_ready(bases, folder, tmp_path):
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text("")
    place = tmp_path / "own"
    shutil.copytree(bases, place)
    (place / "live.iso").write_bytes(b"no ISO")
    why = "0 of 2 hosts are served (bases of "
    with Program("--nmstate-dir", str(folder), bases=place) as server:
        status = json.loads(server.watch("/status"))
        assert (status["ready"].startswith(why), status["hosts"], status["hosts_served"]) == (True, 2, 0)
        assert str(place / "live.iso") in server.watch("/readyz")
        assert "kubenode_image_server_hosts_failed 2\n" in server.watch("/metrics")
        assert any(why in line and str(place / "live.iso") in line for line in server.log)
        assert (server.status("/a.iso"), server.status("/a.initramfs")) == (503, 200)
        # another architecture has a base: what is served stays behind its Service
        (folder / "r.host.yml").write_text("arch: riscv64\nformats: [iso]\n")
        server.until_served("/r.iso")
        until(lambda: server.watch("/readyz") == "ok\n", "it is ready")
        assert "kubenode_image_server_hosts_failed 2\n" in server.watch("/metrics")
        (folder / "r.host.yml").unlink()
        shutil.copy(bases / "live.iso", place)
        server.until_served("/a.iso", "/b.iso")
        until(lambda: server.watch("/readyz") == "ok\n", "it is ready")
        os.truncate(place / "live.iso", 40_000)
        until(lambda: server.watch("/readyz").startswith(why), "it is ready no more")
        assert "kubenode_image_server_hosts_failed 2\n" in server.watch("/metrics")


@pytest.fixture
def replaced(bases: Path, tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """A folder of bases, and what puts another ISO in the place of the first."""
    place = tmp_path / "own"
    shutil.copytree(bases, place)

    def replace() -> None:
        os.replace(make(tmp_path / "new.iso", Layout(rootfs=900_000)), place / "live.iso")

    return place, replace


def test_icc_15_14_a_base_replaced_under_load(folder, replaced):
    (folder / "a.yaml").write_text("")
    place, replace = replaced
    with Program("--nmstate-dir", str(folder), bases=place) as server:
        first = server.get("/a.iso")
        with server.get("/a.iso", stream=True) as reply:
            begun = reply.raw.read(10_000)
            replace()
            until(lambda: server.head("/a.iso").headers.get("ETag") not in (None, first.headers["ETag"]), "another tag")
            assert begun + reply.raw.read() == first.content  # who has begun reads on in the old one
        second = server.get("/a.iso")
        assert second.headers["ETag"] != first.headers["ETag"]
        assert len(second.content) == (place / "live.iso").stat().st_size
        stale = {"Range": "bytes=0-9", "If-Range": first.headers["ETag"]}
        assert server.get("/a.iso", headers=stale).status_code == 200


def test_a_restart_keeps_what_readers_rely_on(bases, folder):
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(NETWORK % "192.0.2.1")
    found = []
    for _start in range(2):
        with Program("--nmstate-dir", str(folder), bases=bases) as server:
            headers = [server.head(path).headers for path in ("/a.iso", "/b.iso", "/a.initramfs")]
            found.append([(one["ETag"], one["Last-Modified"]) for one in headers])
    assert found[0] == found[1]
    assert len({tag for tag, _date in found[0]}) == 3


def test_too_large_is_known_before_anybody_asks(bases, folder):
    (folder / "a.yaml").write_text("")
    noise = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    (folder / "a.host.yml").write_text(json.dumps({"files": [{"path": "/etc/noise", "content_base64": noise}]}))
    with Program("--nmstate-dir", str(folder), "--guessable", bases=bases) as server:
        reported = until(lambda: server.problems().get("host a"), "the problem in the status")
        assert f"{folder}/a.yaml: a.iso: the Ignition is too large: packed it has" in reported
        assert (server.status("/a.iso"), server.status("/a.initramfs")) == (503, 200)


def test_descriptors(bases, tmp_path):
    place = tmp_path / "overlays"
    place.mkdir()
    own = tmp_path / "base.iso"
    shutil.copy(bases / "live.iso", own)

    def put(file: str, name: str, overlay: Overlay, **more: object) -> None:
        given = {"kubenode_image": 1, "name": name, "host": "a", "created": 1_700_000_000, "overlay": overlay.to_dict()}
        (place / file).write_text(json.dumps({**given, **more}))

    image = whole(identify(str(own))).patched([(40_000, b"own bytes")])
    put("a.iso.json", "a.iso", image)
    put("twin-1.json", "twin.iso", image)
    put("twin-2.json", "twin.iso", image)
    (place / "bad.json").write_text("{")
    put("path.json", "../x.iso", image)
    put("date.json", "date.iso", image, created="now")
    with Program("--overlays-dir", str(place), "--guessable") as server:
        reply = server.get("/a.iso")
        assert reply.content == image_bytes(own, 40_000, b"own bytes")
        assert reply.headers["Last-Modified"] == server.head("/a.iso").headers["Last-Modified"]
        problems = until(lambda: len(found := server.problems()) == 5 and found, "every problem in the status")
        given = {Path(what).name: text for what, text in problems.items()}
        assert "twin-1.json and twin-2.json would share the name twin.iso" in given["twin-1.json"]
        assert "is no JSON" in given["bad.json"]
        assert "name: '../x.iso' cannot be used" in given["path.json"]
        assert "created: 'now'" in given["date.json"]
        assert (server.status("/twin.iso"), server.status("/bad.iso")) == (503, 404)
        (place / "twin-2.json").unlink()
        server.until_served("/twin.iso")
        put("a.iso.json", "a.iso", image.patched([(40_000, b"new bytes")]))
        until(lambda: b"new bytes" in server.get("/a.iso").content, "the new bytes")
        with own.open("r+b") as file:
            file.write(b"changed")
        changed = until(lambda: server.problems().get(str(place / "a.iso.json")), "the problem in the status")
        assert "is another one by now" in changed
        assert server.status("/a.iso") == 503
        (place / "a.iso.json").unlink()
        until(lambda: server.status("/a.iso") == 404, "/a.iso is gone")


def image_bytes(base: Path, offset: int, patch: bytes) -> bytes:
    data = base.read_bytes()
    return data[:offset] + patch + data[offset + len(patch) :]


def test_descriptors_beside_documents(bases, folder, tmp_path):
    place = tmp_path / "overlays"
    place.mkdir()
    (folder / "a.yaml").write_text("")
    overlay = whole(identify(str(bases / "live.iso")))
    for name in ("a.iso", "b.iso"):
        given = {"kubenode_image": 1, "name": name, "host": "b", "created": 5, "overlay": overlay.to_dict()}
        (place / f"{name}.json").write_text(json.dumps(given))
    with Program("--nmstate-dir", str(folder), "--overlays-dir", str(place), "--guessable", bases=bases) as server:
        assert server.get("/b.iso").content == (bases / "live.iso").read_bytes()
        assert server.get("/a.iso").content != (bases / "live.iso").read_bytes()  # the document's
        owned = until(lambda: server.problems().get(str(place / "a.iso.json")), "the problem in the status")
        assert "already the image of a host" in owned
        # a descriptor that was never served takes nothing away with it
        refused, of_document = place / "a.iso.json", server.get("/a.iso").content
        again = refused.read_text()
        refused.unlink()
        until(lambda: str(refused) not in server.problems(), "the problem is gone")
        assert server.get("/a.iso").content == of_document
        refused.write_text(again)
        until(lambda: str(refused) in server.problems(), "the problem is there again")
        (folder / "a.yaml").unlink()

        def taken_over() -> bool:
            return server.status("/a.iso") == 200 and server.get("/a.iso").content == server.get("/b.iso").content

        until(taken_over, "the descriptor's image")
