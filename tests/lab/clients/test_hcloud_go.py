# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the Cloud API against the types of the newest hcloud-go: its package schema and a program of ours."""

import json
import os
import shutil
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.lab.api.conftest import Api

# the module is loaded through the proxy of Go modules, which the default tests may not need
pytestmark = pytest.mark.long

MODULE, VERSION = "github.com/hetznercloud/hcloud-go/v2", "v2.53.0"
SUM = "h1:GC8U/52bG7gTDB0pnwKrXcG0JsR5qnmVwuYnjHitcug="
SOURCE = Path(__file__).parent / "wire/main.go"


@pytest.fixture(scope="session")
def wire(tmp_path_factory):
    """The program: prints what does not fit of the answers that it is given."""
    work = tmp_path_factory.mktemp("wire")
    env = {
        **{
            key: value for key, value in os.environ.items() if not key.startswith("GO") or key in ("GOPROXY", "GOSUMDB")
        },
        "GOPATH": str(work / "go"),
        "GOCACHE": str(work / "cache"),
        # the version of Go that the module asks for is newer than Debian's; its types do with any
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw",
    }

    def go(*command):
        done = subprocess.run(
            ["go", *command], cwd=work, env=env, capture_output=True, text=True, timeout=600, check=False
        )
        return done.returncode, done.stdout, done.stdout + done.stderr

    _code, reported, said = go("mod", "download", "-json", f"{MODULE}@{VERSION}")
    about = json.loads(reported or "{}")
    assert about.get("Sum") == SUM, said
    (work / "schema").mkdir()
    with zipfile.ZipFile(BytesIO(Path(about["Zip"]).read_bytes())) as archive:
        for name in archive.namelist():
            if "/hcloud/schema/" in name and name.endswith(".go") and not name.endswith("_test.go"):
                text = archive.read(name).decode()
                # reflect.TypeFor is of Go 1.22
                text = text.replace("reflect.TypeFor[IDOrName]()", "reflect.TypeOf(IDOrName{})")
                (work / "schema" / Path(name).name).write_text(text)
    shutil.copy(SOURCE, work)
    (work / "go.mod").write_text("module wire\n\ngo 1.19\n")
    code, _output, errors = go("build", "-o", "wire", ".")
    assert code == 0, errors

    def check(answers):
        text = "".join(json.dumps(answer) + "\n" for answer in answers)
        done = subprocess.run([work / "wire"], input=text, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return check


@pytest.fixture
def recorded(lab_dry):
    """A client, and every good answer that it was given."""
    api, answers = Api(lab_dry), []

    def keep(answer, **_options):
        if answer.ok and answer.content:
            path = urlsplit(answer.url).path.removeprefix("/v1")
            answers.append({"method": answer.request.method, "path": path, "body": answer.json()})

    api.session.hooks["response"].append(keep)
    return api, answers


def use_servers(api, network):
    key = api.key()
    group = api.good("POST", "/placement_groups", {"name": "pg", "type": "spread"})["placement_group"]["id"]
    firewall = api.good("POST", "/firewalls", {"name": "fw", "rules": []})["firewall"]["id"]
    more = {"ssh_keys": [key], "networks": [network], "placement_group": group, "firewalls": [{"firewall": firewall}]}
    server = api.create("n1", labels={"a": "b"}, **more)
    api.act(server, "enable_rescue", {"type": "linux64"})
    for name in ("poweron", "reset", "reboot", "disable_rescue", "reset_password", "poweroff", "enable_backup"):
        api.act(server, name)
    answer = api.good("POST", f"/servers/{server}/actions/create_image", {"description": "d"})
    api.wait(answer["action"])
    api.act(server, "rebuild", {"image": "debian-12"})
    image = answer["image"]["id"]
    api.good("PUT", f"/images/{image}", {"labels": {"a": "b"}})
    api.wait(api.good("POST", f"/images/{image}/actions/change_protection", {"delete": False})["action"])
    for kind, identifier in (("placement_groups", group), ("firewalls", firewall), ("ssh_keys", key)):
        api.good("PUT", f"/{kind}/{identifier}", {"labels": {"a": "b"}})
        api.good("GET", f"/{kind}/{identifier}")
    api.good("PUT", f"/servers/{server}", {"name": "n2"})
    api.good("GET", f"/servers/{server}/actions")
    return server


def use_balancers(api, server, network):
    body = {
        "name": "lb",
        "load_balancer_type": "lb11",
        "location": "fsn1",
        "network": network,
        "targets": [{"type": "label_selector", "label_selector": {"selector": "a=b"}}],
        "services": [{"protocol": "http"}, {"protocol": "tcp", "listen_port": 6443, "destination_port": 6443}],
    }
    answer = api.good("POST", "/load_balancers", body)
    api.wait(answer["action"])
    balancer = answer["load_balancer"]["id"]
    path = f"/load_balancers/{balancer}"
    target = {"type": "server", "server": {"id": server}, "use_private_ip": True}
    api.wait(api.good("POST", f"{path}/actions/add_target", target)["action"])
    api.good("PUT", path, {"labels": {"a": "b"}})
    api.good("GET", f"{path}/metrics?type=bandwidth&start=2026-11-01T00:00:00Z&end=2026-11-01T00:01:00Z&step=30")
    api.good("GET", f"{path}/actions")
    return balancer


LISTS = (
    "servers", "server_types", "locations", "isos", "pricing", "images", "ssh_keys", "primary_ips",
    "placement_groups", "networks", "firewalls", "volumes", "load_balancers", "load_balancer_types",
)  # fmt: skip


def test_every_answer_fits(recorded, wire):
    api, answers = recorded
    network = api.good("POST", "/networks", {"name": "net", "ip_range": "10.0.0.0/16"})["network"]["id"]
    server = use_servers(api, network)
    balancer = use_balancers(api, server, network)
    for kind in LISTS:
        rows = api.good("GET", f"/{kind}")[kind]
        if kind != "pricing" and rows:
            api.good("GET", f"/{kind}/{rows[0]['id']}")
    api.wait(api.good("DELETE", f"/load_balancers/{balancer}")["action"])
    api.wait(api.good("DELETE", f"/servers/{server}")["action"])
    assert len(answers) > 60
    assert "\n".join(wire(answers)) == ""


def test_the_program_finds_what_does_not_fit(recorded, wire):
    api, answers = recorded
    api.good("GET", "/locations")
    (answer,) = answers
    place = answer["body"]["locations"][0]
    place["altitude"] = 5
    del place["city"]
    first, second = wire([answer])
    assert first.startswith("GET /locations.locations[].altitude")
    assert first.endswith("no field takes it")
    assert second.startswith("GET /locations.locations[].city")
    assert second.endswith("absent")
    place["id"] = "one"
    (only,) = wire([answer])
    assert "does not decode" in only
    (only,) = wire([{"method": "GET", "path": "/nothing", "body": {}}])
    assert only == "GET /nothing: no type is known"
