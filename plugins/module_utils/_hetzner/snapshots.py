# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Requests for snapshots: list, make, delete, switch their server off; a lost answer is looked up, not sent again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .actions import ActionFailed
from .api_types import Action, Image, Server
from .catalog import newest_first
from .cloud_servers import Servers, begun_after
from .errors import ApiError, MachineError, NoAnswer, Refused
from .labels import IMAGE_LABEL, is_ours

if TYPE_CHECKING:
    from .actions import ActionBoard
    from .cloud_client import Api
    from .retry import Deadline


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
        """All servers of the project."""
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

        def look(_sent_at: float | None) -> dict[str, Any] | None:
            try:
                self._api.read(f"/images/{image['id']:d}", deadline)
            except ApiError as error:
                if error.code == "not_found":
                    return {}
                raise
            return None

        try:
            self._api.change("DELETE", f"/images/{image['id']:d}", deadline, look)
        except ApiError as error:
            if error.code != "not_found":
                raise

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
