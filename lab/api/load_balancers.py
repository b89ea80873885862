# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load balancers: addresses, services, targets, their health, and the routes. No connection is ever balanced."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from aiohttp import web

from lab.power_control import PowerControl

from . import schemas, views
from .actions import Job
from .cloud_project import Cloud, by_id_or_name, check_name, check_unlocked, found, refuse_if, update_named
from .http import add_resource, answer, body, cloud, identifier
from .networks import find_place
from .resources import (
    LOAD_BALANCER_TYPES,
    LOCATIONS,
    Action,
    LoadBalancer,
    LoadBalancerType,
    Location,
    PrimaryIp,
    PrivateNet,
    Server,
    Target,
    now,
)
from .schemas import ApiError, invalid_input, limit_exceeded, protected

Start = Callable[[LoadBalancer, Any], Action]
_NAME_TAKEN = "load balancer name is already used"
_PORTS = {"http": (80, 80), "https": (443, 80)}
_HTTP = {
    "cookie_name": "HCLBSTICKY",
    "cookie_lifetime": 300,
    "certificates": [],
    "redirect_http": False,
    "sticky_sessions": False,
    "timeout_idle": 60,
}
_CHECK = {"interval": 15, "timeout": 10, "retries": 3}
_CHECK_HTTP = {"domain": "", "path": "/", "response": "", "status_codes": ["2??", "3??"], "tls": False}
_ONE = r"/load_balancers/{id:[0-9]+}"


def balancer_view(cloud: Cloud, item: LoadBalancer) -> dict[str, Any]:
    """A load balancer as the API shows it, with the health of its targets now."""
    return {
        "id": item.id,
        "name": item.name,
        "public_net": {
            "enabled": item.public,
            "ipv4": {"id": item.ipv4.id, "ip": item.ipv4.ip, "blocked": False, "dns_ptr": None},
            "ipv6": {"id": item.ipv6.id, "ip": item.ipv6.ip, "blocked": False, "dns_ptr": None},
        },
        "private_net": [{"network": net.network, "ip": net.ip} for net in item.private_net],
        "location": views.location(item.location),
        "load_balancer_type": views.load_balancer_type(item.type),
        "protection": {"delete": item.protected},
        "labels": item.labels,
        "created": views.moment(item.created),
        "services": list(item.services.values()),
        "targets": [_target_view(cloud, item, target) for target in item.targets],
        "algorithm": {"type": item.algorithm},
        "outgoing_traffic": None,
        "ingoing_traffic": None,
        "included_traffic": item.type.included_traffic(item.location.name),
    }


def _target_view(cloud: Cloud, item: LoadBalancer, target: Target) -> dict[str, Any]:
    if target.type == "ip":
        power_control = cloud.power_control_by_address(str(target.value))
        health = _health(item, *_state(power_control))
        return {"type": "ip", "ip": {"ip": target.value}, "use_private_ip": False, "health_status": health}
    servers = [_server_view(cloud, item, server, target) for server in cloud.targeted(target)]
    if target.type == "server":
        return servers[0]
    return {
        "type": "label_selector",
        "label_selector": {"selector": target.value},
        "use_private_ip": target.use_private_ip,
        "health_status": [],
        "targets": servers,
    }


def _server_view(cloud: Cloud, item: LoadBalancer, server: Server, target: Target) -> dict[str, Any]:
    status, detail = _state(cloud.power_control.get(server.id))
    if not reaches(item, server, target.use_private_ip):
        status, detail = "unhealthy", "layer4_no_connection"
    return {
        "type": "server",
        "server": {"id": server.id},
        "use_private_ip": target.use_private_ip,
        "health_status": _health(item, status, detail),
    }


def reaches(item: LoadBalancer, server: Server, private: bool) -> bool:
    if not private:
        return server.ipv4 is not None
    return bool({net.network for net in item.private_net} & {net.network for net in server.private_net})


def _state(power_control: PowerControl | None) -> tuple[str, str | None]:
    """What a health check finds: a system from its disk answers, a rescue refuses, a machine that is off is silent."""
    if power_control is None or not power_control.running:
        return "unhealthy", "layer4_timeout"
    return ("healthy", None) if power_control.boots_from_disk else ("unhealthy", "layer4_no_connection")


