# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any order of requests: the server behaves as a small model of power switch, rescue flag and boots says."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.running import RunningLab
from tests.lab.api.conftest import Api

NAMES = st.sampled_from(["n1", "n2", "n3"])


class Model:
    """What one server should look like."""

    def __init__(self, started):
        self.on = started
        self.armed = False
        self.boots = ["disk"] if started else []

    def boot(self):
        self.on = True
        self.boots.append("rescue" if self.armed else "disk")
        self.armed = False


class ServersInAnyOrder(RuleBasedStateMachine):
    """Random requests to a fresh lab."""

    @initialize()
    def open(self):
        self.lab = RunningLab(kind="dry")
        self.lab.open()
        self.api = Api(self.lab)
        self.models = {}
        self.ids = {}
        self.images = set()

    def teardown(self):
        if hasattr(self, "lab"):
            self.api.session.close()
            self.lab.close()

    @rule(name=NAMES, start=st.booleans())
    def create(self, name, start):
        if name in self.models:
            body = {"name": name, "server_type": "cx23", "image": "debian-12"}
            assert self.api.refused("POST", "/servers", body) == (409, "uniqueness_error")
            return
        self.ids[name] = self.api.create(name, start_after_create=start)
        self.models[name] = Model(start)

    def one(self, data):
        name = data.draw(st.sampled_from(sorted(self.models)))
        return self.ids[name], self.models[name], name

    @precondition(lambda self: self.models)
    @rule(data=st.data(), what=st.sampled_from(["poweron", "poweroff", "reset", "reboot", "shutdown"]))
    def power(self, data, what):
        server, model, _name = self.one(data)
        assert self.api.act(server, what)["status"] == "success"
        if what == "reset" or (what == "poweron" and not model.on) or (what == "reboot" and model.on):
            model.boot()
        elif what in ("poweroff", "shutdown"):
            model.on = False
            self.api.until(server, status="off")

    @precondition(lambda self: self.models)
    @rule(data=st.data(), armed=st.booleans())
    def rescue(self, data, armed):
        server, model, _name = self.one(data)
        self.api.act(server, "enable_rescue" if armed else "disable_rescue")
        model.armed = armed

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def snapshot(self, data):
        server, _model, _name = self.one(data)
        answer = self.api.good("POST", f"/servers/{server}/actions/create_image", {})
        assert self.api.wait(answer["action"])["status"] == "success"
        self.images.add(answer["image"]["id"])

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def rebuild(self, data):
        server, model, _name = self.one(data)
        self.api.act(server, "rebuild", {"image": "debian-13"})
        model.boot()

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def delete(self, data):
        server, _model, name = self.one(data)
        self.api.wait(self.api.good("DELETE", f"/servers/{server}")["action"])
        del self.models[name], self.ids[name]

    @invariant()
    def everything_is_as_the_model_says(self):
        if not hasattr(self, "lab"):
            return
        seen = {server["name"]: server for server in self.api.good("GET", "/servers")["servers"]}
        assert set(seen) == set(self.models)
        for name, model in self.models.items():
            server = seen[name]
            assert server["status"] == ("running" if model.on else "off")
            assert server["rescue_enabled"] == model.armed
            assert not server["locked"]
            assert self.api.boots(name) == model.boots
        addresses = [server["public_net"]["ipv4"]["ip"] for server in seen.values()]
        assert len(set(addresses)) == len(addresses)
        snapshots = self.api.good("GET", "/images?type=snapshot&per_page=50")["images"]
        assert {image["id"] for image in snapshots} == self.images


def test_servers_in_any_order():
    run_state_machine_as_test(
        ServersInAnyOrder,
        settings=settings(
            max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
