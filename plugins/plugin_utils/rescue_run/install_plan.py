# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the SSH phase of a playbook does with each machine, by host variables and the API phase's results (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Required, TypedDict

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed as installed_

from ..preflight import controller_paths, specification
from ..preflight.site import HCLOUD, INSTALLIMAGE, ROBOT, SITE, way

PLAYBOOKS = (HCLOUD, ROBOT, INSTALLIMAGE, SITE)


class ApiMachine(TypedDict, total=False):
    """What the API phase returns for a machine; more keys are in it, which nothing here reads."""

    name: Required[str]
    failed: Required[bool]
    #: Why it failed, or what was done.
    msg: str
    #: It runs an installed system; ``proven``: an earlier run has verified that.
    installed: Required[bool]
    proven: Required[bool]
    #: Dedicated servers: its rescue has answered.
    in_rescue: bool
    #: The id of a cloud server, the number of a dedicated one.
    id: int | None
    server_number: int
    ipv4: str | None
    ipv6: str | None
    #: Where SSH reaches a server of the cloud.
    address: str | None
    boot_state: str
    #: RFC 3339.
    boot_state_since: str
    previous_boot_id: str
    host_keys: list[str]
    installation: str
    consent: str
    #: A sentence about a consent that is used up.
    used: str
    drift: list[installed_.Drift]


class Machine(TypedDict, total=False):
    """A machine as machine_install takes it; each step has its options, and a step that is missing is not taken."""

    name: Required[str]
    #: A machine that does not reach its rescue is late, and another try follows.
    may_be_late: bool
    #: It was late before: no more tries follow, whatever another task does first.
    second_try: bool
    #: Why nothing is done with it.
    refused: str
    #: What the user should know.
    notes: list[str]
    address: str
    #: It runs an installed system.
    installed: bool
    pre_provision_command: dict[str, Any]
    machine_disks: dict[str, Any]
    image_url_command: dict[str, Any]
    robot_installimage: dict[str, Any]
    machine_boot: dict[str, Any]


#: Options of image_url_command that only cloud machines have.
_OF_CLOUD = frozenset(["root_devices"])
#: Options of machine_boot that follow from more than one variable.
_OF_MORE = frozenset(["hostname", "adopt"])
#: It may come from the environment, too.
_TOKEN = "oci_registry_auth_token"
#: Paths that a step takes as they are; others are found by those who read the file.
_FOUND_HERE = frozenset(["kubenode_command_dir", "kubenode_os_private_key"])
#: Seconds in which a dedicated server boots, when no other limit is given.
_ROBOT_BOOT = 600


def plan(
    hosts: Iterable[Mapping[str, Any]],
    playbook: str,
    phase: Iterable[ApiMachine] | None,
    directory: str,
    token: str = "",
    stay: Iterable[str] = (),
    last_try: bool = False,
    second_try: bool = False,
) -> list[Machine]:
    """The option ``machines`` of machine_install.

    ``playbook``: with ``site``, each machine takes the steps of its own kind.
    ``phase``: what the API phase says of the machines; of two entries with one name the first one counts. None before
    it, when options are to be checked: then every machine takes all steps.
    ``token``: for the registry, where a host sets none. ``stay``: machines that are left in their rescue.
    ``last_try``: a machine that does not reach its rescue has failed; otherwise it is only ``late``.
    ``second_try``: they were late before, and one that is late again is shown as failed. Raises ValueError for another
    playbook than :data:`PLAYBOOKS`.
    """
    if playbook not in PLAYBOOKS:
        raise ValueError(f"install_plan: playbook is {playbook!r}; use one of {', '.join(PLAYBOOKS)}")
    hosts, returned = list(hosts), dict[str, ApiMachine]()
    for one in [_before(host) for host in hosts] if phase is None else phase:
        returned.setdefault(str(one["name"]), one)
    staying = set(stay)
    return [
        _Planned(
            host, way(host) if playbook == SITE else playbook, returned[host["inventory_hostname"]], directory, token
        ).machine(host["inventory_hostname"] in staying, last_try, second_try)
        for host in hosts
        if host["inventory_hostname"] in returned
    ]


def _before(host: Mapping[str, Any]) -> ApiMachine:
    return {"name": host["inventory_hostname"], "failed": False, "installed": False, "proven": False, "in_rescue": True}


