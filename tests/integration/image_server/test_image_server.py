# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role image_server on machines that really boot, and what their service then does and cannot do."""

import hashlib
import json
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.nodes import Node
from tests.certificates import Pair, pair
from tests.integration.image_server.conftest import PROXY, Download, World, network, server_of
from tests.integration.runs import Run
from tests.waiting import until
from tests.web_servers import certificate

pytestmark = [pytest.mark.root, pytest.mark.nspawn, pytest.mark.mirror, pytest.mark.long]

UNIT = "kubenode-image-server"
DATA = "/var/lib/kubenode-image-server"
USER = "kubenode-images"
MOST_EXPOSED = 2.0  # of systemd-analyze security, from 0 (locked in) to 10


@dataclass
class Runs:
    """A machine with Debian 13 and one with Debian 12 on which the role ran: to see, to do, and again."""

    node: Node
    older: Node
    check: Run
    touched_by_check: str
    first: Run
    second: Run


def touched(node: Node) -> str:
    return node.run("find /etc /usr/local /opt /var/lib/kubenode* /run/kubenode* -cnewer /run/mark 2>/dev/null || true")


def pid(node: Node) -> str:
    return node.run(f"systemctl show -P MainPID {UNIT}")


@pytest.fixture(scope="module")
def runs(world: World, lab_nspawn) -> Runs:
    node = lab_nspawn.node("images-1", wait=False)
    older = lab_nspawn.node("images-2", "debian")
    node.wait()
    world.controller.add_nodes(node, older)
    node.run("touch /run/mark && sleep 0.1")
    check = world.run("--check", "--diff").ok()
    seen = touched(node)
    both = ("images-1", "images-2")
    first = world.run(names=both).ok()
    node.run("touch /run/mark && sleep 0.1")
    second = world.run("--diff", names=both).ok()
    return Runs(node, older, check, seen, first, second)


def test_check_mode_changes_nothing_and_foretells_the_run(runs: Runs):
    assert runs.touched_by_check == ""
    assert runs.node.ssh("getent passwd kubenode-images").returncode == 0  # made by the run after it
    seen, done = runs.check.settings("images-1"), runs.first.settings("images-1")
    # the folder of the bases was there when the settings came: the download had made it
    assert done <= seen
    assert {"program", "unit", "service", "host/web-1.yaml"} <= done
    assert runs.check.fetched("images-1") == runs.first.fetched("images-1") == ["image-server-x86_64-iso"]
    assert "python3-httptools" in str([entry["result"].get("msg") for entry in runs.check.of("images-1")])


def test_the_second_run_changes_nothing(runs: Runs):
    for name in ("images-1", "images-2"):
        assert runs.second.changed(name) == []
        assert len(runs.second.remote(name)) == 6
    assert touched(runs.node) == ""


@pytest.mark.parametrize("which", ["node", "older"])
def test_images_are_those_that_the_module_would_write(runs: Runs, world: World, tmp_path: Path, which: str):
    server = server_of(getattr(runs, which))
    for name, document in (("web-1", network("192.0.2.11")), ("web-2.example.com", None)):
        wanted = world.expected(name, document, tmp_path)
        whole = Download(server, f"/{name}.iso")
        assert whole.status == 200
        assert whole.read() == wanted
        part = Download(server, f"/{name}.iso", Range=f"bytes={len(wanted) - 70000}-")
        assert (part.status, part.read()) == (206, wanted[-70000:])
    assert Download(server, "/").status == 404
    assert Download(server, "/web-3.iso").status == 404


def test_secrets_are_only_where_they_belong(runs: Runs):
    run = runs.node.run
    for text in (runs.first.output, runs.check.output, runs.second.output, json.dumps(runs.first.results),
                 json.dumps(runs.check.results)):  # fmt: skip
        assert "aHVzaC1odXNo" not in text
        assert "hush" not in text.replace(PROXY, "hush") or "me:hush" not in text
    secret = run("cat /etc/kubenode-image-server/secret")
    assert re.fullmatch("[0-9a-f]{64}", secret)
    seen = run(f"systemctl show {UNIT}; tr '\\0' '\\n' < /proc/{pid(runs.node)}/cmdline; journalctl -o cat -u {UNIT}")
    for text in ("aHVzaC1odXNo", "me:hush", secret):
        assert text not in seen
    assert "aHVzaC1odXNo" not in run(f"tr '\\0' '\\n' < /proc/{pid(runs.node)}/environ")
    modes = run("stat -c '%a %U:%G %n' /etc/kubenode-image-server /etc/kubenode-image-server/*").splitlines()
    assert modes == [
        "750 root:kubenode-images /etc/kubenode-image-server",
        "600 root:root /etc/kubenode-image-server/environment",
        "600 root:root /etc/kubenode-image-server/pull-secret",
        "600 root:root /etc/kubenode-image-server/secret",
    ]
    assert run(f"stat -c '%a %U:%G' {DATA}/nmstate/web-1.yaml") == "640 root:kubenode-images"


