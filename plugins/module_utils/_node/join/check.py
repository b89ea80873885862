# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a machine finds out about a cluster before a change: CA, versions, clocks, token, name, certificate."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from ..._common.text import json_object
from .. import api_server
from ..api_server import Answer, Api, ApiError
from ..host import Host
from . import join_files
from .codes import JoinFailure

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")
#: Since 1.25 a kubelet may be three minors older, before that two.
_THREE_MINORS_SINCE = (1, 25)


def version_pair(text: str) -> tuple[int, int]:
    """(major, minor) of v1.36.4 and the like; raise ValueError for anything else."""
    found = _VERSION.match(text)
    if not found:
        raise ValueError(f"{text!r} is no version")
    return int(found.group(1)), int(found.group(2))


def skew_problem(kubelet: str, server: str) -> str:
    """Why these versions do not go together, empty when they do."""
    ours, theirs = version_pair(kubelet), version_pair(server)
    if ours[0] != theirs[0]:
        return f"kubelet {kubelet}, API server {server}: another major version"
    if ours > theirs:
        return f"kubelet {kubelet} is newer than the API server, which is {server}"
    most = 3 if ours >= _THREE_MINORS_SINCE else 2
    if theirs[1] - ours[1] > most:
        return f"kubelet {kubelet} is more than {most} minor versions older than the API server, which is {server}"
    return ""


_CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {
        "resourceAttributes": {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "verb": "create",
        }
    },
}
#: After this time, in seconds, a request is repeated whose answer decided nothing.
_AGAIN = 1.0


class Client(TypedDict):
    """The client certificate that is there: none, valid, lapsed, refused or unknown; its end, its Node, its server."""

    state: str
    not_after: float | None
    node: str
    server: str | None


class SeenNode(TypedDict):
    """The Node of this name; None where the cluster did not say."""

    exists: bool | None
    ready: bool | None
    machine_id: str | None
    #: That of the kubelet which has registered it or reported last, such as v1.37.1.
    kubelet_version: str | None
    #: Which playbook or module of this collection has cordoned it; None when it is not cordoned, or by a person.
    cordoned_by: str | None


class Seen(TypedDict):
    """What node_join_check saw, of the cluster from the machine and of an earlier join on it."""

    ca_cert: str
    ca_hashes: list[str]
    server_version: str
    #: seconds by which the API server's clock is ahead
    clock_skew: float | None
    token: str
    name: str
    client: Client
    node: SeenNode
    need_bootstrap: bool
    need_registration: bool
    #: /etc/kubenode/join.json
    record: dict[str, Any] | None
    #: paths of a join that are there
    present: list[str]


