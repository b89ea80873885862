# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet of one machine: its name, flags and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Binary, Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import join_files
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from . import base_inputs, join_inputs, kubelet_config, plan_types, runtime, systems, templates, trust
from .join_inputs import InvalidInput, node_addresses, of_variable
from .plan_types import BaseInputs, JoinInputs, Taint
from .systems import bin_dir, known

Steps = tuple[tuple[int | None, float], ...]


_MIB = 1024 * 1024
_GIB = 1024 * _MIB

#: (size of the step in bytes, part of it that is reserved in thousandths)
_MEMORY_STEPS = ((4 * _GIB, 250), (4 * _GIB, 200), (8 * _GIB, 100), (112 * _GIB, 60), (None, 20))
#: (number of CPUs in the step, thousandths of a CPU that each of them gives)
_CPU_STEPS = ((1, 60), (1, 10), (2, 5), (None, 2.5))
_SMALL_MEMORY = 255 * _MIB
_PIDS = 1000
#: A tenth of the disk, within these bounds.
_LEAST_DISK, _MOST_DISK = 512 * _MIB, 5 * _GIB


def memory_reserved(memory: int) -> int:
    """Bytes to reserve on a machine of ``memory`` bytes."""
    if memory < _GIB:
        return min(_SMALL_MEMORY, memory // 4)
    return int(sum(part * share for part, share in _parts(memory, _MEMORY_STEPS)) // 1000)


def cpu_reserved(cpus: int) -> int:
    """Thousandths of a CPU to reserve on a machine with ``cpus`` CPUs."""
    return int(sum(part * share for part, share in _parts(cpus, _CPU_STEPS)))


def auto_reserved(cpus: int, memory: int, disk: int | None) -> dict[str, str]:
    """kubeReserved for ``cpus``, ``memory`` bytes and ``disk`` free bytes below /var (None: not known)."""
    reserved = {
        "cpu": f"{cpu_reserved(cpus)}m",
        "memory": f"{memory_reserved(memory) // _MIB}Mi",
        "pid": str(_PIDS),
    }
    if disk:
        reserved["ephemeral-storage"] = f"{min(max(disk // 10, _LEAST_DISK), _MOST_DISK, disk // 2) // _MIB}Mi"
    return reserved


def _parts(total: int, steps: Steps) -> Iterator[tuple[int, float]]:
    rest = total
    for size, share in steps:
        part = rest if size is None else min(rest, size)
        yield part, share
        rest -= part


#: since this minor, 0 as eventRecordQPS means what its documentation says
_ZERO_IS_UNLIMITED_SINCE = (1, 37)
_SOCKET = "unix:///run/containerd/containerd.sock"


class KubeletOptions:
    """What the user gives to a kubelet itself, checked for its version (``version``, ``minor``) without a machine."""

    def __init__(self, inputs: JoinInputs, version: str) -> None:
        self._inputs, self.version = inputs, version
        self.minor = systems.minor(version)
        self.fields, self.flag_table = kubelet_config.FIELDS.get(self.minor), kubelet_config.FLAGS.get(self.minor)

    @property
    def reads_drop_ins(self) -> bool:
        """Whether this kubelet is given a folder of drop-ins."""
        self.check_drop_ins()
        return self._can_read_drop_ins() and self._inputs["config_dir"] != "false"

    def check_drop_ins(self) -> None:
        """Raise :class:`InvalidInput` for drop-ins that this kubelet would not read."""
        if not self._can_read_drop_ins() and (self._inputs["kubelet_drop_ins"] or self._inputs["config_dir"] == "true"):
            raise InvalidInput(f"join_kubelet_drop_ins: kubelet {self.version} reads no folder of drop-ins")

    def _can_read_drop_ins(self) -> bool:
        return kubelet_config.takes("config-dir", self.minor, self.flag_table)

    def check(self) -> None:
        """Raise :class:`InvalidInput` for a field, a flag or a drop-in that this kubelet does not take."""
        self.check_fields()
        of_variable("kubelet_config", kubelet_config.merged_config, {}, self._inputs["kubelet_config"])
        self.extra_args()
        self.check_drop_ins()

    def check_fields(self) -> None:
        """Raise :class:`InvalidInput` for a field of KubeletConfiguration that this kubelet does not take."""
        self._check(self._inputs["kubelet_config"], "join_kubelet_config")
        for name, content in sorted(self._inputs["kubelet_drop_ins"].items()):
            self._check(content, f"join_kubelet_drop_ins: {name}")

    def extra_args(self) -> dict[str, str]:
        """The user's own flags, {name: value}."""
        given, allow = self._inputs["kubelet_extra_args"], self._inputs["unknown_fields"] == "allow"
        return of_variable("kubelet_extra_args", kubelet_config.check_extra, given, self.flag_table, self.minor, allow)

    def _check(self, given: Mapping[str, Any], where: str) -> None:
        if self.fields is None or self._inputs["unknown_fields"] == "allow":
            return
        try:
            kubelet_config.check_fields(given, self.fields)
        except kubelet_config.InvalidConfig as error:
            raise InvalidInput(f"{where}: {error} (kubelet {self.version})") from error


class Kubelet(KubeletOptions):
    """The kubelet of one machine: its ``name`` and ``path`` besides, and what will be written for it."""

    def __init__(self, node: Node, inputs: JoinInputs) -> None:
        self._node, self._base = node, node.get("base") or {}
        self.path, version = _installed(node, self._base)
        super().__init__(inputs, version)
        self.name = of_variable("node_name", join_inputs.node_name, inputs["node_name"], node["hostname"])
        self.addresses = of_variable("node_ip", node_addresses, inputs["node_ip"], node["network"])
        self.taints = join_inputs.parse_taints(inputs["taints"])

    def config(self) -> dict[str, Any]:
        self.check_fields()
        try:
            defaults = kubelet_config.defaults(self._inputs, self._facts())
        except templates.TemplateFailed as error:
            raise InvalidInput(str(error)) from error
        made = kubelet_config.taken_fields(defaults, self.minor, self.fields)
        return of_variable("kubelet_config", kubelet_config.merged_config, made, self._inputs["kubelet_config"])

    def args(self) -> list[str]:
        inputs = self._inputs
        wanted = {
            "bootstrap-kubeconfig": join_files.BOOTSTRAP_KUBECONFIG,
            "kubeconfig": join_files.KUBECONFIG,
            "config": join_files.CONFIG,
            "config-dir": join_files.DROP_INS if self.reads_drop_ins else "",
            "cert-dir": join_files.PKI,
            "hostname-override": self.name,
            "node-ip": ",".join(self.addresses),
            "node-labels": ",".join("{}={}".format(*item) for item in sorted(inputs["labels"].items())),
            "cloud-provider": inputs["cloud_provider"],
        }
        if not self._takes("providerID"):
            wanted["provider-id"] = inputs["provider_id"]
        if not self._takes("registerWithTaints"):
            wanted["register-with-taints"] = ",".join(map(_taint_text, self.taints))
        extra = self.extra_args()
        lines = kubelet_config.flag_lines(wanted, self.minor, self.flag_table)
        return lines + ["--{}={}".format(*item) for item in sorted(extra.items()) if item[0] not in wanted]

    def warnings(self) -> list[str]:
        """What the user should know, but what stops nothing."""
        said = []
        if self.fields is None:
            said.append(
                "there is no table of fields and flags for kubelet {} (there are {}): join_kubelet_config and "
                "join_kubelet_extra_args go to it unchecked".format(
                    self.version, ", ".join(sorted(kubelet_config.FIELDS))
                )
            )
        if self._unlimited_events() and systems.minor_number(self.minor) >= _ZERO_IS_UNLIMITED_SINCE:
            said.append(
                f"eventRecordQPS is 0: kubelet {self.version} sends events without a limit; "
                "before 1.37, 0 meant the default, 50"
            )
        servers = self._node.get("resolv", {}).get(self.config().get("resolvConf", ""), [])
        if len(servers) > 3:
            said.append(f"{self.config()['resolvConf']} names {len(servers)} name servers; pods get the first 3")
        return said

    def _unlimited_events(self) -> bool:
        documents = [self._inputs["kubelet_config"], *self._inputs["kubelet_drop_ins"].values()]
        return self.extra_args().get("event-qps") == "0" or any(one.get("eventRecordQPS") == 0 for one in documents)

    def _takes(self, field: str) -> bool:
        return kubelet_config.takes(field, self.minor, self.fields)

    def _facts(self) -> dict[str, Any]:
        inputs, node = self._inputs, self._node
        reserved = inputs["reserved"]
        if isinstance(reserved, str):  # auto
            disk = node.get("disk_free", {})
            kube: Any = auto_reserved(node["cpus"], node["memory_bytes"], disk.get("/var") or disk.get("/"))
            system = None
        else:
            kube, system = reserved.get("kube"), reserved.get("system")
        return {
            "node": node,
            "kube_reserved": kube,
            "read_only_usr": node["read_only_usr"],
            "resolv": node.get("resolv", {}),
            "runtime_socket": _socket((self._base.get("runtime") or {}).get("socket")),
            "swap": self._base.get("swap") or "off",
            "shutdown": self._base.get("shutdown") or {},
            "system_reserved": system,
            "taints": self.taints,
        }


#: Where a program may lie; the record of base says which folder it used.
_FOLDERS = ("/usr/local/bin", "/opt/bin", "/usr/bin")


def places(program: str) -> list[str]:
    """Where node_info is to look for it."""
    return [program, *(f"{one}/{program}" for one in _FOLDERS)]


def queries() -> dict[str, list[str]]:
    """What node_info is to look at for a join."""
    return {
        "binaries": places("kubelet") + places("kubeadm"),
        "units": ["kubelet.service"],
        "files": list(join_files.MADE + join_files.MADE_FOLDERS + (join_files.CLIENT_PEM,)),
    }


def kubeadm_path(node: Node) -> str:
    """Where kubeadm lies, which need not be in the PATH of root or sudo."""
    found = _binaries("kubeadm", node, node.get("base") or {})
    if found:
        return found[0]["path"]
    if node.get("assumed_kubelet"):
        return "kubeadm"
    raise InvalidInput("join_method: there is no kubeadm on this machine; run the role base with base_kubeadm: true")


def _binaries(program: str, node: Node, base: Mapping[str, Any]) -> list[Binary]:
    """What there is of a program, that of base first."""
    found = node.get("binaries") or {}
    preferred = f"{base['bin_dir']}/{program}" if base.get("bin_dir") else program
    names_ = [preferred] + sorted(name for name in found if name.rpartition("/")[2] == program)
    return [binary for binary in map(found.get, names_) if binary]


def version_of(program: str, node: Node) -> str:
    """The version of a program that is on the machine, that of base first; empty where none says one."""
    there = _binaries(program, node, node.get("base") or {})
    return next(filter(None, (systems.plain_version((one["version"] or "").lstrip("v")) for one in there)), "")


def _installed(node: Node, base: Mapping[str, Any]) -> tuple[str, str]:
    for binary in _binaries("kubelet", node, base):
        if binary["version"]:
            return binary["path"], node.get("expected_kubelet") or binary["version"].lstrip("v")
    if node.get("assumed_kubelet"):
        return "kubelet", node["assumed_kubelet"]
    raise InvalidInput("there is no kubelet on this machine; run the role base first")


def _socket(path: str | None) -> str:
    if not path:
        return _SOCKET
    return path if "://" in path else "unix://" + path


def _taint_text(taint: Taint) -> str:
    value = "=" + taint["value"] if taint["value"] else ""
    return f"{taint['key']}{value}:{taint['effect']}"


# --- steps cni, kubelet and health: folders, kubelet.service, and the probe of the container runtime


_STATE_FOLDERS = (
    ("kubernetes", "/etc/kubernetes", "0755"),
    ("pki", "/etc/kubernetes/pki", "0755"),
    ("manifests", "/etc/kubernetes/manifests", "0755"),
    ("state", "/var/lib/kubelet", "0750"),
)
#: the first minor whose kubelet pings systemd's watchdog without a feature gate
_WATCHDOG_SINCE = (1, 32)


def cni(_node: Node, _inputs: BaseInputs) -> list[Setting]:
    """The folders that a network plugin's DaemonSet writes to."""
    return [plan_types.directory("cni/bin", runtime.CNI_BIN), plan_types.directory("cni/conf", runtime.CNI_CONF)]


def watchdog(inputs: BaseInputs) -> int:
    """Seconds of the watchdog, 0 for none."""
    if systems.minor_number(inputs["kubernetes_version"]) < _WATCHDOG_SINCE:
        return 0
    return base_inputs.seconds(inputs["kubelet_watchdog"]) or 0 if inputs["kubelet_watchdog"] else 0


PROBE = "kubenode-runtime-probe"


def kubelet(node: Node, inputs: BaseInputs) -> list[Setting]:
    """Folders, unit, enabled; started by join. The unit waits until one of the two kubeconfigs is there."""
    result = [plan_types.directory("kubelet/dir-" + name, path, mode) for name, path, mode in _STATE_FOLDERS]
    folder = "/usr/bin" if inputs["kubelet_source"] == "repository" else bin_dir(node, inputs)
    text = templates.render(
        "base",
        "kubelet.service.j2",
        inputs,
        node=node,
        kubelet=folder + "/kubelet",
        runtime_units=" ".join(plan_types.runtime_units(inputs)),
        watchdog=watchdog(inputs),
    )
    path = plan_types.UNIT_DIR + "/kubelet.service"
    result.append(plan_types.file("kubelet/unit", path, text))
    restart = ["kubelet/unit", "proxy/kubelet", "artifact:kubelet", *trust.ids(inputs)]
    if inputs["kubelet_source"] == "repository":
        # kubeadm's package replaces ExecStart; the same name in /etc takes its drop-in away
        result.append(plan_types.link("kubelet/kubeadm-drop-in", path + ".d/10-kubeadm.conf", "/dev/null"))
        restart.append("kubelet/kubeadm-drop-in")
    drop_ins = plan_types.users_drop_ins("kubelet", "kubelet.service", node, inputs)
    result += drop_ins
    restart += [item["id"] for item in drop_ins]
    result.append(
        plan_types.unit("kubelet/kubelet-unit", "kubelet.service", enabled=True, masked=False, restart_on=restart)
    )
    return result


def health(node: Node, inputs: BaseInputs) -> list[Setting]:
    """The script, its service and its timer."""
    probe = inputs["runtime_probe"]
    script = known(node).lib_dir + "/runtime-probe"
    timeout = base_inputs.checked_seconds(probe["timeout"])
    words = [
        bin_dir(node, inputs) + "/crictl",
        "unix://" + runtime.socket(inputs),
        str(timeout),
        str(probe["threshold"]),
        *plan_types.runtime_units(inputs),
    ]
    given = {
        "node": node,
        "name": PROBE,
        "script": script,
        "words": words,
        "runtime_units": " ".join(plan_types.runtime_units(inputs)),
        "timeout": timeout,
        "interval": base_inputs.checked_seconds(probe["interval"]),
    }

    def rendered(template: str) -> str:
        return templates.render("base", template + ".j2", inputs, **given)

    service, timer = (f"{PROBE}.{kind}" for kind in ("service", "timer"))
    timer_drop_ins = plan_types.users_drop_ins("health", timer, node, inputs)
    return [
        plan_types.file("health/probe", script, rendered("runtime-probe.sh"), "0755"),
        plan_types.file("health/service", f"{plan_types.UNIT_DIR}/{service}", rendered(service)),
        plan_types.file("health/timer", f"{plan_types.UNIT_DIR}/{timer}", rendered(timer)),
        # the service is started by the timer again and again
        *plan_types.users_drop_ins("health", service, node, inputs),
        *timer_drop_ins,
        plan_types.unit(
            "health/timer-unit",
            timer,
            enabled=True,
            masked=False,
            state="started",
            restart_on=["health/timer", *(item["id"] for item in timer_drop_ins)],
        ),
    ]
