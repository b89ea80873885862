# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""machine_disks against dedicated servers of the lab: every refusal leaves the disks as they were, byte by byte."""

import json
import shlex

import pytest

from tests.integration.disks.conftest import by_serial, held
from tests.integration.runs import Running

pytestmark = pytest.mark.nspawn

NVME = {"size": "1G", "kind": "nvme", "serial": "NVME1", "wwn": "eui.0025385b71b00001", "model": "LAB NVMe"}
SATA = {"size": "768M", "kind": "sata", "serial": "SATA1", "wwn": "0x5002538d40aa0001", "model": "LAB SATA"}

#: A foreign system on the disk $1: table, swap, a root file system.
FOREIGN = r"""
set -e
printf 'label: gpt\nsize=64M,type=S\n,\n' | sfdisk --quiet "$1"
for try in $(seq 3000); do head -c1 "${1}1" "${1}2" >/dev/null 2>&1 && break; sleep 0.1; done
mkswap --label swapspace "${1}1" >/dev/null
mkfs.ext4 -q -L oldroot "${1}2"
mkdir -p /mnt/old
mount "${1}2" /mnt/old
mkdir -p /mnt/old/usr/lib /mnt/old/etc/kubenode
echo 'PRETTY_NAME="Old Linux 7"' >/mnt/old/usr/lib/os-release
if test -n "$2"; then echo "$2" >/mnt/old/etc/kubenode/installed.json; fi
umount /mnt/old
sync
"""


#: A disk that is read slowly, and one that cannot be measured.
FIO = "/usr/local/bin/fio"
MEASURED = r"""#!/bin/sh
case " $* " in *" --readonly --rw=read "*) ;; *) exit 9 ;; esac
for word; do case $word in --filename=*) disk=${word#*=} ;; esac; done
[ "$disk" = /dev/nvme0n1 ] || exit 3
echo "$disk" >>/tmp/measured
echo 'fio: a warning'
echo '{"jobs": [{"error": 0, "read": {"bw": 39999}}]}'
"""


def put_system(machine, device: str, record: dict | None = None) -> None:
    """Put a system on a disk of the machine, with an installed record or without."""
    words = shlex.join(["sh", "-c", FOREIGN, "sh", device, json.dumps(record) if record else ""])
    machine.sh(words)


@pytest.fixture
def machine(server):
    """A server with an NVMe disk and a smaller SATA disk, both empty."""
    return server(disks=[NVME, SATA])