@pytest.mark.parametrize("which", ["node", "older"])
def test_the_service_is_locked_in(runs: Runs, which: str):
    node: Node = getattr(runs, which)
    said = node.run(f"systemd-analyze security --no-pager {UNIT}")
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert found, said
    assert float(found[1]) <= MOST_EXPOSED, said
    status = node.run(f"cat /proc/{pid(node)}/status")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    # as its user, in its view of the machine
    inside = f"nsenter --target {pid(node)} --mount -- setpriv --reuid {USER} --regid {USER} --clear-groups"
    tried = [
        *(
            f"touch {path}"
            for path in (f"{DATA}/nmstate/x.yaml", f"{DATA}/x", "/etc/x", "/usr/local/bin/x", "/var/lib/x")
        ),
        *(f"cat /etc/kubenode-image-server/{name}" for name in ("secret", "pull-secret", "environment")),
        "cat /etc/shadow",
        "ls /root/.ssh",
    ]
    done = node.ssh("; ".join(f"{inside} {words} && echo MANAGED: {words}" for words in tried))
    assert done.stdout == ""
    refused = re.findall("Read-only file system|Permission denied|No such file", done.stderr)
    assert len(refused) == len(tried), done.stderr
    assert node.run(f"{inside} cat {DATA}/nmstate/web-1.yaml")


def test_it_reports_its_state(runs: Runs):
    run = runs.node.run
    ask = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())'"
    for path in ("healthz", "readyz"):
        run(f"{ask} http://127.0.0.1:8085/{path}")
    assert "# TYPE" in run(f"{ask} http://127.0.0.1:8085/metrics")
    table = run("cat /run/kubenode-image-server/urls.json")
    assert f"http://{server_of(runs.node)}/web-1.iso" in table
    assert run("stat -c %a /run/kubenode-image-server/urls.json") == "600"


@pytest.mark.long
def test_hosts_change_without_a_restart_and_no_download_is_cut(runs: Runs, world: World, tmp_path: Path):
    node, server = runs.node, server_of(runs.node)
    old = world.expected("web-1", network("192.0.2.11"), tmp_path)
    before = pid(node)
    node.run(f"install -m 0640 -g kubenode-images /dev/null {DATA}/nmstate/by-hand.yaml")
    download = Download(server, "/web-1.iso")
    head = download.read(1 << 20)
    changed = {"web-1": network("192.0.2.99"), "web-3": network("192.0.2.13")}
    play = world.run(hosts=changed).ok()
    assert play.settings("images-1") == {"host/web-1.yaml", "host/web-2.example.com.yaml", "host/web-3.yaml", "record"}
    new = world.expected("web-1", network("192.0.2.99"), tmp_path)
    assert new != old
    until(lambda: Download(server, "/web-1.iso", Range="bytes=0-0").etag != download.etag, "the new image")
    assert head + download.read() == old
    assert Download(server, "/web-1.iso").read() == new
    until(lambda: Download(server, "/web-3.iso", Range="bytes=0-0").status == 206, "the new host")
    until(lambda: Download(server, "/web-2.example.com.iso").status == 404, "the end of a host")
    assert Download(server, "/by-hand.iso").status == 200
    assert pid(node) == before
    world.variables["hosts"] = changed


def test_no_output_shows_what_a_network_is_secured_with(world: World):
    key = "50b71a8ef0bd5751ea76de6d6c98c0aa"
    mac = f"{{encrypt: true, base-iface: eno1, mka-cak: {key}, mka-ckn: f2b4}}"
    text = f"interfaces: [{{name: macsec0, type: macsec, macsec: {mac}}}]"
    play = world.run("--check", "--diff", "-vvv", hosts={**world.variables["hosts"], "web-4": text}).ok()
    assert "host/web-4.yaml" in play.settings("images-1")
    assert f"{DATA}/nmstate/web-4.yaml" in play.output
    assert key not in play.output
    assert key not in json.dumps(play.results)


