# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """For modules that take a fleet through a provider's API."""

    DOCUMENTATION = r"""
options:
  progress:
    description:
      - What is shown while the task runs. By default V(fleet) from four machines on, else V(lines).
      - Nothing is shown when the task does not run on the controller itself, becomes another user, is asynchronous or
        has C(no_log).
    type: str
    choices:
      fleet: On a terminal one table of the machines, elsewhere a line each 15 seconds that sums the fleet up.
      lines: A line for each step of each machine.
      none: Failures only.
  progress_file:
    description:
      - File on the host the module runs on, to which a line of JSON is appended for each change of a machine. It is
        made when it is not there.
      - A line has C(machine), C(state) (its boot state, perhaps empty), C(text), C(ended) and C(failed), and
        C(requests) with the requests C(made) by the module, the C(limit) of the account and what is C(remaining) of it,
        both V(null) where they are not known.
      - By default, the task uses a file of its own for what it shows. With this option, nothing is shown.
    type: path
"""
