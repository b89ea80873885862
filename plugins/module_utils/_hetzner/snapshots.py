# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Make, keep, prune and find the snapshots that are node images (hcloud_node_image and hcloud_node_image_info).

A request whose answer was lost is looked up, not sent again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from . import labels
from .action_board import ActionBoard, ActionFailed
from .api_failures import ApiError, Deadline, FleetError, MachineError, NoAnswer, Refused, unless_gone
from .api_types import Action, Image, Server, WantedImage
from .catalog import Catalog, Unfit, newest_first, of_architecture
from .cloud_client import Api
from .cloud_servers import Servers, begun_after
from .fleet_run import difference, noted, refuse_findings, run_all
from .labels import IMAGE_LABEL, is_made_by_us, is_ours

#: Names one label selector may list; an address must not grow without end.
NAMES_PER_REQUEST = 20

REFUSE, SHUTDOWN, CUT = "refuse", "shutdown", "cut"


class Snapshots:
    """Reads and changes snapshots through an ``Api``; ``board`` waits for actions."""

    def __init__(self, api: Api, board: ActionBoard) -> None:
        self._api = api
        self._board = board
        self._servers = Servers(api)

    def named(self, names: Iterable[str], deadline: Deadline) -> dict[str, list[Image]]:
        """All snapshots of these names, as a dictionary of lists; one request for many names."""
        found: dict[str, list[Image]] = {name: [] for name in names}
        ordered = sorted(found)
        for start in range(0, len(ordered), NAMES_PER_REQUEST):
            selector = f"{IMAGE_LABEL} in ({','.join(ordered[start : start + NAMES_PER_REQUEST])})"
            for image in self._list(selector, deadline):
                found[image["labels"][IMAGE_LABEL]].append(image)
        return found

    def servers(self, deadline: Deadline) -> list[Server]:
        return self._api.read_all("/servers", "servers", deadline)[0]

    def create(
        self, key: str, server: Server, labels: Mapping[str, str], description: str, deadline: Deadline
    ) -> Image:
        """Make a snapshot of a server that is off, and wait for it; returns the image."""

        def look(sent_at: float | None) -> dict[str, Any] | None:
            selector = ",".join(f"{label}=={value}" for label, value in sorted(labels.items()))
            for image in newest_first(self._list(selector, deadline)):
                if (image.get("created_from") or {}).get("id") == server["id"] and begun_after(
                    image.get("created"), sent_at
                ):
                    return {"image": image, "action": self._making(image, deadline)}
            return None

        body = {"type": "snapshot", "description": description, "labels": labels}
        path = f"/servers/{server['id']:d}/actions/create_image"
        answer = self._api.change("POST", path, deadline, look, machine=key, json=body)
        image: Image = answer["image"]
        self.wait(image, answer["action"], deadline)
        return image

    def wait(self, image: Image, action: Action | None, deadline: Deadline) -> None:
        """Wait until a snapshot is made; what a failed action leaves of it is removed."""
        try:
            self._board.wait(action or self._making(image, deadline), deadline)
        except ActionFailed:
            with contextlib.suppress(ApiError, MachineError, NoAnswer):
                self.delete(image, deadline)
            raise

    def delete(self, image: Image, deadline: Deadline) -> None:
        """Delete a snapshot; one that is gone already is fine."""

        path = f"/images/{image['id']:d}"

        def look(_sent_at: float | None) -> dict[str, Any] | None:
            return {} if unless_gone(lambda: self._api.read(path, deadline)) is None else None

        unless_gone(lambda: self._api.change("DELETE", path, deadline, look))

    def bring_off(self, server: Server, how: str, deadline: Deadline) -> None:
        """See that the server is off; ``how`` says what may be done about a running one."""
        if server["status"] == "off":
            return
        if how == REFUSE:
            raise Refused(
                f"server '{server['name']}' is {server['status']}; a snapshot of a running disk is not consistent: "
                "power it off first, or set running to shutdown"
            )
        if not is_ours(server):
            raise Refused(
                f"server '{server['name']}' is {server['status']} and was not made by this collection, so it is "
                "not switched off; power it off first"
            )
        if server["status"] != "stopping":
            route, command = ("shutdown", "shutdown_server") if how == SHUTDOWN else ("poweroff", "stop_server")
            self._board.wait(self._servers.act(server, route, command, deadline), deadline)
        self._until_off(server, deadline)

    def _until_off(self, server: Server, deadline: Deadline) -> None:
        pause = 1.0
        while True:
            present = self._servers.by_id(server, deadline)
            if present is None:
                raise MachineError(f"server '{server['name']}' vanished before its snapshot was made")
            if present["status"] == "off":
                return
            deadline.sleep(pause, f"server '{server['name']}' is still {present['status']}")
            pause = min(5.0, pause * 1.5)

    def _making(self, image: Image, deadline: Deadline) -> Action:
        """The action that makes a snapshot."""
        path = f"/images/{image['id']:d}/actions"
        actions: list[Action]
        actions, _complete = self._api.read_all(path, "actions", deadline, params={"sort": "id:desc"})
        for action in actions:
            if action.get("command") == "create_image":
                return action
        raise MachineError(f"the API does not tell of the action that makes the snapshot {image['id']}")

    def _list(self, selector: str, deadline: Deadline) -> list[Image]:
        params = {"type": "snapshot", "label_selector": selector}
        return self._api.read_all("/images", "images", deadline, params=params)[0]


