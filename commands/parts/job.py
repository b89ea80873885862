# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every command is asked for: a machine, its bootstrap data and its root device."""

from __future__ import annotations

import re
from pathlib import Path

from commands.parts.authorized_keys import authorized_keys
from commands.parts.bootstrap import Bootstrap
from commands.parts.disk import Disk
from commands.parts.errors import Refused


class Job:
    """The checked arguments of a command, the image URL aside."""

    def __init__(self, bootstrap_file: str, machine: str, devices: str, with_keys: bool):
        try:
            data = Path(bootstrap_file).read_bytes()
        except OSError as error:
            raise Refused("bootstrap data: %s: %s" % (bootstrap_file, error.strerror)) from None
        keys = Path(bootstrap_file).with_name(".ssh") / "authorized_keys"
        self.bootstrap = Bootstrap(data, authorized_keys(keys) if with_keys else [])
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", machine):
            raise Refused("machine name: %r is not a host name" % machine)
        self.machine = machine
        names = devices.split()
        if len(names) != 1:
            raise Refused("root devices: %r are %d devices; an image needs exactly one" % (devices, len(names)))
        self.disk = Disk(names[0])
