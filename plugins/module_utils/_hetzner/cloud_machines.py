# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Create, adopt and delete the servers of a fleet (what the module hcloud_machine does)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._common import boot_states, installed
from .._common import consent as consents
from .._common.text import counted, listed
from . import catalog as catalogs
from . import cloud_networks
from .action_board import ActionBoard
from .api_failures import ApiError, Deadline, FleetError, MachineError, Refused, Tries
from .api_types import Action, Attachment, Machine, Resolved, Server
from .catalog import Catalog, Unfit
from .cloud_client import CONCURRENCY, Api
from .cloud_orders import (
    NO_ROOM,
    PLACEHOLDER,
    Room,
    create_body,
    instead,
    labelled,
    members_of,
    out_of_room,
    read_user_data,
    resolve,
    spread,
    wanted_labels,
    words,
)
from .cloud_servers import Servers, addresses, addresses_of, brief, never_started, ssh_address
from .fleet_run import MachineRun, difference, name_findings, noted, refuse_findings, run_all
from .labels import ADOPTED_LABEL, INSTALLATION_LABEL, LABEL, installation_of, is_adopted, is_ours, machine_findings
from .login_keys import known_key, public_half

#: Statuses of a server whose power button need not be pressed.
GOING = frozenset(["running", "starting", "rebuilding", "migrating"])

CREATE, KEEP, RELABEL, ADOPT, DELETE, REFUSE = "create", "keep", "relabel", "adopt", "delete", "refuse"


def decide(
    state: str,
    server: Server | None,
    labels: Mapping[str, str | None],
    adopt: bool,
    delete: bool | None = None,
    renamed: bool = False,
) -> str:
    """What to do about one machine (pure): ``server`` is the API's object or None, ``labels`` the wanted ones.

    ``adopt`` permits to take a server over, never to delete it; ``delete`` says whether this installation of the
    machine may go, also when it was adopted, and is None for a machine that is not named. ``renamed``: its server
    has another name now.
    """
    if server is None and renamed:
        return REFUSE
    if server is None:
        return KEEP if state == "absent" else CREATE
    if state == "absent":
        may_go = not is_adopted(server) if delete is None else delete
        return DELETE if is_ours(server) and may_go and not _is_protected(server) else REFUSE
    if not is_ours(server) and not adopt:
        return REFUSE
    if server.get("status") == "deleting":
        return REFUSE
    if not is_ours(server):
        return ADOPT
    present = server.get("labels") or {}
    return KEEP if labelled(present, labels) == present else RELABEL


def _is_protected(server: Server) -> bool:
    """Whether the API would refuse to delete it."""
    return bool((server.get("protection") or {}).get("delete"))


