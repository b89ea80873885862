# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the role base: checked, with their defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import truth
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._common.web import is_http_url

from .. import role_specs
from . import systems, trust
from .plan_types import BaseInputs, Checksums, runtime_units

#: variables that are not checked yet
Raw = dict[str, Any]


class PlanError(ValueError):
    """Inputs that no machine could be prepared with; the text names each variable, its value and the fix."""


_NAME = r"[A-Za-z0-9][A-Za-z0-9+._-]*"
_PACKAGE = re.compile(rf"{_NAME}(?::[a-z0-9]+)?(?:=[A-Za-z0-9.+:~*_-]+)?\Z")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_SYSCTL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*\Z")
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)\Z")
_SPAN = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m(?!s))?(?:([0-9]{1,9})s)?\Z")
_HOST = re.compile(
    r"(?:_default|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?)\Z"
)
_PORT = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?/(tcp|udp|sctp)\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SHA512 = re.compile(r"[0-9a-f]{128}\Z")
#: all programs of a node, and those of them that come out of it where no sum of theirs is known
NODE_ARCHIVE = "kubernetes-node"
IN_NODE_ARCHIVE = ("kubelet", "kubeadm")
_FOLDER = re.compile(r"[^\x00-\x1f\x7f]+\Z")
_UNIT_DROP_IN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.conf\Z")
#: empty lines and comments, then a section or nothing
_SECTION = re.compile(r"(?:[ \t]*(?:[#;][^\n]*)?\n)*[ \t]*(?:\[|(?:[#;][^\n]*)?\Z)")
#: drop-ins that the role writes itself
_OWN_DROP_INS = ("10-kubeadm.conf", "10-kubenode.conf", "20-kubenode-proxy.conf")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*\Z")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Problems(list[str]):
    """What was found wrong so far."""

    def add(self, variable: str, value: Any, fix: str) -> None:
        """One finding, a line. Values that may hold a secret are given as "…"; a user's key is part of ``variable``."""
        self.append(escaped(f"base_{variable} is {value if value == '…' else repr(value)}; {fix}"))

    def stop(self) -> None:
        """PlanError with everything found, when there is something."""
        if self:
            raise PlanError("\n".join(self))


def size(text: Any) -> int | None:
    """Bytes of a size such as 4G or 512M; None when it is none."""
    match = _SIZE.match(str(text))
    return int(match.group(1)) * _UNITS[match.group(2)] if match else None


def seconds(text: Any) -> int | None:
    """Seconds of a span such as 30s, 1m30s or 2h; None when it is none."""
    match = _SPAN.match(str(text))
    if not match or not any(match.groups()):
        return None
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def checked_seconds(text: str) -> int:
    """Seconds of a span that was checked."""
    found = seconds(text)
    if found is None:
        raise ValueError(f"{text!r} is no span such as 30s")
    return found


def check(inputs: Raw, problems: Problems) -> None:
    """Everything but checksums and keys, which need the data file."""
    options = variables()
    for name, option in options.items():
        if option["type"] == "str" and "choices" in option and inputs[name] not in option["choices"]:
            problems.add(name, inputs[name], f"use one of {', '.join(option['choices'])}")
    for name, value in inputs.items():
        if options[name]["type"] == "bool" and not isinstance(value, bool):
            problems.add(name, value, "use true or false")
    _check_versions(inputs, problems)
    _check_lists(inputs, problems)
    _check_sizes(inputs, problems)
    _check_mappings(inputs, problems)
    _check_drop_ins(inputs, problems)
    _check_urls(inputs, problems)
    _check_registries(inputs, problems)
    _check_images(inputs, problems)
    _check_ca(inputs, problems)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _check_versions(inputs: Raw, problems: Problems) -> None:
    names = ("kubernetes", "containerd", "runc", "cni_plugins", "crictl", "cri_dockerd")
    for variable in (name + "_version" for name in names):
        value = inputs[variable]
        if value == "" and variable != "kubernetes_version":
            continue
        if not _text(value) or not systems.is_release(value):
            problems.add(variable, value, "use a release number in quotes without v, for example '1.36.4'")
    if inputs["containerd_source"] == "distribution" and inputs["containerd_version"]:
        fix = "leave it empty, since the distribution decides the version, or set base_containerd_source to tarball"
        problems.add("containerd_version", inputs["containerd_version"], fix)
    if inputs["bin_dir"] and not _path(inputs["bin_dir"]):
        problems.add("bin_dir", inputs["bin_dir"], "use an absolute path of letters, digits and . _ + - without ..")


