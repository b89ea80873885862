# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels between the parts of the plans: the checked inputs of base, join, user data; and makers of settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

#: component → version → architecture → digest
Checksums = dict[str, dict[str, dict[str, str]]]


class Probe(TypedDict):
    """The probe of the container runtime: two spans (10s, 1m) and a number of failures."""

    interval: str
    timeout: str
    threshold: int


class BaseInputs(TypedDict, total=False):
    """The variables of base as the plan takes them: checked, complete; what each means, the argument specs say."""

    kubernetes_version: str
    container_runtime: str
    containerd_source: str
    containerd_version: str
    runc_version: str
    cni_plugins_version: str
    crictl_version: str
    cri_dockerd_version: str
    kubelet_source: str
    kubeadm: bool
    version_check: str
    allow_downgrade: bool
    allow_other_minor: bool
    checksums: Checksums
    mirror: str
    mirrors: dict[str, str]
    bin_dir: str
    repository_keys: dict[str, str]
    repository_key_fingerprints: dict[str, list[str]]
    packages_extra: list[str]
    storage_clients: list[str]
    ipvs: bool
    ipv6: bool
    sysctls: dict[str, Any]
    kernel_modules: list[str]
    swap: str
    sandbox_image: str
    registry_mirrors: dict[str, list[dict[str, Any]]]
    containerd_config: dict[str, Any]
    snapshotter: str
    kubelet_watchdog: str
    runtime_probe: Probe
    shutdown_grace_period: str
    shutdown_grace_period_critical: str
    journald_max: str
    unattended_upgrades: str
    http_proxy: str
    https_proxy: str
    no_proxy: str
    extra_ca: list[str]
    selinux: str
    firewall: str
    firewall_ports: list[str]
    min_disk: str
    #: absolute paths on the controller
    template_path: list[str]
    #: unit → name of the file → content
    unit_drop_ins: dict[str, dict[str, str]]
    max_clock_skew: float
    time_sync: str
    prebake: bool
    images: list[str]
    image_archives: list[dict[str, str]]
    manage_packages: bool
    manage_kernel: bool
    manage_swap: bool
    manage_runtime: bool
    manage_cni: bool
    manage_kubelet: bool
    manage_health: bool
    manage_journald: bool
    manage_shutdown: bool
    manage_updates: bool
    manage_proxy: bool
    manage_ca: bool
    manage_selinux: bool
    manage_firewall: bool
    manage_time: bool
    #: found out from the variables and the data file: the release line (1.36), the containerd that was asked for (""
    #: for any), the oldest containerd of each line by minor, and the fingerprints that repository keys may have
    kubernetes_minor: str
    containerd_wanted: str
    matrix: dict[str, Any]
    key_fingerprints: dict[str, list[str]]
    #: version of this collection, and the time (UTC, ISO 8601) that the record of a change gets
    collection: str
    at: str


class Taint(TypedDict):
    key: str
    value: str
    effect: str


class Discovery(TypedDict):
    """How the cluster is proven: pins of its CA's public key (sha256:…), and whether cluster-info must be signed."""

    ca_hashes: list[str]
    jws: bool


class JoinInputs(TypedDict, total=False):
    """The variables of join as the plan takes them: checked, complete; what each means, the argument specs say."""

    api_server: str
    ca_cert: str
    ca_file: str
    check_name: bool
    cloud_provider: str
    cluster_dns: list[str]
    cluster_domain: str
    cni_config: str | dict[str, Any]
    config_dir: str
    discovery: Discovery
    kubelet_config: dict[str, Any]
    kubelet_drop_ins: dict[str, dict[str, Any]]
    kubelet_extra_args: dict[str, Any]
    labels: dict[str, str]
    max_clock_skew: int
    max_pods: int
    method: str
    node_ip: str | list[str]
    node_name: str
    provider_id: str
    ready: bool
    reserved: str | dict[str, dict[str, str]]
    serving_certs: str
    state: str
    taints: list[str]
    #: absolute paths on the controller
    template_path: list[str]
    timeout: int
    token_create: dict[str, Any]
    unknown_fields: str
    version_check: str