class _Planned:
    """One machine."""

    def __init__(self, host: Mapping[str, Any], playbook: str, api: ApiMachine, directory: str, token: str) -> None:
        self._host, self._playbook, self._api, self._token = host, playbook, api, token
        self._name = str(host["inventory_hostname"])
        self._of_cloud = playbook == HCLOUD
        self._intent = f"{directory}/intents/{self._name}.json"
        self._flow = _known(
            boot_state=api.get("boot_state"),
            boot_state_since=api.get("boot_state_since"),
            known_hosts_dir=f"{directory}/known_hosts",
        )
        self._in_rescue = _known(
            previous_boot_id=api.get("previous_boot_id"),
            host_keys=None if self._of_cloud else api.get("host_keys"),
            addresses=[address for address in (api.get("ipv4"), api.get("ipv6")) if address],
            **self._flow,
        )
        self._logs = f"{directory}/logs"

    def machine(self, stays: bool, last_try: bool, second_try: bool) -> Machine:
        """Its steps."""
        api = self._api
        machine: Machine = {"name": self._name, "may_be_late": self._of_cloud and not last_try}
        if second_try:
            machine["second_try"] = True
        if api["failed"]:
            return {**machine, "refused": api["msg"]}
        notes = [api.get("used"), installed_.drift_in_words(api["drift"]) if api.get("drift") else ""]
        if any(notes):
            machine["notes"] = [str(note) for note in notes if note]
        address = self._host.get("kubenode_address") or api.get("address") or api.get("ipv4")
        if address:
            machine["address"] = address
        if api["installed"]:
            machine["installed"] = True
            if not api["proven"] and not stays:
                machine["machine_boot"] = self._boot(found=True)
            return machine
        if not (self._of_cloud or api["in_rescue"]):
            return machine
        # Machines that node images are made on are not the user's nodes.
        if self._host.get("kubenode_pre_provision_command") and "kubenode_build" not in self._host:
            machine["pre_provision_command"] = self._pre_provision()
        if not self._of_cloud:
            machine["machine_disks"] = self._disks()
        if self._playbook == INSTALLIMAGE:
            step = machine["robot_installimage"] = self._written("robot_installimage")
        else:
            step = machine["image_url_command"] = self._written("image_url_command")
        if self._token:
            step.setdefault(_TOKEN, self._token)
        if not stays:
            machine["machine_boot"] = self._boot(found=False)
        return machine

    def _pre_provision(self) -> dict[str, Any]:
        server = self._api.get("id") if self._of_cloud else self._api.get("server_number")
        return {
            **self._options("pre_provision_command"),
            "provider": "hcloud" if self._of_cloud else "robot",
            "server": str(server or ""),
            "secrets": self._secrets(),
            "intent_file": self._intent,
            "log_dir": self._logs,
            **self._in_rescue,
        }

    def _secrets(self) -> list[str]:
        """What nothing that is printed may show, besides the bootstrap data."""
        image = self._get("kubenode_image") or {}
        found = [self._get("kubenode_image_url"), self._get("kubenode_crypt_password")]
        found += [image.get("url") if isinstance(image, Mapping) else None]
        found += [self._get("kubenode_registry_token") or self._token]
        return [str(secret) for secret in found if secret]

    def _disks(self) -> dict[str, Any]:
        own = {"device_strings": "by-id"} if self._playbook == INSTALLIMAGE else {}
        return {
            **self._options("machine_disks"),
            "state": "ready",
            "empty": "later",
            **own,
            "claim_file": self._intent,
            **self._in_rescue,
        }

    def _written(self, step: str) -> dict[str, Any]:
        without = _OF_CLOUD if step == "image_url_command" and not self._of_cloud else ()
        return {
            **self._options(step, without),
            **_known(installation=self._api.get("installation"), consent=self._api.get("consent") or "empty"),
            "intent_file": self._intent,
            "log_dir": self._logs,
            **self._in_rescue,
        }

    def _boot(self, found: bool) -> dict[str, Any]:
        options = {
            "proof": "disk",
            **({} if self._of_cloud else {"timeout": _ROBOT_BOOT}),
            **self._options("machine_boot", _OF_MORE),
        }
        if self._playbook == INSTALLIMAGE:
            options.pop("image_url", None)
            options["command"] = "installimage"
            if boolean(self._get("kubenode_remote_unlock") or False, strict=False):
                options.update(_known(unlock_password=self._get("kubenode_crypt_password")))
        # A weaker proof accepts a system of any name that answers.
        own = self._name if self._playbook == INSTALLIMAGE or options["proof"] in ("disk", "nonce") else ""
        options.update(_known(hostname=self._get("kubenode_hostname") or own))
        if found and self._get("kubenode_adopt") is not None:
            options["adopt"] = self._get("kubenode_adopt")
        return {
            **options,
            "expect": "os",
            "reboot": not found,
            "secrets": self._secrets(),
            **_known(installation=self._api.get("installation")),
            "intent_file": self._intent,
            **self._flow,
        }

    def _get(self, variable: str) -> Any:
        if variable == "kubenode_os_port":
            return specification.os_port(self._host)
        value = self._host.get(variable)
        return controller_paths.as_found(value, self._host) if variable in _FOUND_HERE else value

    def _options(self, step: str, without: Collection[str] = ()) -> dict[str, Any]:
        variables = specification.of_step(step)
        found = {option: self._get(variable) for option, variable in variables.items() if option not in without}
        return {option: value for option, value in found.items() if value is not None}


def variables() -> dict[str, dict[str, str]]:
    """For each step, its options and the variables that hold them."""
    return {
        step: {option: name for option, name in specification.of_step(step).items() if option != _TOKEN}
        for step in specification.STEPS
    }


def _known(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}
