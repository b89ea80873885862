# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment and the image server, built as the guides say, and what runs in their containers."""

import os
import subprocess
from pathlib import Path

import pytest
import requests
import yaml

from dev.testbed import KEY_NAME
from dev.toolchain import environments
from dev.toolchain.paths import CHECKOUT
from lab.cluster.control_plane import keep_port
from tests.documents import blocks
from tests.integration.testbeds import Operator, dedicated_testbed, waiting_command
from tests.unit.liveimage.maker import Layout, make
from tests.waiting import until

from .containers import BASE, LIMIT, Engine
from .jobs import MOUNTED, AwxNode

pytestmark = [pytest.mark.root, pytest.mark.nspawn, pytest.mark.long, pytest.mark.timeout(3600)]

ENVIRONMENT, SERVER = (f"localhost/kubenode-test/{name}:latest" for name in ("environment", "image-server"))
METAL = {"metal-1": 201}
#: In the bootstrap data, which AWX keeps in the inventory.
PASSWORD = "s3cret-of-the-bootstrap-data"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with Engine.of(tmp_path_factory.mktemp("podman")) as made:
        yield made


def found_in(trees, name):
    """The folders of a collection, in the order in which Ansible looks for it."""
    places = [tree / "ansible_collections" / name.replace(".", "/") for tree in trees]
    return [place for place in places if place.exists()]


