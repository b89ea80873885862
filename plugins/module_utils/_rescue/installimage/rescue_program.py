# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The in-rescue program of robot_installimage: look, fetch, install, judge; and tidy up after a failure.

It is started as the runner starts an image command, prints one line of JSON that says how it ended, and IMAGE_URL_DONE
when the new system is complete. ``bootstrap.data`` holds the specification. What only the rescue knows is checked here:
firmware, architecture, and the disks as they are now.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import platform
import re
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

from ..._common.safe_files import replacing
from ..._common.text import json_value, to_whole_seconds
from ..disks import disk_facts, disk_gather, disk_names, wiping
from ..disks.disk_facts import Disk, Identity, Raw
from ..disks.disk_gather import GatherError
from ..disks.disk_tools import Tools
from ..programs import run
from . import image_file, installer, post_install, system_network
from . import layout as layouts
from . import spec as specs
from .config_words import InvalidImageName, check_architecture, parse_image_name
from .layout import Layout
from .processes import Refused, kill_below
from .spec import autosetup, written
from .system_network import Network

#: Begins the path of the directory below which installimage mounts the new system.
WORKPLACE = "/installimage."
#: For programs that end soon.
_run = functools.partial(run, limit=60)


def is_uefi() -> bool:
    """Whether the rescue was booted by UEFI: installimage makes the boot loader for what booted the rescue."""
    return os.path.isdir("/sys/firmware/efi")


def find(names_given: Sequence[str], tools: Tools) -> list[Identity]:
    """The disks of these stable names now, as facts of machine_disks."""
    try:
        return disk_names.resolve(names_given, disk_gather.identities(tools))
    except disk_names.Unresolved as error:
        raise Refused(f"root_devices: {error}", permanent=True) from None


def check_disks(chosen: Sequence[Identity], tools: Tools, layout: Layout, targets: Sequence[Disk] = ()) -> list[str]:
    """Refuse disks that hold anything; returns the names of the volume groups of other disks, which are to be kept.

    ``targets``: disks that will be emptied before; they must hold what was found when that was allowed.
    """
    wanted = {disk["name"] for disk in chosen}
    raw = disk_gather.read(tools, health=False)
    found = disk_facts.facts(raw)
    to_empty = _still(targets, found)
    for disk in [disk for disk in found if disk["name"] in wanted and disk["name"] not in to_empty]:
        if disk["holds"]:
            raise Refused(
                f"root_devices: {disk['name']} ({disk_names.identity(disk)}) is not empty: "
                f"{'; '.join(disk_facts.held(disk)[:8])}. Nothing was written; machine_disks with state: ready "
                "empties disks that its option wipe names (kubenode_wipe)",
                permanent=True,
            )
    return _groups_to_keep(raw, wanted | set(to_empty), layout) if layout.groups() else []


#: What a name of a volume group may be, and what the other columns of vgs may hold.
_GROUP, _COLUMN = re.compile(r"[A-Za-z0-9+_.-]+\Z"), re.compile(r"[0-9.]+[a-z]?\Z|[wzn-]{1,6}\Z")


def _groups_to_keep(raw: Raw, gone: set[str], layout: Layout) -> list[str]:
    """The volume groups of disks that are not installed on: a layout with LVM removes every group that is not kept."""
    if not raw.has_lvm and any(
        one["type"] == "LVM2_member" for node in raw.nodes.values() for one in disk_facts.contents(raw, node)
    ):
        raise _of_lvm("lvm2 is not in this rescue, so nothing can be said of the physical volumes there are")
    groups: dict[str, set[str]] = {}
    for group, device, disks in disk_facts.volume_groups(raw):
        if not group and not (disks and gone.issuperset(disks)):
            raise _of_lvm(f"{device} is a physical volume of no volume group, and would be erased")
        groups.setdefault(group, set()).update(disks)
    kept = sorted(group for group, disks in groups.items() if group and not (disks and gone.issuperset(disks)))
    for group in kept:
        if gone.intersection(groups[group]):
            raise _of_lvm(
                f"volume group {group} lies on {', '.join(sorted(groups[group]))}, and not all of them are installed "
                "on or emptied"
            )
        if not _GROUP.match(group):
            raise _of_lvm(f"volume group {group!r} has a name that no expression for installimage can hold")
    for new in layout.groups():
        # vgs prints a line a group, in which installimage looks for the new name.
        like = [one for one in kept if re.search(re.escape(new).replace("\\.", "."), one)]
        if like or (kept and _COLUMN.match(new)):
            raise Refused(
                f"partitions: the new volume group {new} is called like {like[0] if like else 'a column of vgs'}, "
                "which is on other disks and is kept, and "
                "installimage would mix them up. Nothing was written; choose another name",
                permanent=True,
            )
    return kept


