# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short makers of settings, so that a step reads as what it sets."""

from __future__ import annotations

UNIT_DIR = "/etc/systemd/system"
HEADER = "# Written by kubenode.provision (base); changes are overwritten.\n"


class Setting(dict):
    """A setting as node_settings takes it. ``hidden`` is the content of a secret file, which travels apart from it."""

    hidden = None


def setting(kind, identity, **fields):
    """One setting; ``identity`` is step/name, the step comes from it. Fields that are None are left out."""
    result = Setting(id=identity, step=identity.partition("/")[0], kind=kind)
    result.update((name, value) for name, value in fields.items() if value is not None)
    return result


def file(identity, path, content, mode="0644", secret=False, validate=None):
    """A whole file."""
    result = setting("file", identity, path=path, mode=mode, validate=validate)
    if secret:
        result.update(secret=True, content_secret=identity)
        result.hidden = content
    else:
        result["content"] = content
    return result


def directory(identity, path, mode="0755"):
    """A folder."""
    return setting("directory", identity, path=path, mode=mode)


def link(identity, path, target):
    """A symbolic link."""
    return setting("link", identity, path=path, target=target)


def absent(identity, path):
    """A file that must not be there."""
    return setting("absent", identity, path=path)


def unit(identity, name, **fields):
    """A systemd unit."""
    return setting("unit", identity, name=name, **fields)


def handler(identity, argv, on):
    """A command that runs once when one of the named settings changed."""
    return setting("handler", identity, argv=argv, on=on)


def drop_in(identity, unit_name, name, text, secret=False):
    """A drop-in of a unit."""
    path = "%s/%s.d/%s" % (UNIT_DIR, unit_name, name)
    return file(identity, path, HEADER + text, "0600" if secret else "0644", secret)
