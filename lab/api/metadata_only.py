# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resources that are metadata only: clients can create and read them, no machine notices them. Public SSH keys, too."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web

from . import networks, schemas, views
from .actions import Job
from .cloud_project import Cloud, check_name, refuse_if, update_named
from .http import add_resource, answer, body, cloud
from .resources import Action, MetadataOnly, Server, SshKey, now
from .schemas import Body, BodyType, invalid_input, not_unique, unsupported
from .servers import Servers, StartAction

KEY_TYPES = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
_NAME_TAKEN = "SSH key with the same name already exists"


def fingerprint(public_key: str) -> str:
    """The MD5 fingerprint of the key material, with colons; ValueError says why a key is none."""
    words = public_key.split()
    if len(words) < 2 or "\n" in public_key.strip():
        raise ValueError("public key must be one line: type, base64 data and an optional comment")
    kind, data = words[:2]
    if kind not in KEY_TYPES:
        raise ValueError(f"public key type '{kind}' is not one of {', '.join(KEY_TYPES)}")
    try:
        blob = base64.b64decode(data, validate=True)
    except ValueError as error:
        raise ValueError(f"public key data is not base64: {error}") from error
    # The data repeats the type as its first length-prefixed field; anything else is another key or damage.
    if blob[:4] != len(kind).to_bytes(4, "big") or blob[4 : 4 + len(kind)] != kind.encode():
        raise ValueError(f"public key data does not hold a key of type {kind}")
    if len(blob) <= 4 + len(kind):
        raise ValueError("public key data ends after the type")
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[position : position + 2] for position in range(0, len(digest), 2))


ssh_key_routes = web.RouteTableDef()


@ssh_key_routes.post("/ssh_keys")
async def create_key(request: web.Request) -> web.Response:
    """Register a key; name and key material are each unique."""
    wanted = await body(request, schemas.SshKeyCreate)
    project = cloud(request)
    try:
        digest = fingerprint(wanted.public_key)
    except ValueError as error:
        raise invalid_input({"public_key": [str(error)]}) from error
    check_name(project.ssh_keys, wanted.name, _NAME_TAKEN)
    refuse_if(
        any(key.fingerprint == digest for key in project.ssh_keys.values()),
        not_unique("public_key", "SSH key with the same fingerprint already exists"),
    )
    key = SshKey(
        project.new_id("ssh_key"), wanted.name, wanted.public_key.strip(), digest, dict(wanted.labels or {}), now()
    )
    project.ssh_keys[key.id] = key
    return answer({"ssh_key": views.ssh_key(key)}, status=201)


def _update_key(project: Cloud, key: SshKey, wanted: schemas.NamedUpdate) -> None:
    update_named(project.ssh_keys, key, wanted, _NAME_TAKEN)


def _delete_key(project: Cloud, key: SshKey) -> None:
    """Forget a key; servers that have it keep it."""
    del project.ssh_keys[key.id]


add_resource(
    ssh_key_routes, "ssh_key", lambda project: project.ssh_keys, lambda _project, key: views.ssh_key(key),
    filters=["fingerprint"], model=schemas.NamedUpdate, update=_update_key, delete=_delete_key,
)  # fmt: skip


_BACKUP_WINDOW = "22-02"
_KINDS = ("placement_group", "network", "firewall", "volume")