def _path(value: Any) -> bool:
    return _text(value) and bool(re.match(r"(?:/[A-Za-z0-9._+-]+)+\Z", value)) and ".." not in value.split("/")


def _check_lists(inputs: Raw, problems: Problems) -> None:
    for name, pattern, fix in (
        ("template_path", _FOLDER, "use paths of folders on the controller"),
        ("packages_extra", _PACKAGE, "use package names"),
        ("kernel_modules", _MODULE, "use names of kernel modules"),
        ("images", _IMAGE, "use image references, for example registry.k8s.io/kube-proxy:v1.36.4"),
    ):
        if _is_list(inputs, name, problems):
            for item in inputs[name]:
                if not _text(item) or not pattern.match(item):
                    problems.add(name, item, fix)
    if _is_list(inputs, "storage_clients", problems):
        known = role_specs.options("base")["storage_clients"]["choices"]
        for item in inputs["storage_clients"]:
            if item not in known:
                problems.add("storage_clients", item, f"use some of {', '.join(known)}")
    if _is_list(inputs, "firewall_ports", problems):
        for item in inputs["firewall_ports"]:
            if not _ports(item):
                problems.add("firewall_ports", item, "use PORT/tcp, PORT/udp or FROM-TO/tcp with ports 1 to 65535")


def _is_list(inputs: Raw, name: str, problems: Problems) -> bool:
    if isinstance(inputs[name], (list, tuple)):
        return True
    problems.add(name, inputs[name], "use a list")
    return False


def _ports(item: Any) -> bool:
    match = _PORT.match(item) if _text(item) else None
    if not match:
        return False
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    return 1 <= first <= last <= 65535


def _check_sizes(inputs: Raw, problems: Problems) -> None:
    for name in ("journald_max", "min_disk"):
        if size(inputs[name]) is None:
            problems.add(name, inputs[name], "use a size such as 512M or 4G")
    for name in ("shutdown_grace_period", "shutdown_grace_period_critical"):
        if seconds(inputs[name]) is None:
            problems.add(name, inputs[name], "use a span such as 60s or 2m")
    if (seconds(inputs["shutdown_grace_period_critical"]) or 0) > (seconds(inputs["shutdown_grace_period"]) or 0):
        fix = f"it is a part of base_shutdown_grace_period ({inputs['shutdown_grace_period']}), so it cannot be longer"
        problems.add("shutdown_grace_period_critical", inputs["shutdown_grace_period_critical"], fix)
    if inputs["kubelet_watchdog"] and (seconds(inputs["kubelet_watchdog"]) or 0) < 10:
        problems.add("kubelet_watchdog", inputs["kubelet_watchdog"], "use a span of 10s or more, or '' for none")
    skew = inputs["max_clock_skew"]
    if isinstance(skew, bool) or not isinstance(skew, (int, float)) or not 0 < skew < math.inf:
        problems.add("max_clock_skew", skew, "use a number of seconds above 0")
    probe = inputs["runtime_probe"]
    if not isinstance(probe, Mapping) or set(probe) != {"interval", "timeout", "threshold"}:
        problems.add("runtime_probe", probe, "use interval, timeout (spans) and threshold (a number)")
        return
    for name in ("interval", "timeout"):
        if not 1 <= (seconds(probe[name]) or 0) <= 3600:
            problems.add("runtime_probe." + name, probe[name], "use a span of 1s to 1h")
    threshold = probe["threshold"]
    if isinstance(threshold, bool) or not isinstance(threshold, int) or not 1 <= threshold <= 1000:
        problems.add("runtime_probe.threshold", threshold, "use a number of failures from 1 to 1000")


