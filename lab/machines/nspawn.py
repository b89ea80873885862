# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines as systemd-nspawn containers: an init that really boots, from a rescue tree or from the written disk.

Kernel, modules and boot loader are not emulated (kind ``qemu`` does that); partition table, file systems, init,
SSH, cloud-init, reboot and power are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .base import BootSource, End, Firmware, OnOff, PoweredMachine, Rescue, rescue_credentials, write_credentials
from .cgroup import CGroup, DeviceFilter, Number, hierarchy
from .disks import Hardware, kernel_names
from .guest_view import DiskView, UdevControl, View, Views
from .lab_network import NetNs, Network, PrivatePlace, first_of
from .loop import DiskWatcher, Loop, mirror_nodes, sync_partitions
from .partition_table import why_not
from .store import Store

_BOOT = Path(__file__).parent / "files" / "boot-container"
_ENDS = {0: End.OFF, 133: End.AGAIN}  # by the container's exit status
#: Seconds; one change of a disk is often many. The second is not waited for when `udevadm settle` asks.
_BURST, _SETTLE = 0.02, 0.1
_SIG_POWEROFF = signal.SIGRTMIN + 4  # systemd(1): what its own tools ask of it
_SIG_CTRL_ALT_DEL = signal.SIGINT
_SIG_REBOOT = signal.SIGRTMIN + 5
_ENTER = 'echo $$ >"$0"; exec nsenter --target="$1" --mount --uts --ipc --net --pid --root --wd -- sh -c "$2"'
PROGRAMS = ("systemd-nspawn", "ip", "nsenter", "unshare", "mount", "dnsmasq")


def _since_now() -> list[str]:
    """Words of unshare: what a machine tells of its uptime begins with its boot, where the kernel can do that."""
    if not Path("/proc/self/ns/time").exists():
        return []
    return ["--time", "--boottime", str(-int(time.clock_gettime(time.CLOCK_BOOTTIME)))]


@dataclass(frozen=True)
class Lab:
    """What all machines of one lab share."""

    label: str
    folder: Path
    cgroup: CGroup
    network: Network
    store: Store
    watcher: DiskWatcher
    rescue_tree: Path
    views: Views  # what guests see of their hardware
    share: Callable[[], Path | None]  # the folder of images that rescues offer


