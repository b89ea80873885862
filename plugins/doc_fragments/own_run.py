# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """For modules that end with the run they belong to."""

    DOCUMENTATION = r"""
options:
  run_socket:
    description:
      - Name of an abstract Unix socket (Linux) on which the run of Ansible listens. The module sends no further request
        and ends when it is closed, since its run was killed and the next one may be at work.
      - By default, a task that runs on the controller itself has one of its own, also when it becomes another user. One
        that is asynchronous or runs on another host has none, and goes on to its end when its run is killed.
    type: str
"""