def test_facts_hints_and_an_empty_disk(machine, tmp_path):
    before = machine.disk_marks()
    run = machine.disks(root_device_hints={"model": "lab nvme"}).ok()
    assert not run["changed"]
    nvme, sata = by_serial(run)["NVME1"], by_serial(run)["SATA1"]
    assert (nvme["kind"], nvme["size"], nvme["wwn"], nvme["holds"]) == ("nvme", 1 << 30, "eui.0025385b71b00001", [])
    assert (sata["kind"], sata["size"], sata["model"]) == ("sata", 768 << 20, "LAB SATA")
    assert "ata-LAB_SATA_SATA1" in sata["by_id"]
    assert run["root_devices"] == ["nvme0n1"]
    assert run["root_wwns"] == ["eui.0025385b71b00001"]
    assert len(run["table"]) == 3
    assert [line.partition("  # ")[0] for line in run["hints"]] == [
        f"kubenode_root_device_hints: {{serial: {disk['serial']}}}" for disk in run["disks"]
    ]
    assert not machine.claim.exists()

    none = machine.ready(root_device_hints={"wwn": "0x5002538d40aaffff"}).fails()
    assert none["permanent"] is True
    assert "SATA1" in none["msg"], "the error lists the candidates"
    assert none["boot_state"] == "ProvisioningFailed"

    run = machine.ready(root_device_hints={"smallest": True}, device_strings="wwn").ok()
    assert not run["changed"]
    assert run["root_devices"] == ["0x5002538d40aa0001"]
    assert run["boot_state"] == "BootingToRescue"
    assert [disk["serial"] for disk in json.loads(machine.claim.read_text())["disks"]] == ["SATA1"]
    run = machine.ready(root_device_hints={"query": "[?kind=='nvme'] | [0]"}, device_strings="by-id")
    assert run["root_devices"] == ["nvme-LAB_NVMe_NVME1"]
    assert machine.disk_marks() == before

    machine.sh(f"test ! -e {FIO} && cat >{FIO} <<'END'\n{MEASURED}END\nchmod 755 {FIO}")
    machine.ready(root_device_hints={"model": "lab nvme"}, health="speed").fails(
        "disk nvme0n1 ", "is read at 39999 KiB/s, and 40000 are the least; replace it, or set health: check"
    )
    assert machine.sh("cat /tmp/measured").split() == ["/dev/nvme0n1"] * 2
    assert not machine.ready(root_device_hints={"model": "lab nvme"}).failed
    run = machine.ready(root_device_hints={"smallest": True}, health="speed").ok()
    assert "how fast it is read is unknown: fio measured nothing (exit code 3)" in str(run["warnings"])
    assert machine.disk_marks() == before

    # A person makes a file system there before the image command begins.
    assert [one["serial"] for one in run["found_empty"]] == ["SATA1"]
    (tmp_path / "image-url-command-late").write_text(
        "#!/bin/sh\nhead -c 4M /dev/urandom >/dev/sda; echo IMAGE_URL_DONE\n"
    )
    (tmp_path / "image-url-command-late").chmod(0o755)
    machine.sh("mkfs.ext4 -q -F -L kept /dev/sda")
    kept = machine.disk_marks()
    given = {
        "image_url": "https://images.example/a.raw",
        "command": "image-url-command-late",
        "command_dir": str(tmp_path),
    }
    given |= {"root_devices": ["sda"], "consent": "checked+empty", "log_dir": str(tmp_path / "logs")}
    machine.start("image_url_command", still_empty=run["found_empty"], **given).wait().fails(
        "SATA1, wwn 0x5002538d40aa0001) does not hold any more what was found before"
    )
    assert machine.disk_marks() == kept


def test_a_foreign_system_goes_only_when_its_disk_is_named(machine):
    put_system(machine, "/dev/sda")
    machine.sh("mkfs.xfs -q -L keep /dev/nvme0n1")
    hints = {"by_id": "ata-LAB_SATA_SATA1"}
    before = machine.disk_marks()

    refused = machine.ready(root_device_hints=hints).fails("Old Linux 7")
    assert "0x5002538d40aa0001" in refused["msg"], "it says how to name the disk"
    assert held(by_serial(refused)["SATA1"]) == ["table", "swap", "system"]
    assert not machine.claim.exists()
    assert machine.ready(root_device_hints=hints, wipe=["NVME1"]).failed, "consent to one disk is none to another"
    assert machine.ready(root_device_hints=hints, reinstall=True).failed, "it is not ours"
    assert machine.disk_marks() == before

    shown = machine.ready("--check", "--diff", root_device_hints=hints, wipe=["SATA1"]).ok()
    assert shown["changed"]
    assert shown["wiped"] == ["0x5002538d40aa0001"]
    removed = [line for line in shown.output.splitlines() if line.startswith("-")]
    assert any("Old Linux 7" in line for line in removed)
    assert "+nothing" in shown.output
    assert "NVME1" not in shown.output.partition("=>")[0], "only what would be erased"
    assert machine.disk_marks() == before
    assert not machine.claim.exists()

    done = machine.ready(root_device_hints=hints, wipe=["SATA1"]).ok()
    assert done["changed"]
    assert done["wiped"] == ["0x5002538d40aa0001"]
    assert by_serial(done)["SATA1"]["holds"] == []
    assert held(by_serial(done)["NVME1"]) == ["filesystem"]
    after = machine.disk_marks()
    assert after[0] == before[0], "the disk that was not named"
    assert after[1] != before[1]
    assert machine.sh("wipefs /dev/sda; lsblk -no NAME /dev/sda; blkid -p /dev/sda || true") == "sda\n"
    again = machine.ready(root_device_hints=hints, wipe=["SATA1"]).ok()
    assert not again["changed"]
    assert machine.disk_marks() == after

    put_system(machine, "/dev/sda")
    other = machine.ready(root_device_hints={"serial": "NVME1"}, wipe=["NVME1"]).ok()
    assert "the firmware could start what it holds instead of the new system" in " ".join(other.output.split())
    machine.sh("delpart /dev/sda 1; delpart /dev/sda 2; sgdisk --zap-all /dev/sda >/dev/null")
    machine.sh("head -c 1M /dev/zero >/dev/sda; sync")
    machine.ready(root_device_hints=hints).fails(
        "swap 'swapspace' (at 1 MiB, in no partition: a partition table may be lost)"
    )
    done = machine.ready(root_device_hints=hints, wipe=["SATA1"]).ok()
    assert by_serial(done)["SATA1"]["holds"] == []


