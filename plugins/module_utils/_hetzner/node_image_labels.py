# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The labels of a node image: its name in CAPH's convention, and where it comes from (pure)."""

from __future__ import annotations

import re

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import IMAGE_LABEL
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.inputs import (
    LONGEST_NAME,
    is_label_value,
    label_findings,
)

#: Marks the snapshots this collection made; the value is the name of the image.
MADE_LABEL = "kubenode.provision/node-image"
DIGEST_LABEL = "kubenode.provision/digest"
#: Option of the module → label that tells where an image comes from.
PROVENANCE = {
    "kubernetes_version": "kubenode.provision/kubernetes",
    "base_image": "kubenode.provision/base-image",
    "role_version": "kubenode.provision/role",
}
#: Hex digits of a SHA-256 that a label holds behind ``sha256-``; all 64 do not fit into its 63 characters.
DIGEST_DIGITS = 56

_DIGEST = re.compile(r"^(sha256:)?([0-9a-fA-F]{64})\Z")
_NOT_IN_VALUE = re.compile(r"[^A-Za-z0-9._-]+")


def label_value(text):
    """``text`` as the value of a label: what it may not hold becomes ``-``, what is too long is cut at the front."""
    value = _NOT_IN_VALUE.sub("-", str(text)).strip("-._")
    return value if len(value) <= LONGEST_NAME else value[-LONGEST_NAME:].strip("-._")


def short_digest(digest):
    """The label of a SHA-256 given as 64 hex digits, perhaps behind ``sha256:``; None when it is none."""
    match = _DIGEST.match(digest or "")
    return "sha256-" + match.group(2).lower()[:DIGEST_DIGITS] if match else None


def provenance(wanted):
    """The labels that say what an image was made from; two images with equal ones are the same."""
    labels = {label: label_value(wanted[option]) for option, label in PROVENANCE.items() if wanted.get(option)}
    if wanted.get("digest"):
        labels[DIGEST_LABEL] = short_digest(wanted["digest"])
    return labels


def all_labels(wanted):
    """Every label of a new snapshot."""
    own = {IMAGE_LABEL: wanted["name"], MADE_LABEL: wanted["name"]}
    return dict(wanted.get("labels") or {}, **dict(provenance(wanted), **own))


def is_made_by_us(image):
    """Whether this collection made the snapshot, and nobody renamed it since."""
    labels = image.get("labels") or {}
    return MADE_LABEL in labels and labels[MADE_LABEL] == labels.get(IMAGE_LABEL)


def is_same(image, wanted):
    """Whether a snapshot is what is wanted: ours, and made from the same."""
    labels = image.get("labels") or {}
    return is_made_by_us(image) and all(labels.get(key) == value for key, value in provenance(wanted).items())


def findings_of(wanted, position):
    """Everything that is wrong with one wanted image, as a list of sentences."""
    where = "images[%d]" % position
    name = wanted.get("name") or ""
    if not name or not is_label_value(name):
        return [
            "%s.name: %r cannot be the value of the label %s; use 1 to %d letters, digits, '-', '_' and '.', with a "
            "letter or digit at both ends (it has %d characters)" % (where, name, IMAGE_LABEL, LONGEST_NAME, len(name))
        ]
    findings = ["%s (%s): %s" % (where, name, text) for text in label_findings(wanted.get("labels"))]
    for key in sorted(wanted.get("labels") or {}):
        if key == IMAGE_LABEL or str(key).startswith("kubenode.provision/"):
            findings.append("%s (%s): labels: '%s' is set by the module itself; leave it out" % (where, name, key))
    if wanted.get("digest") and not short_digest(wanted["digest"]):
        findings.append(
            "%s (%s): digest: %r is no SHA-256; give 64 hexadecimal digits" % (where, name, wanted["digest"])
        )
    if wanted.get("keep") is not None and wanted["keep"] < 1:
        findings.append("%s (%s): keep: %d; keep at least 1" % (where, name, wanted["keep"]))
    return findings
