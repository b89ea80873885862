# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's configuration: file, drop-ins, flags over both; strict about what the minor does not know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lab.kubelet.app import log, schema, yaml
from lab.kubelet.app.flags import pairs, truth
from lab.kubelet.app.labels import taints
from lab.kubelet.app.yaml_scalars import YamlError

GROUP_VERSION, KIND = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
STRICT = "KUBELET_STANDIN_STRICT"

DEFAULTS: dict[str, Any] = {
    "cgroupDriver": "cgroupfs",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "failCgroupV1": True,
    "failSwapOn": True,
    "healthzBindAddress": "127.0.0.1",
    "healthzPort": 10248,
    "maxPods": 110,
    "nodeLeaseDurationSeconds": 40,
    "nodeStatusUpdateFrequency": "10s",
    "registerNode": True,
    "rotateCertificates": False,
    "serverTLSBootstrap": False,
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
}
#: without a file: as it was before there was one
LEGACY = {
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
#: flags that still set a field, and how their text is read
_TEXT = {
    "container-runtime-endpoint": "containerRuntimeEndpoint",
    "image-service-endpoint": "imageServiceEndpoint",
    "cgroup-driver": "cgroupDriver",
    "provider-id": "providerID",
    "healthz-bind-address": "healthzBindAddress",
    "cluster-domain": "clusterDomain",
    "resolv-conf": "resolvConf",
    "node-status-update-frequency": "nodeStatusUpdateFrequency",
}
_TRUTH = {
    "fail-swap-on": "failSwapOn",
    "fail-cgroupv1": "failCgroupV1",
    "rotate-certificates": "rotateCertificates",
    "rotate-server-certificates": "serverTLSBootstrap",
    "register-node": "registerNode",
    "seccomp-default": "seccompDefault",
    "protect-kernel-defaults": "protectKernelDefaults",
}
_NUMBER = {"healthz-port": "healthzPort", "max-pods": "maxPods", "port": "port", "read-only-port": "readOnlyPort"}
_PAIRS = {"kube-reserved": "kubeReserved", "system-reserved": "systemReserved"}


class ConfigError(ValueError):
    """The configuration is refused; the text is what the real one logs."""


def load(flags: dict[str, str], known: dict[str, Any]) -> dict[str, Any]:
    """Effective configuration; raises :class:`ConfigError`."""
    config: dict[str, Any] = {**DEFAULTS} if flags.get("config") else {**DEFAULTS, **LEGACY}
    if flags.get("config"):
        config = merged(config, _read(Path(flags["config"]), known))
    if flags.get("config-dir"):
        folder = Path(flags["config-dir"])
        if not folder.is_dir():
            raise ConfigError("failed to merge kubelet configs: %s: no such file or directory" % folder)
        for path in sorted(folder.glob("*.conf")):
            config = merged(config, _read(path, known))
    config = merged(config, _of_flags(flags))
    _validate(config)
    return config


def _read(path: Path, known: dict[str, Any]) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(
            "failed to load kubelet config file, path: %s, error: failed to read kubelet config file: %s"
            % (path, problem)
        ) from None
    try:
        content = yaml.loads(text)
    except YamlError as problem:
        raise _refused(path, str(problem)) from None
    if not isinstance(content, dict):
        raise _refused(path, "the file holds no object")
    for field, value in (("kind", KIND), ("apiVersion", GROUP_VERSION)):
        if not content.get(field):
            raise _refused(path, "Object '%s' is missing" % field.capitalize())
        if content[field] != value:
            raise _refused(
                path, 'no kind "%s" is registered for version "%s"' % (content.get("kind"), content.get("apiVersion"))
            )
    unknown = schema.unknown(content, known)
    if unknown:
        strictly = "strict decoding error: " + ", ".join('unknown field "%s"' % name for name in unknown)
        if os.environ.get(STRICT, "1") != "0":
            raise _refused(path, strictly)
        log.error("kubelet.go", "Using lenient decoding as strict decoding failed", strictly)
    wrong = schema.wrong(content, known)
    if wrong:
        raise _refused(path, "json: " + "; ".join(wrong))
    return content


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError(
        "failed to load kubelet config file, path: %s, error: failed to decode: %s" % (path, why.replace("\n", " "))
    )


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Objects are merged, everything else is replaced; a null leaves what was there."""
    result = dict(below)
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        elif value is not None:
            result[name] = value
    return result


def _of_flags(flags: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {field: flags[flag] for flag, field in _TEXT.items() if flag in flags}
    found.update({field: truth(flags, flag) for flag, field in _TRUTH.items() if flag in flags})
    found.update({field: pairs(flags[flag]) for flag, field in _PAIRS.items() if flag in flags})
    for flag, field in _NUMBER.items():
        if flag in flags:
            try:
                found[field] = int(flags[flag])
            except ValueError:
                raise ConfigError('invalid argument "%s" for "--%s" flag' % (flags[flag], flag)) from None
    if "cluster-dns" in flags:
        found["clusterDNS"] = [part for part in flags["cluster-dns"].split(",") if part]
    if "register-with-taints" in flags:
        found["registerWithTaints"] = taints(flags["register-with-taints"])
    return found


def _validate(config: dict[str, Any]) -> None:
    """What the real one refuses although the type is right."""
    problems = []
    if config["cgroupDriver"] not in ("cgroupfs", "systemd"):
        problems.append("cgroupDriver %r must be cgroupfs or systemd" % config["cgroupDriver"])
    if config["maxPods"] < 0:
        problems.append("maxPods %d must not be a negative number" % config["maxPods"])
    high, low = config.get("imageGCHighThresholdPercent", 85), config.get("imageGCLowThresholdPercent", 80)
    if low >= high:
        problems.append("imageGCLowThresholdPercent %s must be less than imageGCHighThresholdPercent %s" % (low, high))
    total = schema.seconds(config.get("shutdownGracePeriod"), 0)
    critical = schema.seconds(config.get("shutdownGracePeriodCriticalPods"), 0)
    if critical > total:
        problems.append("shutdownGracePeriod must be >= shutdownGracePeriodCriticalPods")
    mode = config["authorization"].get("mode")
    if mode not in ("AlwaysAllow", "Webhook"):
        problems.append("unknown authorization mode %s" % mode)
    if config.get("serializeImagePulls", True) and (config.get("maxParallelImagePulls") or 1) > 1:
        problems.append("maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls set to false")
    swap = (config.get("memorySwap") or {}).get("swapBehavior", "")
    if swap not in ("", "NoSwap", "LimitedSwap"):
        problems.append('memorySwap.swapBehavior %r must be one of: "", "LimitedSwap" or "NoSwap"' % swap)
    for taint in config.get("registerWithTaints") or []:
        if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            problems.append("invalid taint: %s" % taint)
    if problems:
        raise ConfigError(
            "failed to validate kubelet configuration, error: [invalid configuration: %s], "
            "path: &TypeMeta{Kind:,APIVersion:,}" % ", ".join(problems)
        )