@pytest.mark.long
def test_a_killed_service_comes_back_with_the_same_urls(runs: Runs):
    node, server = runs.node, server_of(runs.node)
    download = Download(server, "/web-1.iso")
    head, before = download.read(1 << 20), pid(node)
    whole = Download(server, "/web-1.iso").read()
    table = node.run("cat /run/kubenode-image-server/urls.json")
    node.run(f"kill -9 {before}")
    until(lambda: pid(node) not in (before, "0"), "another process")

    def answers() -> bool:
        return node.ssh(f"systemctl is-active {UNIT}").returncode == 0

    until(answers, "an active service")
    rest = Download(server, "/web-1.iso", Range=f"bytes={len(head)}-", If_Range=download.etag)
    assert (rest.status, head + rest.read()) == (206, whole)
    assert node.run("cat /run/kubenode-image-server/urls.json") == table


def shown(node: Node) -> str:
    """The certificate that the server presents."""
    return ssl.get_server_certificate((node.address, 8084)).strip()


@pytest.mark.long
def test_another_program_with_other_settings_restarts_once(runs: Runs, world: World, tmp_path: Path):
    node = runs.node
    started = f"journalctl -o cat -u {UNIT} | grep -c '^Started {UNIT}'"
    before, old = int(node.run(started)), node.run("readlink /usr/local/bin/kubenode-image-server")
    crt, key = (path.read_text() for path in certificate(tmp_path, node.address))
    world.variables.update(python="/usr/bin/python3.13", tls_certificate=crt, tls_key=key)
    play = world.run("--diff").ok()
    assert "PRIVATE KEY" not in play.output
    assert play.settings("images-1") == {
        "program", "launcher", "tls_key", "tls_certificate", "unit", "record", "service", "program/old",
    }  # fmt: skip
    assert int(node.run(started)) == before + 1
    new = node.run("readlink /usr/local/bin/kubenode-image-server")
    assert new != old
    assert node.run("ls /usr/local/lib/kubenode-image-server") == Path(new).name
    assert "--nmstate-dir" in node.run("kubenode-image-server --help")
    assert shown(node) == crt.strip()
    assert f"https://{node.address}:8084" in node.run("cat /run/kubenode-image-server/urls.json")


@pytest.mark.long
def test_a_new_certificate_is_taken_without_a_restart(runs: Runs, world: World, tmp_path: Path):
    node, before = runs.node, pid(runs.node)
    crt, key = (path.read_text() for path in certificate(tmp_path, node.address))
    play = world.run(tls_certificate=crt, tls_key=key)
    assert play.settings("images-1") == {"tls_key", "tls_certificate", "service"}, play.output
    until(lambda: shown(node) == crt.strip(), "the new certificate")
    assert pid(node) == before


@pytest.mark.parametrize(
    ("one", "key", "words"),
    [
        (pair(), pair().pem, "the key is not the certificate's"),
        (pair(begin=-9, end=-1), "", "has expired"),
        (pair(bits=1024), "", "the key is too short"),
    ],
    ids=["other", "expired", "weak"],
)
def test_a_pair_that_no_server_can_use_is_refused(runs: Runs, world: World, one: Pair, key: str, words: str):
    node, before = runs.node, pid(runs.node)
    node.run("touch /run/mark && sleep 0.1")
    play = world.run(tls_certificate=one.crt, tls_key=key or one.pem).fails()
    assert "image_server_tls_certificate and image_server_tls_key cannot be used: " in play.error("images-1")
    assert words in play.error("images-1")
    assert touched(node) == ""
    assert pid(node) == before


def test_a_certificate_for_another_name_is_a_warning(runs: Runs, world: World):
    one = pair("images.example")
    play = world.run("--check", tls_certificate=one.crt, tls_key=one.pem).ok()
    assert f"image_server_tls_certificate: the certificate is not for {runs.node.address}, by which" in play.output