@pytest.mark.long
def test_reinstall_and_claims_are_consent_for_what_is_ours(machine):
    hints = {"serial": "SATA1"}
    put_system(machine, "/dev/sda", {"machine": "node-2"})
    before = machine.disk_marks()
    machine.ready(root_device_hints=hints, reinstall=True).fails("node-2")
    assert machine.disk_marks() == before

    machine.sh("wipefs -qaf /dev/sda1 /dev/sda2 /dev/sda")
    put_system(machine, "/dev/sda", {"machine": "node-1", "image_url": "https://x/y"})
    before = machine.disk_marks()
    refused = machine.ready(root_device_hints=hints).fails("reinstall")
    (system,) = (entry for entry in by_serial(refused)["SATA1"]["holds"] if entry["kind"] == "system")
    assert system["installed"] == {"machine": "node-1", "image_url": "https://x/y"}
    assert machine.disk_marks() == before
    assert machine.ready(root_device_hints=hints, reinstall=True)["wiped"] == ["0x5002538d40aa0001"]

    # A run that ends here may begin again; what it left is half a system.
    put_system(machine, "/dev/sda")
    machine.ready(root_device_hints={"serial": "NVME1"}, claim_file=str(machine.folder / "other.json")).ok()
    assert machine.ready(root_device_hints=hints, claim_file=str(machine.folder / "other.json")).failed
    resumed = machine.ready(root_device_hints=hints).ok()
    assert resumed["wiped"] == ["0x5002538d40aa0001"]


def test_mounts_and_swap_go_first_and_the_running_system_never(machine):
    put_system(machine, "/dev/sda")
    machine.sh("mount /dev/sda2 /mnt/old && mkdir /mnt/old/inner && mount -t tmpfs none /mnt/old/inner")
    hints = {"serial": "SATA1"}
    (system,) = (one for one in by_serial(machine.disks())["SATA1"]["holds"] if one["kind"] == "system")
    assert (system["mounts"], system["in_use"]) == (["/mnt/old"], True)
    done = machine.ready(root_device_hints=hints, wipe=["SATA1"]).ok()
    assert "/mnt/old" not in machine.sh("cat /proc/mounts")
    assert by_serial(done)["SATA1"]["holds"] == []

    # The running system has its files there: nothing is erased, with any consent.
    machine.sh("mkfs.ext4 -q -L busy /dev/sda && mkdir -p /boot && mount /dev/sda /boot")
    machine.ready(root_device_hints=hints, wipe=["SATA1"]).fails("in use by the running system")
    assert machine.sh("umount /boot; blkid -po value -s LABEL /dev/sda") == "busy\n"


