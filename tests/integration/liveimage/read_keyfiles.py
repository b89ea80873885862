# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keyfiles read by NetworkManager's library; run by the system's Python, which has its bindings.

Takes ``{name: text}`` as JSON, gives for each ``settings`` (what NetworkManager understood), ``warnings`` of its reader
and ``unknown`` keys, or ``error`` when it refuses the profile.
"""

import json
import re
import sys
from typing import Any

import gi

gi.require_version("NM", "1.0")
from gi.repository import NM, GLib  # noqa: E402

_ALIASES = {"ethernet": "802-3-ethernet"}
_NUMBERED = {  # keys that are one of a list, and the property they fill
    r"address\d+$": "addresses",
    r"route\d+(_options)?$": "routes",
    r"routing-rule\d+$": "routes",
    r"vf\.\d+$": "vfs",
}


def understood(text: str) -> dict[str, Any]:
    """One keyfile, read, completed and checked as NetworkManager does when it starts."""
    keyfile = GLib.KeyFile()
    keyfile.load_from_data(text, len(text.encode()), GLib.KeyFileFlags.NONE)
    warnings: list[str] = []

    def handle(_file: Any, _connection: Any, kind: Any, data: Any, _user: Any) -> bool:
        if kind == NM.KeyfileHandlerType.WARN:
            warnings.append(data.warn_get()[0])
        return False

    folder = "/etc/NetworkManager/system-connections"
    profile = NM.keyfile_read(keyfile, folder, NM.KeyfileHandlerFlags.NONE, handle, None)
    profile.normalize()
    profile.verify()
    plain = profile.to_dbus(NM.ConnectionSerializationFlags.ALL).unpack()
    return {"warnings": warnings, "settings": plain, "unknown": unknown(keyfile, profile, plain)}


def unknown(keyfile: Any, profile: Any, plain: Any) -> list[str]:
    """Keys that are no property of their setting; the reader passes over them without a word."""
    found = []
    for section in keyfile.get_groups()[0]:
        setting = profile.get_setting_by_name(_ALIASES.get(section, section))
        for key in keyfile.get_keys(section)[0]:
            name = next((name for pattern, name in _NUMBERED.items() if re.match(pattern, key)), key)
            if section == "bond":
                known = NM.SettingBond.validate_option(key, None)
            elif section == "ethtool":
                known = NM.ethtool_optname_is_feature(key) or key in plain["ethtool"]
            elif section.startswith("ovs-") and key.startswith("data."):
                known = setting is not None and setting.get_data(key[len("data.") :]) is not None
            elif section == "user":
                known = setting.get_data(key) is not None
            else:
                known = setting is not None and setting.find_property(name) is not None
            if not known:
                found.append(f"{section}.{key}")
    return found


def main() -> None:
    """All of them; one that is refused has its reason instead."""
    answers = {}
    for name, text in json.load(sys.stdin).items():
        try:
            answers[name] = understood(text)
        except GLib.Error as error:
            answers[name] = {"error": error.message}
    json.dump(answers, sys.stdout)


main()
