# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a join, of its undoing and of leaving, for node_settings (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._node.api_server import split_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.facts import Node
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import join_files
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.check import Seen
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from ..role_specs import plain
from . import join_inputs, plan_types, systems, templates
from .join_inputs import InvalidInput
from .kubelet import Kubelet, KubeletOptions, kubeadm_path, queries
from .kubelet_config import API_VERSION, KIND
from .plan_types import JoinInputs

#: kubeadm speaks v1beta4 since then: https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/
_KUBEADM_SINCE = (1, 31)
_HEAD = {"apiVersion": API_VERSION, "kind": KIND}

_VERSION = re.compile("[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}")

#: What the unit is restarted for although no file changed: its Node was deleted while it ran.
REGISTER = "join:register"
UNIT = "kubelet.service"


#: purpose → what it needs besides the variables
_NEEDS = {
    "check": ("node",),
    "lacks": ("seen",),
    "settings": ("node", "seen"),
    "secrets": ("node", "seen"),
    "finished": ("node", "seen"),
    "undone": ("seen",),
    "absent": ("seen",),
}


def join_plan(
    given: Mapping[str, Any],
    purpose: str,
    node: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
    token: str = "",
    kubelet_version: str = "",
    fail: bool = True,
    inventory_dir: str | None = None,
    search: Sequence[str] = (),
) -> Any:
    """What the role asks for; every ValueError names the variable, its value and the fix.

    ``given``: the role's variables without ``join_``, and without the token. ``seen``: the result of node_join_check.
    ``purpose``: ``variables`` (names), ``inputs`` (checked and complete), ``queries`` of node_info, ``check`` (options
    of node_join_check, warnings, and where kubeadm is when it joins), ``lacks`` (what the machine needs and was not
    given, a sentence or nothing), or settings: ``settings`` and ``secrets`` that make it join, ``finished`` once it
    has, ``undone`` after a join that failed, ``absent`` when it leaves its cluster, ``forgotten`` after its Node.
    """
    if purpose == "variables":
        return list(join_inputs.variables())
    node_, seen_, secret = plain(node), plain(seen), str(token or "")
    answers: dict[str, Callable[[Any], Any]] = {
        "inputs": lambda inputs: inputs,
        "queries": lambda inputs: queries(),
        "check": lambda inputs: check(node_, inputs, secret),
        "lacks": lambda inputs: lacks(inputs, seen_, secret),
        "settings": lambda inputs: present(node_, inputs, seen_),
        "secrets": lambda inputs: secrets(node_, inputs, seen_, secret),
        "finished": lambda inputs: finished(node_, inputs, seen_),
        "undone": lambda inputs: undone(seen_),
        "absent": lambda inputs: absent(inputs, seen_),
        "forgotten": lambda inputs: [plan_types.absent("join/leave" + join_files.RECORD, join_files.RECORD)],
    }
    if purpose not in answers:
        raise ValueError(f"join_plan: {purpose!r} must be one of variables, {', '.join(answers)}")
    for name, value in (("node", node), ("seen", seen)):
        if name in _NEEDS.get(purpose, ()) and not isinstance(value, Mapping):
            raise ValueError(f"join_plan: {purpose} needs {name}")
    try:
        # later than the check, the token may be the one that was made
        users_own = purpose in ("inputs", "check")
        taken: Mapping[str, Any] = plain(given)
        if purpose == "inputs":
            taken = join_inputs.with_ca_file(taken, inventory_dir, search)
        inputs = checked_inputs(taken, secret, str(kubelet_version), users_own, inventory_dir, search)
        if purpose == "inputs":  # before any machine is asked, and not again
            join_inputs.check_kubeconfig(inputs, inventory_dir, search)
        return answers[purpose](inputs)
    except InvalidInput as error:
        if fail:
            raise
        return {"refused": str(error)}


def checked_inputs(
    given: Mapping[str, Any],
    token: str,
    kubelet_version: str = "",
    users_own: bool = True,
    inventory_dir: str | None = None,
    search: Sequence[str] = (),
) -> JoinInputs:
    """The role's variables, checked and complete; raise :class:`InvalidInput` at the first that cannot be.

    ``kubelet_version``: the kubelet that the machine will have, for which fields and flags are checked; a version that
    is none, the role base refuses. ``users_own``: whether ``token`` is the user's and not one that was made.
    ``inventory_dir`` and ``search``: where relative paths of the controller are looked for.
    """
    inputs = join_inputs.checked(join_inputs.with_drop_ins(given), token)
    if inputs["state"] == "absent":
        return inputs
    try:
        inputs["template_path"] = templates.folders("join", inputs["template_path"], inventory_dir, search)
    except templates.TemplateFailed as error:
        raise InvalidInput(str(error)) from error
    if users_own:
        join_inputs.check_one_token(inputs, token)
    if _VERSION.fullmatch(kubelet_version):
        KubeletOptions(inputs, kubelet_version).check()
    return inputs