def test_wrong_variables_are_refused_before_anything_changes(runs: Runs, world: World):
    runs.node.run("touch /run/mark && sleep 0.1")
    play = world.run(
        hosts={"Web_1": "", "web-1": {"interfaces": [{"name": "eth0", "typ": "bond"}]}}, bind_addr="here"
    ).fails()
    error = play.error("images-1")
    for words in ("image_server_bind_addr is 'here'", "image_server_hosts is 'Web_1'", "image_server_hosts[web-1]: "):
        assert words in error
    assert touched(runs.node) == ""


@pytest.mark.parametrize("path", ["/srv/nonesuch.iso", "/srv"])
@pytest.mark.parametrize("options", [["--check"], []], ids=["check", "run"])
def test_a_base_that_is_not_there_is_refused_before_anything_changes(runs: Runs, world: World, path: str, options):
    runs.node.run("touch /run/mark && sleep 0.1")
    play = world.run(*options, bases={"x86_64": {"iso": {"path": path}}}).fails()
    assert f"image_server_bases[x86_64].iso.path is '{path}', and " in play.error("images-1")
    assert touched(runs.node) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bases": {"x86_64": {"iso": {"path": "/srv/junk"}}}}, "image_server_bases[x86_64].iso.path is '/srv/junk': "),
        (
            {"bases": {"x86_64": {"iso": {"path": "/srv/good.iso"}, "initramfs": {"path": "/srv/good.iso"}}}},
            "].initramfs.path is '/srv/good.iso': base /srv/good.iso is an ISO, and no initramfs",
        ),
        ({"bind_addr": ":22"}, "image_server_bind_addr is ':22': port 22 is in use by sshd"),
        ({"metrics_addr": "192.0.2.77:8085"}, "metrics_addr is '192.0.2.77:8085': Cannot assign requested"),
        ({"python": "/usr/bin/perl"}, "image_server_python is '/usr/bin/perl': it cannot run the image server: "),
        ({"python": "/opt/bare"}, "'/opt/bare': the Python library httptools is missing"),
    ],
    ids=["junk", "kinds", "port", "address", "perl", "libraries"],
)
def test_the_server_that_serves_stays_when_another_one_would_not(runs: Runs, world: World, changes, words):
    node, before = runs.node, pid(runs.node)
    node.run(f"cp {DATA}/bases/coreos_x86_64.iso /srv/good.iso; echo junk > /srv/junk")
    node.run("printf '#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n' > /opt/bare; chmod +x /opt/bare")
    node.run("touch /run/mark && sleep 0.1")
    play = world.run(**changes).fails()
    assert words in play.error("images-1"), play.output
    assert touched(node) == ""
    assert pid(node) == before
    assert node.ssh(f"systemctl is-active {UNIT}").returncode == 0


def test_a_fetched_base_that_is_none_does_not_take_the_place_of_a_good_one(runs: Runs, world: World):
    node, before = runs.node, pid(runs.node)
    good = node.run(f"sha256sum {DATA}/bases/coreos_x86_64.iso")
    world.web.files["/junk.iso"] = b"junk\n"
    url = world.web.url("/junk.iso", host=world.address)
    digest = hashlib.sha256(b"junk\n").hexdigest()
    play = world.run(bases={"x86_64": {"iso": {"url": url, "sha256": digest}}}).fails()
    assert f"image_server_bases[x86_64].iso.url is '{url}': " in play.error("images-1")
    assert "The base that was there before stays" in play.error("images-1")
    assert node.run(f"sha256sum {DATA}/bases/coreos_x86_64.iso") == good
    assert pid(node) == before


@pytest.mark.long
def test_absent_takes_away_what_the_role_made_and_nothing_else(runs: Runs, world: World):
    run = runs.node.run
    run(f"install -m 0640 -g kubenode-images /dev/null {DATA}/nmstate/by-hand.yaml")
    world.run(state="absent").ok()
    ours = "-name '*kubenode-image*' -o -name 'image-server*' -o -nouser -o -nogroup"
    assert run(f"find /etc /usr /var/lib /var/cache /run -xdev \\( {ours} \\)").split() == [
        DATA,
        f"{DATA}/nmstate",
        f"{DATA}/nmstate/by-hand.yaml",
    ]
    assert runs.node.ssh("id kubenode-images").returncode != 0
    assert runs.node.ssh(f"systemctl cat {UNIT}").returncode != 0
    again = world.run(state="absent").ok()
    assert again.changed("images-1") == []
