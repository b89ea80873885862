# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""node_info, node_settings and node_artifacts on machines whose systemd, dpkg and journal are real."""

import base64
import hashlib

import pytest

from tests.integration.node_engine.artifact_site import serving

pytestmark = [pytest.mark.nspawn, pytest.mark.mirror]

SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


def file(path: str, content: str, **fields: object) -> dict:
    """A file; its id is its path."""
    return {"id": path, "kind": "file", "path": path, "content": content, **fields}


def unit(name: str, *restart_on: str, **fields: object) -> dict:
    """A unit; its id is its name."""
    return {"id": name, "kind": "unit", "name": name, "restart_on": list(restart_on), **fields}


def service(name: str, text: str = SERVICE, **fields: object) -> list[dict]:
    """A service with its file."""
    path = f"/etc/systemd/system/{name}.service"
    return [file(path, text), unit(name, path, **{"enabled": True, "state": "started", **fields})]


def pid(target, name: str) -> str:
    """Which process a service is."""
    return target.node.run(f"systemctl show -p MainPID --value {name}")


@pytest.mark.parametrize(
    ("image", "version", "codename"),
    [("debian", "12", "bookworm"), pytest.param("debian13", "13", "trixie", marks=pytest.mark.long)],
)
def test_facts(target_of, image, version, codename):
    target = target_of(image)
    target.node.run(
        'apt-mark hold bash >/dev/null; mkdir -p /etc/kubenode; echo \'{"bin_dir": "/x"}\' >/etc/kubenode/base.json'
    )
    before = target.tree()
    run = target.run(
        "node_info",
        packages=["bash", "nonesuch"],
        candidates=True,
        binaries=["systemctl", "nonesuch"],
        units=["ssh", "nonesuch.timer", "swap.target"],
        files=["/etc/kubenode/base.json", "/nonesuch", "/etc"],
        sysctls=["kernel.ostype", "no.such"],
        modules=["overlay", "nonesuch"],
    ).ok()
    assert not run["changed"]
    node = run["node"]
    found = node["os"]
    assert (found["id"], found["version_id"], found["codename"]) == ("debian", version, codename)
    assert (node["container"], node["virtualization"], node["package_manager"]) == (True, "systemd-nspawn", "apt")
    assert node["systemd"] >= 252
    assert (node["cgroup"], node["uid"], node["selinux"]) == (2, 0, "absent")
    assert node["hostname"] == target.node.run("hostname")
    assert node["machine_id"] == target.file("/etc/machine-id")
    assert node["boot_id"] == target.node.boot_id()
    assert node["packages"] == {"bash": target.node.run("dpkg-query -Wf '${Version}' bash"), "nonesuch": None}
    assert node["candidates"]["nonesuch"] is None
    assert node["held"] == ["bash"]
    assert node["binaries"]["nonesuch"] is None
    assert node["binaries"]["systemctl"]["path"] == "/usr/bin/systemctl"
    assert node["units"]["ssh"] == {"load": "loaded", "active": "active", "enabled": "enabled"}
    assert node["units"]["nonesuch.timer"]["load"] == "not-found"
    assert node["files"]["/etc/kubenode/base.json"]["sha256"] == hashlib.sha256(b'{"bin_dir": "/x"}\n').hexdigest()
    assert not node["files"]["/nonesuch"]["exists"]
    assert node["base"] == {"bin_dir": "/x"}
    assert node["sysctls"] == {"kernel.ostype": "Linux", "no.such": None}
    assert node["modules"] == {"overlay": "builtin", "nonesuch": "missing"}
    assert node["network"]["default"]["4"]["address"] == target.node.address
    assert target.node.address in [entry["address"] for entry in node["network"]["addresses"]]
    assert target.tree() == before


