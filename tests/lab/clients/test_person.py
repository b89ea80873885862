# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person can do to a machine beside a run, on machines that boot."""

import contextlib
import subprocess

import pytest

from lab.errors import LabError
from lab.running import USER_AGENT
from tests.waiting import until

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(1800)]
_SATA = {"size": "4G", "kind": "sata"}


@pytest.fixture
def dedicated(lab_nspawn):
    """Make one dedicated server with a person at it; it is removed after the test."""
    with contextlib.ExitStack() as stack:

        def make(**spec):
            (machine,) = lab_nspawn.dedicated(**spec)
            stack.callback(lab_nspawn.control, "DELETE", f"/dedicated/{machine['number']}")
            return lab_nspawn.person(machine["number"])

        yield make


def _eventually(question, wanted):
    """Ask until the answer is the wanted one; a machine that boots cannot be entered yet."""

    def answered():
        with contextlib.suppress(LabError, subprocess.TimeoutExpired):
            return question() == wanted
        return False

    until(answered, repr(wanted), pause=0.1)


def _booted_disk(person):
    return person.enter("findmnt -no SOURCE /").strip()


def test_rescue_and_back_disks_and_boot_order(dedicated):
    person = dedicated(image="debian", disks=[_SATA, {"size": "64M", "kind": "nvme"}])
    _eventually(lambda: _booted_disk(person), "/dev/sda2")
    assert person.add_disk("4G", "debian", kind="sata", serial="BROUGHT") == 2
    assert person.enter("ls /dev/sd?") == "/dev/sda\n", "the next boot finds it"

    person.to_rescue()
    assert person.row()["boots"][-1]["source"] == "rescue"
    serials = person.ssh("lsblk -dno SERIAL /dev/sda /dev/sdb").stdout.split()
    assert serials == [person.disks()[0]["serial"], "BROUGHT"]
    first, second = person.mark(0), person.mark(1)
    place = person.mark(1, (0, 512), (4096, 512))
    person.ssh("echo x | dd of=/dev/nvme0n1 bs=1 seek=4100 conv=fsync status=none")
    first.assert_untouched()
    assert second.changes() == ["all of it"]
    assert place.changes() == ["bytes 4096..4608"]
    with pytest.raises(AssertionError, match=r"disk 1 of \d+ was written to: bytes 4096..4608"):
        place.assert_untouched()

    person.boots_from(2)
    assert person.row()["boot_order"] == [2, 0, 1]
    person.to_disk()
    _eventually(lambda: _booted_disk(person), "/dev/sdb2")
    person.boots_from()
    person.to_disk()
    _eventually(lambda: _booted_disk(person), "/dev/sda2")
    agents = {entry["user_agent"] for entry in person.lab.control("GET", "/requests")["requests"]}
    assert USER_AGENT in agents


def test_a_disk_that_does_not_boot_is_passed_over(dedicated):
    person = dedicated(image="debian", disks=[_SATA, {"size": "64M", "kind": "sata"}])
    _eventually(lambda: _booted_disk(person), "/dev/sda2")
    person.boots_from(1)
    person.to_disk()
    _eventually(lambda: _booted_disk(person), "/dev/sda2")
    person.swap_disk(0, "1G", {0: b"foreign", 1 << 20: b"data"}, kind="sata")
    _eventually(lambda: "No bootable device" in person.lab.control("GET", f"/machines/{person.machine}/console"), True)
    assert person.row()["powered"]
    person.to_rescue()
    assert person.ssh("head -c 7 /dev/sda; tail -c +1048577 /dev/sda | head -c 4").stdout == "foreigndata"
    assert person.ssh("lsblk -bdno SIZE,SERIAL /dev/sda").stdout.split() == [
        str(1 << 30), person.disks()[0]["serial"]
    ]  # fmt: skip


def test_keys_names_and_silence(dedicated):
    person = dedicated(image="debian", disks=[_SATA])
    _eventually(lambda: _booted_disk(person), "/dev/sda2")
    assert person.ssh("true").returncode == 255
    person.write("/root/.ssh/authorized_keys", f"{person.public_key}\nssh-ed25519 AAAAother other\n", "0600")
    _eventually(lambda: person.ssh("id -un").stdout, "root\n")
    person.rename("renamed")
    assert person.ssh("hostname; cat /etc/hostname").stdout == "renamed\nrenamed\n"

    person.silence()
    done = person.ssh("true")
    assert (done.returncode, "timed out" in done.stderr) == (255, True), "no refusal: the packets vanish"
    assert person.enter("systemctl is-active ssh") == "active\n"
    person.let_speak()
    _eventually(lambda: person.ssh("true").returncode, 0)
    person.silence(2)
    assert person.lab.control("POST", f"/machines/{person.machine}/silence", {"on": True, "seconds": 1}) == {
        "silent": True
    }
    _eventually(lambda: person.ssh("true").returncode, 0)

    person.worsen(loss=99, kbytes=1)
    assert person.ssh("true").returncode == 255
    person.worsen(loss=5, kbytes=2000)
    _eventually(lambda: person.ssh("true").returncode, 0)
    person.worsen()

    person.remove_key(person.public_key)
    assert person.ssh("true").returncode == 255
    assert person.enter("cat /root/.ssh/authorized_keys") == "ssh-ed25519 AAAAother other\n"
    with pytest.raises(LabError, match="status 3"):
        person.enter("exit 3")


def test_cloud_server(lab_nspawn):
    import hcloud
    from hcloud.images import Image
    from hcloud.server_types import ServerType

    client = hcloud.Client(
        lab_nspawn.token, api_endpoint=lab_nspawn.endpoint, poll_interval=0.05, poll_max_retries=3000
    )
    answer = client.servers.create("person-cloud", ServerType(name="cx23"), Image(name="debian-12"))
    for action in (answer.action, *answer.next_actions):
        action.wait_until_finished()
    person = lab_nspawn.person("person-cloud")
    try:
        _eventually(lambda: _booted_disk(person), "/dev/sda2")
        person.add_disk("3G", "debian")
        person.boots_from(1)
        person.to_disk()
        _eventually(lambda: _booted_disk(person), "/dev/sdb2")
        person.to_rescue()
        assert person.ssh("ls /dev/sd?").stdout == "/dev/sda\n/dev/sdb\n"
        person.power_off()
        assert not person.row()["powered"]
        before = person.mark()
        person.power_on()
        _eventually(lambda: _booted_disk(person), "/dev/sdb2")
        before.assert_untouched()
        with pytest.raises(LabError, match="no machine 'missing'"):
            lab_nspawn.person("missing").row()
    finally:
        client.servers.get_by_id(answer.server.id).delete().wait_until_finished()