def _of_lvm(why: str) -> Refused:
    return Refused(
        f"{why}. A layout with LVM lets installimage remove every volume group and physical volume that cannot be kept "
        "by its name. Nothing was written; empty that disk too (kubenode_wipe names it), disconnect it, or use a "
        "layout without LVM",
        permanent=True,
    )


def still(targets: Sequence[Disk], tools: Tools) -> list[str]:
    """The kernel names of the disks that the user's word covers; raises :class:`Refused` if one has changed."""
    return _still(targets, disk_facts.facts(disk_gather.read(tools, health=False)))


def _still(targets: Sequence[Disk], disks: Sequence[Disk]) -> list[str]:
    try:
        return [wiping.still(target, disks)["name"] for target in targets]
    except wiping.WipeError as error:
        raise Refused(str(error)) from None


def empty(names: Sequence[str], tools: Tools) -> list[str]:
    """Empty the disks of these kernel names; returns what was done. Raises :class:`Refused`."""
    try:
        return wiping.wipe(tools, names)
    except wiping.WipeError as error:
        raise Refused(f"the disks were not emptied: {error}") from None


def blank(names_given: Sequence[str], tools: Tools) -> None:
    """Take down what is on the disks of these stable names and erase it; raises :class:`Refused`.

    A disk that went away and came back may be called otherwise by now, and another one as it was.
    """
    kill_below(WORKPLACE)
    try:
        wiping.wipe(tools, [disk["name"] for disk in find(names_given, tools)])
    except (wiping.WipeError, disk_gather.GatherError) as error:
        raise Refused(str(error)) from None


def check_spec(spec: specs.Spec, uefi: bool, sizes: Sequence[int], machine: str = "") -> Layout:
    """Refuse a layout or an image that does not fit this machine; returns the layout."""
    name = spec["image"]["file_name"]
    try:
        check_architecture(name, machine or platform.machine())
    except InvalidImageName as error:
        raise Refused(f"image {name}: {error}", permanent=True) from None
    if spec["uefi"] != specs.AUTO and (spec["uefi"] == specs.YES) != uefi:
        modes = {True: "UEFI", False: "legacy mode"}
        raise Refused(
            f"uefi {spec['uefi']}: the rescue was booted in {modes[uefi]}; switch the firmware (and its network "
            "boot) over, or set uefi: auto",
            permanent=True,
        )
    image = parse_image_name(name)
    layout = specs.layout_of(spec, uefi)
    findings = layouts.check_firmware(layout, uefi, image)
    findings += layouts.check_capacity(layout, sizes)
    if findings:
        raise Refused("; ".join(findings), permanent=True)
    return layout


def check_command(path: str) -> None:
    """Refuse a rescue without installimage."""
    if not os.access(path, os.X_OK):
        raise Refused(
            f"there is no program {path} in this rescue; installimage is on Robot's rescue only, so check that the "
            "machine is a dedicated server, or set command",
            permanent=True,
        )


#: Begins the line of JSON on stdout.
RESULT = "KUBENODE_RESULT "
MARKER = "IMAGE_URL_DONE"
#: The name of a variable, not a secret.
TOKEN = "OCI_REGISTRY_AUTH_TOKEN"
#: Seconds of the runner's limit that are kept for killing installimage and emptying the disks.
TIDY = 90
#: In the place of the image: only say whether the installation would be refused; nothing is changed.
CHECK = "check"
DEBUG = "/root/debug.txt"
HOOK = "/root/post-install"