def check(node: Node, inputs: JoinInputs, token: str) -> dict[str, Any]:
    """``{kubeadm, options, warnings}``: where kubeadm is when it joins, and the options of node_join_check."""
    kubelet = Kubelet(node, inputs)
    # everything that can be refused is refused before the cluster is asked
    kubelet.config()
    _kubelet_env(inputs, kubelet.args())
    joins = inputs["method"] == "kubeadm"
    return {
        "kubeadm": {"path": kubeadm_path(node), "kubelet": kubelet.path} if joins else {},
        "options": {
            "api_server": inputs["api_server"],
            "ca_cert": inputs["ca_cert"],
            "ca_hashes": inputs["discovery"]["ca_hashes"],
            "jws": inputs["discovery"]["jws"] and bool(token),
            "signing": inputs["method"] == "kubeadm" and bool(token),
            "node_name": kubelet.name,
            "machine_id": node.get("machine_id") or "",
            "kubelet_version": kubelet.version,
            "version_check": inputs["version_check"],
            "max_clock_skew": inputs["max_clock_skew"],
            "check_name": inputs["check_name"],
            "timeout": min(30, inputs["timeout"]),
        },
        "warnings": kubelet.warnings(),
    }


def lacks(inputs: JoinInputs, seen: Seen, token: str) -> str:
    """What the machine needs and was not given: one sentence, or nothing."""
    if not seen["need_bootstrap"] or token or inputs["token_create"]:
        return ""
    why = {"lapsed": "its client certificate has lapsed", "refused": "its client certificate is refused"}
    state = why.get(seen["client"]["state"], "it is no node yet")
    return f"join_token: the machine needs one, since {state}; or set join_token_create"


def present(node: Node, inputs: JoinInputs, seen: Seen) -> list[Setting]:
    """The settings that make this machine join, or keep it joined.

    ``node`` is node_info's, ``inputs`` what join_inputs.checked() returned, ``seen`` the result of node_join_check.
    """
    kubelet = Kubelet(node, inputs)
    listed = [
        plan_types.directory("join/dir/etc", join_files.ETC),
        plan_types.directory("join/dir/pki", join_files.ETC + "/pki"),
    ]
    listed += _credentials(inputs, seen)
    if inputs["method"] == "kubeadm":
        files = _kubeadm_files(kubelet, inputs) if seen["need_bootstrap"] else []
    else:
        files = _bootstrap_files(kubelet, inputs, seen)
    listed += files
    if inputs["cni_config"]:
        text = inputs["cni_config"]
        text = text if isinstance(text, str) else json.dumps(text, indent=2) + "\n"
        listed.append(plan_types.file("join/cni", join_files.CNI, text))
    elif join_files.CNI in (seen.get("record") or {}).get("files", []):
        listed.append(plan_types.absent("join/cni", join_files.CNI, shown=True))
    if inputs["method"] == "bootstrap":
        ids = [one["id"] for one in listed if one["kind"] in ("file", "absent") and one["id"] != "join/cni"]
        restart = [one for one in ids if one != "join/bootstrap-removed"] + [REGISTER]
        listed.append(_unit(state="started", enabled=True, restart_on=restart, wait=0))
    if not seen["need_bootstrap"]:
        listed.append(recorded(node, inputs, seen))
    return listed


def finished(node: Node, inputs: JoinInputs, seen: Seen) -> list[Setting]:
    """The settings once the Node is there: no secret is left, and what was joined is written down."""
    return [
        plan_types.absent("join/bootstrap-removed", join_files.BOOTSTRAP_KUBECONFIG),
        plan_types.absent("join/kubeadm-join", join_files.KUBEADM_JOIN),
        recorded(node, inputs, seen),
    ]


def undone(seen: Seen) -> list[Setting]:
    """The settings after a join that failed while it asked for a certificate: nothing runs, nothing new is left."""
    before = set(seen["present"])
    listed = [
        _unit(state="stopped", optional=True),
        plan_types.absent("join/bootstrap-removed", join_files.BOOTSTRAP_KUBECONFIG),
        plan_types.absent("join/kubeadm-join", join_files.KUBEADM_JOIN),
        plan_types.absent("join/key-unused", join_files.PKI + "/kubelet-client.key.tmp"),
    ]
    listed += [plan_types.absent("join/undo" + path, path) for path in join_files.MADE if path not in before]
    folders = join_files.MADE_FOLDERS + join_files.STATE
    listed += [plan_types.absent("join/undo" + path, path, recursive=True) for path in folders if path not in before]
    unique = {one.get("path", one["id"]): one for one in listed}
    return list(unique.values())


