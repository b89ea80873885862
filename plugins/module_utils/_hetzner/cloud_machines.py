# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Create, adopt and delete the servers of a fleet (what the module hcloud_machine does)."""

from __future__ import annotations

from .._common import boot_states, installed
from .._common import consent as consents
from . import catalog as shelves
from .actions import ActionBoard
from .catalog import Catalog, Unfit
from .cloud_servers import (
    ADOPTED_LABEL,
    INSTALLATION_LABEL,
    LABEL,
    Servers,
    addresses,
    brief,
    installation_of,
    is_adopted,
    is_ours,
)
from .errors import FleetError, Refused
from .fleet import MachineRun, name_findings, refuse_findings, run_all
from .labels import machine_findings
from .login_keys import known_key, public_half, resolve_keys
from .retry import Deadline

#: What the disk of a new server holds when nothing else is asked for: it is there to be overwritten.
PLACEHOLDER = "ubuntu-24.04"
#: Statuses of a server whose power button need not be pressed.
GOING = frozenset(["running", "starting", "rebuilding", "migrating"])

CREATE, KEEP, RELABEL, ADOPT, DELETE, REFUSE = "create", "keep", "relabel", "adopt", "delete", "refuse"


def decide(state, server, labels, adopt, delete=None):
    """What to do about one machine (pure): ``server`` is the API's object or None, ``labels`` the wanted ones.

    ``adopt`` permits to take a server over, never to delete it; ``delete`` says whether this installation of the
    machine may go, also when it was adopted, and is None for a machine that is not named.
    """
    if server is None:
        return KEEP if state == "absent" else CREATE
    if state == "absent":
        may_go = not is_adopted(server) if delete is None else delete
        return DELETE if is_ours(server) and may_go else REFUSE
    if not is_ours(server) and not adopt:
        return REFUSE
    if server.get("status") == "deleting":
        return REFUSE
    if not is_ours(server):
        return ADOPT
    present = server.get("labels") or {}
    return KEEP if all(present.get(key) == value for key, value in labels.items()) else RELABEL


def wanted_labels(machine):
    """The labels a machine's server must have, ours among them."""
    return dict(machine.get("labels") or {}, **{LABEL: machine["name"]})


def create_body(machine, resolved):
    """The request body that creates a machine, powered off; ``resolved`` holds what names stand for."""
    body = {
        "name": machine["name"],
        "server_type": resolved["server_type"]["name"],
        "image": resolved["image"]["id"],
        "ssh_keys": [key["id"] for key in resolved["ssh_keys"]],
        "labels": wanted_labels(machine),
        "start_after_create": False,
        "public_net": {
            "enable_ipv4": machine.get("enable_ipv4", True),
            "enable_ipv6": machine.get("enable_ipv6", True),
        },
    }
    optional = {
        "location": resolved["location"],
        "networks": resolved["networks"],
        "firewalls": [{"firewall": firewall} for firewall in resolved["firewalls"]],
        "placement_group": resolved["placement_group"],
        "user_data": machine.get("user_data"),
    }
    body.update({key: value for key, value in optional.items() if value})
    return body


def resolve(machine, catalog, public_key=None, private_key_path=None):
    """Everything a machine names, looked up in the project; raises Unfit for what cannot work."""
    if not machine.get("server_type"):
        raise Unfit("server_type: missing; name one, for example cx23")
    types = catalog.server_types()
    server_type = shelves.pick_server_type(machine["server_type"], types)
    if machine.get("architecture") not in (None, server_type["architecture"]):
        raise Unfit(
            "architecture: %s is wanted, but server type '%s' is %s; choose another type"
            % (machine["architecture"], server_type["name"], server_type["architecture"])
        )
    image = machine.get("image") or PLACEHOLDER
    # The placeholder is Hetzner's own image, whatever snapshots of the project are called.
    candidates = catalog.image_candidates(image, labelled=bool(machine.get("image")))
    group = machine.get("placement_group")
    return {
        "server_type": server_type,
        "location": shelves.check_location(machine.get("location"), server_type, types),
        "image": shelves.pick_image(image, candidates, server_type, bool(machine.get("image_newest"))),
        "ssh_keys": resolve_keys("ssh_keys", machine.get("ssh_keys"), catalog.ssh_keys(), public_key, private_key_path),
        "networks": [catalog.resolve("networks", name, "networks") for name in machine.get("networks") or []],
        "firewalls": [catalog.resolve("firewalls", name, "firewalls") for name in machine.get("firewalls") or []],
        "placement_group": catalog.resolve("placement_group", group, "placement_groups") if group else None,
    }