def _check_mappings(inputs: Raw, problems: Problems) -> None:
    for name in (
        "checksums",
        "mirrors",
        "sysctls",
        "registry_mirrors",
        "containerd_config",
        "repository_keys",
        "repository_key_fingerprints",
        "unit_drop_ins",
    ):
        if not isinstance(inputs[name], Mapping):
            problems.add(name, inputs[name], "use a dictionary")
            inputs[name] = {}
    for key, value in inputs["sysctls"].items():
        if not _text(key) or not _SYSCTL.match(key) or ".." in key:
            problems.add("sysctls", key, "use names such as net.ipv4.ip_forward")
        elif value is not None and (
            isinstance(value, (bool, Mapping, list)) or re.search(r"[\x00-\x1f\x7f]", str(value))
        ):
            problems.add(f"sysctls.{key}", value, "use a number or text of one line, or null to leave the key alone")
    for name, prints in inputs["repository_key_fingerprints"].items():
        if not isinstance(prints, (list, tuple, type(None))) or not all(_text(item) for item in prints or ()):
            problems.add(f"repository_key_fingerprints.{name}", prints, "use a list of fingerprints")
    for component, by_version in inputs["checksums"].items():
        if not isinstance(by_version, Mapping) or not all(isinstance(item, Mapping) for item in by_version.values()):
            problems.add(f"checksums.{component}", by_version, "use {version: {amd64: digest, arm64: digest}}")
            continue
        for version, by_arch in by_version.items():
            for arch, digest in by_arch.items():
                if arch not in ("amd64", "arm64") or not (is_sha512(digest) or _is_sha256(digest)):
                    fix = "use amd64 or arm64 and 64 lower-case hexadecimal digits (SHA-256), or 128 (SHA-512)"
                    problems.add(f"checksums.{component}.{version}.{arch}", digest, fix)
    inputs["checksums"] = {name: item for name, item in inputs["checksums"].items() if isinstance(item, Mapping)}


def _check_drop_ins(inputs: Raw, problems: Problems) -> None:
    units = unit_names(inputs)
    for unit, drop_ins in inputs["unit_drop_ins"].items():
        if unit not in units:
            problems.add("unit_drop_ins", unit, f"use one of {', '.join(units)}")
        elif not isinstance(drop_ins, Mapping):
            problems.add(f"unit_drop_ins.{unit}", drop_ins, "use {name of a file: its content}")
        else:
            for name, text in drop_ins.items():
                if not _text(name) or not _UNIT_DROP_IN.match(name) or name in _OWN_DROP_INS:
                    fix = (
                        "use a name of letters, digits, '-', '_' and '.' that ends with .conf and is not the role's own"
                    )
                    problems.add(f"unit_drop_ins.{unit}", name, fix)
                elif not _text(text):
                    problems.add(f"unit_drop_ins.{unit}.{name}", text, "use the text of a drop-in")
                elif not _SECTION.match(text):
                    fix = "begin with the section that the lines are for, such as [Service]; systemd ignores others"
                    problems.add(f"unit_drop_ins.{unit}.{name}", text, fix)


def unit_names(inputs: Mapping[str, Any]) -> list[str]:
    """The units that base runs, which may have drop-ins of the user's."""
    probe = ["kubenode-runtime-probe.service", "kubenode-runtime-probe.timer"]
    return [*runtime_units(inputs), "kubelet.service", *probe]


def _check_urls(inputs: Raw, problems: Problems) -> None:
    for name, value in [("mirror", inputs["mirror"])] + [
        (f"mirrors.{host}", url) for host, url in inputs["mirrors"].items()
    ]:
        if value != "" or name != "mirror":
            _check_url(name, value, problems)
    for name in ("http_proxy", "https_proxy"):
        if inputs[name] != "":
            _check_url(name, inputs[name], problems)
    if not _text(inputs["no_proxy"]) or not re.match(r"[A-Za-z0-9.,:/*_\[\] -]*\Z", inputs["no_proxy"]):
        problems.add("no_proxy", inputs["no_proxy"], "use names, addresses and networks separated by commas")


def _check_url(name: str, value: Any, problems: Problems) -> None:
    """A URL with its credentials is never shown."""
    if not usable_url(value):
        problems.add(
            name, "…" if "@" in str(value) else value, "use a URL http://… or https://… without spaces and quotes"
        )


def usable_url(value: Any) -> bool:
    """Whether a text is an http or https URL that fits on one line of any file."""
    return _text(value) and not re.search(r"[\x00-\x20\x7f\"'\\<>`{}|^]", value) and is_http_url(value)