def absent(inputs: JoinInputs, seen: Seen) -> list[Setting]:
    """The settings of leaving a cluster; what base made stays, so that the machine can join again.

    The record stays as long as the Node that it names.
    """
    listed = [_unit(state="stopped", optional=True)]
    kept = (join_files.CNI, join_files.RECORD)
    listed += [plan_types.absent("join/leave" + path, path) for path in join_files.MADE if path not in kept]
    if join_files.CNI in (seen.get("record") or {}).get("files", []):
        listed.append(plan_types.absent("join/leave" + join_files.CNI, join_files.CNI, shown=True))
    listed += _without_drop_ins(inputs, seen)
    folders = [path for path in join_files.MADE_FOLDERS if path != join_files.DROP_INS]
    listed += [plan_types.absent("join/leave" + path, path, recursive=True) for path in folders]
    # what is mounted below them is unmounted first, never emptied
    listed += [plan_types.absent("join/leave" + path, path, recursive=True) for path in join_files.STATE]
    return listed


def _without_drop_ins(inputs: JoinInputs, seen: Seen) -> list[Setting]:
    """The role's own drop-ins go, and their folder when nothing else is in it: a person may keep some there too."""
    names = {*(seen.get("record") or {}).get("drop_ins", []), *(inputs.get("kubelet_drop_ins") or {})}
    paths = [f"{join_files.DROP_INS}/{name}" for name in sorted(names) if "/" not in name]
    return [
        *(plan_types.absent("join/leave" + path, path, shown=True) for path in paths),
        plan_types.setting("absent", "join/leave" + join_files.DROP_INS, path=join_files.DROP_INS, keep_full=True),
    ]