def test_a_service_from_nothing_to_restarted(target):
    wanted = [
        *service("kn-one"),
        file("/etc/kn-one.conf", "a=1\n", mode="0640", group="adm"),
        {**unit("kn-one", "/etc/kn-one.conf"), "id": "restart"},
        {
            "id": "handler",
            "kind": "handler",
            "argv": ["sh", "-c", "date >>/run/kn-handler"],
            "on": ["/etc/kn-one.conf"],
        },
    ]
    before = target.tree()
    checked = target.apply(*wanted, flags=("--check", "--diff")).ok()
    assert target.tree() == before
    run = target.apply(*wanted).ok()
    # the second unit setting finds a service that was just started, and need not know that
    assert set(run["changed_ids"]) == set(checked["changed_ids"])
    assert target.node.run("systemctl is-active kn-one; systemctl is-enabled kn-one").split() == ["active", "enabled"]
    assert target.node.run("stat -c '%a %U:%G' /etc/kn-one.conf") == "640 root:adm"
    old = pid(target, "kn-one")

    again = target.apply(*wanted)
    assert not again["changed"]
    assert pid(target, "kn-one") == old
    target.put("/etc/kn-one.conf", "a=2\n")
    run = target.apply(*wanted, flags=("--diff",))
    assert run["changed_ids"] == ["/etc/kn-one.conf", "restart", "handler"]
    assert pid(target, "kn-one") != old
    assert target.file("/run/kn-handler").count("\n") == 1
    assert not target.apply(*wanted)["changed"]
    assert target.file("/run/kubenode/pending.json") == "{}"


@pytest.mark.long
def test_a_run_that_is_killed_before_the_restart_leaves_it_to_the_next(target):
    wanted = service("kn-two")
    assert not target.apply(*wanted).failed
    old = pid(target, "kn-two")
    wanted[0]["content"] = SERVICE.replace("infinity", "1000000")
    # the module dies of its own handler, after the file and before the restart
    killer = {"id": "killer", "kind": "handler", "argv": ["sh", "-c", "kill -9 $PPID"], "on": [wanted[0]["id"]]}
    assert target.apply(wanted[0], killer, wanted[1]).failed
    assert target.file("/etc/systemd/system/kn-two.service") == wanted[0]["content"].strip()
    assert pid(target, "kn-two") == old
    run = target.apply(*wanted)
    assert run["changed_ids"] == ["kn-two"], run.output
    assert pid(target, "kn-two") != old
    assert "1000000" in target.node.run(f"tr '\\0' ' ' </proc/{pid(target, 'kn-two')}/cmdline")
    assert not target.apply(*wanted)["changed"]


@pytest.mark.parametrize("restart", ["no", "always"])
def test_a_service_that_does_not_stay_up_is_an_error_with_its_last_lines(target, restart):
    name = f"kn-bad-{restart}"
    text = f"[Service]\nExecStart=/bin/sh -c 'echo unknown flag: --xyz; exit 1'\nRestart={restart}\nRestartSec=100ms\n"
    wanted = service(name, text, enabled=False, wait=5)
    run = target.apply(*wanted, file("/etc/kn-after", "")).fails("unknown flag: --xyz")
    assert run["failed_id"] == name
    assert [step["id"] for step in run["steps"]] == [wanted[0]["id"]]
    assert target.node.ssh("test -e /etc/kn-after").returncode == 1
    waiting = [wanted[0], {**wanted[1], "wait": 0}]
    assert not target.apply(*waiting).failed, "with wait 0 the run does not wait for it"
    target.node.run(f"systemctl stop {name}")