@pytest.fixture(scope="module")
def node(engine, installed, tmp_path_factory):
    """A node of AWX that has the execution environment of docs/awx.md, but for where it takes things from."""
    folder = tmp_path_factory.mktemp("environment")
    (block,) = [one for one in blocks("docs/awx.md") if one.text.startswith("# execution-environment.yml")]
    definition = yaml.safe_load(block.text)
    definition["images"]["base_image"]["name"] = BASE
    names = definition["dependencies"]["galaxy"]["collections"]
    trees = [installed, *map(Path, os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep))]
    found = {name: found_in(trees, name)[0] for name in names}
    definition["dependencies"]["galaxy"]["collections"] = [
        {"name": f"/build/collections/{name}", "type": "dir"} for name in names
    ]
    definition["build_arg_defaults"] = {"ANSIBLE_GALAXY_CLI_COLLECTION_OPTS": "--offline"}
    pins = {**environments.whole("awx"), **environments.whole("main")}
    pinned = {pin.partition("==")[0]: pin for pin in pins}
    (folder / "pins.txt").write_text("\n".join(pinned.values()))
    definition["additional_build_files"] = [
        *({"src": str(path), "dest": f"collections/{name}"} for name, path in found.items()),
        {"src": str(folder / "pins.txt"), "dest": "."},
    ]
    definition["additional_build_steps"]["prepend_base"] += ["COPY _build/pins.txt /", "ENV PIP_CONSTRAINT=/pins.txt"]
    (folder / "execution-environment.yml").write_text(yaml.safe_dump(definition))
    builder = environments.ensure("awx") / "bin/ansible-builder"
    made = subprocess.run([builder, "create", "-f", "execution-environment.yml"], cwd=folder, check=False, timeout=300)
    assert made.returncode == 0
    engine.build(folder / "context", folder / "context/Containerfile", ENVIRONMENT)
    one = AwxNode(engine, ENVIRONMENT, tmp_path_factory.mktemp("jobs"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    """A lab with a dedicated server, and with cloud machines."""
    disks = [{"kind": "nvme", "size": "3G"}, {"kind": "sata", "size": "4G", "rotational": True}]
    servers = [{"number": number, "disks": disks, "memory_mib": 1024} for number in METAL.values()]
    testbed = dedicated_testbed(tmp_path_factory.mktemp("stage"), servers)
    with Operator.of(testbed) as made:
        body = {"name": KEY_NAME, "public_key": testbed.private_key.with_suffix(".pub").read_text()}
        requests.post(
            f"{testbed.lab['endpoint']}/ssh_keys", json=body, headers={"Authorization": f"Bearer {testbed.token}"},
            timeout=180,
        ).raise_for_status()  # fmt: skip
        yield made


def group(operator, *names, **variables):
    """Machines of an inventory: no file of the controller is named, since a job has none."""
    testbed = operator.testbed
    settings = testbed.bootstrap_settings()
    data = Path(settings.pop("kubenode_bootstrap_data_file")).read_text() + f"# {PASSWORD}\n"
    shared = {
        "ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3", "kubenode_bootstrap_data": data,
        "kubenode_image_url": testbed.image_url(), "kubenode_image_url_command": "image-url-command-raw-disk",
        **settings, **variables,
    }  # fmt: skip
    return {"hosts": {name: {} for name in names}, "vars": shared}


CLOUD = {"kubenode_server_type": "cx23", "kubenode_location": "fsn1", "kubenode_ssh_keys": [KEY_NAME]}


def credentials(operator):
    testbed = operator.testbed
    cloud = {"HCLOUD_ENDPOINT": testbed.lab["endpoint"], "HCLOUD_TOKEN": testbed.token}
    return {**cloud, **testbed.robot_credentials()}


def in_rescue(operator, address, script):
    """What a person does there, who trusts any host key."""
    options = ["-F", "none", "-oBatchMode=yes", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"]
    words = ["ssh", *options, "-i", operator.testbed.private_key, f"root@{address}", script]
    subprocess.run(words, check=True, capture_output=True, timeout=LIMIT)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
def test_a_job_is_cancelled_and_the_next_one_goes_on_where_it_was(node, operator, tmp_path, kept):
    """The main playbook, its key in an agent; also where what the cancelled job knew is lost with its container."""
    node.secrets.add(PASSWORD)
    name = "cut-1" if kept else "cut-2"
    (tmp_path / "commands").mkdir()
    waiting_command(tmp_path / "commands")
    command = {"kubenode_command_dir": f"{MOUNTED}/commands", "kubenode_image_url_command": "image-url-command-slow"}
    machines = group(operator, name, **CLOUD, **command)
    where = ("hcloud_image_url", machines, operator.testbed.private_key, credentials(operator))
    first = node.start(*where, "-v", mounted=tmp_path, kept=kept)
    first.until("start 1")
    assert first.cancel().status == "canceled"
    until(lambda: not node.engine.do("ps", "--quiet"), "the end of its container")
    row = operator.row("name", name)
    assert [boot["source"] for boot in row["boots"]] == ["rescue"]

    in_rescue(operator, row["address"], "touch /root/go")
    second = node.start(*where, "-v", mounted=tmp_path, kept=kept).wait()
    assert second.status == "successful", second.output
    assert "Identity added: " in second.output
    row = operator.row("name", name)
    assert [boot["source"] for boot in row["boots"]] == ["rescue", "disk"]
    state = tmp_path if kept else second.private / "inventory/.kubenode"
    (log,) = (state / "logs" / name).glob("*stdout*")
    assert log.read_text().count("start ") == 1
    summary = second.end["artifact_data"]["kubenode_summary"]
    assert (summary["machines"], summary["verified"], summary["failed"]) == (1, 1, 0)
    third = node.start(*where, mounted=tmp_path, kept=kept).wait()
    assert third.status == "successful", third.output
    assert third.end["changed"] == {}
    node.clean()


def test_a_job_reaches_what_the_job_before_it_has_made(node, operator):
    """Their containers share no folder: addresses and host keys come as an artifact, and no other key is taken."""
    names = ["handed-1", "handed-2"]
    written = node.start(
        "hcloud_image_url", group(operator, *names, **CLOUD), operator.testbed.private_key, credentials(operator)
    ).wait()
    assert written.status == "successful", written.output
    known = written.end["artifact_data"]["kubenode_known_machines"]
    addresses = {name: operator.row("name", name)["address"] for name in names}
    assert {name: one["address"] for name, one in known.items()} == addresses
    forged = operator.testbed.private_key.with_suffix(".pub").read_text().strip()
    known = {**known, "handed-2": {**known["handed-2"], "host_keys": [forged]}}

    # neither an address nor a host key is in the inventory
    own = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3"}
    machines = {"hosts": {name: {} for name in names}, "vars": own}
    key = operator.testbed.private_key
    looked = node.start("node_base", machines, key, {}, "--check", artifacts={"kubenode_known_machines": known}).wait()
    ends = [(one["event"], one["event_data"]) for one in looked.events if one["event"].startswith("runner_on_")]
    seen = {
        data["host"]
        for event, data in ends
        if event == "runner_on_ok" and data["task_action"] == "kubenode.provision.node_info"
    }
    assert seen == {"handed-1"}, looked.output
    refused = {data["host"]: data["res"]["msg"] for event, data in ends if event == "runner_on_unreachable"}
    assert refused.keys() == {"handed-2"}, looked.output
    assert "Host key verification failed" in refused["handed-2"]
    pin = looked.private / "inventory/.kubenode/known_hosts/handed-1.os"
    assert pin.read_text().splitlines()[1:] == [f"handed-1.os {one}" for one in known["handed-1"]["host_keys"]]
    node.clean()


def test_dedicated_servers_and_a_look_at_the_whole_site(node, operator):
    """The Robot playbook and site, whose jobs leave nothing behind."""
    node.secrets.add(PASSWORD)
    metal = {
        "kubenode_root_device_hints": {"smallest": True}, "kubenode_look_timeout": 4, "kubenode_first_contact": "reset",
    }  # fmt: skip
    machines = group(operator, *METAL, **metal)
    for name, number in METAL.items():
        machines["hosts"][name]["kubenode_server_number"] = number
    where = (operator.testbed.private_key, credentials(operator))
    written = node.start("robot_image_url", machines, *where).wait()
    assert written.status == "successful", written.output
    row = operator.row("number", METAL["metal-1"])
    assert [boot["source"] for boot in row["boots"]][-2:] == ["rescue", "disk"]
    assert written.end["artifact_data"]["kubenode_summary"]["verified"] == 1

    machines["hosts"]["site-1"] = dict(CLOUD)
    join = {
        "join_api_server": "https://192.0.2.9:6443", "join_ca_cert": "", "join_token": "abcdef.0123456789abcdef",
        "join_discovery": {"ca_hashes": ["sha256:" + "0" * 64]},
        "base_min_disk": "1G",  # the disk of a container machine of the lab is small
    }  # fmt: skip
    machines["vars"].update(join)
    node.secrets.add("0123456789abcdef")
    looked = node.start("site", machines, *where, "--check").wait()
    # no cluster is at this address, which the look at the machine that is there finds out, and nothing else is wrong
    assert looked.status == "failed", looked.output
    assert "batch 1 of 1: checked: site-1; failed: metal-1" in looked.output, looked.output
    assert "API server unreachable: https://192.0.2.9:6443" in looked.output
    assert looked.output.count("fatal:") == 1, looked.output
    assert "site-1" not in [one["name"] for one in operator.control("GET", "/machines")["machines"]]
    node.clean()


def test_the_image_server_is_built_and_answers(engine, tmp_path):
    engine.build(CHECKOUT, CHECKOUT / "deploy/image_server/Containerfile", SERVER, "--build-arg", f"BASE={BASE}")
    for name in ("bases", "hosts"):
        (tmp_path / name).mkdir()
    base = make(tmp_path / "bases/live.iso", Layout())
    interface = {"name": "eno1", "type": "ethernet", "state": "up", "ipv4": {"enabled": True, "dhcp": True}}
    (tmp_path / "hosts/web-1.yaml").write_text(yaml.safe_dump({"interfaces": [interface]}))
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # the program is no root
    kept = [keep_port() for _port in range(2)]
    port, metrics = (one.getsockname()[1] for one in kept)
    variables = {
        "DEPLOY_ISO": "/bases/live.iso", "IRONIC_BASE_URL": "http://192.0.2.1:6385",
        "IRONIC_AGENT_IMAGE": "registry.example.com/agent:1",
    }  # fmt: skip
    name = "kubenode-test-image-server"
    engine.do(
        "run", "--detach", "--name", name, "--read-only", "--cap-drop", "all",
        *(f"--env={key}={value}" for key, value in variables.items()),
        "--volume", f"{tmp_path}/bases:/bases:ro", "--volume", f"{tmp_path}/hosts:/hosts:ro", SERVER,
        "--nmstate-dir=/hosts", f"--images-bind-addr=127.0.0.1:{port}", f"--metrics-addr=127.0.0.1:{metrics}",
        f"--images-publish-addr=http://127.0.0.1:{port}",
    )  # fmt: skip

    def answers():
        try:
            return requests.get(f"http://127.0.0.1:{port}/web-1.iso", timeout=180)
        except requests.ConnectionError:
            return None

    answer = until(answers, "the image server", seconds=LIMIT, show=lambda: engine.do("logs", name))
    assert answer.status_code == 200
    # its Ignition is where the base has room for it
    assert (len(answer.content), answer.content == base.read_bytes()) == (base.stat().st_size, False)
    assert requests.get(f"http://127.0.0.1:{metrics}/healthz", timeout=180).ok
    engine.do("stop", "--time", "60", name)
    assert engine.do("inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0"
    for one in kept:
        one.close()