#: Seconds a server has for going off.
LONGEST_SHUTDOWN = 300


class ImageRun:
    """What happens to one wanted image: its result grows with each step."""

    def __init__(self, wanted: WantedImage) -> None:
        self.wanted = wanted
        self.name = wanted["name"]
        self.server: Server | None = None
        self.result: dict[str, Any] = {
            "name": self.name,
            "architecture": wanted.get("architecture"),
            "server": wanted.get("server"),
            "id": None,
            "created": False,
            "deleted": [],
            "kept": [],
            "others": [],
            "failed": False,
            "changed": False,
            "msg": "",
        }

    @property
    def key(self) -> str:
        """Under which the requests of this image are counted."""
        return f"{self.name} ({self.result['architecture']})"

    def fail(self, error: Exception) -> None:
        """The image failed; what was changed before stays in the result."""
        self.result.update(failed=True, msg=str(error))

    def say(self, text: str) -> None:
        """Add a clause to the message."""
        self.result["msg"] = "; ".join(part for part in (self.result["msg"], text) if part)


class ImageFleet:
    """One call of hcloud_node_image: look, refuse what cannot work, make all snapshots at once, prune."""

    def __init__(
        self,
        api: Api,
        images: Sequence[WantedImage],
        state: str = "present",
        in_use: Iterable[str] = (),
        timeout: float = 1800,
        check_mode: bool = False,
    ) -> None:
        self._api = api
        self._board = ActionBoard(api)
        self._snapshots = Snapshots(api, self._board)
        self._given = images
        self._state = state
        self._in_use = list(in_use)
        self._timeout = timeout
        self._limit_off = min(timeout, LONGEST_SHUTDOWN)
        self._check = check_mode
        self._found: dict[str, list[Image]] = {}
        self._used: dict[int, str] | None = None
        #: What this call returns as its images.
        self._returned: set[int] = set()
        self._lock = threading.Lock()

    def run(self) -> list[dict[str, Any]]:
        """Returns the results of all images, in the order given; raises FleetError."""
        self._check_input()
        if not self._given:
            return []
        runs = [ImageRun(wanted) for wanted in self._given]
        self._look(runs)
        active = [run for run in runs if not run.result["failed"]]
        if self._state == "present":
            run_all(self._api, active, self._bring_about)
        if not self._check and any(run.result["created"] for run in active):
            self._read_again([run for run in active if not run.result["failed"]])
        pruning = [run for run in active if not run.result["failed"]]
        if self._state == "present":
            pruning = [run for run in pruning if run.wanted.get("keep")]
        self._returned = {run.result["id"] for run in runs} - {None}
        run_all(self._api, pruning, self._prune)
        return [dict(run.result, api_calls=self._api.calls_of.get(run.key, 0)) for run in runs]

    def _check_input(self) -> None:
        findings, seen = [], set()
        for position, wanted in enumerate(self._given):
            findings += labels.findings_of(wanted, position)
            which = (wanted.get("name"), wanted.get("architecture"))
            if which in seen:
                findings.append(f"images[{position}].name: '{which[0]}' is named twice for one architecture")
            seen.add(which)
        refuse_findings(findings)

    def _look(self, runs: list[ImageRun]) -> None:
        """Read the servers and snapshots that are named, and judge the budget; nothing is changed."""
        deadline = Deadline(self._timeout, "the check of the input")
        self._read(deadline)
        if self._state == "present":
            names = {run.wanted.get("server") or "" for run in runs} - {""}
            servers = Servers(self._api).find(sorted(names), deadline) if names else {}
            for run in runs:
                run.server = servers.get(run.wanted.get("server") or "")
        refuse_findings([text for text in map(self._finding, runs) if text])
        changes = 4 * len(runs)
        plan = self._api.budget.plan(changes + 12 * (1 + len(runs) // 25), self._timeout, f"{len(runs)} images")
        if not plan.possible:
            raise FleetError(f"API budget: {plan.message}")

    def _read(self, deadline: Deadline | None = None) -> None:
        deadline = deadline or Deadline(self._timeout, "the list of snapshots")
        self._found = self._snapshots.named({wanted["name"] for wanted in self._given}, deadline)

    def _read_again(self, runs: list[ImageRun]) -> None:
        """Learn what the API knows of a snapshot only when it is made, its size; and what pruning has to judge."""
        self._read()
        for run in runs:
            mine = [image for image in self._found[run.name] if image["id"] == run.result["id"]]
            if mine:
                run.result.update(describe(mine[0]))
            elif run.result["created"]:
                gone = f"the snapshot {run.result['id']} was made, but another run has deleted it since; run again"
                run.fail(MachineError(gone))

    def _finding(self, run: ImageRun) -> str | None:
        """What makes it pointless to begin with an image; None when nothing does."""
        if self._state == "absent":
            return None
        wanted, server = run.wanted, run.server
        has = (server.get("server_type") or {}).get("architecture") if server is not None else None
        run.result["architecture"] = wanted.get("architecture") or has
        if server is not None and has and has != run.result["architecture"]:
            return (
                f"image '{run.name}': architecture: {wanted['architecture']} is wanted, but server '{server['name']}' "
                f"is {has} ({server['server_type']['name']}); use a server of the right type"
            )
        if not run.result["architecture"]:
            return (
                f"image '{run.name}': architecture: missing, and there is no server '{wanted.get('server')}' to ask; "
                "set it to x86 or arm"
            )
        return None

    def _of(self, run: ImageRun) -> list[Image]:
        """The snapshots of a run's name and architecture, the newest first."""
        architecture = run.result["architecture"]
        return newest_first(
            image for image in self._found[run.name] if architecture in (None, image.get("architecture"))
        )

    def _bring_about(self, run: ImageRun) -> None:
        deadline = Deadline(self._timeout, "the snapshot")
        same = [image for image in self._of(run) if labels.is_same(image, run.wanted)]
        making = [image for image in same if image.get("status") == "creating"]
        done = [image for image in same if image.get("status") == "available"]
        if (done or making) and not run.wanted.get("force"):
            self._keep(run, (done or making)[0], deadline)
        else:
            self._create(run, deadline)
        others = [image["id"] for image in self._of(run) if image["id"] != run.result["id"]]
        run.result["others"] = others
        if others and not run.wanted.get("keep"):
            plural = "s" if len(others) > 1 else ""
            run.say(
                f"{len(others)} other snapshot{plural} of this name and architecture: CAPH calls the name ambiguous; "
                "set keep to 1, or name images by their content"
            )

    def _keep(self, run: ImageRun, image: Image, deadline: Deadline) -> None:
        run.result.update(describe(image))
        if image.get("status") == "creating" and not self._check:
            self._snapshots.wait(image, None, deadline)
            run.result["status"] = "available"
            run.say("waited for the snapshot that was being made")
        else:
            run.say("exists")

    def _create(self, run: ImageRun, deadline: Deadline) -> None:
        wanted, server = run.wanted, run.server
        every = labels.all_labels(wanted)
        after = {"name": run.name, "architecture": run.result["architecture"], "labels": every}
        if server is None and not self._check:
            raise Refused(
                f"there is no such snapshot, and no server '{wanted.get('server')}' to make it from; create the "
                "server, or correct server"
            )
        if server is not None and (not self._check or wanted["running"] == REFUSE):
            asks = server["status"] not in ("off", "stopping")
            with noted(run.result) if asks else contextlib.nullcontext():
                self._snapshots.bring_off(server, wanted["running"], Deadline(self._limit_off, "a server that is off"))
        with noted(run.result, diff=difference(run.key, {}, after)):
            if server is None or self._check:
                run.result.update(created=True, labels=every)
                run.say(f"would make a snapshot of server '{wanted.get('server')}'")
                return
            description = wanted.get("description") or run.name
            image = self._snapshots.create(run.key, server, every, description, deadline)
        run.result.update(dict(describe(image), status="available", created=True))
        run.say(f"made of server '{server['name']}'")

    def _prune(self, run: ImageRun) -> None:
        deadline = Deadline(self._timeout, "the pruning of old snapshots")
        images = self._of(run)
        keep = (run.wanted.get("keep") or 0) if self._state == "present" else 0
        if self._check and run.result["created"]:
            keep -= 1
        doomed, stay = judge(images, keep, {}, self._returned)
        if doomed:
            doomed, stay = judge(images, keep, self._protected(deadline), self._returned)
        run.result["kept"] = [{"id": number, "reason": reason} for number, reason in sorted(stay.items())]
        for image in doomed:
            diff = run.result.get("diff") or difference(run.key, {}, {})
            before = {**diff["before"], "snapshots": [*run.result["deleted"], image["id"]]}
            with noted(run.result, diff={**diff, "before": before}):
                if not self._check:
                    self._snapshots.delete(image, deadline)
            run.result["deleted"].append(image["id"])
        gone = set(run.result["deleted"])
        run.result["others"] = [
            image["id"] for image in images if image["id"] not in gone and image["id"] != run.result["id"]
        ]
        if doomed:
            run.say(f"{'would delete' if self._check else 'deleted'} {len(doomed)}")
        if self._state == "absent":
            self._refuse_kept(run, stay)
        elif stay:
            run.say(f"{len(stay)} kept: {_reasons(stay)}")

    def _refuse_kept(self, run: ImageRun, stay: Mapping[int, str]) -> None:
        if stay:
            raise Refused(f"not deleted: {_reasons(stay)}")
        if not run.result["deleted"]:
            run.say("there is no such snapshot")

    def _protected(self, deadline: Deadline) -> dict[int, str]:
        """Ids that something uses, with the reason; read once, and only when something may be deleted."""
        with self._lock:
            if self._used is None:
                everything = [image for images in self._found.values() for image in images]
                self._used = named_in_use(self._in_use, everything)
                self._used.update(used_by_servers(self._snapshots.servers(deadline)))
            return self._used


def describe(image: Image) -> dict[str, Any]:
    """What a result says of a snapshot."""
    return {
        "id": image["id"],
        "architecture": image.get("architecture"),
        "description": image.get("description"),
        "status": image.get("status"),
        "image_size": image.get("image_size"),
        "disk_size": image.get("disk_size"),
        "created_at": image.get("created"),
        "labels": image.get("labels") or {},
        "name": (image.get("labels") or {}).get(IMAGE_LABEL) or image.get("name"),
    }


def _reasons(stay: Mapping[int, str]) -> str:
    return ", ".join(f"{image} ({reason})" for image, reason in sorted(stay.items()))


def named_in_use(in_use: Iterable[str], images: Iterable[Image]) -> dict[int, str]:
    """Ids of snapshots that the user's list protects: ids as they are, names by all snapshots that bear them."""
    wanted = {str(entry) for entry in in_use}
    return {
        image["id"]: "named in in_use"
        for image in images
        if wanted & {str(image["id"]), (image.get("labels") or {}).get(IMAGE_LABEL)}
    }


def used_by_servers(servers: Iterable[Server]) -> dict[int, str]:
    """Ids of images that servers were made from, with the reason."""
    used: dict[int, str] = {}
    for server in servers:
        image = server.get("image")
        if image:
            used.setdefault(image["id"], f"server '{server['name']}' was made from it")
    return used


def judge(
    images: Iterable[Image], keep: int, used: Mapping[int, str], returned: Collection[int] = ()
) -> tuple[list[Image], dict[int, str]]:
    """Splits the snapshots of one name and architecture into (those to delete, {id: why it stays}).

    The ``keep`` newest available ones stay in any case, and what is ``returned``, which is older when another run has
    made one meanwhile; ``used`` maps ids to reasons.
    """
    doomed, stay, kept = [], dict[int, str](), list[int]()
    for image in newest_first(images):
        if not is_made_by_us(image):
            stay[image["id"]] = "not made by this collection"
        elif image.get("status") == "creating":
            stay[image["id"]] = "still being made"
        elif image.get("status") == "available" and len(kept) < keep:
            kept.append(image["id"])
        elif image["id"] in returned:
            stay[image["id"]] = f"the image of this run; newer: {', '.join(map(str, kept))}"
        elif image["id"] in used:
            stay[image["id"]] = used[image["id"]]
        elif (image.get("protection") or {}).get("delete"):
            stay[image["id"]] = "protected against deletion"
        else:
            doomed.append(image)
    return doomed, stay


class ImageLookup:
    """One call of hcloud_node_image_info; without names, every snapshot that is named by label is returned."""

    def __init__(self, api: Api, images: Sequence[Mapping[str, Any]] | None, newest: bool = False) -> None:
        self._api = api
        self._given = images
        self._newest = newest
        self._deadline = Deadline(60, "the list of images")

    def run(self) -> list[dict[str, Any]]:
        """Returns one result for each image that was asked for, in that order; raises FleetError."""
        if self._given is None:
            return [_found_result(describe(image), image) for image in self._all()]
        empty = [f"images[{place}].name: missing" for place, wanted in enumerate(self._given) if not wanted["name"]]
        refuse_findings(empty)
        catalog = Catalog(self._api, self._deadline)
        return [self._find(wanted, catalog.image_candidates(wanted["name"])) for wanted in self._given]

    def _all(self) -> list[Image]:
        params = {"type": "snapshot", "label_selector": IMAGE_LABEL}
        images = self._api.read_all("/images", "images", self._deadline, params=params)[0]
        return sorted(newest_first(images), key=lambda image: (image["labels"][IMAGE_LABEL], image["architecture"]))

    def _find(self, wanted: Mapping[str, Any], candidates: Sequence[Image]) -> dict[str, Any]:
        name, architecture = wanted["name"], wanted["architecture"]
        try:
            image = of_architecture(name, candidates, architecture, self._newest)
            if image.get("status", "available") != "available":
                raise Unfit(f"image: '{name}' is not available yet (status {image['status']}); wait for it")
        except Unfit as finding:
            nothing = {"id": None, "name": name, "architecture": architecture}
            return dict(nothing, type=None, failed=True, changed=False, msg=str(finding))
        return dict(_found_result(describe(image), image), name=name)


def _found_result(about: dict[str, Any], image: Image) -> dict[str, Any]:
    return dict(about, type=image.get("type"), failed=False, changed=False, msg="found")