class NspawnMachine(PoweredMachine):
    """One container at a time, on disks that stay."""

    def __init__(self, lab: Lab, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> None:
        """A machine without disks; `create` puts them in."""
        super().__init__(lab.folder, lab.store, hardware, firmware, on_off)
        self._lab = lab
        self._cgroup: CGroup | None = None
        self._device_filter: DeviceFilter | None = None
        self._loops: list[Loop] = []
        self._view: View | None = None
        self._udev_control: UdevControl | None = None
        self._looking: asyncio.Task[None] | None = None
        #: `udevadm settle` waits.
        self._awaited = asyncio.Event()
        self._look_again = False
        self._boots = 0
        self._ns: NetNs | None = None
        self._private_ports: list[tuple[int, str]] = []
        self._process: asyncio.subprocess.Process | None = None
        self._nothing_boots: asyncio.Event | None = None

    async def press_power_button(self) -> None:
        self._signal(_SIG_POWEROFF)

    async def request_reboot(self) -> None:
        self._signal(_SIG_REBOOT)

    async def ctrl_alt_del(self) -> None:
        """Send the guest's init the signal of the three keys; a firmware that found nothing to boot reacts, too."""
        if self._nothing_boots is not None:
            self._nothing_boots.set()
        self._signal(_SIG_CTRL_ALT_DEL)

    async def enter(self, script: str) -> tuple[int, str, str]:
        """Run a script in the guest's namespaces and control group; it ends with the guest at the latest."""
        pid = self._init_pid()
        if pid is None:
            return await super().enter(script)
        group = Path(f"/proc/{pid}/cgroup").read_text().rpartition("0::")[2].strip()
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", _ENTER, str(hierarchy() / group.lstrip("/") / "cgroup.procs"), str(pid), script,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")

    async def _flush(self) -> None:
        for loop in self._loops:
            await asyncio.to_thread(loop.flush)

    # -- power -----------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        while len(self._loops) < len(self._disks):
            index = len(self._loops)
            self._loops.append(await asyncio.to_thread(Loop, self._disks[index].file))
            self._lab.watcher.watch(self._loops[index], functools.partial(self._disk_changed, index))

    async def _cut(self) -> None:
        """Stop, and see to it that the kernel does not write out what a real machine would have lost.

        Killing a container unmounts its file systems, which is as good as a shutdown for them. So all processes
        of the guest are stopped, its disks are kept as they are at that moment, and later writes are discarded.
        """
        if self._cgroup and self._cgroup.populated:
            await asyncio.to_thread(self._cgroup.freeze)
            for disk in self._disks:
                await asyncio.to_thread(disk.keep_moment)
        await self._stop()
        for disk in self._disks:
            await asyncio.to_thread(disk.return_to_moment)

    async def _halted(self, end: End) -> None:
        """Do nothing: a crashed system for ever, a firmware until the three keys are pressed."""
        self._console.say("System halted.")
        keys = asyncio.Event()
        self._nothing_boots = keys if end is End.NOTHING else None
        try:
            await keys.wait()
        finally:
            self._nothing_boots = None

    async def _boot(self, begun: asyncio.Event) -> End:
        await self._kill()
        await self._wait_for_firmware()
        source = self.firmware()
        await self._prepare()  # disks that were put in since the power came on
        view = await self._show_disks()
        order = self.boot_order
        if not isinstance(source, Rescue):
            reasons = [await asyncio.to_thread(self._why_not, disk) for disk in order]
            if None not in reasons:
                self._console.say(str(reasons[0]))
                return End.NOTHING
            order = order[reasons.index(None) :]
        self._ns = NetNs()
        network, hardware = self._lab.network, self.hardware
        await network.attach(self._name, hardware.mac, self._ns)
        await network.give_addresses(self._name, hardware.mac, ipv4=hardware.public_ipv4, ipv6=hardware.ipv6)
        if isinstance(source, Rescue):
            await self._configure_address(self._ns)
        await self._join_private_networks(self._ns, static=isinstance(source, Rescue))
        self._cgroup = self._lab.cgroup.child(self._name)
        self._device_filter = DeviceFilter(self._cgroup)
        self._admit(view)
        self._udev_control = UdevControl(view.folder / "udev", self._settled)
        environment = self._environment(view, order, self._ns, self._cgroup) | self._rescue_environment(source)
        with self._console.open() as console:
            self._process = await asyncio.create_subprocess_exec(
                "unshare", "--mount", "--propagation", "slave", *_since_now(), str(_BOOT),
                env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        begun.set()
        return _ENDS.get(await self._process.wait(), End.CRASHED)

    async def _show_disks(self) -> View:
        """A new boot: names for the disks, and what the guest sees of them."""
        names = kernel_names(self._identities, self.hardware.swaps_letters and self._boots % 2 == 1)
        self._boots += 1
        disks = list(zip(self._identities, names, self._loops, strict=True))
        for identity, _name, loop in disks:
            sync_partitions(loop, identity.size_bytes)
        view = await asyncio.to_thread(View, self._lab.views.folder / self._name, disks, self.hardware.uefi)
        for disk in view.disks:
            disk.update()
            self._lab.watcher.watch_nodes(disk.loop, disk.host_nodes().values())
        await view.look()
        self._view = view
        return view

    def _why_not(self, disk: int) -> str | None:
        return why_not(self._loops[disk].device, self.hardware.uefi)

    def _environment(self, view: View, order: tuple[int, ...], ns: NetNs, cgroup: CGroup) -> dict[str, str]:
        """The parameters of the boot script; a system is looked for on the disks in this order, then on all others."""
        nodes = [disk.host_nodes() for disk in view.disks]
        parts = [list(known.items())[1:] for known in nodes]
        order = (*order, *(index for index in range(len(parts)) if index not in order))
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CGROUP": str(cgroup.path),
            "FOLDER": str(self._folder),
            "HARDWARE": str(view.folder),
            "NAME": f"{self._lab.label}-{self._name}",
            "NETNS": ns.path,
            "CLASSES": str(self._lab.views.classes),
            "DISKS": " ".join(f"{disk.name}:{disk.loop.device}" for disk in view.disks),
            "PARTITIONS": " ".join(f"{name}:{node}" for index in order for name, node in parts[index]),
            "MEMORY_MIB": str(self.hardware.memory_mib),
            "SERIAL": str(self.hardware.machine_id),
            "VENDOR": self.hardware.manufacturer,
            "PRODUCT": self.hardware.product,
        } | self._ipv6_environment()

    def _ipv6_environment(self) -> dict[str, str]:
        """A system on a disk gets its IPv6 address from the lab where it has no other one: it reads no metadata."""
        hardware = self.hardware
        only = hardware.ipv6 and not hardware.public_ipv4
        return {"IPV6": f"{first_of(hardware.ipv6)}/64"} if only else {}

    def _rescue_environment(self, source: BootSource) -> dict[str, str]:
        if not isinstance(source, Rescue):
            return {}
        folder = self._folder / "credentials"
        write_credentials(folder, rescue_credentials(source))
        share = self._lab.share()
        values = {"TREE": str(self._lab.rescue_tree), "CREDENTIALS": str(folder)}
        values["CLASSES"] = str(self._lab.views.rescue_classes)
        return values | ({"SHARE": str(share)} if share else {})

    async def _configure_address(self, ns: NetNs) -> None:
        await ns.ip(
            "link set lo up",
            f"addr add {self.hardware.ipv4}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self._lab.network.gateway}",
        )
        if self.hardware.ipv6 and self._lab.network.ipv6:
            await ns.ip(
                f"addr add {first_of(self.hardware.ipv6)}/64 dev eth0 nodad", "route add default via fe80::1 dev eth0"
            )

    async def _join_private_networks(self, ns: NetNs, *, static: bool) -> None:
        """Interfaces eth1 and further; a system on a disk asks DHCP for its address there."""
        for number, place in enumerate([PrivatePlace(*one) for one in self.private()], 1):
            port, link = f"{self._name}-{number}", f"eth{number}"
            await self._lab.network.join(place, port, ns, link)
            self._private_ports.append((place.network, port))
            if static:
                length = ipaddress.IPv4Network(place.block).prefixlen
                await ns.ip(f"addr add {place.ip}/{length} dev {link}", f"link set {link} up")

    async def _kill(self) -> None:
        """Nothing of the last boot is left: processes, cable, namespace, control groups."""
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it enters its control group by itself and may not have come so far
        if self._cgroup:
            self._cgroup.kill()
        if self._process:
            await self._process.wait()
        if self._cgroup:
            await self._cgroup.emptied()
            self._cgroup.remove()
            for loop in self._loops:
                await loop.released()
        if self._device_filter:
            self._device_filter.close()
        if self._udev_control:
            self._udev_control.close()
        self._view = None
        if self._looking:
            await self._looking  # the program that had locked a disk has ended, so this ends
        if self._ns:
            await self._lab.network.detach(self._name)
            while self._private_ports:
                await self._lab.network.leave(*self._private_ports.pop())
            self._ns.close()
        self._cgroup = self._device_filter = self._udev_control = self._process = self._ns = None

    async def _power_gone(self) -> None:
        for loop in self._loops:
            self._lab.watcher.forget(loop)
            await asyncio.to_thread(loop.close)
        self._loops = []
        await asyncio.to_thread(shutil.rmtree, self._lab.views.folder / self._name, ignore_errors=True)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _init_pid(self) -> int | None:
        """The guest's process 1, as the host numbers it."""
        if self._process is None or self._process.returncode is not None:
            return None
        with contextlib.suppress(OSError):
            pid = self._process.pid
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                status = Path(f"/proc/{child}/status").read_text()
                if any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in status.splitlines()):
                    return int(child)
        return None

    def _signal(self, number: int) -> None:
        pid = self._init_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _disk_changed(self, index: int) -> None:
        """The partition table, the kernel's idea of it, or what is on a disk changed."""
        if index < len(self._loops):
            sync_partitions(self._loops[index], self._identities[index].size_bytes)
        view, pid = self._view, self._init_pid()
        if view is None:
            return
        disk = view.disks[index]
        disk.update(lambda numbers: self._admit(view, disk, numbers))
        if pid is None:
            return
        root = Path(f"/proc/{pid}/root")
        mirror_nodes(root, [disk.name], disk.nodes())
        self._lab.watcher.watch_nodes(disk.loop, (root / "dev" / name for name in disk.nodes()))
        self._look_again = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(view), name=f"disks of {self._name}")

    def _admit(self, view: View, changing: DiskView | None = None, numbers: Iterable[Number] = ()) -> None:
        """Let the guest reach these devices of a disk that changes, and of the others what it is shown."""
        if self._device_filter:
            others = (number for disk in view.disks if disk is not changing for number in disk.nodes().values())
            self._device_filter.disks((*numbers, *others))

    async def _settled(self) -> None:
        """Show the partitions that the kernel has now, with their nodes, and what is on them."""
        for index in range(len(self._loops)):
            self._disk_changed(index)
        self._awaited.set()
        try:
            while self._looking and not self._looking.done():
                await asyncio.shield(self._looking)
        finally:
            self._awaited.clear()

    async def _look(self, view: View) -> None:
        """What udev does some time after a change."""
        while self._look_again and self._view is view:
            await asyncio.sleep(_BURST)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE):
                    await self._awaited.wait()
            self._look_again = False
            await view.look()
