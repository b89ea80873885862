# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""From what one host is given to its Ignition and its images; module, server and controller all go this way (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

from . import agent, bases, cpio, ignition, iso, nmstate
from .agent import AgentInputs, host_name, ssh_key
from .image_error import ImageError
from .kargs import Edit
from .nmstate.conversion import Run
from .nmstate.profile import SECRET
from .overlay import Overlay

if TYPE_CHECKING:
    Network = Union[str, Mapping[str, Any], None]  # Python 3.8 has no such form
HOSTNAME = "/etc/hostname"
GUESSED = (
    "the image holds %s, and its name can be guessed; give secret-file (KUBENODE_IMAGES_SECRET_FILE), or guessable "
    "when all that reach this server may have it"
)


@dataclass(frozen=True)
class HostInputs:
    """One host's own inputs; what may hold secrets is not shown in its text form."""

    name: str  # its key, and its hostname unless one is given
    hostname: str | None = None  # None: the name; "": none
    network: Network = field(default=None, repr=False)  # NMState as text or data; None or empty: DHCP
    ignition: Mapping[str, Any] | None = field(default=None, repr=False)  # instead of the agent
    merge: Mapping[str, Any] | None = field(default=None, repr=False)  # an Ignition laid over the result
    files: Mapping[str, tuple[bytes, int]] = field(default_factory=dict, repr=False)  # path → content, mode
    units: Mapping[str, str] = field(default_factory=dict, repr=False)
    ssh_keys: tuple[str, ...] = ()
    arguments: Edit = field(default_factory=Edit)
    initramfs_network: bool = True  # the profiles also for the initramfs, where the base reads them


@dataclass(frozen=True)
class HostConfig:
    """What becomes of them: the configuration, its bytes, and the NetworkManager profiles in it."""

    config: Mapping[str, Any] = field(repr=False)
    ignition: bytes = field(repr=False)
    profiles: Mapping[str, str] = field(repr=False)
    warnings: tuple[str, ...] = ()
    _packed: dict[tuple[Any, ...], bytes] = field(default_factory=dict, repr=False, compare=False)

    def pack(self, members: Mapping[str, bytes], compression: str = "gzip") -> bytes:
        """An archive, the same object for the same members: the images of a host share its memory."""
        key = (compression, *sorted(members.items()))
        if key not in self._packed:
            self._packed[key] = cpio.archive(members, compression)
        return self._packed[key]


def build(inputs: AgentInputs | None, host: HostInputs, *, run: Run | None = None) -> HostConfig:
    """The configuration of a host; ``run`` starts nmstatectl, without it the conversion is our own.

    ``inputs`` may be None for a host that brings its own Ignition. ImageError names the first thing that is wrong.
    """
    try:
        document = _document(host.network)
        profiles, warnings = _profiles(document, run)
    except ImageError as error:
        raise ImageError(f"network: {error}") from error
    warnings = tuple(f"network: {text}" for text in warnings)
    if host.ignition is not None:
        config = _given(host, profiles)
    elif inputs is None:
        raise ImageError(f"host {host.name} has neither an Ignition of its own nor the agent's inputs")
    else:
        live = agent.Host(
            hostname=host.name if host.hostname is None else host.hostname,
            profiles=profiles,
            has_network_data=bool(document),
            files=host.files,
            units=host.units,
        )
        config = agent.build(replace(inputs, ssh_keys=(*inputs.ssh_keys, *host.ssh_keys)), live).to_dict()
    if host.merge:
        config = ignition.merge(config, _valid("merge", host.merge))
    return HostConfig(config, ignition.render(config), profiles, warnings)


def iso_overlay(
    base: iso.Iso, made: HostConfig, host: HostInputs, *, force: bool = False, enlarge: bool = False
) -> Overlay:
    """The host's image of an ISO; its initramfs gets the profiles, too, when it reads them."""
    network = made.profiles if host.initramfs_network and base.features.get("live-initrd-network") else None
    return iso.customise(
        base, made.ignition, network, host.arguments or None, force=force, enlarge=enlarge, pack=made.pack
    )


def initramfs_overlay(base: Overlay, made: HostConfig, host: HostInputs) -> Overlay:
    """The host's initramfs; kernel arguments are the boot loader's and have no place in it."""
    return bases.customise_initramfs(
        base, made.ignition, made.profiles if host.initramfs_network else None, pack=made.pack
    )


def secret_of_all(inputs: AgentInputs | None) -> str:
    """What of the agent's inputs is for few; "" when nothing is."""
    if inputs is None:
        return ""
    if inputs.pull_secret:
        return "the agent's pull secret"
    proxies = (inputs.http_proxy, inputs.https_proxy)
    return "a proxy's password" if any("@" in proxy for proxy in proxies) else ""


def secret_in(inputs: AgentInputs | None, host: HostInputs, profiles: Mapping[str, str]) -> str:
    """What in an image is for few, or may be; "" when nothing is."""
    if host.ignition is not None or host.merge:
        return "an Ignition of the host's own"
    if host.files or host.units:
        return "files of the host's own"
    if any(re.search(SECRET.pattern + r"(?!\s*/)", one, SECRET.flags) for one in profiles.values()):  # a path is none
        return "a password of the host's network"
    return secret_of_all(inputs)


def _document(network: Network) -> Mapping[str, Any]:
    if network is None or isinstance(network, str):
        return nmstate.parse(network or "")
    if not isinstance(network, Mapping):
        raise ImageError(f"the NMState document is {type(network).__name__}, not a mapping")
    return network


def _profiles(document: Mapping[str, Any], run: Run | None) -> tuple[Mapping[str, str], tuple[str, ...]]:
    if not document:
        return {}, ()
    if run is None:
        made = nmstate.convert(document)
        files, warnings = made.files, made.warnings
    else:
        files, warnings = nmstate.with_nmstatectl(document, run), ()
    if not files:
        warnings = (*warnings, "the NMState document configures no interface; the host will use DHCP")
    return files, warnings


def _given(host: HostInputs, profiles: Mapping[str, str]) -> Mapping[str, Any]:
    """The host's own Ignition, with what else it is given laid over it."""
    config = _valid("ignition", host.ignition)
    more = ignition.Config()
    for name in sorted(profiles):
        more.file(f"{agent.PROFILES}/{name}", profiles[name], 0o600)
    if host.hostname:
        more.file(HOSTNAME, host_name(host.hostname) + "\n")
    for path, (data, mode) in sorted(host.files.items()):
        more.file(path, data, mode)
    for name, text in sorted(host.units.items()):
        more.unit(name, text, enabled=True)
    if host.ssh_keys:
        more.user("core", [ssh_key(key) for key in host.ssh_keys])
    return ignition.merge(config, more.to_dict())


def _valid(what: str, config: Any) -> Mapping[str, Any]:
    """A configuration that was given; one without a version is of the version that is written here."""
    if isinstance(config, Mapping) and "ignition" not in config:
        config = {"ignition": {"version": ignition.VERSION}, **config}
    wrong = ignition.problems(config) or ignition.unknown_keys(config)
    if wrong:
        raise ImageError(f"{what}: {'; '.join(wrong[:5])}")
    return dict(config)