class _Stopped(BaseException):
    """The runner ends this program."""


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    started = time.monotonic()

    def stop(number: int, frame: object) -> None:
        raise _Stopped

    signal.signal(signal.SIGTERM, stop)
    bootstrap = arguments[1]
    # nothing that is started has it, but the client of registries
    token = os.environ.pop(TOKEN, "")
    with open(bootstrap, "rb") as file:
        spec = specs.unpack(file.read())
    limit = int(os.environ.get("KUBENODE_LIMIT") or 1800 + TIDY)
    program = Program(spec, os.path.dirname(bootstrap), started + max(1, limit - TIDY), token)
    try:
        if arguments[0] == CHECK:
            program.check()
            program.result["ok"] = True
        else:
            program.run()
        code = 0
    except (Refused, GatherError, OSError) as error:
        program.fail(str(error), getattr(error, "permanent", False))
        code = 1
    except _Stopped:
        program.fail("it was ended from outside", False)
        code = 1
    finally:
        program.forget_secrets()
    say(RESULT + json.dumps(program.result, sort_keys=True))
    if code == 0:
        say(MARKER)
    return code


class Program:
    """One installation; ``deadline``: when installimage must have ended, on the monotonic clock.

    ``token``: for the registry that the image lies in.
    """

    def __init__(self, spec: specs.Spec, base: str, deadline: float, token: str = "") -> None:
        self._spec, self._base, self._deadline, self._token = spec, base, deadline, token
        self._work = os.path.join(base, specs.WORK)
        self._tools = Tools(run, limits=True)
        self._disks: list[Identity] = []
        self._drives: list[str] = []
        #: Stable names of the disks that may be emptied after a failure.
        self._ours: list[str] = spec["devices"]
        self._installer: installer.Installer | None = None
        self._root = ""
        self._ticked, self._prepared = 0.0, False
        self._kept: list[str] = []
        self.result: dict[str, Any] = {
            "ok": False, "began": False, "blanked": None, "code": None, "drives": [], "host_keys": [],
            "image_digest": "", "installing": False, "permanent": False, "reason": "", "tail": [], "uefi": None,
            "unlock_host_keys": [], "warnings": [],
        }  # fmt: skip

    def run(self) -> None:
        """Everything; raises :class:`Refused`."""
        os.makedirs(os.path.join(self._work, "images"), mode=0o700, exist_ok=True)
        for leftover in (DEBUG, os.path.join(self._work, "post-install.log")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
        layout, targets = self.check()
        image = self._image()
        nonce = uuid.uuid4().hex
        config = self._prepare(layout, image, nonce)
        self._keep_keys()
        self._look_again(targets)
        if targets:
            self._empty(targets)
        self._install(config, nonce)
        self._scrub()
        self.result["ok"] = True

    def check(self) -> tuple[Layout, list[Disk]]:
        """What can be refused before anything is changed; returns the layout, and the disks to empty first."""
        spec, result = self._spec, self.result
        check_command(spec["command"])
        result["uefi"] = is_uefi()
        self._resolve()
        targets = self._targets()
        self._check_disks(targets)
        sizes = [disk["size"] for disk in self._disks]
        layout = check_spec(spec, result["uefi"], sizes, platform.machine())
        result["warnings"] += layouts.firmware_warnings(layout, result["uefi"])
        image = spec["image"]
        if image["kind"] not in (specs.URL, specs.OCI, specs.FILE) and not os.path.isfile(image["location"]):
            text = f"image.{image['kind']}: there is no file {image['location']} in the rescue"
            raise Refused(text + _similar(image["location"]), permanent=True)
        return layout, targets

    def fail(self, reason: str, permanent: bool) -> None:
        """Say why, and empty the disks that were begun again."""
        if self._installer is not None:
            self._installer.kill()
        self.result.update(ok=False, reason=reason, permanent=permanent)
        if not self.result["began"] or not self._ours:
            return
        say(f"emptying the disks again: {' '.join(self._ours)}")
        try:
            blank(self._ours, self._tools)
            self.result["blanked"] = True
        except (Refused, OSError) as error:
            self.result["blanked"] = False
            self.result["warnings"].append(str(error))

    def forget_secrets(self) -> None:
        """Remove what held the passphrase or the bootstrap data from the rescue."""
        if not self._prepared:
            return
        for path in ["/autosetup", os.path.join(self._work, "autosetup"), HOOK, *glob.glob("/autosetup.bak*")]:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if os.path.islink("/post-install"):
            os.unlink("/post-install")

    # --- steps

    def _resolve(self) -> None:
        wanted = self._spec["devices"]
        self._disks = find(wanted, self._tools)
        self._drives = [disk["path"] for disk in self._disks]
        self.result["drives"] = [{"name": name, "path": path} for name, path in zip(wanted, self._drives)]
        say("disks: " + ", ".join(f"{name} is {path}" for name, path in zip(wanted, self._drives)))

    def _targets(self) -> list[Disk]:
        """The disks to empty first, as the look saw them on whose word they may go."""
        try:
            with open(os.path.join(self._base, specs.EMPTY), encoding="ascii") as file:
                found: list[Disk] = json_value(file.read())
                return found
        except FileNotFoundError:
            return []

    def _look_again(self, targets: Sequence[Disk]) -> None:
        """The image may have come for an hour: raise unless the disks are called and hold what was found before it."""
        drives = [disk["path"] for disk in find(self._spec["devices"], self._tools)]
        if drives != self._drives:
            now, before = " ".join(drives), " ".join(self._drives)
            raise Refused(f"the disks are called {now} by now, and were {before}. Nothing was written; run again")
        self._check_again(targets)

    def _check_again(self, targets: Sequence[Disk] = ()) -> None:
        kept = self._kept
        self._check_disks(targets)
        if self._kept != kept:
            raise Refused(f"the volume groups of the other disks have changed: {self._kept}, before {kept}")

    def _empty(self, targets: Sequence[Disk]) -> None:
        """Empty the disks last: every other check has passed."""
        devices, names = self._spec["devices"], still(targets, self._tools)
        # From here on these disks are emptied after a failure, too: a disk that is half empty is of no use. What came
        # onto the others meanwhile stays.
        self._ours = [given for given, disk in zip(devices, self._disks) if disk["name"] in names]
        self.result["began"] = True
        for line in empty(names, self._tools):
            say("emptying: " + line)
        self._check_again()
        self._ours = devices

    def _check_disks(self, targets: Sequence[Disk] = ()) -> None:
        layout = specs.layout_of(self._spec, self.result["uefi"])
        self._kept = check_disks(self._disks, self._tools, layout, targets)
        if self._kept:
            say(f"volume groups of other disks, which are kept: {', '.join(self._kept)}")

    def _image(self) -> str:
        image = self._spec["image"]
        path = os.path.join(self._work, "images", image["file_name"])
        if image["kind"] in (specs.URL, specs.OCI):
            if not (image["digest"] and os.path.exists(path) and image_file.digest_of(path) == image["digest"]):
                self._make_room(path)
                if image["kind"] == specs.OCI:
                    found = self._pull(path)
                else:
                    download = image_file.Download(image["location"], path, image["shown"], self._downloaded)
                    found = download.fetch(image["digest"])
                self.result["image_digest"] = found
                say(f"image: {image['shown']}, {found}")
                return path
        elif image["kind"] != specs.FILE:
            path = image["location"]
        found = image_file.digest_of(path, self._read)
        image_file.verify(found, image["digest"], f"{specs.image_field(image)} {image['shown']}")
        self.result["image_digest"] = found
        say(f"image: {image['shown']}, {found}")
        return path

    def _pull(self, path: str) -> str:
        """The file of an image in a registry, by the shipped image command's client; returns its digest."""
        image = self._spec["image"]
        room = max(0, image_file.free_memory(os.path.dirname(path)) - image_file.RESERVE)
        client = os.path.join(self._base, specs.REGISTRY_CLIENT)
        words = [sys.executable, client, "--to-file", path, str(room), os.path.join(self._base, "output.json")]
        left = max(1, self._deadline - time.monotonic())
        code, out, err = run(words + [image["location"]], {TOKEN: self._token}, left)
        self._in_time()
        if code:
            why = (err or out).strip() or f"its client ended with status {code}"
            raise Refused(f"{image['shown']}: {why}")
        for line in out.splitlines()[:-1]:
            say(line)
        found = image_file.digest_of(path, self._read)
        try:
            image_file.verify(found, image["digest"], f"image.url {image['shown']}")
            image_file.check_packing(path, image["file_name"])
        except Refused:
            os.unlink(path)
            raise
        return found

    def _make_room(self, path: str) -> None:
        for other in glob.glob(os.path.join(os.path.dirname(path), "*")):
            os.unlink(other)

    def _prepare(self, layout: Layout, image: str, nonce: str) -> str:
        spec = self._spec
        record = {
            "machine": spec["machine"],
            "image_url": spec["image"]["shown"],
            "image_digest": self.result["image_digest"],
            "command": "installimage",
            "installed_at": to_whole_seconds(time.time()),
        }
        for key in ("installation", "consent"):
            if os.environ.get("KUBENODE_" + key.upper()):
                record[key] = os.environ["KUBENODE_" + key.upper()]
        self._prepared = True
        instance = f"iid-kubenode-{record.get('installation') or uuid.uuid4()}"
        found = self._network() if spec["network_config"] == specs.OF_RESCUE else None
        unlocking = self._unlocking() if spec["remote_unlock"] else None
        uefi = self.result["uefi"]
        hook = post_install.script(spec, nonce, instance, record, self._drives, uefi, found, unlocking)
        write(HOOK, hook, 0o700)
        config = os.path.join(self._work, "autosetup")
        write(config, autosetup(spec, layout, self._drives, image, kept=self._kept), 0o600)
        shown = autosetup(spec, layout, self._drives, image, mask=True, kept=self._kept)
        for line in shown.splitlines():
            say("autosetup: " + line)
        return config

    def _network(self) -> Network | None:
        """What the rescue has and the new system gets."""
        ipv4_only = written("IPV4_ONLY", self._spec["autosetup"].get("IPV4_ONLY", False)) == "yes"
        found = system_network.read(_run, ipv4_only)
        if found:
            shown = [f"{found.addresses[one]} by {found.gateways[one]}" for one in sorted(found.addresses)]
            say(f"network of the rescue: {', '.join(shown)}")
        else:
            say("network of the rescue: none that is a server's own; the image decides")
        return found

    def _unlocking(self) -> tuple[str, str]:
        """Who may unlock the new system, and the network of its initramfs."""
        texts = []
        for name in ("authorized_keys", "robot_user_keys"):
            with contextlib.suppress(OSError):
                path = os.path.join(self._base, ".ssh", name)
                with open(path, encoding="utf-8", errors="replace") as file:
                    texts.append(file.read())
        keys = post_install.authorized_keys(texts)
        settings = post_install.initramfs_network(system_network.read(_run, ipv4_only=True), self._spec["hostname"])
        if not keys:
            raise Refused("remote_unlock: the rescue has no SSH key that dropbear knows; use one of Ed25519", True)
        if settings is None:
            raise Refused("remote_unlock: the rescue has no public IPv4 address with a gateway near it", True)
        return keys, settings

    def _keep_keys(self) -> None:
        """installimage hands on robot_user_keys; without them it would set the rescue's password instead."""
        folder = os.path.join(self._base, ".ssh")
        keys, armed = os.path.join(folder, "authorized_keys"), os.path.join(folder, "robot_user_keys")
        if "SSHKEYS_URL" in self._spec["autosetup"] or (os.path.exists(armed) and os.path.getsize(armed)):
            return
        if os.path.exists(keys):
            with open(keys, encoding="utf-8", errors="replace") as file:
                write(armed, file.read(), 0o600)

    def _install(self, config: str, nonce: str) -> None:
        result, spec = self.result, self._spec
        # It prints its whole configuration.
        terminal = installer.Terminal(say_of_others, functools.partial(publish, self._base), spec["crypt_password"])
        self._installer = installer.Installer(spec["command"], config, HOOK, terminal)
        # It takes down what is assembled before it looks at its configuration.
        result["began"] = result["installing"] = True
        result["code"] = self._installer.run(self._deadline)
        debug = read_end(DEBUG)
        text = installer.plain(debug) + "\n" + terminal.text
        report = post_install.Report(text, nonce)
        for source in (debug, terminal.text):
            output = post_install.output_of(installer.plain(source), nonce)
            if output:
                write(os.path.join(self._work, "post-install.log"), output + "\n", 0o600)
                break
        result["tail"] = [line for line in installer.tail(debug or terminal.text) if nonce not in line]
        failure = installer.judge(result["code"], terminal.text, debug, report, terminal.steps)
        if failure:
            raise Refused(failure.reason, failure.permanent)
        result["warnings"] += report.warnings
        if report.network:
            say(f"network of the new system: configured for {report.network}")
        if not post_install.own_host_keys(spec["bootstrap_data"]):
            result["host_keys"] = report.host_keys
        result["unlock_host_keys"] = report.unlock_keys
        self._root = report.root

    def _scrub(self) -> None:
        """installimage leaves its configuration in the new system; the passphrase must not stay in it."""
        if not self._spec["crypt_password"]:
            return
        where, words = os.path.join(self._work, "root"), self._root.split()
        os.makedirs(where, exist_ok=True)
        if len(words) == 3 and _run(["mount", "-t", words[1], "-o", _subvolume(words[2]), words[0], where])[0] == 0:
            path = os.path.join(where, "installimage.conf")
            if os.path.exists(path):
                _run(["sed", "-i", "/CRYPTPASSWORD/d", path])
            _run(["umount", where])
        else:
            self.result["warnings"].append(
                "/installimage.conf of the new system may hold the passphrase (readable by root there); remove it"
            )

    # --- progress

    def _downloaded(self, done: int, size: int | None) -> None:
        if time.monotonic() - self._ticked > 1:
            self._ticked = time.monotonic()
            of = f" of {image_file.mebibytes(size)}" if size else ""
            publish(self._base, f"downloaded {image_file.mebibytes(done)}{of} of the image")
        self._in_time()

    def _read(self, done: int) -> None:
        if time.monotonic() - self._ticked > 5:
            self._ticked = time.monotonic()
            publish(self._base, f"checked {image_file.mebibytes(done)} of the image")
        self._in_time()

    def _in_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise Refused("the image did not come within the time limit; set timeout higher")


def say(text: str) -> None:
    """One line of the log."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_of_others(text: str) -> None:
    """A line of installimage, or of the image that it runs programs of: never taken for our result."""
    say(f" {text}" if text.startswith(RESULT) else text)


def publish(base: str, text: str) -> None:
    """Reports the progress of the work: CAPH's output.json."""
    with contextlib.suppress(OSError):
        write(os.path.join(base, "output.json"), json.dumps({"message": text}) + "\n", 0o600)


def write(path: str, text: str, mode: int) -> None:
    """A file as a whole or not at all, private from its first moment."""
    with replacing(path) as (file, _draft):
        file.write(text.encode("utf-8", "surrogateescape"))
        os.fchmod(file.fileno(), mode)


def read_end(path: str) -> str:
    """The end of a text file; empty when there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - installer.MOST))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _subvolume(options: str) -> str:
    found = re.search(r"(?:^|,)subvol=/?([^,]*)", options)
    return f"rw,subvol={found.group(1)}" if found else "rw"


def _similar(path: str) -> str:
    folder = os.path.dirname(path)
    try:
        there = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return f", and no folder {folder}"
    return f"; that folder holds {', '.join(there[:20]) or 'nothing'}"
