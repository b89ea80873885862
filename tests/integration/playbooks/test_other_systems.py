# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run hands to other systems: read from variables as in AWX, seen by a receiver, an API server and a parser."""

import json
import re
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.accounts import CloudAccount
from tests.integration.testbeds import NOWHERE
from tests.web_servers import Handler, Server

from ..leaving.kubernetes_double import EventDouble

SECRET = "s3cr3t-of-the-receiver"
COMMAND = {"kubenode_image_url": NOWHERE, "kubenode_image_url_command": "image-url-command-raw-disk"}


class Receiver:
    """A webhook on loopback that takes everything."""

    def __init__(self):
        self.got = []
        receiver = self

        class Webhook(Handler):
            def do_POST(self):
                receiver.got.append((dict(self.headers), json.loads(self.body())))
                self.head(204)

        self.server = Server(Webhook)
        self.url = f"http://user:pa55word@{self.server.host}/T0K3N"


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.server.close()


@pytest.fixture
def account(lab_dry, tmp_path):
    made = CloudAccount(lab_dry, tmp_path)
    yield made
    made.close()


def start(account, receiver, playbook, *flags, **shared):
    """A run with the callback, its settings as a user of AWX gives them."""
    env = {
        "ANSIBLE_CALLBACKS_ENABLED": "recorder,kubenode.provision.provision_report",
        "KUBENODE_REPORT_FILE": str(account.folder / "report.json"),
        "KUBENODE_METRICS_FILE": str(account.folder / "fleet.prom"),
        "KUBENODE_METRICS_LABELS": "fleet=test",
        "KUBENODE_NOTIFY_TIMEOUT": "600",  # for hangs: the receiver is a thread of a busy test
        "ANSIBLE_SHOW_CUSTOM_STATS": "true",
        "RECEIVER_SECRET": SECRET,
        "no_proxy": "127.0.0.1",
    }
    # A template in a variable of the inventory, and an extra variable.
    shared["kubenode_notify_secret"] = "{{ lookup('env', 'RECEIVER_SECRET') }}"
    return account.start_play(playbook, *flags, hosts=["n1"], shared=shared, env=env, kubenode_notify_url=receiver.url)


def clean(text):
    for secret in (SECRET, "pa55word", "T0K3N"):
        assert secret not in text
    return " ".join(text.split())


def machines(account, **more):
    one = {"name": "n1", "server_type": "cx23", "location": "fsn1", "ssh_keys": [account.key_name]}
    task = {
        "kubenode.provision.hcloud_machine": {"machines": [one], **more},
        "run_once": True,
        "delegate_to": "localhost",
    }
    return {"hosts": "all", "gather_facts": False, "tasks": [task]}


def test_a_run_of_machines_is_reported_to_all(account, receiver):
    done = start(account, receiver, [machines(account)]).wait().ok()
    said = clean(done.output)
    ((headers, sent),) = receiver.got
    assert headers["X-Kubenode-Signature"].startswith("sha256=")
    assert (sent["summary"]["machines"], sent["check"], bool(sent.get("interrupted"))) == (1, False, False)
    assert f"Notification: {receiver.server.url} took " in said
    report = (account.folder / "report.json").read_text()
    clean(report)
    price = account.call("GET", "/server_types?name=cx23")["server_types"][0]["prices"]
    (hourly,) = [float(one["price_hourly"]["net"]) for one in price if one["location"] == "fsn1"]
    cost = json.loads(report)["cost"]
    assert (cost["servers"], cost["hourly"]) == (1, round(hourly, 6))
    assert re.search(r"Cost: 1 server, 0\.00\d\d EUR an hour; 0(\.0\d+)?\S* EUR since it was created", said)
    text = (account.folder / "fleet.prom").read_text()
    clean(text)
    found = {sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples}
    assert found["kubenode_provision_api_requests_limit"].labels == {"fleet": "test", "api": "hcloud"}
    assert found["kubenode_provision_api_requests"].value == json.loads(report)["api_calls"]["total"] > 0
    # without a request that was not made before: type, image, key, name, create and its action
    assert found["kubenode_provision_api_requests"].value <= 9


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_says_so(account, receiver, by):
    begun = account.folder / "begun"
    # not ansible.builtin.pause: its worker may still hold the lock of Ansible's queue when its text is there to read
    sleep = {"ansible.builtin.command": {"argv": ["/bin/sh", "-c", f"touch {begun}; exec sleep 900"]}}
    run = start(account, receiver, [machines(account), {"hosts": "localhost", "gather_facts": False, "tasks": [sleep]}])
    run.until(begun.exists, "the second task")
    done = run.interrupt(by)
    assert done.rc == (99 if by == signal.SIGINT else -by)
    clean(done.output)
    ((_headers, sent),) = receiver.got
    assert (sent["interrupted"], sent["machines"][0]["name"]) == (True, "n1")
    assert json.loads((account.folder / "report.json").read_text())["interrupted"]
    assert "The run was interrupted. Run the same command again" in done.output


