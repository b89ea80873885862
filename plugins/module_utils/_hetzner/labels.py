# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Labels of servers and snapshots: which the API takes, which are ours, what they say (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .._common import installed
from .._common.names import LABEL_WORD
from .api_types import Image, Machine, Server, WantedImage

#: CAPH's convention for naming snapshots, which have no name of their own.
IMAGE_LABEL = "caph-image-name"
#: The longest value a label of the API may have; our label carries the machine's name.
LONGEST_NAME = 63
#: Bytes of user data the API takes.
LONGEST_USER_DATA = 32 * 1024

#: Marks the servers this collection made or adopted; the value is the machine's name.
LABEL = "kubenode.provision/machine"
#: Marks, beside the first, the servers that were adopted: others made them.
ADOPTED_LABEL = "kubenode.provision/adopted"
#: The id of the installation that the server was made or armed for, see `_common/installed.py`.
INSTALLATION_LABEL = "kubenode.provision/installation"
#: A run took the server over from the one that made or armed it; the value is the newest of its actions (id) that the
#: run knew. See `cloud_arming.py`.
TAKEN_LABEL = "kubenode.provision/taken-after"
#: A user must not set these: they would let us delete servers of others, or take another system for the one that was
#: installed.
OWN_LABELS = frozenset([LABEL, ADOPTED_LABEL, INSTALLATION_LABEL, TAKEN_LABEL])

#: Marks the snapshots this collection made; the value is the name of the image.
MADE_LABEL = "kubenode.provision/node-image"
DIGEST_LABEL = "kubenode.provision/digest"
#: Option of the module → label that says where an image comes from.
PROVENANCE = {
    "kubernetes_version": "kubenode.provision/kubernetes",
    "base_image": "kubenode.provision/base-image",
    "role_version": "kubenode.provision/role",
}
#: Hex digits of a SHA-256 that a label holds behind ``sha256-``; all 64 do not fit into its 63 characters.
DIGEST_DIGITS = 56

_DIGEST = re.compile(r"^(sha256:)?([0-9a-fA-F]{64})\Z")
_NOT_IN_VALUE = re.compile(r"[^A-Za-z0-9._-]+")
_LABEL_PREFIX = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")


def is_label_value(text: str) -> bool:
    """Whether the API takes ``text`` as the value of a label."""
    return text == "" or bool(LABEL_WORD.fullmatch(text))


def label_findings(labels: Mapping[str, Any] | None, removable: bool = False) -> list[str]:
    """What is wrong with a map of labels, as a list of sentences. ``removable``: None as a value removes a label."""
    findings = []
    for key, value in (labels or {}).items():
        prefix, _slash, word = str(key).rpartition("/")
        if not LABEL_WORD.fullmatch(word) or (prefix and not _LABEL_PREFIX.match(prefix)):
            findings.append(f"labels: the key {key!r} is none the API takes; use letters, digits, '-', '_' and '.'")
        elif prefix == "hetzner.cloud" or prefix.endswith(".hetzner.cloud"):
            findings.append(f"labels: the key {key!r} has a prefix reserved by Hetzner; choose another")
        elif key in OWN_LABELS:
            findings.append(
                f"labels: the key {key!r} says who made a server and what for, and is set by this module only; "
                "leave it out"
            )
        if not (removable and value is None) and not (isinstance(value, str) and is_label_value(value)):
            findings.append(
                f"labels: the value {value!r} of '{key}' is none the API takes; use a string of at most 63 "
                "letters, digits, '-', '_' and '.' that begins and ends with a letter or digit"
            )
    return findings


def machine_findings(machine: Machine) -> list[str]:
    """What is wrong with the labels and the user data of one machine, as a list of sentences."""
    findings = label_findings(machine.get("labels"), removable=True)
    if len((machine.get("user_data") or "").encode("utf-8")) > LONGEST_USER_DATA:
        findings.append(f"user_data: longer than the {LONGEST_USER_DATA} bytes the API takes; make it shorter")
    return findings


def is_ours(server: Server) -> bool:
    """Whether this collection made the server, or adopted it."""
    return (server.get("labels") or {}).get(LABEL) == server["name"]


def is_adopted(server: Server) -> bool:
    """Whether others made the server; an odd value of the label is no proof that we did."""
    return ADOPTED_LABEL in (server.get("labels") or {})


def installation_of(server: Server) -> str:
    """The installation that the server was made or armed for; empty when its labels do not say."""
    found = (server.get("labels") or {}).get(INSTALLATION_LABEL)
    return found if found and installed.is_installation(found) else ""


def label_value(text: object) -> str:
    """``text`` as the value of a label: what it may not hold becomes ``-``, what is too long is cut at the front."""
    value = _NOT_IN_VALUE.sub("-", str(text)).strip("-._")
    return value if len(value) <= LONGEST_NAME else value[-LONGEST_NAME:].strip("-._")


def short_digest(digest: str | None) -> str | None:
    """The label of a SHA-256 given as 64 hex digits, perhaps behind ``sha256:``; None when it is none."""
    match = _DIGEST.match(digest or "")
    return "sha256-" + match.group(2).lower()[:DIGEST_DIGITS] if match else None


def provenance(wanted: WantedImage) -> dict[str, str]:
    """The labels that say what an image was made from; two images with equal ones are the same."""
    given: Mapping[str, object] = wanted
    labels = {label: label_value(given[option]) for option, label in PROVENANCE.items() if given.get(option)}
    digest = short_digest(wanted.get("digest"))
    if digest:
        labels[DIGEST_LABEL] = digest
    return labels


def all_labels(wanted: WantedImage) -> dict[str, str]:
    """Every label of a new snapshot."""
    own = {IMAGE_LABEL: wanted["name"], MADE_LABEL: wanted["name"]}
    return dict(wanted.get("labels") or {}, **dict(provenance(wanted), **own))


def is_made_by_us(image: Image) -> bool:
    """Whether this collection made the snapshot, and it was not renamed since."""
    labels = image.get("labels") or {}
    return MADE_LABEL in labels and labels[MADE_LABEL] == labels.get(IMAGE_LABEL)


def is_same(image: Image, wanted: WantedImage) -> bool:
    """Whether a snapshot is what is wanted: ours, and made from the same."""
    labels = image.get("labels") or {}
    return is_made_by_us(image) and all(labels.get(key) == value for key, value in provenance(wanted).items())


def findings_of(wanted: WantedImage, position: int) -> list[str]:
    """Everything that is wrong with one wanted image, as a list of sentences."""
    where = f"images[{position}]"
    name = wanted.get("name") or ""
    if not name or not is_label_value(name):
        return [
            f"{where}.name: {name!r} cannot be the value of the label {IMAGE_LABEL}; use 1 to {LONGEST_NAME} letters, "
            f"digits, '-', '_' and '.', with a letter or digit at both ends (it has {len(name)} characters)"
        ]
    findings = [f"{where} ({name}): {text}" for text in label_findings(wanted.get("labels"))]
    for key in sorted(wanted.get("labels") or {}):
        if key == IMAGE_LABEL or str(key).startswith("kubenode.provision/"):
            findings.append(f"{where} ({name}): labels: '{key}' is set by the module itself; leave it out")
    if wanted.get("digest") and not short_digest(wanted["digest"]):
        findings.append(f"{where} ({name}): digest: {wanted['digest']!r} is no SHA-256; give 64 hexadecimal digits")
    keep = wanted.get("keep")
    if keep is not None and keep < 1:
        findings.append(f"{where} ({name}): keep: {keep}; keep at least 1")
    return findings