@pytest.mark.long
def test_conditions_masks_and_stops(target):
    text = SERVICE.replace("[Service]", "[Unit]\nConditionPathExists=/etc/kn-joined\n[Service]")
    wanted = service("kn-waiting", text)
    target.apply(*wanted).ok()
    assert target.node.run("systemctl is-active kn-waiting || true") == "inactive"
    assert not target.apply(*wanted)["changed"]
    joined = file("/etc/kn-joined", "")
    assert target.apply(wanted[0], joined, unit("kn-waiting", joined["id"], state="started"))["changed_ids"] == [
        joined["id"],
        "kn-waiting",
    ]
    assert target.node.run("systemctl is-active kn-waiting") == "active"
    gone = unit("kn-waiting", state="stopped", enabled=False)
    assert target.apply(gone)["changed"]
    assert not target.apply(gone)["changed"]
    assert target.node.run("systemctl is-active kn-waiting || true") == "inactive"
    target.put("/usr/lib/systemd/system/kn-vendor.service", SERVICE)
    target.node.run("systemctl daemon-reload && systemctl start kn-vendor")
    masked = unit("kn-vendor", masked=True, state="stopped")
    assert target.apply(masked)["changed"]
    assert target.node.run("systemctl is-enabled kn-vendor; systemctl is-active kn-vendor || true").split() == [
        "masked",
        "inactive",
    ]
    assert not target.apply(masked)["changed"]
    assert target.apply(unit("kn-vendor", masked=False, enabled=True, state="started"))["changed"]
    assert target.node.run("systemctl is-enabled kn-vendor; systemctl is-active kn-vendor").split() == [
        "enabled",
        "active",
    ]


def test_secrets_are_nowhere(target):
    token = "hunter2.hunter2hunter2"
    encoded = base64.b64encode(f"{token}64".encode()).decode()
    wanted = [
        file("/etc/kn-secret", f"a line\ntoken: {token}\n", secret=True),
        {"id": "b", "kind": "file", "path": "/etc/kn-secret64", "content_b64": encoded, "secret": True},
        {"id": "c", "kind": "file", "path": "/etc/kn-secret-by-name", "content_secret": "it"},
    ]
    for flags in (("--check", "--diff", "-vvv"), ("--diff", "-vvv")):
        run = target.apply(*wanted, secrets={"it": f"{token}\nby name\n"}, flags=flags).ok()
        assert len(run["changed_ids"]) == 3
        assert token not in run.output
        assert encoded not in run.output
    bad = target.apply({**wanted[0], "validate": ["cat", "%s", "/nonesuch"], "mode": "0640"}, flags=("-vvv",)).fails()
    assert token not in bad.output
    assert target.file("/etc/kn-secret") == f"a line\ntoken: {token}"
    assert target.file("/etc/kn-secret64") == f"{token}64"
    assert target.node.run("stat -c %a /etc/kn-secret*").split() == ["600", "600", "600"]
    found = target.node.run(
        f"journalctl --no-pager | grep -c {token} || true; grep -rl {token} /var/log /run /tmp /root || true"
    )
    assert found.split() == ["0"], found


def test_bad_settings_change_nothing(target):
    before = target.tree()
    wrong = [{"id": "b", "kind": "fiel"}, file("relative", "")]
    unreachable = [
        unit("nonesuch", state="started"),
        file("/etc/kn-y", "", owner="nonesuch"),
        {"id": "m", "kind": "absent", "path": "/etc/systemd"},
    ]
    for bad in (wrong, unreachable):
        run = target.apply(file("/etc/kn-x", ""), *bad).fails()
        assert len(run["errors"]) == len(bad)
        assert run["steps"] == []
        assert not run["changed"]
    assert target.tree() == before