class Check:
    """One look. ``options`` are those of the module node_join_check; ``host`` is the machine."""

    def __init__(self, options: Mapping[str, Any], host: Host | None = None) -> None:
        self._options, self._host = options, host or Host()
        self._deadline: float = time.monotonic() + options["timeout"]
        self._token = options["token"]
        self.warnings: list[str] = []
        self.result: Seen = {
            "ca_cert": "",
            "ca_hashes": [],
            "server_version": "",
            "clock_skew": None,
            "token": "unknown" if self._token else "none",
            "name": "unknown",
            "client": {"state": "none", "not_after": None, "node": "", "server": None},
            "node": {"exists": None, "ready": None, "machine_id": None, "kubelet_version": None, "cordoned_by": None},
            "need_bootstrap": True,
            "need_registration": False,
            "record": None,
            "present": [],
        }

    def run(self) -> Seen:
        """Look at everything; raise :class:`JoinFailure` at the first that makes a join impossible."""
        result = self.result
        looked_at = join_files.MADE + join_files.MADE_FOLDERS + join_files.STATE + (join_files.CLIENT_PEM,)
        result["present"] = [path for path in looked_at if self._host.exists(path)]
        result["record"] = json_object(self._host.text(join_files.RECORD))
        try:
            result["ca_cert"] = self._trusted_ca()
            result["ca_hashes"] = [api_server.public_key_pin(one) for one in api_server.certificates(result["ca_cert"])]
            api = self._api()
            self._compare(self._answer(api, "/version"))
            self._own_certificate()
            if result["need_bootstrap"] and self._token:
                self._try_token()
                if self._options["signing"]:
                    self._look_for_signature()
        except (ApiError, api_server.DiscoveryError) as error:
            raise JoinFailure(error.code, str(error)) from error
        return result

    def _trusted_ca(self) -> str:
        options = self._options
        if options["ca_cert"]:
            if options["ca_hashes"]:
                api_server.matching_certificates(options["ca_cert"], set(options["ca_hashes"]))
            if not (options["jws"] and self._token):
                return str(options["ca_cert"])
        insecure = options["ca_cert"] or None
        token = self._token if options["jws"] else None
        info = self._cluster_info(Api(options["api_server"], insecure, timeout=self._seconds()))
        # also beside a CA that is given: what proves the cluster must agree
        found = api_server.discovered_ca(info, set(options["ca_hashes"]), token)
        return options["ca_cert"] or found

    def _cluster_info(self, api: Api) -> Any:
        answer = self._answer(api, _CLUSTER_INFO)
        if answer.status != 200:
            raise JoinFailure(
                "discovery_signature",
                f"{self._options['api_server']} answers {answer.status} for kube-public/cluster-info: {answer.message}",
            )
        return answer.body

    def _look_for_signature(self) -> None:
        """kubeadm would wait for it for minutes; one more look is for a token that was made right now."""
        try:
            api_server.discovered_ca(self._cluster_info(self._api()), set(), self._token)
        except api_server.DiscoveryError:
            if not self._wait():
                raise
            api_server.discovered_ca(self._cluster_info(self._api()), set(), self._token)

    def _compare(self, answer: Answer) -> None:
        """Version and clock, by an answer of the proven server."""
        options, result = self._options, self.result
        version = answer.body.get("gitVersion") if isinstance(answer.body, dict) else None
        if answer.status == 200 and version:
            result["server_version"] = str(version)
        else:
            # clusters may keep /version from strangers; the kubelet will find out
            self.warnings.append(f"{options['api_server']} does not tell its version ({answer.status})")
        result["clock_skew"] = answer.skew
        if answer.skew is not None and abs(answer.skew) > options["max_clock_skew"]:
            where = "behind" if answer.skew > 0 else "ahead of"
            raise JoinFailure(
                "clock_skew",
                f"the clock of this machine is {abs(answer.skew):.0f} s {where} that of the API server, "
                f"{options['max_clock_skew']} s are allowed",
            )
        if result["server_version"] and options["kubelet_version"]:
            problem = skew_problem(options["kubelet_version"], result["server_version"])
            if problem and options["version_check"] == "refuse":
                raise JoinFailure("version_skew", problem)
            if problem:
                self.warnings.append(problem)

    def _own_certificate(self) -> None:
        """What the kubelet's certificate is worth, and whether its Node is there."""
        client = self.result["client"]
        text = self._host.text(join_files.KUBECONFIG)
        client["server"] = join_files.server_of(text) if text else None
        pem = self._host.text(join_files.CLIENT_PEM)
        if pem is None or text is None:
            return
        try:
            certificate = api_server.certificates(pem)[0]
            end = api_server.validity(certificate)[1]
            client["not_after"] = end
            name = api_server.subject(certificate)["CN"]
        except api_server.BadCertificate as error:
            client["state"] = "refused"
            self.warnings.append(f"{join_files.CLIENT_PEM} cannot be read: {error}")
            return
        client["node"] = name[len("system:node:") :] if name.startswith("system:node:") else name
        if end <= time.time():
            client["state"] = "lapsed"
            return
        try:
            api = self._api(client_pem=self._host.path(join_files.CLIENT_PEM))
        except ApiError as error:
            client["state"] = "refused"
            self.warnings.append(str(error))
            return
        answer = self._answer(api, api_server.node_path(client["node"]))
        if answer.status == 401:
            client["state"] = "refused"
            self._refuse_foreign()
            return
        client["state"] = "valid"
        if client["node"] != self._options["node_name"]:
            raise JoinFailure(
                "joined_elsewhere",
                f"this machine is the node {client['node']} of this cluster, and is to be {self._options['node_name']}",
            )
        self.result["need_bootstrap"] = False
        self.result["name"] = "own"
        if answer.status == 404:
            # a kubelet that runs does not register again by itself
            self.result["need_registration"] = True
            self.result["node"]["exists"] = False
        elif answer.status == 200:
            self._note(answer.body)
            self._refuse_node_of_two()
        else:
            self.warnings.append(f"the API server answers {answer.status} for the Node: {answer.message}")

    def _refuse_node_of_two(self) -> None:
        """Two machines that joined with one name at the same moment have a good certificate each, and share a Node."""
        name, node, mine = self._options["node_name"], self.result["node"], self._options["machine_id"]
        if self._options["check_name"] and mine and node["machine_id"] and not is_own(node, mine):
            self.result["name"] = "taken"
            raise JoinFailure("name_taken", f"there is a Node {name}, which another machine registered")

    def _refuse_foreign(self) -> None:
        """A certificate that is good by its dates, but not here: was it given by another cluster?"""
        mine = self._host.text(join_files.CA)
        try:
            pins = {api_server.public_key_pin(one) for one in api_server.certificates(mine or "")}
        except api_server.BadCertificate:
            return
        if not pins & set(self.result["ca_hashes"]):
            client = self.result["client"]
            raise JoinFailure(
                "joined_elsewhere",
                f"this machine has a valid certificate of the node {client['node']} of the cluster at "
                f"{client['server']}",
            )

    def _try_token(self) -> None:
        options, result = self._options, self.result
        api = self._api(token=self._token)
        answer = api.post(_REVIEWS, _REVIEW)
        while answer.status in (429, 500, 503, 504) and self._wait():
            answer = api.post(_REVIEWS, _REVIEW)
        if answer.status == 401:
            result["token"] = "refused"
            name = api_server.split_token(self._token)[0]
            raise JoinFailure("token_refused", f"{options['api_server']} does not accept the token {name}")
        result["token"] = "accepted"
        status = answer.body.get("status") if isinstance(answer.body, dict) else None
        if answer.status in (200, 201) and isinstance(status, dict) and not status.get("allowed"):
            raise JoinFailure(
                "csr_forbidden", f"the token {self._token.split('.')[0]} may not create a certificate request"
            )
        self._look_for_name(api)

    def _look_for_name(self, api: Api) -> None:
        name = self._options["node_name"]
        answer = self._answer(api, api_server.node_path(name))
        if answer.status == 404:
            self.result["name"] = "free"
            self.result["node"]["exists"] = False
        elif answer.status == 200:
            self._note(answer.body)
            self.result["name"] = "own" if is_own(self.result["node"], self._options["machine_id"]) else "taken"
            if self.result["name"] == "taken" and self._options["check_name"]:
                raise JoinFailure("name_taken", f"there is a Node {name}, which another machine registered")

    def _note(self, node: Mapping[str, Any]) -> None:
        status = node.get("status") or {}
        self.result["node"] = {
            "exists": True,
            "ready": api_server.ready_condition(node).get("status") == "True",
            "machine_id": (status.get("nodeInfo") or {}).get("machineID"),
            "kubelet_version": (status.get("nodeInfo") or {}).get("kubeletVersion"),
            "cordoned_by": api_server.cordoned_by(node) or None,
        }

    def _api(self, **credentials: Any) -> Api:
        return Api(self._options["api_server"], self.result["ca_cert"], timeout=self._seconds(), **credentials)

    def _answer(self, api: Api, path: str) -> Answer:
        """GET until an answer comes that is no passing trouble, within the time of the module."""
        while True:
            try:
                answer = api.get(path)
                if answer.status not in (429, 500, 502, 503, 504) or not self._wait():
                    return answer
            except ApiError as error:
                if error.code != "api_unreachable" or not self._wait():
                    raise

    def _wait(self) -> bool:
        if time.monotonic() + _AGAIN >= self._deadline:
            return False
        time.sleep(_AGAIN)
        return True

    def _seconds(self) -> float:
        return max(1.0, min(10.0, self._deadline - time.monotonic()))


def is_own(node: SeenNode, machine_id: str) -> bool:
    """Whether the Node (exists, machine_id) was registered by this machine."""
    return bool(machine_id) and node["machine_id"] == machine_id