@pytest.mark.long
def test_after_letters_were_swapped_the_right_disk_is_meant(server):
    disks = [
        {"size": "256M", "kind": "sata", "serial": "ONE", "wwn": "0x5002538d40aa0001"},
        {"size": "256M", "kind": "sata", "serial": "TWO", "wwn": "0x5002538d40aa0002"},
    ]
    machine = server(disks=disks, swaps_letters=True)
    machine.sh("mkfs.ext4 -q -L keep $(lsblk -dnpo NAME,SERIAL | sed -n 's/ *TWO$//p')")
    machine.sh("mkfs.ext4 -q -L drop $(lsblk -dnpo NAME,SERIAL | sed -n 's/ *ONE$//p')")
    hints = {"wwn": "5002538D40AA0001"}
    first = machine.disks(root_device_hints=hints)
    machine.boot_rescue()
    before = machine.disk_marks()
    second = machine.ready(root_device_hints=hints, wipe=["0x5002538d40aa0001"], previous_boot_id=first["boot_id"]).ok()
    assert second["root_devices"] != first["root_devices"], "the letters did swap"
    assert by_serial(second)["ONE"]["holds"] == []
    assert [entry["label"] for entry in by_serial(second)["TWO"]["holds"]] == ["keep"]
    after = machine.disk_marks()
    assert after[1] == before[1]
    assert after[0] != before[0]


@pytest.mark.long
def test_another_rescue_than_the_known_one_gets_no_commands(machine):
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s"
    run = machine.disks(host_keys=[key], rescue_timeout=30).fails()
    assert run["in_rescue"] is False
    assert "host key" in run["msg"]


#: An image command that writes the disk and then waits for an exit code.
COMMAND = """#!/bin/sh
mkfs.ext4 -q -F -L written "/dev/$4"
until test -e /root/end; do sleep 0.2; done
cat /root/end
"""


@pytest.mark.long
def test_a_second_run_leaves_the_work_of_the_image_command_untouched(machine):
    hints = {"serial": "SATA1"}
    assert not machine.ready(root_device_hints=hints)["changed"]
    (machine.folder / "image-url-command-slow").write_text(COMMAND)
    (machine.folder / "image-url-command-slow").chmod(0o755)
    given = {"command_dir": str(machine.folder), "image_url": "https://images.example/x", "check_image": False}
    given["root_devices"] = ["sda"]

    def start() -> Running:
        return machine.start("image_url_command", command="image-url-command-slow", **given)

    run = start()
    machine.sh("for try in $(seq 3000); do blkid -p /dev/sda && break; sleep 0.1; done; blkid -p /dev/sda")
    again = machine.ready(root_device_hints=hints).ok()
    assert (again["in_progress"], again["wiped"], again["root_devices"]) == (True, [], ["sda"])
    other = machine.ready(root_device_hints=hints, wipe=["SATA1"], claim_file=str(machine.folder / "other.json"))
    assert other.failed, "a disk that is being written is not emptied, with any consent"
    assert not (machine.folder / "other.json").exists()
    machine.sh("echo IMAGE_URL_DONE >/root/end")
    assert not run.wait().failed
    before = machine.disk_marks()
    again = machine.ready(root_device_hints=hints, wipe=["SATA1"])
    assert (again["in_progress"], again["wiped"]) == (True, [])
    assert machine.disk_marks() == before

    # Emptied by other means than our claim, the disk makes the image command's success count no more.
    other = machine.ready(root_device_hints=hints, wipe=["SATA1"], claim_file=str(machine.folder / "other.json"))
    assert other["wiped"] == ["0x5002538d40aa0001"]
    machine.sh("echo broken >/root/end")
    assert start().wait().failed, "it runs again, and fails this time"
    resumed = machine.ready(root_device_hints=hints).ok()
    assert resumed["wiped"] == ["0x5002538d40aa0001"], "what a failed command left is emptied on its claim"