class UserData(TypedDict, total=False):
    """The inputs of a first boot, checked; what each means, the filter node_user_data says. None: not given."""

    #: URL and SHA-256
    provision_source: tuple[str, str]
    phase: str
    prebake: bool
    hostname: str | None
    ssh_authorized_keys: list[str]
    ssh_user: str
    kubelet_version: str | None
    cloud_provider: str | None
    cloud_config: str | None
    token: str | None
    ca_cert: str | None
    api_server: str | None
    vars: dict[str, Any]
    source_ca: str | None
    python_source: tuple[str, str] | None
    attempts: int
    pause: int


def runtime_units(inputs: Mapping[str, Any]) -> list[str]:
    """The units of the container runtime, the one that the kubelet waits for last."""
    docker = inputs["container_runtime"] == "docker"
    return ["docker.service", "cri-docker.service"] if docker else ["containerd.service"]


UNIT_DIR = "/etc/systemd/system"
HEADER = "# Written by kubenode.provision (base); changes are overwritten.\n"


def setting(kind: str, identity: str, **fields: Any) -> Setting:
    """One setting; ``identity`` is step/name, the step comes from it where none is given. None is left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return cast(Setting, {"id": identity, "step": identity.partition("/")[0], "kind": kind, **given})


def file(identity: str, path: str, content: str, mode: str = "0644", secret: bool = False) -> Setting:
    """A file; a secret one has the mode 0600."""
    return setting("file", identity, path=path, mode="0600" if secret else mode, secret=secret or None, content=content)


def without_secrets(settings: Iterable[Setting]) -> list[Setting]:
    """The settings as they are shown: a secret file has the name of its content (``content_secret``) instead of it."""
    return [
        cast(Setting, {**{key: value for key, value in item.items() if key != "content"}, "content_secret": item["id"]})
        if item.get("secret")
        else item
        for item in settings
    ]


def secrets_of(settings: Iterable[Setting]) -> dict[str, str]:
    """Name → content of the secret files."""
    return {item["id"]: item["content"] for item in settings if item.get("secret")}


def directory(identity: str, path: str, mode: str = "0755") -> Setting:
    return setting("directory", identity, path=path, mode=mode)


def link(identity: str, path: str, target: str) -> Setting:
    return setting("link", identity, path=path, target=target)


def secret_file(identity: str, path: str, name: str) -> Setting:
    """A file whose content is the secret ``name``."""
    return setting("file", identity, path=path, mode="0600", content_secret=name)


def absent(identity: str, path: str, recursive: bool = False, shown: bool = False, begins: str = "") -> Setting:
    """A file that must not be there, or a whole tree; ``shown``: a diff has its text, which holds no secret.

    ``begins``: how the file of an earlier run begins; one that begins otherwise is a person's, and stays.
    """
    return setting(
        "absent", identity, path=path, recursive=recursive or None, shown=shown or None, begins=begins or None
    )


def unit(identity: str, name: str, **fields: Any) -> Setting:
    return setting("unit", identity, name=name, **fields)


def handler(identity: str, argv: list[str], on: list[str]) -> Setting:
    """A command that runs once when one of the named settings changed."""
    return setting("handler", identity, argv=argv, on=on)


def users_drop_ins(step: str, unit_name: str, node: Node, inputs: BaseInputs) -> list[Setting]:
    """The user's drop-ins of a unit; those that an earlier run wrote and that are wanted no more are removed."""
    wanted = inputs["unit_drop_ins"].get(unit_name, {})
    before = ((node.get("base") or {}).get("unit_drop_ins") or {}).get(unit_name, [])
    gone = [name for name in before if name not in wanted]
    identity, folder = f"{step}/drop-in-{unit_name}/", f"{UNIT_DIR}/{unit_name}.d/"
    return [
        *(file(identity + name, folder + name, HEADER + text) for name, text in sorted(wanted.items())),
        *(absent(identity + name, folder + name, shown=True, begins=HEADER) for name in gone),
    ]