_MIRROR_FIELDS = ("url", "ca", "skip_verify", "override_path", "username", "password", "header")


def is_registry(host: Any) -> bool:
    """Whether it is a registry's host or host:port, or _default."""
    return isinstance(host, str) and bool(_HOST.match(host))


def _check_registries(inputs: Raw, problems: Problems) -> None:
    for host, mirrors in inputs["registry_mirrors"].items():
        name = f"registry_mirrors.{host}"
        if not is_registry(host):
            problems.add("registry_mirrors", host, "use a registry's host or host:port, or _default")
            continue
        if not isinstance(mirrors, (list, tuple)) or not all(isinstance(item, Mapping) for item in mirrors):
            problems.add(name, "…", "use a list of dictionaries with at least url")
            continue
        for mirror in mirrors:
            _check_mirror(name, mirror, problems)
        if inputs["container_runtime"] == "docker" and host != "docker.io":
            problems.add(
                "registry_mirrors", host, "Docker Engine mirrors docker.io only; use containerd for other registries"
            )
        elif inputs["container_runtime"] == "docker" and any(set(item) - {"url"} for item in mirrors):
            problems.add(name, "…", "Docker Engine's mirrors have a url only; use containerd for the other fields")


def _check_mirror(name: str, mirror: Mapping[str, Any], problems: Problems) -> None:
    unknown = sorted(set(mirror) - set(_MIRROR_FIELDS))
    if unknown:
        problems.add(name, unknown[0], f"use the fields {', '.join(_MIRROR_FIELDS)}")
    url = mirror.get("url")
    if not usable_url(url):
        problems.add(name + ".url", "…", "use a URL http://… or https://… without spaces and quotes")
    elif "@" in urlsplit(str(url)).netloc:
        problems.add(name + ".url", "…", "give the credentials as username and password, not in the URL")
    for field in ("skip_verify", "override_path"):
        if not isinstance(mirror.get(field, False), bool):
            problems.add(f"{name}.{field}", mirror[field], "use true or false")
    if bool(mirror.get("username")) != bool(mirror.get("password")):
        problems.add(name, "…", "give username and password together")
    if ":" in str(mirror.get("username") or ""):
        problems.add(name + ".username", "…", "a user name has no colon; HTTP cannot carry it")
    header = mirror.get("header") or {}
    if not isinstance(header, Mapping):
        problems.add(name + ".header", "…", "use a dictionary of header names and values")
    elif not all(_text(key) and _HEADER.match(key) and _header_value(value) for key, value in header.items()):
        problems.add(name + ".header", "…", "use header names and values of one line")
    ca = mirror.get("ca") or ""
    if ca and not _path(ca) and not trust.certificates(str(ca)):
        problems.add(name + ".ca", "…", "use PEM certificates or the absolute path of a file on the machine")