class MachineFleet:
    """One call of hcloud_machine: look, refuse what cannot work, then change all machines at once."""

    def __init__(
        self,
        api: Api,
        machines: Sequence[Machine],
        state: str = "present",
        wait: bool = True,
        timeout: float = 360,
        check_mode: bool = False,
        private_key: str | None = None,
        delete: Any = (),
    ) -> None:
        self._api = api
        self._servers = Servers(api)
        self._board = ActionBoard(api)
        # Copies: what is read from files must not be shown with the options of the task.
        self._given = [machine.copy() for machine in machines]
        self._machines = {machine.get("name", ""): machine for machine in self._given}
        self._state = state
        self._wait = wait
        self._timeout = timeout
        self._check = check_mode
        self._private_key = private_key
        self._deletable = consents.Words("delete", delete)
        self._resolved: dict[str, Resolved] = {}
        self._found: dict[str, Server] = {}
        #: By the names of machines, the servers of another name that have their label.
        self._renamed: dict[str, list[Server]] = {}
        #: Of machines that would be deleted, by name: primary IPs of people that would go with them.
        self._lost: dict[str, list[Mapping[str, Any]]] = {}
        self._room = Room(CONCURRENCY)
        #: What changes a server that exists.
        self._changes = {RELABEL: self._relabel, ADOPT: self._adopt, DELETE: self._delete}

    def run(self) -> list[dict[str, Any]]:
        """Returns the results of all machines, in the order given; raises FleetError."""
        refuse_findings(name_findings(self._given) + self._delete_findings())
        if not self._given:
            return []
        self._look()
        runs = [MachineRun(machine["name"]) for machine in self._given]
        run_all(self._api, runs, self._bring_about)
        return [run.finish(self._api.calls_of.get(run.name, 0)) for run in runs]

    def _delete_findings(self) -> list[str]:
        strange = [name for name in self._deletable if name not in self._machines]
        return self._deletable.findings + [
            f"delete: '{name}' is none of the machines; correct the name, or name it there too" for name in strange
        ]

    def _look(self) -> None:
        """Read what there is, and check every input of every machine; nothing is changed."""
        deadline = Deadline(self._timeout, "the check of the input")
        self._found = self._servers.find(list(self._machines), deadline)
        missing = [name for name in self._machines if name not in self._found]
        self._renamed = self._servers.renamed(missing, deadline)
        if self._state == "absent":
            self._look_at_addresses(Catalog(self._api, deadline))
        steps = [self._step(machine) for machine in self._given]
        if self._state != "absent":
            self._check_input(Catalog(self._api, deadline))
        changes = sum(1 for step in steps if step not in (KEEP, REFUSE))
        changes += len(steps) if self._state == "started" else 0
        changes += 2 * sum(len(one["networks"]) for one in self._resolved.values())
        self._check_budget(changes, steps.count(CREATE))

    def _look_at_addresses(self, catalog: Catalog) -> None:
        """Find the primary IPs that must not go unsaid with the servers that would be deleted."""
        for machine in self._given:
            server = self._found.get(machine["name"])
            if server is not None and self._step(machine) == DELETE and any(addresses(server)):
                items = catalog.listed("primary_ips")
                self._lost[machine["name"]] = cloud_networks.kept_by_people(machine, server, items)

    def _check_input(self, catalog: Catalog) -> None:
        findings, public_key = [], None
        if self._private_key:
            try:
                public_key = public_half(self._private_key)
            except Unfit as finding:
                refuse_findings([str(finding)])
        for machine in self._given:
            try:
                read_user_data(machine)
                findings += [f"machine '{machine['name']}': {text}" for text in machine_findings(machine)]
                self._resolved[machine["name"]] = resolve(
                    machine,
                    catalog,
                    public_key,
                    self._private_key,
                    written=self._state != "started",
                    server=self._found.get(machine["name"]),
                )
            except Unfit as finding:
                findings.append(f"machine '{machine['name']}': {finding}")
        findings += cloud_networks.named_twice(self._resolved)
        created = {name: one["networks"] for name, one in self._resolved.items() if name not in self._found}
        if any(place["ip"] or place["alias_ips"] for places in created.values() for place in places):
            findings += cloud_networks.taken(created, catalog.listed("servers"))
        refuse_findings(findings)
        self._spread(catalog)

    def _spread(self, catalog: Catalog) -> None:
        """Let new machines of one placement group begin with different locations."""
        members: dict[int, Counter[str | None]] = {}
        for machine in self._given:
            resolved = self._resolved[machine["name"]]
            group = resolved["placement_group"]
            several = len({choice.location for choice in resolved["choices"]}) > 1
            if group is not None and several and self._step(machine) == CREATE:
                if group not in members:
                    members[group] = members_of(group, catalog.listed("servers"))
                resolved["choices"] = spread(resolved["choices"], members[group])

    def _check_budget(self, changes: int, created: int) -> None:
        """Judge what is ahead; ``created`` machines that are not waited for are armed and started next."""
        if not changes:
            return
        need, seconds, work = changes, self._timeout, f"changing {counted(changes, 'machine')}"
        if self._wait:
            need += 8 * (1 + changes // 25)
        elif created and self._state == "present":
            need += 2 * created + 8 * (1 + created // 25)
            seconds += self._timeout
            work = f"creating, arming and starting {counted(created, 'machine')}"
        plan = self._api.budget.plan(need, seconds, work)
        if not plan.possible:
            raise FleetError(f"API budget: {plan.message}")
        if not self._check:
            self._api.announce(need, work)

    def _step(self, machine: Machine) -> str:
        server = self._found.get(machine["name"])
        step = decide(
            self._state,
            server,
            wanted_labels(machine),
            bool(machine.get("adopt")),
            self._may_go(machine["name"], server),
            machine["name"] in self._renamed,
        )
        return REFUSE if step == DELETE and self._lost.get(machine["name"]) else step

    def _may_go(self, name: str, server: Server | None) -> bool | None:
        """Whether the installation of a machine that ``delete`` names may go; None for one that is not named."""
        if not self._deletable.names(name):
            return None
        return self._deletable.covers(name, {"installation": installation_of(server or {})})

    def _bring_about(self, run: MachineRun) -> None:
        machine, server = self._machines[run.name], self._found.get(run.name)
        run.result.update(self._describe(machine, server), tried=[], instead="")
        run.show()
        step = self._step(machine)
        if step == REFUSE:
            raise Refused(self._why_refused(run.name, server))
        if server is not None and self._state != "absent" and server.get("status") == "initializing":
            run.timeline.to(boot_states.INITIALIZING)
        deadline = Deadline(self._timeout, "the wanted state of the server")
        if step == KEEP:
            run.result["msg"] = self._differences(machine, server) if server else "there is no such server"
        elif server is None:
            self._create(run, machine, deadline)
        else:
            self._changes[step](run, machine, server, deadline)
        if server is not None and self._state != "absent":
            self._complete(run, machine, server, deadline)
        if self._state == "started":
            self._start(run, server, deadline)

    def _why_refused(self, name: str, server: Server | None) -> str:
        if server is None:
            return _other_name(name, self._renamed[name], self._state)
        may_go = self._may_go(name, server)
        if self._state == "absent" and is_ours(server) and may_go is False:
            return self._deletable.why_not(name, {"installation": installation_of(server)})
        if self._lost.get(name):
            return cloud_networks.keep_them(server, self._lost[name])
        return _refusal(server, self._state, bool(may_go))

    def _create(self, run: MachineRun, machine: Machine, deadline: Deadline) -> None:
        resolved = self._resolved[run.name]
        body = create_body(machine, resolved)
        # A second controller finds by it what the server was made for.
        body["labels"][INSTALLATION_LABEL] = installed.new_installation()
        after = dict(body, **resolved["choices"][0].body())
        after.update(image=machine.get("image") or PLACEHOLDER, status="off")
        if "user_data" in after:
            after["user_data"] = f"({len(after['user_data'].encode('utf-8'))} bytes, hidden)"
        with noted(run.result, created=True, fresh=True, diff=difference(run.name, {}, after)):
            if self._check:
                run.result["msg"] = "would create the server"
                return
            server, action = self._create_where_there_is_room(run, body, deadline)
        made = {"created": True, "fresh": True, "create_action": brief(action)}
        run.result.update(self._describe(machine, server), **made)  # the news of the next line say it
        run.timeline.to(boot_states.INITIALIZING)
        places = [place for place in resolved["networks"] if cloud_networks.needs_action(place)]
        reached_inside = resolved["networks"] and ssh_address(server) is None
        if action is not None and (self._wait or places or reached_inside):
            action = self._board.wait(action, deadline)
        for place in places:
            self._attach(server, place, deadline)
        if resolved["networks"] and (self._wait or places or reached_inside):
            server = self._servers.by_id(server, deadline) or server
        run.result.update(self._describe(machine, server), created=True, fresh=True, create_action=brief(action))
        for place in cloud_networks.missing(resolved["networks"], server):
            run.result["private_net"].append({"network": place["network"], "ip": None, "alias_ips": []})
        run.result["ssh_keys"] = [known_key(key) for key in resolved["ssh_keys"]]
        run.result["instead"] = instead(run.result, run.result["tried"])
        run.result["msg"] = "created, powered off"
        if run.result["instead"]:
            run.result["msg"] += f": {run.result['instead']}"
            after.update(server_type=run.result["server_type"], location=run.result["location"])
        if action is not None and action.get("status") == "success":
            run.result["status"] = "off"

    def _attach(self, server: Server, place: Attachment, deadline: Deadline) -> None:
        self._board.wait(self._servers.attach(server, place, deadline), deadline)

    def _complete(self, run: MachineRun, machine: Machine, server: Server, deadline: Deadline) -> None:
        """Attach what an interrupted run has left out of a server of ours that never started."""
        resolved = self._resolved[run.name]
        places = cloud_networks.missing(resolved["networks"], server)
        if not places:
            return
        ours = not is_adopted(server) and self._step(machine) in (KEEP, RELABEL) and server["status"] == "off"
        if not ours or not never_started(self._servers.history(server, deadline)):
            run.result["msg"] += f", without {len(places)} of the networks, which is left as it is"
            return
        for count, place in enumerate(places, start=1):
            with noted(run.result, diff=_with_after(run, networks=list(places[:count]))):
                if not self._check:
                    self._attach(server, place, deadline)
        run.result["msg"] += f", {'would attach' if self._check else 'attached'} its networks"
        if not self._check:
            run.result.update(addresses_of(self._servers.by_id(server, deadline) or server))

    def _create_where_there_is_room(
        self, run: MachineRun, body: Mapping[str, Any], deadline: Deadline
    ) -> tuple[Server, Action | None]:
        """Try one choice after the other, but none that another machine of this call had no room with."""
        choices, group = self._resolved[run.name]["choices"], self._resolved[run.name]["placement_group"]
        if len(choices) == 1:
            return self._servers.create(run.name, dict(body, **choices[0].body()), deadline)
        with Tries() as tries:
            while True:
                with self._room.turns:
                    choice, run.result["tried"] = self._room.of(choices, group)
                    if choice is None:
                        raise out_of_room(run.result["tried"])
                    try:
                        return self._servers.create(run.name, dict(body, **choice.body()), deadline)
                    except (ApiError, MachineError) as error:
                        if not error.refused:
                            tries.may_have_been_carried_out()
                        if not isinstance(error, ApiError) or error.code not in NO_ROOM:
                            raise
                        self._room.none_for(choice, group, error.code)

    def _start(self, run: MachineRun, server: Server | None, deadline: Deadline) -> None:
        """Power the server on, whether it was made just now or is off."""
        if server is not None and server["status"] in GOING:
            return
        known: Server = server or {"id": run.result["id"], "name": run.name}
        if run.result["create_action"] is not None and not self._wait:
            # Until it is created, the power button does nothing.
            run.result["create_action"] = brief(self._board.wait(run.result["create_action"], deadline))
        with noted(run.result, diff=_with_after(run, status="running")):
            if self._check:
                run.result["msg"] += ", would power on"
                return
            action = self._servers.power_on(known, deadline)
        run.timeline.to(boot_states.BOOTING_TO_REAL_OS)
        run.result.update(status="running", fresh=False, msg=f"{run.result['msg']}, powered on")
        if self._wait:
            self._board.wait(action, deadline)

    def _relabel(
        self,
        run: MachineRun,
        machine: Machine,
        server: Server,
        deadline: Deadline,
        more: Mapping[str, str] | None = None,
    ) -> None:
        before = server.get("labels") or {}
        after = dict(labelled(before, wanted_labels(machine)), **dict(more or {}))
        run.result["msg"] = "would set labels" if self._check else "labels set"
        with noted(run.result, diff=difference(run.name, {"labels": before}, {"labels": after})):
            if not self._check:
                self._servers.relabel(server, after, deadline)

    def _adopt(self, run: MachineRun, machine: Machine, server: Server, deadline: Deadline) -> None:
        self._relabel(run, machine, server, deadline, {ADOPTED_LABEL: run.name})
        run.result.update(adopted=True, msg="would adopt the server" if self._check else "adopted")

    def _delete(self, run: MachineRun, _machine: Machine, server: Server, deadline: Deadline) -> None:
        before = {"name": server["name"], "id": server["id"], "status": server["status"], "labels": server["labels"]}
        run.result["msg"] = ("would delete the server" if self._check else "deleted") + _what_stays(server)
        with noted(run.result, diff=difference(run.name, before, {})):
            if self._check:
                return
            action = self._servers.delete(server, deadline)
        if self._wait and action is not None:
            self._board.wait(action, deadline)
        run.result["status"] = "deleted" if self._wait else "deleting"

    def _describe(self, machine: Machine, server: Server | None) -> dict[str, Any]:
        """What a result says about the server, whether it exists or not."""
        known: dict[str, Any] = {
            "id": None,
            "ipv4": None,
            "ipv6": None,
            "ipv6_address": None,
            "private_net": [],
            "address": None,
            "status": None,
            "server_type": next(iter(words(machine.get("server_type"))), None),
            "location": next(iter(words(machine.get("location"))), None),
            "image": (machine.get("image") or PLACEHOLDER) if self._state != "absent" else None,
            "created": False,
            "adopted": False,
            "fresh": None,
            "create_action": None,
            "installation": "",
            "price_hourly": None,
            "price_monthly": None,
            "server_created": None,
        }
        if server is None:
            resolved = self._resolved.get(machine["name"])
            if resolved:
                first = resolved["choices"][0]
                hour, month = catalogs.prices_of(first.server_type, first.location)
                known.update(server_type=first.server_type["name"], location=first.location)
                known.update(price_hourly=hour, price_monthly=month)
            return known
        known.update(
            addresses_of(server),
            id=server["id"],
            status=server["status"],
            server_type=(server.get("server_type") or {}).get("name"),
            location=(server.get("location") or {}).get("name"),
            image=(server.get("image") or {}).get("name") or (server.get("image") or {}).get("id"),
            installation=installation_of(server),
        )
        if server["status"] in ("running", "stopping", "rebuilding"):
            known["fresh"] = False
        hour, month = catalogs.prices_of(server.get("server_type"), known["location"])
        known.update(price_hourly=hour, price_monthly=month, server_created=server.get("created"))
        return known

    def _differences(self, machine: Machine, server: Server) -> str:
        """One sentence about what an existing server has that was not asked for; it is never changed here."""
        resolved = self._resolved.get(machine["name"])
        kind, place = (server.get("server_type") or {}).get("name"), (server.get("location") or {}).get("name")
        notes, choices = [], resolved["choices"] if resolved else []
        if choices and kind not in [choice.server_type["name"] for choice in choices]:
            notes.append(f"server type {kind} instead of {_any_of(choice.server_type['name'] for choice in choices)}")
        places = [choice.location for choice in choices if choice.location]
        if places and place not in places:
            notes.append(f"location {place} instead of {_any_of(places)}")
        return "exists" + (f" with {' and '.join(notes)}, which is left as it is" if notes else "")


def _with_after(run: MachineRun, **more: Any) -> dict[str, Any]:
    """The difference that the result of a machine has, or a new one, with more in what is there afterwards."""
    known = run.result.get("diff") or difference(run.name, {}, {})
    return {**known, "after": {**known["after"], **more}}


def _what_stays(server: Server) -> str:
    """What goes on costing money without its server, as far as the API says it of a server."""
    kinds = {
        "load balancer": server.get("load_balancers"),
        "volume": server.get("volumes"),
        "floating IP": (server.get("public_net") or {}).get("floating_ips"),
    }
    left = [
        f"{noun}{'s' if len(ids) > 1 else ''} {listed([str(one) for one in sorted(ids)])}"
        for noun, ids in kinds.items()
        if ids
    ]
    return f" (what stays and costs: {'; '.join(left)})" if left else ""


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(names))


def _other_name(name: str, servers: Sequence[Server], state: str) -> str:
    """Why `decide` refuses a machine whose label is on servers of another name: renamed, or labelled by a person."""
    which = " and ".join(f"{server['name']} (id {server['id']})" for server in servers)
    if len(servers) > 1:
        ways = f"have its label; rename the one back that is {name}, and take the label {LABEL} off the others"
    else:
        why = f"where it is not {name}" if state == "absent" else "to have a new one made"
        ways = f"has its label; rename it back, or take the label {LABEL} off it, {why}"
    return f"no server is called {name}, but {which} {ways}"


def _no_label(server: Server) -> str:
    """What shows that a server is none of ours."""
    says = (server.get("labels") or {}).get(LABEL)
    if says is None:
        return f"was not made by this collection (it lacks the label {LABEL})"
    return f"is not known as ours (its label {LABEL} says '{says}'; where that is wrong, correct it)"


def _refusal(server: Server, state: str, may_go: bool) -> str:
    """Why `decide` refuses; ``may_go``: the user named this installation of the machine to be deleted."""
    which = f"server '{server['name']}' (id {server['id']})"
    if state == "absent" and is_ours(server) and is_adopted(server) and not may_go:
        return (
            f"{which} was made by others and adopted (it has the label {ADOPTED_LABEL}); to delete it with all it "
            "holds, name it in delete"
        )
    if state == "absent" and is_ours(server):
        return f"{which} is protected against deletion; take the protection off, then run again"
    if state == "absent":
        return f"{which} {_no_label(server)} and is not deleted; delete it where it was made, or adopt it first"
    if server.get("status") == "deleting":
        return f"{which} is being deleted; run again when it is gone"
    return f"{which} exists and {_no_label(server)}; rename the machine, or set adopt to true for it"
