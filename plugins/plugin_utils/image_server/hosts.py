# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of an image server as the files that its program reads, each made once for a try (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import hosts, nmstate
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent_inputs import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import known_arch
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.service import hostfile

DOCUMENT, OWN = ".yaml", hostfile.SUFFIX
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")
_LONGEST_NAME = 240  # with the longest ending it is the name of a file
_RULE = (
    "the key is a host's name by RFC 1123: letters in lower case, digits, hyphens, dots between parts of at most 63"
    " characters"
)


@dataclass
class Hosts:
    """File name → content: NMState documents, and what else is a host's own, which may hold secrets."""

    documents: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def made(
    given: Mapping[str, Any], options: Mapping[str, Any], bases: Mapping[str, Any], agent: AgentInputs | None, *,
    converted: bool = True,
) -> Hosts:  # fmt: skip
    """Documents and options of all hosts; with ``agent``, each is built as the program will build it.

    ``converted``: documents by our own converter; what nmstatectl will say of them is only known on the machine.
    """
    found = Hosts()
    for name in options:
        if name not in given:
            found.errors.append(f"image_server_host_options[{name}]: image_server_hosts has no such host; add it there")
    for name, network in given.items():
        if not is_name(name):
            found.errors.append(f"image_server_hosts is {str(name)[:120]!r}; {_RULE}")
            continue
        for place, step in _steps(name, network, options.get(name), bases, agent, found, converted):
            try:
                step()
            except (ImageError, TypeError, ValueError, RecursionError) as error:
                found.errors.append(f"{place}: {error}")
                break
    return found


def is_name(name: object) -> bool:
    """Whether this is a host's name by RFC 1123 in lower case, short enough for the names of its files."""
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and bool(_NAME.fullmatch(name))


def is_file(name: object) -> bool:
    """Whether this is the name of a file that the role writes for a host."""
    return isinstance(name, str) and any(name.endswith(end) and is_name(name[: -len(end)]) for end in (OWN, DOCUMENT))


def _steps(
    name: str,
    network: Any,
    options: Any,
    bases: Mapping[str, Any],
    agent: AgentInputs | None,
    found: Hosts,
    converted: bool,
) -> Iterator[tuple[str, Any]]:
    """What is tried for one host, each with the place that an error of it is told of."""
    place, own_place = f"image_server_hosts[{name}]", f"image_server_host_options[{name}]"
    own = hostfile.Own()

    def document() -> None:
        text = _text(network, "an NMState document")
        parsed = nmstate.parse(text)
        if converted:
            found.warnings.extend(f"{place}: {warning}" for warning in nmstate.convert(parsed).warnings)
        found.documents[name + DOCUMENT] = text

    def own_file() -> None:
        nonlocal own
        text = _text(options, "options")
        own = hostfile.read(text)
        if own.arch and known_arch(own.arch) not in bases:
            raise ImageError(f"arch is {own.arch!r}, and image_server_bases has {', '.join(sorted(bases)) or 'none'}")
        found.own[name + OWN] = text

    def whole() -> None:
        host = hosts.HostInputs(name=name, network=found.documents[name + DOCUMENT] if converted else None)
        if agent is not None:
            hosts.build(replace(agent, **own.agent).checked(), own.laid_over(host))

    yield place, document
    if options:
        yield own_place, own_file
        yield own_place, whole
    else:
        yield place, whole


def _text(value: Any, what: str) -> str:
    """A file's content: text as it is, data as YAML; nothing is an empty file."""
    if value is None or value == "" or value == {}:
        return ""
    if isinstance(value, str):
        return value if value.endswith("\n") else value + "\n"
    if not isinstance(value, Mapping):
        raise TypeError(f"give {what}, as a dictionary or as text, or nothing")
    return yaml.safe_dump(value, default_flow_style=False, sort_keys=False, allow_unicode=True, width=10000)
