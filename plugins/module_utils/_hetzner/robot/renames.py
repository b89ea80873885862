# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Facts and names of the servers of an account (what the module robot_server does)."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.deadline import Deadline
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import (
    ApiError,
    FleetError,
    MachineError,
    NoAnswer,
    Refused,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet import MachineRun, run_all
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.inputs import name_findings, refuse_findings
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot import directory
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot.client import part

_NAME = re.compile(r"^[\x21-\x7e]([\x20-\x7e]{0,98}[\x21-\x7e])?\Z")


class RobotServerFleet:
    """One call of robot_server."""

    def __init__(self, api, machines, timeout, check_mode):
        self._api = api
        self._given = machines
        self._timeout = timeout
        self._check = check_mode

    def run(self):
        """Returns the results of all machines, in the order given; raises FleetError."""
        wanted = self._check_input()
        servers = directory.read_servers(self._api, Deadline(self._timeout, "the list of servers"))
        runs = []
        found: dict[str, dict[str, Any]] = {}
        for machine in self._given:
            run = self._run_of(machine)
            runs.append(run)
            try:
                server = directory.find(machine, servers)
            except Refused as error:
                run.fail(error)
                continue
            if server["server_number"] in [other["server_number"] for other in found.values()]:
                raise FleetError(
                    "nothing was changed, because of: two machines are server %d" % server["server_number"]
                )
            found[run.name] = server
            run.result.update(directory.facts(server), status=server.get("status"), cancelled=server.get("cancelled"))
        active = [run for run in runs if run.name in found]
        run_all(self._api, active, lambda run: self._name(run, wanted.get(run.name)))
        return [run.finish(self._api.calls_of.get(run.name, 0)) for run in runs]

    def _check_input(self):
        findings = name_findings(self._given) + directory.input_findings(self._given)
        wanted: dict[str, str] = {}
        owners: dict[str, str] = {}
        for machine in self._given:
            name, new = machine.get("name"), machine.get("rename")
            if new is None:
                continue
            if not isinstance(new, str) or not _NAME.match(new):
                findings.append(
                    "machine '%s': rename: %r is no name for a server; use 1 to 100 printable characters" % (name, new)
                )
            elif owners.setdefault(new, name) != name:
                findings.append("machines '%s' and '%s' cannot both be named '%s'" % (owners[new], name, new))
            wanted[name] = new
        refuse_findings(findings)
        return wanted

    def _run_of(self, machine):
        run = MachineRun.going_on(machine)
        run.result.update(server_number=None, server_name=None, ipv4=None, ipv6=None, ipv6_address=None, product=None)
        run.result.update(status=None, cancelled=None)
        return run

    def _name(self, run, wanted):
        present, number = run.result["server_name"], run.result["server_number"]
        if wanted is None or wanted == present:
            return
        run.result.update(
            changed=True,
            msg="would be renamed from '%s' to '%s'" % (present, wanted),
            diff={
                "before_header": run.name,
                "after_header": run.name,
                "before": {"server_name": present},
                "after": {"server_name": wanted},
            },
        )
        if self._check:
            return
        deadline, path = Deadline(self._timeout, "the new name"), "/server/%d" % number

        def look():
            answer = self._api.read(path, deadline, machine=run.name)
            return answer if (part(answer, "server") or {}).get("server_name") == wanted else None

        try:
            self._api.change("POST", path, deadline, look, machine=run.name, data={"server_name": wanted})
        except (MachineError, ApiError, NoAnswer) as error:
            # Its name says nothing of what runs on it: the boot state stays.
            run.result["changed"] = False
            run.fail(error, provisioning=False)
            return
        run.result.update(server_name=wanted, msg="renamed from '%s' to '%s'" % (present, wanted))
