# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The login of a proxy is on no command line, neither of the controller nor of the machine, while a module uses it."""

import base64
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.toolchain.paths import CHECKOUT
from tests.integration.runs import LIMIT
from tests.web_servers import Handler, Server

LOGIN = "anna:proxy-s3cret"
CONTENT = b"content"


class Proxy(Server):
    """Answers every request, and looks at every command line meanwhile."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.seen: list[str] = []
        super().__init__(Request)


class Request(Handler):
    server: Proxy

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if LOGIN in line or LOGIN.partition(":")[2] in line:
                self.server.seen.append(line)
        self.reply(200, CONTENT)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as server:
        yield server


@pytest.mark.root
def test_the_roles_own_task_shows_no_login(tmp_path, proxy):
    url = f"http://{LOGIN}@127.0.0.1:{proxy.port}"
    artifact = {
        "name": f"test-{os.getpid()}",
        "version": "1",
        "url": "http://files.example.com/file",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "kind": "binary",
        "install": [{"path": str(tmp_path / "installed")}],
    }
    variables = yaml.safe_load((CHECKOUT / "roles/base/vars/main/plans.yml").read_text())
    task = yaml.safe_load((CHECKOUT / "roles/base/tasks/apply.yml").read_text())[0]
    task.pop("when")
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            **{name: variables[name] for name in ("__base_proxies", "__base_package_environment")},
            "__base_artifacts": [artifact],
            "base_http_proxy": url,
            "base_https_proxy": url,
            "base_no_proxy": "",
            "base_download_headers": {},
            "base_extra_ca": [],
            "base_download_timeout": 180,
        },
        "tasks": [task, {"ansible.builtin.debug": {"var": "__base_package_environment"}}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    try:
        done = subprocess.run(
            ["ansible-playbook", "-vvv", "play.yml"],
            cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
            env={**environment, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local")},
        )  # fmt: skip
    finally:
        Path(f"/etc/kubenode/artifacts/{artifact['name']}.json").unlink(missing_ok=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "installed").read_bytes() == CONTENT
    assert proxy.asked == [(artifact["url"], "Basic " + base64.b64encode(LOGIN.encode()).decode())]
    assert proxy.seen == []
    assert "proxy-s3cret" not in done.stdout + done.stderr
    assert '"__base_package_environment": {}' in done.stdout


def test_no_task_of_ours_has_a_proxy_in_its_environment():
    for path in [*CHECKOUT.glob("roles/**/*.yml"), *CHECKOUT.glob("playbooks/**/*.yml")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not line.strip().startswith("environment:") or "__base_package_environment" in line, path
