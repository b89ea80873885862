# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading actions: singly, in batches, by object; and what scripted faults do to them."""

from types import SimpleNamespace

import pytest
import requests

from lab.api import actions as lab_actions


def test_batch_by_ids_leaves_unknown_ids_out(api):
    first, second = api.create("n1"), api.create("n2")
    ids = [api.act(server, "poweron")["id"] for server in (first, second)]
    answer = api.good("GET", f"/actions?id={ids[0]}&id={ids[1]}&id=1")
    assert [action["id"] for action in answer["actions"]] == ids
    assert answer["meta"]["pagination"]["total_entries"] == 2


def test_a_batch_of_fifty_is_one_page_when_asked_for(api):
    ids = [api.good("POST", "/servers", {"name": f"n{n}", "server_type": "cx23", "image": "debian-12",
                                         "start_after_create": False})["action"]["id"] for n in range(50)]  # fmt: skip
    query = "&".join(f"id={number}" for number in ids)
    assert len(api.good("GET", f"/actions?{query}")["actions"]) == 25
    assert len(api.good("GET", f"/actions?per_page=50&{query}")["actions"]) == 50


def test_filters_and_sort(api, server):
    api.act(server, "poweron")
    api.lab.control("POST", "/faults", {"point": "action", "command": "reset_server", "code": "unknown_error"})
    failed = api.act(server, "reset")
    assert (failed["status"], failed["error"]["code"]) == ("error", "unknown_error")
    path = f"/servers/{server}/actions"
    assert [action["command"] for action in api.good("GET", path)["actions"]] == [
        "create_server",
        "start_server",
        "reset_server",
    ]
    assert [action["id"] for action in api.good("GET", path + "?status=error")["actions"]] == [failed["id"]]
    by_command = api.good("GET", path + "?sort=command:desc")["actions"]
    assert [action["command"] for action in by_command] == ["start_server", "reset_server", "create_server"]
    assert api.good("GET", f"{path}/{failed['id']}")["action"] == failed
    assert api.good("GET", f"/servers/actions/{failed['id']}")["action"] == failed
    assert len(api.good("GET", "/servers/actions")["actions"]) == 3


def test_actions_of_another_server_are_not_found(api):
    first, second = api.create("n1"), api.create("n2")
    action = api.act(first, "poweron")
    assert api.refused("GET", f"/servers/{second}/actions/{action['id']}") == (404, "not_found")
    assert api.refused("GET", f"/images/actions/{action['id']}") == (404, "not_found")


def test_image_actions(api, server):
    answer = api.good("POST", f"/servers/{server}/actions/create_image", {"labels": {"v": "1"}})
    api.wait(answer["action"])
    actions = api.good("GET", f"/images/{answer['image']['id']}/actions")["actions"]
    assert [action["command"] for action in actions] == ["create_image"]


def test_progress_grows(over, api, monkeypatch):
    now = [1000.0]
    server = api.create()
    monkeypatch.setattr(lab_actions, "time", SimpleNamespace(monotonic=lambda: now[0]))
    api.lab.control("POST", "/faults", {"point": "action", "effect": "slow", "delay": 3600})
    action = api.good("POST", f"/servers/{server}/actions/poweron")["action"]
    api.until(server, status="starting")
    seen = []
    for _quarter in range(5):
        seen.append(api.good("GET", f"/actions/{action['id']}")["action"]["progress"])
        now[0] += 900
    assert seen == [0, 25, 50, 75, 99]
    over.set()
    action = api.wait(action)
    assert action["progress"] == 100
    assert action["finished"]


def test_a_failed_action_has_no_effect(api, server):
    api.lab.control("POST", "/faults", {"point": "action", "machine": "n1", "command": "enable_rescue"})
    assert api.act(server, "enable_rescue", {})["status"] == "error"
    assert not api.server(server)["rescue_enabled"]
    assert not api.server(server)["locked"]
    assert api.act(server, "enable_rescue", {})["status"] == "success", "it struck once"


def test_start_after_a_failed_create_fails_too(api):
    api.lab.control("POST", "/faults", {"point": "action", "command": "create_server"})
    body = {"name": "n1", "server_type": "cx23", "image": "debian-12"}
    answer = api.good("POST", "/servers", body)
    assert api.wait(answer["action"])["status"] == "error"
    assert api.wait(answer["next_actions"][0])["status"] == "error"
    server = api.server(answer["server"]["id"])
    assert (server["status"], server["locked"]) == ("off", False)
    api.wait(api.good("DELETE", f"/servers/{server['id']}")["action"])


def test_boot_ignores_the_rescue(api, server):
    api.act(server, "enable_rescue", {})
    api.lab.control("POST", "/faults", {"point": "boot", "machine": "n1", "effect": "ignore_rescue"})
    api.act(server, "poweron")
    assert api.server(server)["rescue_enabled"], "armed still, though the disk was booted"
    api.act(server, "reset")
    assert api.boots() == ["disk", "rescue"]


def test_dead_boot(api, server):
    api.lab.control("POST", "/faults", {"point": "boot", "effect": "dead"})
    api.act(server, "poweron")
    assert api.server(server)["status"] == "running"
    assert api.boots() == []
    api.act(server, "reset")
    assert api.boots() == ["disk"]


@pytest.mark.parametrize("after", [False, True])
def test_lost_answers(api, after):
    fault = {"point": "request", "method": "POST", "path": "/servers", "after_effect": after}
    api.lab.control("POST", "/faults", fault)
    body = {"name": "n1", "server_type": "cx23", "image": "debian-12"}
    answer = api("POST", "/servers", body)
    assert answer.status_code == 502
    assert "html" in answer.headers["Content-Type"]
    assert len(api.good("GET", "/servers?name=n1")["servers"]) == int(after)


def test_dropped_connection(api):
    fault = {"point": "request", "path": "/ssh_keys", "method": "POST", "after_effect": True, "drop": True}
    api.lab.control("POST", "/faults", fault)
    with pytest.raises(requests.ConnectionError):
        api.key("k1")
    assert len(api.good("GET", "/ssh_keys?name=k1")["ssh_keys"]) == 1


def test_skip_and_times(api):
    fault = {"point": "request", "path": "/servers", "status": 503, "code": "unavailable", "skip": 1, "times": 2}
    api.lab.control("POST", "/faults", [fault])
    assert [api("GET", "/servers").status_code for dummy in range(5)] == [200, 503, 503, 200, 200]
    (report,) = api.lab.control("GET", "/faults")["faults"]
    assert report["fired"] == 2
    api.lab.control("DELETE", "/faults")
    assert api.lab.control("GET", "/faults")["faults"] == []


@pytest.mark.parametrize(
    "fault", [{"point": "moon"}, {"point": "action", "effect": "explode"}, {"point": "request", "path": "("}, {}, 5]
)
def test_nonsense_faults_are_refused(api, fault):
    url = api.lab.endpoint.replace("/v1", "/_lab/faults")
    answer = api.session.post(url, json=fault, timeout=600)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")