class MetadataOnlyResources:
    """Creates and changes resources that are metadata only."""

    def __init__(self, cloud: Cloud, servers: Servers) -> None:
        self.cloud = cloud
        self.servers = servers

    def server_actions(self) -> dict[str, tuple[type[Body], StartAction]]:
        """Route name, body and starter of every such action of a server."""
        return {
            "change_protection": (schemas.ChangeServerProtection, self.change_protection),
            "add_to_placement_group": (schemas.AddToPlacementGroup, self.add_to_placement_group),
            "remove_from_placement_group": (schemas.Empty, self.remove_from_placement_group),
            "attach_to_network": (schemas.AttachToNetwork, self.servers.networks.attach),
            "detach_from_network": (schemas.DetachFromNetwork, self.servers.networks.detach),
            "change_alias_ips": (schemas.ChangeAliasIps, self.servers.networks.change_aliases),
            "enable_backup": (schemas.Empty, self.enable_backup),
            "disable_backup": (schemas.Empty, self.disable_backup),
            "attach_iso": (schemas.AttachIso, self.attach_iso),
            "detach_iso": (schemas.Empty, self.detach_iso),
            "request_console": (schemas.Empty, self.request_console),
        }

    def change_protection(self, server: Server, body: schemas.ChangeServerProtection) -> Action:
        """Protect against deletion and rebuild; the two go together."""
        wanted = {value for value in (body.delete, body.rebuild) if value is not None}
        refuse_if(
            len(wanted) > 1 or None in (body.delete, body.rebuild),
            invalid_input({"delete": ["delete and rebuild must be given and have the same value"]}),
        )
        return self._set(server, "change_protection", "protected", body.delete)

    def add_to_placement_group(self, server: Server, body: schemas.AddToPlacementGroup) -> Action:
        self.servers.check_placement(body.placement_group)
        refuse_if(server.status != "off", unsupported("server must be stopped to be added to a placement group"))
        return self._set(server, "add_to_placement_group", "placement_group", body.placement_group)

    def remove_from_placement_group(self, server: Server, _body: Body) -> Action:
        return self._set(server, "remove_from_placement_group", "placement_group", None)

    def enable_backup(self, server: Server, _body: Body) -> Action:
        """Allow backups of this server (the lab makes none by itself)."""
        return self._set(server, "enable_backup", "backup_window", _BACKUP_WINDOW)

    def disable_backup(self, server: Server, _body: Body) -> Action:
        return self._set(server, "disable_backup", "backup_window", None)

    def attach_iso(self, _server: Server, body: schemas.AttachIso) -> Action:
        """The lab has no ISOs, so none can be found."""
        raise invalid_input({"iso": [f"iso '{body.iso}' not found"]})

    def detach_iso(self, server: Server, _body: Body) -> Action:
        """Without effect: no server of the lab has an ISO."""
        return self.cloud.start(server, "detach_iso", Job())

    def request_console(self, _server: Server, _body: Body) -> Action:
        """The lab has no VNC console."""
        raise unsupported("the lab has no VNC console; read the machine's console at GET /_lab/machines/<name>/console")

    def _set(self, server: Server, command: str, name: str, value: object) -> Action:
        """An action at whose end an attribute of the server has another value."""
        return self.cloud.start(server, command, Job(done=partial(setattr, server, name, value)))

    def view(self, item: MetadataOnly, kind: str) -> dict[str, Any]:
        """The resource as the API shows it, with what belongs to it."""
        return views.metadata_only(item) | self.members(item, kind)

    def members(self, item: MetadataOnly, kind: str) -> dict[str, Any]:
        """Which servers belong to a placement group, network or firewall."""
        servers = self.cloud.servers.values()
        if kind == "placement_group":
            return {"servers": [server.id for server in servers if server.placement_group == item.id]}
        if kind == "network":
            balancers = self.cloud.load_balancers.values()
            return {
                "servers": [s.id for s in servers if any(net.network == item.id for net in s.private_net)],
                "load_balancers": [b.id for b in balancers if any(net.network == item.id for net in b.private_net)],
            }
        if kind == "firewall":
            applied = [server.id for server in servers if item.id in server.firewalls]
            return {"applied_to": [{"type": "server", "server": {"id": identifier}} for identifier in applied]}
        return {}

    def delete(self, kind: str, item: MetadataOnly) -> None:
        """Remove a resource that is not in use."""
        used = any(self.members(item, kind).values())
        refuse_if(used, unsupported(f"{kind.replace('_', ' ')} '{item.name}' is still in use"))
        del self.cloud.metadata_only[kind][item.id]

    def add(self, kind: str, name: str, labels: dict[str, str] | None, content: dict[str, object]) -> MetadataOnly:
        check_name(self.cloud.metadata_only[kind], name, _name_taken(kind))
        item = MetadataOnly(self.cloud.new_id(kind), name, now(), dict(labels or {}), content)
        self.cloud.metadata_only[kind][item.id] = item
        return item


def metadata_only_routes(resources: MetadataOnlyResources) -> web.RouteTableDef:
    routes = web.RouteTableDef()
    for kind in _KINDS:
        _add_kind(routes, resources, kind)
    _add_create(routes, resources, "placement_group", schemas.PlacementGroupCreate, lambda body: {"type": body.type})
    _add_create(routes, resources, "network", schemas.NetworkCreate, networks.content_of)
    _add_create(routes, resources, "firewall", schemas.FirewallCreate, _firewall_content)

    @routes.post("/volumes")
    async def refuse(_request: web.Request) -> web.Response:
        raise unsupported("the lab cannot create volumes")

    return routes


def _name_taken(kind: str) -> str:
    return f"{kind.replace('_', ' ')} name is already used"


def _add_kind(routes: web.RouteTableDef, resources: MetadataOnlyResources, kind: str) -> None:
    def update(project: Cloud, item: MetadataOnly, wanted: schemas.NamedUpdate) -> None:
        update_named(project.metadata_only[kind], item, wanted, _name_taken(kind))

    add_resource(
        routes, kind, lambda project: project.metadata_only[kind], lambda _project, item: resources.view(item, kind),
        model=schemas.NamedUpdate, update=update, delete=lambda _project, item: resources.delete(kind, item),
    )  # fmt: skip


def _firewall_content(body: schemas.FirewallCreate) -> dict[str, object]:
    """A new firewall; clients can read it and see it applied, but it filters nothing."""
    refuse_if(bool(body.apply_to), unsupported("the lab applies firewalls at server creation only; leave apply_to out"))
    return {"rules": body.rules or []}


def _add_create(
    routes: web.RouteTableDef,
    resources: MetadataOnlyResources,
    kind: str,
    model: type[BodyType],
    content: Callable[[BodyType], dict[str, object]],
) -> None:
    @routes.post(f"/{kind}s")
    async def handler(request: web.Request) -> web.Response:
        wanted: Any = await body(request, model)
        item = resources.add(kind, wanted.name, wanted.labels, content(wanted))
        data: dict[str, Any] = {kind: resources.view(item, kind)}
        if kind == "placement_group":
            data["action"] = None
        if kind == "firewall":
            data["actions"] = []
        return answer(data, status=201)