def _header_value(value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(_text(item) and not re.search(r"[\x00-\x1f\x7f]", item) for item in values)


def _check_images(inputs: Raw, problems: Problems) -> None:
    if inputs["sandbox_image"] and (not _text(inputs["sandbox_image"]) or not _IMAGE.match(inputs["sandbox_image"])):
        problems.add(
            "sandbox_image", inputs["sandbox_image"], "use an image reference, for example registry.k8s.io/pause:3.10.2"
        )
    if not re.match(r"[a-z0-9-]+\Z", str(inputs["snapshotter"])):
        problems.add("snapshotter", inputs["snapshotter"], "use the name of a snapshotter, for example overlayfs")
    if not _is_list(inputs, "image_archives", problems):
        return
    for archive in inputs["image_archives"]:
        where = [field for field in ("url", "path") if isinstance(archive, Mapping) and archive.get(field)]
        if len(where) != 1 or not _SHA256.match(str(archive.get("sha256", ""))):
            problems.add("image_archives", archive, "use {url or path, sha256: 64 hexadecimal digits}")
        elif where == ["url"] and not usable_url(archive["url"]):
            problems.add("image_archives.url", "…", "use a URL http://… or https://…")
        elif where == ["path"] and not _path(archive["path"]):
            problems.add("image_archives.path", archive["path"], "use the absolute path of a file on the machine")


def _check_ca(inputs: Raw, problems: Problems) -> None:
    if _is_list(inputs, "extra_ca", problems):
        for index, text in enumerate(inputs["extra_ca"]):
            if not _text(text) or not trust.certificates(text):
                problems.add(
                    f"extra_ca[{index}]", "…", "use PEM text with whole -----BEGIN CERTIFICATE----- blocks only"
                )


def _is_sha256(digest: Any) -> bool:
    return _text(digest) and bool(_SHA256.match(digest))


def is_sha512(digest: Any) -> bool:
    """Whether a digest is a SHA-512, which its length shows."""
    return _text(digest) and bool(_SHA512.match(digest))


def check_sums(inputs: Raw, problems: Problems, architecture: str = "") -> None:
    """Every artifact that will be fetched needs a pinned digest for this architecture, by default for any one.

    Which architecture and build it is, the machine says in the end.
    """
    for component, version, variable in needed_sums(inputs):
        known = [component, component + "-static", *([NODE_ARCHIVE] if component in IN_NODE_ARCHIVE else [])]
        sums = [inputs["checksums"].get(one, {}).get(version, {}) for one in known]
        if not any(architecture in one if architecture else one for one in sums):
            entry = f"{{{component}: {{'{version}': {{{architecture or 'amd64: …, arm64'}: …}}}}}}"
            what, they = (f"{version} for {architecture}", "it") if architecture else (version, "them")
            fix = f"no sha256 of {component} {what} is pinned; give {they} as base_checksums: {entry}"
            problems.add(variable, version, fix)


def needed_sums(inputs: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(component, version, variable) of everything that comes as a file from its project."""
    result = []
    if inputs["manage_cni"]:
        result.append(("cni-plugins", inputs["cni_plugins_version"], "cni_plugins_version"))
    if inputs["manage_runtime"]:
        result.append(("crictl", inputs["crictl_version"], "crictl_version"))
    if inputs["kubelet_source"] == "binary" and inputs["manage_kubelet"]:
        names = ["kubelet", "kubeadm"] if inputs["kubeadm"] else ["kubelet"]
        result += [(name, inputs["kubernetes_version"], "kubernetes_version") for name in names]
    if inputs["manage_runtime"]:
        if inputs["container_runtime"] == "docker":
            result.append(("cri-dockerd", inputs["cri_dockerd_version"], "cri_dockerd_version"))
        elif inputs["containerd_source"] == "tarball":
            result.append(("containerd", inputs["containerd_version"], "containerd_version"))
            result.append(("runc", inputs["runc_version"], "runc_version"))
    return result


def needed_keys(inputs: Mapping[str, Any]) -> list[str]:
    """Names of the package repositories that will be set up."""
    names = []
    if inputs["kubelet_source"] == "repository" and inputs["manage_kubelet"]:
        names.append("kubernetes")
    if inputs["containerd_source"] == "repository" and inputs["manage_runtime"]:
        names.append("docker")
    return names


def check_keys(inputs: Raw, problems: Problems) -> None:
    """A repository's key must be there and be the one that is pinned."""
    for name in needed_keys(inputs):
        text, pinned = inputs["repository_keys"].get(name), inputs["key_fingerprints"][name]
        if not text:
            fix = f"give the repository's signing key (ASCII-armoured); its fingerprint must be {' or '.join(pinned)}"
            problems.add(f"repository_keys.{name}", text, fix)
            continue
        try:
            found = trust.fingerprint(text)
        except ValueError as error:
            problems.add(f"repository_keys.{name}", "…", str(error))
            continue
        if found not in [item.replace(" ", "").upper() for item in pinned]:
            fix = "this is not the pinned key {}; check it and name it in base_repository_key_fingerprints".format(
                " or ".join(pinned)
            )
            problems.add(f"repository_keys.{name}", f"key {found}", fix)


#: every managed step, in the order in which its settings have to come
STEPS = (
    "packages",
    "kernel",
    "swap",
    "ca",
    "proxy",
    "selinux",
    "firewall",
    "time",
    "journald",
    "shutdown",
    "updates",
    "cni",
    "runtime",
    "kubelet",
    "health",
    "facts",
)

#: component of the data file → (variable of its version, entry of the defaults)
_DEFAULTED = {"runc_version": "runc", "cni_plugins_version": "cni_plugins", "cri_dockerd_version": "cri_dockerd"}


def normalised(given: Mapping[str, Any], data: Mapping[str, Any]) -> BaseInputs:
    """The role's variables (with or without base_ in front) as the plan takes them; PlanError lists all that is wrong.

    ``data`` is base_versions: checksums, defaults, matrix, key_fingerprints. Versions left empty get the data file's
    defaults, and the user's checksums are laid over the data file's.
    """
    inputs, problems = _taken(given), Problems()
    check(inputs, problems)
    problems.stop()
    minor = systems.minor(inputs["kubernetes_version"])
    inputs["kubernetes_minor"] = minor
    inputs["checksums"] = _merged_checksums(data["checksums"], inputs["checksums"])
    inputs["matrix"] = data["matrix"]
    _fill_versions(inputs, data["defaults"])
    inputs["key_fingerprints"] = {
        name: [
            *data.get("key_fingerprints", {}).get(name, ()),
            *(inputs["repository_key_fingerprints"].get(name) or ()),
        ]
        for name in ("kubernetes", "docker")
    }
    check_sums(inputs, problems)
    check_keys(inputs, problems)
    problems.stop()
    needed = {(component, version) for component, version, _variable in needed_sums(inputs)}
    needed |= {(component + "-static", version) for component, version in needed}
    needed.add((NODE_ARCHIVE, inputs["kubernetes_version"]))
    inputs["checksums"] = {
        component: {version: inputs["checksums"][component][version]}
        for component, version in sorted(needed)
        if version in inputs["checksums"].get(component, {})
    }
    return cast(BaseInputs, inputs)


def variables() -> dict[str, role_specs.Option]:
    """Name without ``base_`` → its option in the argument specs, of every variable that the plan reads.

    Those that ``BaseInputs`` does not name are of tasks alone.
    """
    return {name: option for name, option in role_specs.options("base").items() if name in BaseInputs.__annotations__}


def _taken(given: Mapping[str, Any]) -> Raw:
    """The variables that the plan reads, each given or by default, in the order of the role's argument specs."""
    options = variables()
    inputs = {name: role_specs.default(option) for name, option in options.items()}
    for variable, value in given.items():
        name = variable.removeprefix("base_")
        if name in inputs and value is not None:
            inputs[name] = value
    probe = inputs["runtime_probe"]
    if isinstance(probe, Mapping):
        probe = {**role_specs.default(options["runtime_probe"]), **probe}
        inputs["runtime_probe"] = {**probe, "threshold": _number(probe["threshold"])}
    # YAML reads a bare off as false
    inputs["swap"] = "off" if inputs["swap"] is False else inputs["swap"]
    for name, option in options.items():
        if option["type"] == "bool":
            inputs[name] = truth(inputs[name])
        elif option["type"] == "int":
            inputs[name] = _number(inputs[name])
    return inputs


def _number(value: Any) -> Any:
    """Numbers of the command line (-e) arrive as text."""
    found = whole_number(value)
    return value if found is None else found


def _merged_checksums(ours: Checksums, theirs: Checksums) -> Checksums:
    result = {component: dict(by_version) for component, by_version in ours.items()}
    for component, by_version in theirs.items():
        below = result.setdefault(component, {})
        for version, by_arch in by_version.items():
            below[str(version)] = dict(below.get(str(version), {}), **by_arch)
    return result


def _fill_versions(inputs: Raw, defaults: Mapping[str, Any]) -> None:
    kubernetes = inputs["kubernetes_version"]
    for variable, entry in _DEFAULTED.items():
        inputs[variable] = inputs[variable] or defaults[entry]
    inputs["crictl_version"] = inputs["crictl_version"] or systems.for_minor(defaults["crictl"], kubernetes)
    inputs["containerd_wanted"] = inputs["containerd_version"]
    if inputs["containerd_source"] == "tarball":
        inputs["containerd_version"] = inputs["containerd_version"] or systems.for_minor(
            defaults["containerd"], kubernetes
        )
    pause = systems.for_minor(defaults["pause"], kubernetes)
    inputs["sandbox_image"] = inputs["sandbox_image"] or f"registry.k8s.io/pause:{pause}"


def managed(inputs: Mapping[str, Any]) -> list[str]:
    """The managed steps, in order."""
    return [step for step in STEPS if inputs.get("manage_" + step, True)]