class MachineFleet:
    """One call of hcloud_machine: look, refuse what cannot work, then change all machines at once."""

    def __init__(
        self, api, machines, state="present", wait=True, timeout=360, check_mode=False, private_key=None, delete=()
    ):
        self._api = api
        self._servers = Servers(api)
        self._board = ActionBoard(api)
        self._machines = {machine.get("name"): machine for machine in machines}
        self._given = machines
        self._state = state
        self._wait = wait
        self._timeout = timeout
        self._check = check_mode
        self._private_key = private_key
        self._deletable = consents.Words("delete", delete)
        self._resolved = {}
        self._found = {}
        self._steps = {CREATE: self._create, RELABEL: self._relabel, ADOPT: self._adopt, DELETE: self._delete}

    def run(self):
        """Returns the results of all machines, in the order given; raises FleetError."""
        refuse_findings(name_findings(self._given) + self._delete_findings())
        if not self._given:
            return []
        self._look()
        runs = [MachineRun(machine["name"]) for machine in self._given]
        run_all(self._api, runs, self._bring_about)
        return [run.finish(self._api.calls_of.get(run.name, 0)) for run in runs]

    def _delete_findings(self):
        strange = [name for name in self._deletable if name not in self._machines]
        return self._deletable.findings + [
            "delete: '%s' is none of the machines; correct the name, or name it there too" % name for name in strange
        ]

    def _look(self):
        """Read what there is, and check every input of every machine; nothing is changed."""
        deadline = Deadline(self._timeout, "the check of the input")
        self._found = self._servers.find(list(self._machines), deadline)
        steps = [self._step(machine) for machine in self._given]
        if self._state != "absent":
            self._check_input(Catalog(self._api, deadline))
        changes = sum(1 for step in steps if step not in (KEEP, REFUSE))
        changes += len(steps) if self._state == "started" else 0
        self._check_budget(changes, steps.count(CREATE))

    def _check_input(self, catalog):
        findings, public_key = [], None
        if self._private_key:
            try:
                public_key = public_half(self._private_key)
            except Unfit as finding:
                refuse_findings([str(finding)])
        for machine in self._given:
            findings += ["machine '%s': %s" % (machine["name"], text) for text in machine_findings(machine)]
            try:
                self._resolved[machine["name"]] = resolve(machine, catalog, public_key, self._private_key)
            except Unfit as finding:
                findings.append("machine '%s': %s" % (machine["name"], finding))
        refuse_findings(findings)

    def _check_budget(self, changes, created):
        """Judge what is ahead; ``created`` machines that are not waited for are armed and started next."""
        if not changes:
            return
        need, seconds, work = changes, self._timeout, "changing %d machines" % changes
        if self._wait:
            need += 8 * (1 + changes // 25)
        elif created and self._state == "present":
            need += 2 * created + 8 * (1 + created // 25)
            seconds += self._timeout
            work = "creating, arming and starting %d machines" % created
        plan = self._api.budget.plan(need, seconds, work)
        if not plan.possible:
            raise FleetError("API budget: %s" % plan.message)

    def _step(self, machine):
        server = self._found.get(machine["name"])
        return decide(
            self._state,
            server,
            wanted_labels(machine),
            bool(machine.get("adopt")),
            self._may_go(machine["name"], server),
        )

    def _may_go(self, name, server):
        """Whether the installation of a machine that ``delete`` names may go; None for one that is not named."""
        if not self._deletable.names(name):
            return None
        return self._deletable.covers(name, {"installation": installation_of(server or {})})

    def _bring_about(self, run):
        machine, server = self._machines[run.name], self._found.get(run.name)
        run.result.update(self._describe(machine, server))
        step = self._step(machine)
        if step == REFUSE:
            unlike = self._state == "absent" and is_ours(server) and self._may_go(run.name, server) is False
            if unlike:
                raise Refused(self._deletable.why_not(run.name, {"installation": installation_of(server)}))
            raise Refused(_refusal(server, self._state))
        if server is not None and self._state != "absent" and server.get("status") in ("off", "initializing"):
            run.timeline.to(boot_states.INITIALIZING)
        deadline = Deadline(self._timeout, "the wanted state of the server")
        if step == KEEP:
            run.result["msg"] = self._differences(machine, server) if server else "there is no such server"
        else:
            self._steps[step](run, machine, server, deadline)
        if self._state == "started":
            self._start(run, server, deadline)

    def _create(self, run, machine, _server, deadline):
        resolved = self._resolved[run.name]
        body = create_body(machine, resolved)
        # A second controller finds by it what the server was made for.
        body["labels"][INSTALLATION_LABEL] = installed.new_installation()
        after = dict(body, image=machine.get("image") or PLACEHOLDER, status="off")
        if "user_data" in after:
            after["user_data"] = "(%d bytes, hidden)" % len(after["user_data"].encode("utf-8"))
        run.result.update(changed=True, created=True, fresh=True, diff=_diff(run.name, {}, after))
        if self._check:
            run.result["msg"] = "would create the server"
            return
        server, action = self._servers.create(run.name, body, deadline)
        run.timeline.to(boot_states.INITIALIZING)
        run.result.update(self._describe(machine, server), created=True, fresh=True, create_action=brief(action))
        run.result["ssh_keys"] = [known_key(key) for key in resolved["ssh_keys"]]
        run.result["msg"] = "created, powered off"
        if self._wait and action is not None:
            run.result["create_action"] = brief(self._board.wait(action, deadline))
            run.result["status"] = "off"

    def _start(self, run, server, deadline):
        """Power the server on, whether it was made just now or is off."""
        if server is not None and server["status"] in GOING:
            return
        run.result.setdefault("diff", _diff(run.name, {}, {}))["after"]["status"] = "running"
        run.result["changed"] = True
        if self._check:
            run.result["msg"] += ", would power on"
            return
        known = server or {"id": run.result["id"], "name": run.name}
        if run.result["create_action"] is not None and not self._wait:
            # Until it is created, the power button does nothing.
            run.result["create_action"] = brief(self._board.wait(run.result["create_action"], deadline))
        action = self._servers.power_on(known, deadline)
        run.timeline.to(boot_states.BOOTING_TO_REAL_OS)
        run.result.update(status="running", fresh=False, msg="%s, powered on" % run.result["msg"])
        if self._wait:
            self._board.wait(action, deadline)

    def _relabel(self, run, machine, server, deadline, more=()):
        before = server.get("labels") or {}
        after = dict(before, **dict(wanted_labels(machine), **dict(more)))
        run.result.update(changed=True, diff=_diff(run.name, {"labels": before}, {"labels": after}))
        run.result["msg"] = "would set labels" if self._check else "labels set"
        if not self._check:
            self._servers.relabel(server, after, deadline)

    def _adopt(self, run, machine, server, deadline):
        self._relabel(run, machine, server, deadline, {ADOPTED_LABEL: run.name})
        run.result.update(adopted=True, msg="would adopt the server" if self._check else "adopted")

    def _delete(self, run, _machine, server, deadline):
        before = {"name": server["name"], "id": server["id"], "status": server["status"], "labels": server["labels"]}
        run.result.update(changed=True, diff=_diff(run.name, before, {}))
        run.result["msg"] = "would delete the server" if self._check else "deleted"
        if self._check:
            return
        action = self._servers.delete(server, deadline)
        if self._wait and action is not None:
            self._board.wait(action, deadline)
        run.result["status"] = "deleted" if self._wait else "deleting"

    def _describe(self, machine, server):
        """What a result says about the server, whether it exists or not."""
        known = {
            "id": None,
            "ipv4": None,
            "ipv6": None,
            "status": None,
            "server_type": machine.get("server_type"),
            "location": machine.get("location"),
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
            resolved = self._resolved.get(machine["name"]) or {}
            hour, month = shelves.prices_of(resolved.get("server_type"), resolved.get("location"))
            known.update(price_hourly=hour, price_monthly=month)
            return known
        ipv4, ipv6 = addresses(server)
        known.update(
            id=server["id"],
            ipv4=ipv4,
            ipv6=ipv6,
            status=server["status"],
            server_type=(server.get("server_type") or {}).get("name"),
            location=(server.get("location") or {}).get("name"),
            image=(server.get("image") or {}).get("name") or (server.get("image") or {}).get("id"),
            installation=installation_of(server),
        )
        if server["status"] in ("running", "stopping", "rebuilding"):
            known["fresh"] = False
        if self._state != "absent":
            hour, month = shelves.prices_of(server.get("server_type"), known["location"])
            known.update(price_hourly=hour, price_monthly=month, server_created=server.get("created"))
        return known

    def _differences(self, machine, server):
        """One sentence about what an existing server has that was not asked for; it is never changed here."""
        wanted = self._resolved.get(machine["name"]) or {}
        kind, place = (server.get("server_type") or {}).get("name"), (server.get("location") or {}).get("name")
        notes = []
        if wanted.get("server_type") and wanted["server_type"]["name"] != kind:
            notes.append("server type %s instead of %s" % (kind, wanted["server_type"]["name"]))
        if wanted.get("location") and wanted["location"] != place:
            notes.append("location %s instead of %s" % (place, wanted["location"]))
        return "exists" + (" with %s, which is left as it is" % " and ".join(notes) if notes else "")


def _refusal(server, state):
    which = "server '%s' (id %s)" % (server["name"], server["id"])
    if state == "absent" and is_ours(server):
        return (
            "%s was made by others and adopted (it has the label %s); to delete it with all it holds, name it in delete"
            % (which, ADOPTED_LABEL)
        )
    if state == "absent":
        return (
            "%s was not made by this collection (it lacks the label %s) and is not deleted; delete it where "
            "it was made, or adopt it first" % (which, LABEL)
        )
    if server.get("status") == "deleting":
        return "%s is being deleted; run again when it is gone" % which
    return (
        "%s exists and was not made by this collection (it lacks the label %s); rename the machine, "
        "or set adopt to true for it" % (which, LABEL)
    )


def _diff(name, before, after):
    return {"before_header": name, "after_header": name, "before": before, "after": after}
