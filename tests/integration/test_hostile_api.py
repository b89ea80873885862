# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API that repeats the credentials of a request in its errors: none is shown."""

import base64
import json
from collections.abc import Iterator

import pytest

from tests.integration.controller import Controller
from tests.web_servers import Handler, Server

SECRET = "s3cr3t-of-the-environment"


class Echo(Handler):
    """Refuses every request, and says whose it was."""

    def do_GET(self) -> None:
        kind, _blank, value = self.headers["Authorization"].partition(" ")
        who = base64.b64decode(value).decode() if kind == "Basic" else value
        message = f"{who} may not do this"
        error = {"status": 422, "code": "invalid_input", "message": message}
        body = json.dumps({"error": error, "kind": "Status", "message": message}).encode()
        self.reply(422, body, {"Content-Type": "application/json"})

    do_POST = do_GET


@pytest.fixture
def endpoint() -> Iterator[str]:
    with Server(Echo) as server:
        yield server.url


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: one, cluster: {{server: "{endpoint}"}}}}]
users: [{{name: me, user: {{token: {secret}}}}}]
contexts: [{{name: one, context: {{cluster: one, user: me}}}}]
current-context: one
"""
#: For each module: its environment and its options. The test fills in the options that are empty here.
CALLS = {
    "hcloud_machine": (
        {"HCLOUD_TOKEN": SECRET},
        {
            "machines": [{"name": "n1", "server_type": "cx23", "location": "fsn1", "ssh_keys": ["k"]}],
            "api_endpoint": "",
        },
    ),
    "robot_server": (
        {"HROBOT_API_USER": "user", "HROBOT_API_PASSWORD": SECRET},
        {"machines": [{"name": "n1", "server_number": 1}], "endpoint": ""},
    ),
    "cluster_node": ({}, {"name": "n1", "kubeconfig": ""}),
}


@pytest.mark.parametrize("module", CALLS)
def test_what_an_api_repeats_of_our_credentials_is_masked(lab_dry, tmp_path, endpoint, module):
    environment, options = CALLS[module]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(endpoint=endpoint, secret=SECRET))
    reached = {"api_endpoint": endpoint, "endpoint": endpoint, "kubeconfig": str(kubeconfig)}
    controller = Controller(lab_dry, tmp_path)
    run = controller.process(module, env=environment, **{name: options[name] or reached[name] for name in options})
    controller.stop()
    assert run.failed
    assert "may not do this" in run.result["msg"]
    assert "********" in run.result["msg"]
    assert SECRET not in run.output
