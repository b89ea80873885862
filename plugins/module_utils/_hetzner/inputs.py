# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Is the input of a fleet module well formed? (pure; nothing is looked up)"""

from __future__ import annotations

import re

from ansible_collections.kubenode.provision.plugins.module_utils._common.names import machine_error
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import FleetError

#: The longest value a label of the API may have; our label carries the machine's name.
LONGEST_NAME = 63
#: Bytes of user data the API takes.
LONGEST_USER_DATA = 32 * 1024

#: What says whether a server was made by us, and which installation it has; a user's word about it would let us delete
#: servers of others, or take another system for the one that was installed.
OWN_LABELS = frozenset(["kubenode.provision/machine", "kubenode.provision/adopted", "kubenode.provision/installation"])

_LABEL_WORD = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_LABEL_PREFIX = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")


def is_label_value(text):
    """Whether the API takes ``text`` as the value of a label."""
    return text == "" or bool(_LABEL_WORD.match(text))


def name_findings(machines):
    """Everything that is wrong with the names of ``machines`` (dictionaries), as a list of sentences."""
    findings, seen = [], set()
    for position, machine in enumerate(machines):
        name = machine.get("name")
        if not isinstance(name, str) or not name:
            findings.append("machines[%d].name: missing; every machine needs a name" % position)
            continue
        error = machine_error(name)
        if error is not None:
            findings.append("machines[%d].name: %r: %s" % (position, name[:100], error))
        if name in seen:
            findings.append("machines[%d].name: '%s' is named twice; names must be unique" % (position, name))
        seen.add(name)
    return findings


def label_findings(labels):
    """What is wrong with a map of labels, as a list of sentences."""
    findings = []
    for key, value in (labels or {}).items():
        prefix, _slash, word = str(key).rpartition("/")
        if not _LABEL_WORD.match(word) or (prefix and not _LABEL_PREFIX.match(prefix)):
            findings.append("labels: the key %r is none the API takes; use letters, digits, '-', '_' and '.'" % key)
        elif prefix == "hetzner.cloud" or prefix.endswith(".hetzner.cloud"):
            findings.append("labels: the key %r has a prefix reserved by Hetzner; choose another" % key)
        elif key in OWN_LABELS:
            findings.append(
                "labels: the key %r says who made a server and what for, and is set by this module only; leave it out"
                % key
            )
        if not isinstance(value, str) or not is_label_value(value):
            findings.append(
                "labels: the value %r of '%s' is none the API takes; use a string of at most 63 letters, digits, '-', "
                "'_' and '.' that begins and ends with a letter or digit" % (value, key)
            )
    return findings


def machine_findings(machine):
    """What is wrong with the labels and the user data of one machine, as a list of sentences."""
    findings = label_findings(machine.get("labels"))
    if len((machine.get("user_data") or "").encode("utf-8")) > LONGEST_USER_DATA:
        findings.append("user_data: longer than the %d bytes the API takes; make it shorter" % LONGEST_USER_DATA)
    return findings


def refuse_findings(findings):
    """Fail the whole fleet when there are findings."""
    if findings:
        raise FleetError("nothing was changed, because of: %s" % "; ".join(findings))