def recorded(node: Node, inputs: JoinInputs, seen: Seen) -> Setting:
    """The facts file of a join."""
    kubelet = Kubelet(node, inputs)
    record = {
        "node_name": kubelet.name,
        "api_server": inputs["api_server"],
        "ca_hashes": seen["ca_hashes"],
        "method": inputs["method"],
        "kubelet": kubelet.version,
        "node_ips": kubelet.addresses,
        "drop_ins": sorted(inputs["kubelet_drop_ins"]),
        "files": [join_files.CNI] if inputs["cni_config"] else [],
    }
    return plan_types.file("join/record", join_files.RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n")


def secrets(node: Node, inputs: JoinInputs, seen: Seen, token: str) -> dict[str, str]:
    """Contents for node_settings' ``secrets``: what holds the token."""
    if not token or not seen["need_bootstrap"]:
        return {}
    if inputs["method"] == "kubeadm":
        whole = join_configuration(Kubelet(node, inputs), inputs, token, seen["ca_hashes"])
        return {"kubeadm-join": _yaml(whole)}
    return {"bootstrap-kubeconfig": join_files.bootstrap(inputs["api_server"], token)}


def _credentials(inputs: JoinInputs, seen: Seen) -> list[Setting]:
    listed = [plan_types.file("join/ca", join_files.CA, seen["ca_cert"])]
    if inputs["method"] == "kubeadm" and seen["need_bootstrap"]:
        # it writes these itself, and its preflight refuses a machine that has them, or a kubelet that runs
        mine = (join_files.CA, join_files.BOOTSTRAP_KUBECONFIG, join_files.KUBECONFIG, join_files.CLIENT_PEM)
        return [_unit(state="stopped", optional=True)] + [
            plan_types.absent("join/before" + path, path) for path in mine
        ]
    if inputs["method"] == "kubeadm":
        return listed
    client = seen["client"]
    if seen["need_bootstrap"]:
        if client["state"] == "refused":
            # still valid by its dates, so the kubelet would go on using it
            listed.append(plan_types.absent("join/client-refused", join_files.CLIENT_PEM))
            listed.append(plan_types.absent("join/kubeconfig-refused", join_files.KUBECONFIG))
        listed.append(plan_types.secret_file("join/bootstrap", join_files.BOOTSTRAP_KUBECONFIG, "bootstrap-kubeconfig"))
        return listed
    listed.append(plan_types.absent("join/bootstrap-removed", join_files.BOOTSTRAP_KUBECONFIG))
    if client["server"] != inputs["api_server"]:
        listed.append(
            plan_types.file("join/kubeconfig", join_files.KUBECONFIG, join_files.final(inputs["api_server"]), "0600")
        )
    return listed


def _bootstrap_files(kubelet: Kubelet, inputs: JoinInputs, seen: Seen) -> list[Setting]:
    listed = [
        plan_types.directory("join/dir/kubelet", join_files.KUBELET_DIR, "0750"),
        plan_types.file("join/config", join_files.CONFIG, _yaml(kubelet.config()), "0600"),
    ]
    listed += _drop_ins(kubelet, inputs, "0600")
    for name in (seen.get("record") or {}).get("drop_ins", []):
        if name not in inputs["kubelet_drop_ins"] and "/" not in name:
            listed.append(plan_types.absent("join/drop-in/" + name, f"{join_files.DROP_INS}/{name}", shown=True))
    listed.append(_kubelet_env(inputs, kubelet.args()))
    return listed


def _kubelet_env(inputs: JoinInputs, args: list[str]) -> Setting:
    try:
        text = templates.render("join", "kubelet.env.j2", inputs, args=args)
    except templates.TemplateFailed as error:
        raise InvalidInput(str(error)) from error
    return plan_types.file("join/args", join_files.KUBELET_ENV, text)


def _unit(**fields: Any) -> Setting:
    return plan_types.unit("join/kubelet", UNIT, **fields)


def _kubeadm_files(kubelet: Kubelet, inputs: JoinInputs) -> list[Setting]:
    """Settings of the files that `kubeadm join` reads; the one with the token comes from node_settings' secrets."""
    if systems.minor_number(kubelet.version) < _KUBEADM_SINCE:
        raise InvalidInput(f"join_method: kubeadm needs Kubernetes 1.31 or newer, the kubelet is {kubelet.version}")
    flags = [
        f"--bootstrap-kubeconfig={join_files.BOOTSTRAP_KUBECONFIG}",
        f"--kubeconfig={join_files.KUBECONFIG}",
        f"--config={join_files.CONFIG}",
    ]
    if kubelet.reads_drop_ins:
        flags.append(f"--config-dir={join_files.DROP_INS}")
    whole_patch = _yaml({**_HEAD, **_over(kubelet, inputs)})
    return [
        plan_types.directory("join/dir/patches", join_files.PATCHES),
        plan_types.file("join/patch", join_files.PATCHES + "/kubeletconfiguration+merge.yaml", whole_patch),
        _kubelet_env(inputs, flags),
        plan_types.secret_file("join/kubeadm-join", join_files.KUBEADM_JOIN, "kubeadm-join"),
        *_drop_ins(kubelet, inputs, "0644"),
    ]


def _drop_ins(kubelet: Kubelet, inputs: JoinInputs, mode: str) -> list[Setting]:
    """The folder of drop-ins and the user's own; a kubelet that reads none is given none."""
    if not kubelet.reads_drop_ins:
        return []
    return [
        plan_types.directory("join/dir/drop-ins", join_files.DROP_INS),
        *(
            plan_types.file("join/drop-in/" + name, f"{join_files.DROP_INS}/{name}", _yaml({**_HEAD, **content}), mode)
            for name, content in sorted(inputs["kubelet_drop_ins"].items())
        ),
    ]


def join_configuration(kubelet: Kubelet, inputs: JoinInputs, token: str, ca_hashes: list[str]) -> dict[str, Any]:
    """The JoinConfiguration as a dictionary; it holds the token."""
    host, port = split_server(inputs["api_server"])
    extra = {
        "node-ip": ",".join(kubelet.addresses),
        "node-labels": ",".join("{}={}".format(*item) for item in sorted(inputs["labels"].items())),
        "cloud-provider": inputs["cloud_provider"],
    }
    extra.update(kubelet.extra_args())
    minutes, seconds = divmod(inputs["timeout"], 60)
    limit = f"{minutes}m{seconds}s"
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                "token": token,
                "caCertHashes": list(ca_hashes),
            }
        },
        "nodeRegistration": {
            "name": kubelet.name,
            "criSocket": kubelet.config()["containerRuntimeEndpoint"],
            "taints": kubelet.taints,
            "kubeletExtraArgs": [{"name": name, "value": value} for name, value in sorted(extra.items()) if value],
        },
        "patches": {"directory": join_files.PATCHES},
        "timeouts": {"discovery": limit, "kubeletHealthCheck": limit, "tlsBootstrap": limit},
    }


def _over(kubelet: Kubelet, inputs: JoinInputs) -> dict[str, Any]:
    """The fields of this machine; all else is the cluster's, from its ConfigMap kubelet-config."""
    made = kubelet.config()
    own = ("resolvConf", "kubeReserved", "systemReserved", "providerID", "volumePluginDir", "memorySwap", "maxPods")
    over = {name: made[name] for name in own if name in made}
    if not made.get("failSwapOn", True):
        over["failSwapOn"] = False
    if made.get("serverTLSBootstrap"):
        over["serverTLSBootstrap"] = True
    over.update(inputs["kubelet_config"])
    return over


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(plain(value), default_flow_style=False, sort_keys=True, allow_unicode=True, width=10000)