@pytest.mark.long
def test_the_system_itself(target):
    target.put("/etc/fstab", "# mine\nUUID=1 none swap sw 0 0\ntmpfs /mnt tmpfs noauto 0 0\n")
    target.put("/etc/systemd/system/mnt-x.swap", "[Swap]\nWhat=/mnt/x\n[Install]\nWantedBy=swap.target\n")
    target.node.run("systemctl daemon-reload; systemctl enable mnt-x.swap 2>/dev/null")
    target.node.run("mkdir -p /var/lib/kubelet/pods/v && mount -t tmpfs none /var/lib/kubelet/pods/v && touch $_/x")
    wanted = [
        {"id": "swap", "kind": "swap", "mode": "off"},
        {"id": "module", "kind": "module", "name": "nonesuch"},
        {"id": "sysctl", "kind": "sysctl", "values": {"kernel.panic": "77"}},
        {"id": "hold", "kind": "hold", "packages": ["tar"], "held": True},
        {"id": "name", "kind": "hostname", "name": "kn-renamed"},
        {"id": "firewall", "kind": "firewall", "ports": ["10250/tcp"]},
        {"id": "selinux", "kind": "selinux", "mode": "permissive"},
        {"id": "tree", "kind": "absent", "path": "/var/lib/kubelet", "recursive": True},
    ]
    before = target.node.run("hostname")
    checked = target.apply(*wanted, flags=("--check",))
    assert checked["changed_ids"] == ["swap", "hold", "name", "tree"], checked.output
    run = target.apply(*wanted).ok()
    assert run["changed_ids"] == checked["changed_ids"]
    assert run.output.count("this is a container, which shares its kernel") == 1
    assert not target.apply(*wanted)["changed"]
    assert target.file("/etc/fstab").splitlines()[1] == "# kubenode: swap is off: UUID=1 none swap sw 0 0"
    assert target.node.run("systemctl is-enabled swap.target || true") == "masked"
    assert target.node.run("systemctl start mnt-x.swap; systemctl is-active mnt-x.swap || true") == "inactive"
    assert "tar" in target.node.run("apt-mark showhold").split()
    assert target.node.run("hostname; cat /etc/hostname").split() == ["kn-renamed"] * 2
    assert target.node.run("ls /var/lib; grep -c kubelet /proc/self/mountinfo || true").split()[-1] == "0"
    target.apply({"id": "name", "kind": "hostname", "name": before})


@pytest.mark.long
def test_artifacts_and_the_service_that_uses_them(target, lab_nspawn):
    program = b"#!/bin/sh\nexec sleep infinity\n"
    wanted = {"name": "kn-tool", "version": "1.0", "kind": "binary", "install": [{"path": "/usr/local/bin/kn-tool"}]}
    text = SERVICE.replace("/bin/sleep infinity", "/usr/local/bin/kn-tool")
    with serving(address=lab_nspawn.controller) as web:
        web.files["/tool"] = program
        wanted.update(url=web.url("/tool", lab_nspawn.controller), sha256=hashlib.sha256(program).hexdigest())
        before = target.tree()
        run = target.run("node_artifacts", "--check", "--diff", artifacts=[wanted])
        assert run["changed_ids"] == ["artifact:kn-tool"], run.output
        assert target.tree() == before
        assert web.requests == []
        run = target.run("node_artifacts", "-vvv", artifacts=[wanted], headers={"X-Key": "hunter3hunter3"}).ok()
        assert run["artifacts"][0]["bytes"] == len(program)
        assert web.requests[0][1]["X-Key"] == "hunter3hunter3"
        assert "hunter3" not in run.output
        assert target.node.run("journalctl --no-pager | grep -c hunter3 || true") == "0"
        # the settings come in another task, and do not know what changed before
        started = service("kn-tool", text, restart_on=["artifact:kn-tool"])
        assert not target.apply(*started).failed
        old = pid(target, "kn-tool")
        web.files["/tool"] = newer = program + b"# newer\n"
        wanted.update(version="1.1", sha256=hashlib.sha256(newer).hexdigest())
        assert target.run("node_artifacts", artifacts=[wanted])["changed_ids"] == ["artifact:kn-tool"]
        assert target.apply(*started)["changed_ids"] == ["kn-tool"]
        assert pid(target, "kn-tool") != old
        seen = len(web.requests)
        assert not target.run("node_artifacts", artifacts=[wanted])["changed"]
        assert len(web.requests) == seen

        wanted.update(version="1.2", sha256="0" * 64)
        run = target.run("node_artifacts", artifacts=[wanted]).fails()
        assert wanted["url"] in run["msg"]
        assert f"expected sha256 {'0' * 64}, got {hashlib.sha256(newer).hexdigest()}" in run["msg"]
        assert target.file("/usr/local/bin/kn-tool") == newer.decode().strip()
        assert '"version": "1.1"' in target.file("/etc/kubenode/artifacts/kn-tool.json")
