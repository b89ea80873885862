# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that speaks the Hetzner Cloud API for a fleet."""

from __future__ import annotations


class ModuleDocFragment:
    """Access to the API, and what happens when one machine of many fails."""

    DOCUMENTATION = r"""
options:
  api_token:
    description:
      - Token of the Hetzner Cloud project. It needs read and write permission.
      - If the option is not set, the environment variable E(HCLOUD_TOKEN) is used.
    type: str
  api_endpoint:
    description:
      - Base address of the Hetzner Cloud API, including the version.
      - If the option is not set, the environment variable E(HCLOUD_ENDPOINT) is used, and without that one
        V(https://api.hetzner.cloud/v1).
    type: str
  on_error:
    description:
      - What the task does when single machines fail. The result of every machine is returned in any case.
      - V(fail) fails the task after all machines are done.
      - V(report) only marks what failed by C(failed) in its result.
      - Errors that concern the whole fleet (credentials, impossible input, a budget that cannot suffice) always fail
        the task, and they do so before anything is changed.
    type: str
    choices:
      - fail
      - report
    default: fail

requirements:
  - hcloud >= 2.0.0 (Python library, on the controller)
  - requests

notes:
  - The module runs on the controller and handles the whole fleet in one process. Use it with C(delegate_to=localhost)
    and C(run_once=true), or in a play on V(localhost).
  - The rate limit of the project (usually 3600 requests per hour) is read from every answer. Requests are paced when
    it runs short, and refused before the first change when it cannot suffice.

seealso:
  - name: Hetzner Cloud API
    description: Complete reference of the Hetzner Cloud API.
    link: https://docs.hetzner.cloud
"""