def _health(item: LoadBalancer, status: str, detail: str | None) -> list[dict[str, Any]]:
    return [
        {"listen_port": port, "status": status, "detail": detail, "http_status_code": None} for port in item.services
    ]


class LoadBalancers:
    """The life of load balancers, from create to delete."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def actions(self) -> dict[str, tuple[type[schemas.Body], Start]]:
        """Route name, body and starter of every action."""
        return {
            "add_service": (schemas.ServiceCreate, self.add_service),
            "update_service": (schemas.ServiceUpdate, self.update_service),
            "delete_service": (schemas.ServiceDelete, self.delete_service),
            "add_target": (schemas.BalancerTarget, self.add_target),
            "remove_target": (schemas.BalancerTarget, self.remove_target),
            "change_algorithm": (schemas.AlgorithmChange, self.change_algorithm),
            "change_protection": (schemas.ChangeDeleteProtection, self.change_protection),
            "change_type": (schemas.LoadBalancerChangeType, self.change_type),
            "attach_to_network": (schemas.LoadBalancerAttach, self.attach_to_network),
            "detach_from_network": (schemas.DetachFromNetwork, self.detach_from_network),
            "enable_public_interface": (schemas.Empty, self.enable_public_interface),
            "disable_public_interface": (schemas.Empty, self.disable_public_interface),
        }

    def create(self, body: schemas.LoadBalancerCreate) -> tuple[LoadBalancer, Action]:
        """Create a load balancer with all that the request names, or nothing."""
        cloud = self.cloud
        check_name(cloud.load_balancers, body.name, _NAME_TAKEN)
        refuse_if(
            len(cloud.load_balancers) >= cloud.settings.load_balancer_limit,
            limit_exceeded("load_balancer_limit", "load balancer limit exceeded"),
        )
        net = body.public_net
        refuse_if(
            net is not None and (net.ipv4 is not None or net.ipv6 is not None),
            invalid_input({"public_net": ["the lab has no free primary IPs; leave ipv4 and ipv6 out"]}),
        )
        kind, location = self._type(body.load_balancer_type), self._location(body)
        number = cloud.new_id("load_balancer")
        taken = {item.ipv4.ip for item in cloud.load_balancers.values()}
        index = next(free for free in itertools.count(1) if _address(free) not in taken)
        item = LoadBalancer(
            id=number,
            name=body.name,
            created=now(),
            type=kind,
            location=location,
            labels=dict(body.labels or {}),
            algorithm=body.algorithm.type if body.algorithm else "round_robin",
            public=body.public_interface is not False,
            ipv4=self._new_address(number, "ipv4", _address(index), location),
            ipv6=self._new_address(number, "ipv6", f"2001:db8:ffff:{index:x}::1", location),
        )
        if body.network is not None:
            item.private_net.append(PrivateNet(body.network, self._free_place(body.network, None)))
        for service in body.services or ():
            self._add_service(item, service)
        for target in body.targets or ():
            self._add_target(item, target)
        # Nothing is kept before all of it was found to be good.
        cloud.load_balancers[number] = item
        cloud.primary_ips |= {address.id: address for address in (item.ipv4, item.ipv6)}
        return item, cloud.start(item, "create_load_balancer", Job())

    def delete(self, item: LoadBalancer) -> Action:
        refuse_if(item.protected, protected("load balancer deletion"))

        def done() -> None:
            del self.cloud.load_balancers[item.id]
            for address in (item.ipv4, item.ipv6):
                self.cloud.primary_ips.pop(address.id, None)

        return self.cloud.start(item, "delete_load_balancer", Job(done=done))

    def add_service(self, item: LoadBalancer, body: schemas.ServiceCreate) -> Action:
        return self._changed(item, "add_service", lambda: self._add_service(item, body))

    def update_service(self, item: LoadBalancer, body: schemas.ServiceUpdate) -> Action:
        """Change what is named of a service; the port says which one."""
        return self._changed(item, "update_service", lambda: self._update_service(item, body))

    def delete_service(self, item: LoadBalancer, body: schemas.ServiceDelete) -> Action:
        return self._changed(
            item, "delete_service", lambda: item.services.pop(self._service(item, body.listen_port)["listen_port"])
        )

    def add_target(self, item: LoadBalancer, body: schemas.BalancerTarget) -> Action:
        """Send to one more server, to all servers of a selector, or to an address."""
        return self._changed(item, "add_target", lambda: self._add_target(item, body))

    def remove_target(self, item: LoadBalancer, body: schemas.BalancerTarget) -> Action:
        wanted = _target(body)

        def change() -> None:
            kept = [target for target in item.targets if (target.type, target.value) != (wanted.type, wanted.value)]
            refuse_if(len(kept) == len(item.targets), ApiError(404, "not_found", "target not found"))
            item.targets = kept

        return self._changed(item, "remove_target", change)

    def change_algorithm(self, item: LoadBalancer, body: schemas.AlgorithmChange) -> Action:
        """Choose targets in another way."""
        return self._set(item, "change_algorithm", "algorithm", body.type)

    def change_protection(self, item: LoadBalancer, body: schemas.ChangeDeleteProtection) -> Action:
        refuse_if(body.delete is None, invalid_input({"delete": ["Missing data for required field."]}))
        return self._set(item, "change_protection", "protected", body.delete)

    def change_type(self, item: LoadBalancer, body: schemas.LoadBalancerChangeType) -> Action:
        """Change the size; services and targets must fit."""
        kind = self._type(body.load_balancer_type)
        small = kind.max_services < len(item.services) or kind.max_targets < len(item.targets)
        refuse_if(
            small or kind is item.type,
            ApiError(422, "invalid_load_balancer_type", f"load balancer type {kind.name} does not fit"),
        )
        return self._set(item, "change_load_balancer_type", "type", kind)

    def attach_to_network(self, item: LoadBalancer, body: schemas.LoadBalancerAttach) -> Action:
        """Give a load balancer its one private address."""
        refuse_if(
            bool(item.private_net),
            ApiError(422, "load_balancer_already_attached", "the load balancer is already attached to a network"),
        )

        def change() -> None:
            item.private_net = [PrivateNet(body.network, self._free_place(body.network, body.ip))]

        return self._changed(item, "attach_to_network", change)

    def detach_from_network(self, item: LoadBalancer, body: schemas.DetachFromNetwork) -> Action:
        """Take the private address away, and the targets that are reached by it."""
        refuse_if(
            all(net.network != body.network for net in item.private_net),
            invalid_input({"network": [f"load balancer is not attached to network '{body.network}'"]}),
        )

        def change() -> None:
            item.private_net = []
            item.targets = [target for target in item.targets if not target.use_private_ip]

        return self._changed(item, "detach_from_network", change)

    def enable_public_interface(self, item: LoadBalancer, _body: schemas.Body) -> Action:
        """Answer at the public addresses."""
        return self._set(item, "enable_public_interface", "public", True)

    def disable_public_interface(self, item: LoadBalancer, _body: schemas.Body) -> Action:
        """Answer in the private network alone."""
        refuse_if(not item.private_net, _not_attached())
        refuse_if(
            any(not target.use_private_ip for target in item.targets),
            ApiError(422, "targets_without_use_private_ip", "the load balancer has targets that use the public IP"),
        )
        return self._set(item, "disable_public_interface", "public", False)

    def _add_service(self, item: LoadBalancer, body: schemas.ServiceCreate) -> None:
        refuse_if(
            len(item.services) >= item.type.max_services,
            limit_exceeded("load_balancer_services", f"{item.type.name} has {item.type.max_services} services"),
        )
        ports = _PORTS.get(body.protocol, (None, None))
        listen, destination = body.listen_port or ports[0], body.destination_port or ports[1]
        missing = {"listen_port": listen, "destination_port": destination}
        if listen is None or destination is None:
            names = [name for name, value in missing.items() if value is None]
            raise invalid_input({name: ["Missing data for required field."] for name in names})
        item.services[self._free_port(item, listen)] = _service(
            {"protocol": body.protocol, "listen_port": listen, "destination_port": destination, "proxyprotocol": False},
            body,
        )

    @staticmethod
    def _free_port(item: LoadBalancer, port: int) -> int:
        refuse_if(
            port in item.services, ApiError(412, "source_port_already_used", f"source port {port} is already in use")
        )
        return port

    @staticmethod
    def _service(item: LoadBalancer, port: int) -> dict[str, Any]:
        if port not in item.services:
            raise ApiError(404, "not_found", f"service with listen port {port} not found")
        return item.services[port]

    def _update_service(self, item: LoadBalancer, body: schemas.ServiceUpdate) -> None:
        known = self._service(item, body.listen_port)
        wanted = {name: getattr(body, name) for name in ("protocol", "destination_port")}
        known = known | {name: value for name, value in wanted.items() if value is not None}
        item.services[body.listen_port] = _service(known, body)

    def _add_target(self, item: LoadBalancer, body: schemas.BalancerTarget) -> None:
        target = _target(body)
        refuse_if(
            len(item.targets) >= item.type.max_targets,
            limit_exceeded("load_balancer_targets", f"{item.type.name} has {item.type.max_targets} targets"),
        )
        refuse_if(
            any((other.type, other.value) == (target.type, target.value) for other in item.targets),
            ApiError(422, "target_already_defined", "the target is already defined"),
        )
        if target.type == "ip":
            self._check_ip(str(target.value))
        refuse_if(target.use_private_ip and not item.private_net, _not_attached())
        if target.type == "server":
            self._check_server(item, target)
        item.targets.append(target)

    def _check_ip(self, address: str) -> None:
        refuse_if(
            self.cloud.server_by_address(address) is not None,
            ApiError(422, "cloud_resource_ip_not_allowed", f"{address} belongs to a server of the cloud"),
        )
        refuse_if(
            self.cloud.power_control_by_address(address) is None,
            ApiError(422, "ip_not_owned", f"{address} is not the address of a dedicated server of the project's owner"),
        )

    def _check_server(self, item: LoadBalancer, target: Target) -> None:
        server = self.cloud.servers.get(int(target.value))
        if server is None:
            raise invalid_input({"server": [f"server '{target.value}' not found"]})
        code = "server_not_attached_to_network" if target.use_private_ip else "missing_ipv4"
        refuse_if(
            not reaches(item, server, target.use_private_ip),
            ApiError(422, code, f"server {server.name} cannot be reached by this load balancer"),
        )

    def _type(self, wanted: int | str) -> LoadBalancerType:
        return by_id_or_name(LOAD_BALANCER_TYPES, wanted, "load_balancer_type", "load balancer type")

    def _location(self, body: schemas.LoadBalancerCreate) -> Location:
        refuse_if(
            (body.location is None) == (body.network_zone is None),
            invalid_input({"location": ["either location or network_zone must be given"]}),
        )
        if body.location is not None:
            return self.cloud.location(body.location)
        for place in LOCATIONS.values():
            if place.network_zone == body.network_zone:
                return place
        raise invalid_input({"network_zone": [f"network zone '{body.network_zone}' not found"]})

    def _free_place(self, network: int, ip: str | None) -> str:
        return find_place(self.cloud.metadata_only_reference("network", network, "network"), self.cloud.owners(), ip)

    def _new_address(self, owner: int, kind: str, ip: str, location: Location) -> PrimaryIp:
        identifier = self.cloud.new_id("primary_ip")
        name = f"primary_ip-{identifier}"
        return PrimaryIp(identifier, name, kind, ip, location, now(), owner, assignee_type="load_balancer")

    def _changed(self, item: LoadBalancer, command: str, change: Callable[[], object]) -> Action:
        """Change the load balancer at once, so that of two requests one is refused; the action ends later."""
        check_unlocked(item)
        change()
        return self.cloud.start(item, command, Job())

    def _set(self, item: LoadBalancer, command: str, name: str, value: object) -> Action:
        """An action at whose end an attribute of the load balancer has another value."""
        return self.cloud.start(item, command, Job(done=partial(setattr, item, name, value)))


def _address(index: int) -> str:
    """A public address out of the range for documentation: nothing answers there."""
    return f"203.0.113.{index}"


def _not_attached() -> ApiError:
    return ApiError(422, "load_balancer_not_attached_to_network", "the load balancer is not attached to a network")


def _target(body: schemas.BalancerTarget) -> Target:
    """The target that a request names; exactly the field of its type must be there."""
    given = {"server": body.server, "label_selector": body.label_selector, "ip": body.ip}
    wrong = [name for name, value in given.items() if (value is not None) != (name == body.type)]
    if wrong:
        raise invalid_input({name: [f"does not fit the type '{body.type}'"] for name in wrong})
    private = bool(body.use_private_ip)
    if body.server is not None:
        return Target("server", body.server.id, private)
    if body.label_selector is not None:
        schemas.parse_selector(body.label_selector.selector)
        return Target("label_selector", body.label_selector.selector, private)
    return Target("ip", cast(schemas.TargetIp, body.ip).ip)


def _service(known: dict[str, Any], body: schemas.ServiceCreate | schemas.ServiceUpdate) -> dict[str, Any]:
    """A service as it is shown: what was known, what the request names, and defaults for the rest."""
    service = {name: known[name] for name in ("protocol", "listen_port", "destination_port", "proxyprotocol")}
    if body.proxyprotocol is not None:
        service["proxyprotocol"] = body.proxyprotocol
    if service["protocol"] != "tcp":
        service["http"] = _HTTP | known.get("http", {}) | _given(body.http)
        wrong = service["http"]["certificates"] or service["protocol"] == "https"
        refuse_if(bool(wrong), invalid_input({"http.certificates": ["the lab has no certificates"]}))
    before = known.get("health_check", {})
    check = {"protocol": "tcp" if service["protocol"] == "tcp" else "http", "port": service["destination_port"]}
    check |= _CHECK | {name: value for name, value in before.items() if name != "http"} | _given(body.health_check)
    asked = check.pop("http", {})
    if check["protocol"] != "tcp":
        check["http"] = _CHECK_HTTP | before.get("http", {}) | asked
    return service | {"health_check": check}


def _given(body: schemas.Body | None) -> dict[str, Any]:
    return {} if body is None else body.model_dump(exclude_none=True)


def load_balancer_routes(balancers: LoadBalancers) -> web.RouteTableDef:
    routes = web.RouteTableDef()

    add_resource(
        routes, "load_balancer", lambda project: project.load_balancers, balancer_view, model=schemas.NamedUpdate,
        update=lambda project, item, wanted: update_named(project.load_balancers, item, wanted, _NAME_TAKEN),
    )  # fmt: skip

    @routes.post("/load_balancers")
    async def create(request: web.Request) -> web.Response:
        item, action = balancers.create(await body(request, schemas.LoadBalancerCreate))
        return answer(
            {"load_balancer": balancer_view(cloud(request), item), "action": views.action(action)}, status=201
        )

    @routes.delete(_ONE)
    async def delete(request: web.Request) -> web.Response:
        """Delete permanently; an action since October 2026."""
        return answer({"action": views.action(balancers.delete(_one(request)))}, status=201)

    @routes.get(_ONE + "/metrics")
    async def metrics(request: web.Request) -> web.Response:
        """The traffic at each step of the time asked for: always zero."""
        _one(request)
        kinds = request.query.get("type", "").split(",")
        fields = {"type": kinds, "start": request.query.get("start"), "end": request.query.get("end")}
        wanted = schemas.parse(
            schemas.Metrics, fields | ({"step": request.query["step"]} if "step" in request.query else {})
        )
        return answer({"metrics": views.no_traffic(wanted.start, wanted.end, wanted.step, wanted.type)})

    for name, (model, start) in balancers.actions().items():
        _add_action(routes, name, model, start)
    return routes


def _add_action(routes: web.RouteTableDef, name: str, model: type[schemas.Body], start: Start) -> None:
    @routes.post(f"{_ONE}/actions/{name}")
    async def handler(request: web.Request) -> web.Response:
        item, wanted = _one(request), await body(request, model)
        return answer({"action": views.action(start(item, wanted))}, status=201)


def _one(request: web.Request) -> LoadBalancer:
    return found("load balancer", cloud(request).load_balancers, identifier(request))
