# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: what it prints, what it leaves, and that the image server serves the same bytes."""

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller import Controller
from tests.integration.liveimage.program import Program
from tests.integration.runs import Run
from tests.unit.liveimage import maker
from tests.waiting import until

AUTH = "c2VjcmV0LXVzZXI6c2VjcmV0LXBhc3M="
SECRETS = (AUTH, "proxy-pass", "hunter2", "in-a-file", "in-a-private-key")
NETWORK = (
    Path(__file__)
    .parents[2]
    .joinpath("unit/liveimage/nmstate/documents/bond-lacp-vlans.yaml")
    .read_text(encoding="utf-8")
)


class Runner(Controller):
    """Runs of the module with options, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder)
        self.base = maker.make(folder / "coreos.iso", maker.Layout())

    @property
    def environment(self) -> dict[str, str]:
        """That of a user without proxies."""
        return {name: value for name, value in super().environment.items() if not name.lower().endswith("_proxy")}

    def ansible(self, *flags: str, **given: object) -> Run:
        """The way a user does it."""
        return self.module("localhost", "preprov_image_build", *flags, **self._options(given))

    def run(self, *, env: dict[str, str] | None = None, **given: object) -> dict[str, Any]:
        """The module as Ansible starts it on a machine: a process, options on its standard input."""
        return self.process("preprov_image_build", env=env, **self._options(given)).result

    def _options(self, given: dict[str, object]) -> dict[str, object]:
        found = {"base_iso": str(self.base), "dest": str(self.folder / "out"), **given}
        return {name: value for name, value in found.items() if value is not None}

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "out").glob("*"))


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> Runner:
    return Runner(tmp_path_factory.mktemp("module"))


@pytest.fixture(scope="module")
def agent(runner) -> dict:
    """Options of an agent that is full of secrets."""
    (runner.folder / "pull-secret").write_text(json.dumps({"auths": {"quay.io": {"auth": AUTH}}}))
    return {
        "agent_image": "quay.io/example/agent:1",
        "ironic_urls": ["http://ironic.example.com"],
        "pull_secret_file": str(runner.folder / "pull-secret"),
        "https_proxy": "http://user:proxy-pass@proxy.example.com:3128",
        "agent_environment": {"TOKEN": "hunter2"},
    }


HOSTS = [
    {
        "name": "web-1",
        "network": NETWORK,
        "files": [
            {"path": "/etc/a", "content": "in-a-file", "mode": "0600"},
            {"path": "/etc/b", "content_base64": base64.b64encode(b"in-a-private-key").decode(), "mode": "0400"},
        ],
        "kernel_arguments": {"append": ["console=ttyS0"]},
    },
    {"name": "web-2"},
]


def test_nothing_that_is_printed_has_a_secret_and_only_the_owner_reads_what_is_written(runner, agent):
    result = runner.ansible("-vvv", "--diff", hosts=HOSTS, **agent)
    assert (result["changed"], [host["failed"] for host in result["hosts"]]) == (True, [False, False])
    assert [secret for secret in SECRETS if secret in result.output] == []
    assert "quay.io/example/agent:1" in result.output  # the difference is there
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (runner.folder / "out").iterdir()}
    assert set(modes.values()) == {0o600}
    left = [path for path in runner.folder.rglob("*") if path.is_file() and path.parent.name != "out"]
    found = [path.name for path in left if AUTH.encode() in path.read_bytes()]
    assert found == ["pull-secret"]
    refused = runner.run(hosts=[{**HOSTS[0], "nonsense": 1}], _ansible_verbosity=3, **agent)
    assert ("nonsense" in refused["msg"], [one for one in SECRETS if one in str(refused)]) == (True, [])


def test_run_again_nothing_changes(runner, agent):
    runner.run(hosts=HOSTS, **agent)
    result = runner.run(hosts=HOSTS, _ansible_diff=True, **agent)
    assert (result["changed"], result["diff"]) == (False, [])
    assert runner.run(hosts=HOSTS, _ansible_check_mode=True, **agent)["changed"] is False


def test_one_bad_host_fails_the_task_after_the_others_got_theirs(runner, agent):
    bad = {"name": "bad", "network": {"interfases": []}}
    result = runner.run(hosts=[{"name": "web-3"}, bad], **agent)
    assert result["failed"]
    assert result["msg"].startswith("1 of 2 hosts failed: bad: network: interfases: unknown key")
    assert ("web-3.iso" in runner.files(), "bad.iso" in runner.files()) == (True, False)
    reported = runner.run(hosts=[bad], on_error="report", **agent)
    assert ("failed" not in reported, reported["hosts"][0]["failed"]) == (True, True)


def test_options_fall_back_to_the_peer_s_variables(runner, tmp_path):
    env = {
        "DEPLOY_ISO": str(runner.base),
        "IRONIC_AGENT_IMAGE": "quay.io/from/environment:1",
        "IRONIC_BASE_URL": "http://one.example.com,http://two.example.com",
        "IRONIC_AGENT_PULL_SECRET": base64.b64encode(json.dumps({"auths": {"a": {"auth": AUTH}}}).encode()).decode(),
    }
    made = runner.run(env=env, base_iso=None, dest=str(tmp_path / "out"), hosts=[{"name": "web-1"}], _ansible_diff=True)
    assert (made["changed"], [one for one in (AUTH, env["IRONIC_AGENT_PULL_SECRET"]) if one in str(made)]) == (True, [])
    shown = runner.run(mode="show", images=[str(tmp_path / "out/web-1.iso")])["images"][0]
    files = {one["path"]: "".join(one["contents"]) for one in shown["ignition"]["storage"]["files"]}
    assert (
        "api_url = http://one.example.com:6385,http://two.example.com:6385\n" in files["/etc/ironic-python-agent.conf"]
    )
    assert files["/etc/authfile.json"].startswith("********")
    assert "quay.io/from/environment:1" in shown["ignition"]["systemd"]["units"][0]["contents"]


def test_the_image_server_serves_descriptors_as_the_files_would_be(runner, agent, tmp_path):
    both = {
        "hosts": HOSTS,
        "outputs": ["iso", "minimal_iso", "pxe"],
        "publish_url": "http://images.example.com",
        **agent,
    }
    runner.run(dest=str(tmp_path / "files"), **both)
    (tmp_path / "overlays").mkdir()
    with Program("--overlays-dir", str(tmp_path / "overlays"), "--guessable", bases=runner.folder) as server:
        result = runner.run(mode="overlay", dest=str(tmp_path / "overlays"), **both)
        images = [image for host in result["hosts"] for image in host["images"]] + result["shared"]
        assert len(images) == 2 * 4 + 2
        for image in images:
            path = image["url"].removeprefix("http://images.example.com")
            server.until_served(path)
            answer = server.get(path)
            assert answer.content == (tmp_path / "files" / image["name"]).read_bytes()
            assert answer.headers["ETag"] == f'"{image["etag"]}"'
        again = runner.run(mode="overlay", dest=str(tmp_path / "overlays"), **both)
        assert again["changed"] is False
        gone = runner.run(
            mode="overlay", dest=str(tmp_path / "overlays"), **{**both, "hosts": [{"name": "web-1", "state": "absent"}]}
        )
        assert gone["changed"]
        until(lambda: server.status("/web-1.iso") == 404, "/web-1.iso is gone")
        assert server.status("/web-2.iso") == 200


def test_owner_and_group_must_be_there_and_are_given(runner, agent, tmp_path):
    refused = runner.run(hosts=[{"name": "web-1"}], group="no-such-group", dest=str(tmp_path / "out"), **agent)
    assert refused["msg"] == "group 'no-such-group' does not exist on this machine"
    assert not (tmp_path / "out").exists()
    if os.geteuid():
        pytest.skip("only root gives files away")
    given = {"hosts": [{"name": "web-1"}], "dest": str(tmp_path / "out"), "permissions": "0640", **agent}
    runner.run(group="daemon", **given)
    found = (tmp_path / "out/web-1.iso").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (1, 0o640)
    assert runner.run(group="daemon", **given)["changed"] is False
    assert runner.run(group="root", _ansible_check_mode=True, **given)["changed"] is True
    assert (tmp_path / "out/web-1.iso").stat().st_gid == 1