def settings(account, double, folder):
    return {
        "kubenode_server_type": "cx23", "kubenode_ssh_keys": [account.key_name], "ansible_user": "root",
        "kubenode_dir": str(folder / "kubenode"), "ansible_ssh_private_key_file": str(account.key),
        "kubenode_kubeconfig": str(double.kubeconfig), "kubenode_rescue_timeout": 2, **COMMAND,
    }  # fmt: skip


def figures(done):
    """What each set_stats of a run said."""
    said = [one["result"]["ansible_stats"]["data"] for one in done.results if "ansible_stats" in one["result"]]
    return [one["kubenode_summary"] for one in said]


@pytest.mark.long
def test_a_fleet_that_fails_as_a_whole_is_reported_all_the_same(account, receiver, tmp_path):
    """Its rescue never answers: late at the first try, failed at the second, and no task runs after that."""
    double = EventDouble(tmp_path)
    shared = settings(account, double, tmp_path)
    done = start(account, receiver, "kubenode.provision.hcloud_image_url", **shared).wait()
    double.close()
    assert done.rc != 0, done.output
    clean(done.output)
    first, second, last = figures(done)
    said = [(one["machines"], one["failed"], list(one["reasons"])) for one in (first, second, last)]
    assert said == [(1, 1, ["n1"])] * 3
    assert last["api_calls"] > second["api_calls"] > first["api_calls"] > 0, "the last one has those that disarm"
    assert len(double.events) == 1
    event = next(iter(double.events.values()))
    assert (event["reason"], event["type"], event["count"]) == ("ProvisioningFailed", "Warning", 1)
    assert event["involvedObject"]["name"] == "n1"
    assert event["message"].startswith("n1: ")
    ((_headers, sent),) = receiver.got
    assert sent["summary"] == {"machines": 1, "verified": 0, "changed": 1, "failed": 1, "removed": 0}
    assert sent["api_calls"]["total"] == last["api_calls"]


def test_check_mode_of_a_playbook_only_says_what_would_be(account, receiver, tmp_path):
    """The Events of a run that would be, too, in a cluster that is not asked to keep any."""
    double = EventDouble(tmp_path)
    shared = settings(account, double, tmp_path)
    done = start(account, receiver, "kubenode.provision.hcloud_image_url", "--check", **shared).wait()
    double.close()
    assert done.rc == 0, done.output
    said = clean(done.output)
    assert receiver.got == []
    assert double.events == {}
    assert not (account.folder / "fleet.prom").exists()
    assert "Notification: nothing is sent in check mode; a run sends " in said
    assert "(signed) to http://127.0.0.1:" in said
    assert "Metrics: nothing is written in check mode; a run writes " in said
    (summary,) = figures(done)
    assert (summary["check"], summary["machines"], summary["failed"], summary["reasons"]) == (True, 1, 0, {})
    assert summary["api_calls"] > 0
    (posted,) = [one["result"] for one in done.results if one["action"].endswith("cluster_event")]
    assert posted["changed"]
    assert '"kubenode_summary": {' in said
