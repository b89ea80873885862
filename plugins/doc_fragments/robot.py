# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that speaks the Robot webservice for a fleet."""

from __future__ import annotations


class ModuleDocFragment:
    """Access to the webservice, and what happens when one machine of many fails."""

    DOCUMENTATION = r"""
options:
  robot_user:
    description:
      - Name of the webservice user (C(#ws+…)), which is made in the settings of Robot. It is not the login of Robot.
      - If the option is not set, the environment variable E(HROBOT_API_USER) is used.
    type: str
  robot_password:
    description:
      - Password of the webservice user.
      - If the option is not set, the environment variable E(HROBOT_API_PASSWORD) is used.
    type: str
  endpoint:
    description:
      - Base address of the Robot webservice. Without TLS only on the loopback interface.
      - If the option is not set, the environment variable E(HROBOT_ENDPOINT) is used, and without that one
        V(https://robot-ws.your-server.de).
    type: str
  on_error:
    description:
      - What the task does when single machines fail. The result of every machine is returned in any case.
      - V(fail) fails the task after all machines are done.
      - V(report) only marks the machines by RV(machines[].failed).
      - Errors that concern the whole fleet (credentials, impossible input, an hourly limit that cannot suffice) always
        fail the task, and they do so before anything is changed.
    type: str
    choices:
      - fail
      - report
    default: fail

requirements:
  - requests

notes:
  - The module runs on the controller and handles the whole fleet in one process. Use it with C(delegate_to=localhost)
    and C(run_once=true), or in a play on V(localhost).
  - Robot blocks an address for 10 minutes after three failed logins. The first request is therefore made alone, and
    the first answer 401 ends everything; a fleet costs one failed login.
  - Robot limits the requests of an account within an hour. Requests are counted, and held back for 30 to 60 seconds at
    a time when Robot says that a limit is reached.

seealso:
  - name: Robot webservice
    description: Complete reference of the Robot webservice.
    link: https://robot.hetzner.com/doc/webservice/en.html
"""
