# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules that do something in a rescue, by which the server is known."""

from __future__ import annotations


class ModuleDocFragment:
    """Whose rescue it must be."""

    DOCUMENTATION = r"""
options:
  addresses:
    description:
      - Public addresses of the machine's server, IPv4 addresses or IPv6 networks. A rescue that has none of them is
        another server's, and nothing is done there.
      - By default, the addresses of the rescue are not checked.
    type: list
    elements: str
"""
