# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the fleet modules have in common: options, access to the Cloud API, the shape of their results."""

from __future__ import annotations

import os
import re
import signal
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import missing_required_lib
from ansible.module_utils.common.parameters import remove_values

from .._common.wording import in_variables
from . import cloud_client
from .errors import ApiError, FleetError, MachineError, NoAnswer
from .fleet import News

_TOKEN = re.compile(r"^[\x21-\x7e]+\Z")


def api_options():
    """The argument spec of the documentation fragment ``hcloud``."""
    return {
        "api_token": {"type": "str", "no_log": True},
        "api_endpoint": {"type": "str"},
        "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    }


def progress_options():
    """The argument spec of the documentation fragment ``progress``; ``progress`` is for the action plugin."""
    return {
        "progress": {"type": "str", "choices": ["fleet", "lines", "none"]},
        "progress_file": {"type": "path"},
    }


def access(params, environment=None):
    """Token and endpoint from the parameters or the environment; raises FleetError for what cannot work."""
    environment = os.environ if environment is None else environment
    token = (params.get("api_token") or environment.get("HCLOUD_TOKEN") or "").strip()
    endpoint = params.get("api_endpoint") or environment.get("HCLOUD_ENDPOINT") or cloud_client.DEFAULT_ENDPOINT
    if not token:
        raise FleetError("api_token: missing; set the option or the environment variable HCLOUD_TOKEN")
    if not _TOKEN.match(token):
        raise FleetError("api_token: contains blanks or characters that no token has; copy it again")
    if not is_endpoint(endpoint):
        raise FleetError(
            "api_endpoint: '%s' is no address of an API; use something like %s"
            % (endpoint, cloud_client.DEFAULT_ENDPOINT)
        )
    return token, endpoint


def is_endpoint(endpoint):
    """Whether it is the URL of a web service."""
    try:
        address = urlsplit(endpoint)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        # no address in the brackets, no port
        return False


def open_cloud(module):
    """The Cloud API with the credentials of the module's parameters or of the environment; raises FleetError."""
    if cloud_client.HCLOUD_IMPORT_ERROR is not None:
        module.fail_json(msg=missing_required_lib("hcloud"), exception=cloud_client.HCLOUD_IMPORT_ERROR)
    token, endpoint = access(module.params)
    # Ansible masks the values of options; this one may come from the environment.
    module.no_log_values.add(token)
    return cloud_client.Api(token, endpoint)


def run_fleet(module, make_fleet, open_api=open_cloud, items="machines"):
    """Open the API, make the fleet, run it, and end the module with its results, which stand under ``items``."""
    # The action plugin starts the module in a thread that hears no signals, and what is blocked is inherited.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    api: Any = None
    variables = module.params.get("variables")
    try:
        api = open_api(module)
        if module.params.get("progress_file"):
            api.news = News(module.params["progress_file"], api, lambda text: remove_values(text, module.no_log_values))
        results = make_fleet(api).run()
    except (FleetError, MachineError, ApiError, NoAnswer) as error:
        # Errors of one machine's requests end in its result. What comes here is of a request for all of them.
        text = str(error) if isinstance(error, FleetError) else "a request for all %s failed: %s" % (items, error)
        module.fail_json(
            msg=in_variables(text, variables), api_calls=api.calls if api is not None else 0, **{items: []}
        )
    for result in results:
        if result["failed"]:
            result["msg"] = in_variables(result["msg"], variables)
        if "warning" in result:
            module.warn("%s: %s" % (result["name"], result.pop("warning")))
    outcome = summary(results, items)
    outcome["api_calls"] = api.calls
    budget = getattr(api, "budget", None)
    if budget is not None and budget.known:
        left = max(0, int(budget.remaining()))
        outcome["api_budget"] = {"api": "hcloud", "limit": budget.limit, "remaining": left}
    failed = [result for result in results if result["failed"]]
    if failed and module.params["on_error"] == "fail":
        module.fail_json(
            msg="%d of %d %s failed: %s"
            % (len(failed), len(results), items, "; ".join("%(name)s: %(msg)s" % result for result in failed)),
            **outcome,
        )
    module.exit_json(**outcome)


def summary(results, items="machines"):
    """The module's result: what became of each, whether anything changed, and all differences."""
    diffs = [result.pop("diff") for result in results if "diff" in result]
    return {items: results, "changed": any(result["changed"] for result in results), "diff": diffs}
