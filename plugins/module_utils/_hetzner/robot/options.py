# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the fleet modules of Robot have in common: options and access."""

from __future__ import annotations

import ipaddress
import os
import re
import time
from urllib.parse import urlsplit

from ansible.module_utils.basic import missing_required_lib

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import FleetError
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.options import is_endpoint
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot import client, ladder
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot.limits import (
    HOURLY,
    RESET,
    Limits,
    ResetLog,
)

_WORD = re.compile(r"^[^\x00-\x1f\x7f]+\Z")


def robot_options():
    """The argument spec of the documentation fragment ``robot``."""
    return {
        "robot_user": {"type": "str"},
        "robot_password": {"type": "str", "no_log": True},
        "endpoint": {"type": "str"},
        "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    }


def access(params, environment=None):
    """User, password and endpoint from the parameters or the environment; raises FleetError for what cannot work."""
    environment = os.environ if environment is None else environment
    user = (params.get("robot_user") or environment.get("HROBOT_API_USER") or "").strip()
    password = params.get("robot_password") or environment.get("HROBOT_API_PASSWORD") or ""
    endpoint = params.get("endpoint") or environment.get("HROBOT_ENDPOINT") or client.DEFAULT_ENDPOINT
    for field, variable, value in (
        ("robot_user", "HROBOT_API_USER", user),
        ("robot_password", "HROBOT_API_PASSWORD", password),
    ):
        if not value:
            raise FleetError("%s: missing; set the option or the environment variable %s" % (field, variable))
        if not _WORD.match(value):
            raise FleetError("%s: contains line breaks or characters that no credentials have; copy it again" % field)
    if ":" in user:
        raise FleetError("robot_user: contains a colon, which no webservice user has; copy it again")
    _check_endpoint(endpoint)
    return user, password, endpoint


def time_limits(params):
    """Seconds for each way of the ladder, from the options of robot_rescue; raises FleetError for no length at all."""
    for option, least in (
        ("ssh_timeout", 1),
        ("sw_timeout", 1),
        ("hw_timeout", 1),
        ("power_timeout", 1),
        ("timeout", 1),
        ("look_timeout", 0),
        ("give_back_after", 0),
        ("max_resets", 0),
    ):
        if params[option] < least:
            raise FleetError("%s: %d is too little; use at least %d" % (option, params[option], least))
    return {
        ladder.SSH: params["ssh_timeout"],
        ladder.SW: params["sw_timeout"],
        ladder.HW: params["hw_timeout"],
        ladder.POWER: params["power_timeout"],
        ladder.WOL: params["power_timeout"],
    }


def open_robot(resets=HOURLY[RESET], pace=False):
    """How run_fleet opens the Robot webservice."""

    def open_api(module):
        if client.REQUESTS_IMPORT_ERROR is not None:
            module.fail_json(msg=missing_required_lib("requests"), exception=client.REQUESTS_IMPORT_ERROR)
        user, password, endpoint = access(module.params)
        # Ansible masks the values of options; this one may come from the environment.
        module.no_log_values.add(password)
        limits = Limits(time.monotonic, resets=resets)
        if module.params.get("intents_dir"):
            limits.keep(ResetLog(module.params["intents_dir"], "%s@%s" % (user, endpoint)))
        return client.Robot(user, password, endpoint, limits=limits, patient=pace)

    return open_api


def _check_endpoint(endpoint):
    address = urlsplit(endpoint) if is_endpoint(endpoint) else None
    if address is None or address.username or address.query:
        raise FleetError(
            "endpoint: not the address of a webservice, or with a user in it; use something like %s"
            % client.DEFAULT_ENDPOINT
        )
    if address.scheme == "http" and not _is_loopback(address.hostname):
        raise FleetError("endpoint: http would send the password readable for everybody in between; use https")


def _is_loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
