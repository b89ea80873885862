# Copyright (c) 2026 kubenode.provision authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause
"""Inputs → user data of one format, within the provider's limit (pure)."""

from __future__ import annotations

from . import cloud_init, ignition
from .inputs import InputError, normalised

FORMATS = {"cloud-init": cloud_init.document, "ignition": ignition.document}
#: bytes of user data that Hetzner Cloud takes (POST /servers, user_data)
HETZNER_LIMIT = 32 * 1024


def user_data(inputs, known, format_name="cloud-init", limit=HETZNER_LIMIT):
    """The user data as text; InputError when an input is wrong or the result is over `limit` bytes (0: no limit).

    ``known``: the rules of the roles (roles.rules).
    """
    if format_name not in FORMATS:
        raise InputError("the format is %r; choose one of %s" % (format_name, ", ".join(FORMATS)))
    text = FORMATS[format_name](normalised(inputs, known))
    size = len(text.encode("utf-8"))
    if limit and size > limit:
        raise InputError(
            "the user data is %d bytes, %d more than the %d allowed; bake what is large (CAs, archives, "
            "configuration) into the image, or serve it and give its URL" % (size, size - limit, limit)
        )
    return text
