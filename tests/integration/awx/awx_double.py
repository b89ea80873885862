# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A double of AWX's API: it keeps what it is given, and says no where AWX 24.6 does (seen by running that one)."""

import json
import threading
import urllib.parse
from typing import Any

from tests.web_servers import Handler, Server

TOKEN = "t0ken-of-awx"
HEADERS = {"Content-Type": "application/json", "X-API-Product-Name": "AWX", "X-API-Product-Version": "24.6.1"}
PAGE = 25
_UNIFIED = ("projects", "inventory_sources", "job_templates", "workflow_job_templates")
#: List → the type of its objects, and the fields that they have besides name and description, with their defaults.
_FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "organizations": ("organization", {"max_hosts": 0, "default_environment": None}),
    "credential_types": ("credential_type", {"kind": "", "managed": False, "inputs": {}, "injectors": {}}),
    "credentials": ("credential", {"organization": None, "credential_type": None, "inputs": {}}),
    "execution_environments": (
        "execution_environment", {"organization": None, "image": "", "credential": None, "pull": ""},
    ),
    "projects": (
        "project",
        {"organization": None, "scm_type": "", "scm_url": "", "scm_branch": "", "scm_update_on_launch": False,
         "default_environment": None, "scm_revision": ""},
    ),
    "inventories": ("inventory", {"organization": None, "kind": "", "host_filter": None, "variables": ""}),
    "inventory_sources": (
        "inventory_source",
        {"inventory": None, "source": "", "source_path": "", "source_project": None, "credential": None,
         "execution_environment": None, "overwrite": False, "overwrite_vars": False, "update_on_launch": False,
         "update_cache_timeout": 0},
    ),
    "job_templates": (
        "job_template",
        {"organization": None, "inventory": None, "project": None, "playbook": "", "execution_environment": None,
         "job_type": "run", "extra_vars": "", "job_slice_count": 1, "survey_enabled": False,
         **{f"ask_{what}_on_launch": False for what in ("variables", "limit", "job_type", "diff_mode", "verbosity")}},
    ),
    "workflow_job_templates": (
        "workflow_job_template",
        {"organization": None, "extra_vars": "", "survey_enabled": False, "ask_variables_on_launch": False,
         "ask_limit_on_launch": False},
    ),
    "workflow_job_template_nodes": (
        "workflow_job_template_node",
        {"identifier": "", "workflow_job_template": None, "unified_job_template": None, "job_type": None,
         "success_nodes": []},
    ),
    "workflow_approval_templates": ("workflow_approval_template", {"timeout": 0}),
}  # fmt: skip
_UPDATE = {"id": 1, "type": "project_update", "status": "successful", "finished": "2026-01-01T00:00:00Z"}


class AwxDouble:
    """``objects``: all objects by their ids, as the API has them, with the list that each is in."""

    def __init__(self) -> None:
        self.objects: dict[int, tuple[str, dict[str, Any]]] = {}
        self.surveys: dict[int, dict[str, Any]] = {}
        self.associated: dict[tuple[int, str], list[int]] = {}
        #: every request that changes something: (method, path)
        self.writes: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        key = {"id": "ssh_key_data", "label": "SSH Private Key", "type": "string", "secret": True, "multiline": True}
        self._make("credential_types", {"name": "Machine", "kind": "ssh", "managed": True, "inputs": {"fields": [key]}})
        self._make("credentials", {"name": "Ansible Galaxy"})
        double = self

        class Request(Handler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                sent = self.body()
                body = json.loads(sent) if sent else None
                if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                    with double._lock:
                        status, answer = double._answer(self.command, self.path, body)
                else:
                    status, answer = 401, {"detail": "Authentication credentials were not provided."}
                data = b"" if status == 204 else json.dumps(answer).encode()
                self.reply(status, data, HEADERS)

            do_GET = do_POST = do_PATCH = do_DELETE = _serve

        server = Server(Request)
        self.url, self.close = server.url, server.close

    def named(self, name: str) -> dict[str, dict[str, Any]]:
        """The objects of a list by their names; nodes by what identifies them."""
        return {one.get("identifier") or one["name"]: one for kind, one in list(self.objects.values()) if kind == name}

    def _make(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        number = len(self.objects) + 1
        kind, fields = _FIELDS[name]
        made: dict[str, Any] = {"id": number, "type": kind, "url": f"/api/v2/{name}/{number}/"}
        if name != "workflow_job_template_nodes":
            made |= {"name": "", "description": ""}
        self.objects[number] = (name, {**made, **json.loads(json.dumps(fields))})
        self._set(number, given)
        return self.objects[number][1]

    def _set(self, number: int, given: dict[str, Any]) -> None:
        """The fields that objects of this list have; AWX says nothing of others, and keeps no null for a text."""
        _name, found = self.objects[number]
        for key in given.keys() & found.keys() - {"id", "type", "url"}:
            found[key] = "" if given[key] is None and isinstance(found[key], str) else given[key]

    def _shown(self, number: int) -> dict[str, Any]:
        name, found = self.objects[number]
        related, summary = {}, {}
        if name in ("job_templates", "workflow_job_templates"):
            related["survey_spec"] = f"{found['url']}survey_spec/"
        if name == "projects":
            summary["current_update"] = _UPDATE
        if name == "credentials" and found["credential_type"]:
            secret = {
                field["id"]
                for field in self.objects[found["credential_type"]][1]["inputs"]["fields"]
                if field.get("secret")
            }
            shown = {key: "$encrypted$" if key in secret else value for key, value in found["inputs"].items()}
            found = {**found, "inputs": shown}
        if name == "workflow_job_template_nodes":
            for key in ("workflow_job_template", "unified_job_template"):
                if found[key]:
                    other = self.objects[found[key]][1]
                    related[key] = other["url"]
                    summary[key] = {"id": other["id"], "name": other["name"], "description": other["description"]}
            found = {**found, "success_nodes": self.associated.get((number, "success_nodes"), [])}
        return {**found, "related": related, "summary_fields": summary}

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urllib.parse.urlsplit(path)
        words = url.path.strip("/").split("/")[2:]
        if method != "GET":
            self.writes.append((method, url.path))
        if words[0] == "project_updates":
            return 200, _UPDATE
        if len(words) == 1:
            if method == "POST":
                return 201, self._shown(self._make(words[0], body)["id"])
            return self._list(words[0], dict(urllib.parse.parse_qsl(url.query)))
        number = int(words[1])
        if self.objects.get(number, ("",))[0] != words[0]:
            return 404, {"detail": f"No {words[0]} matches the given query."}
        if len(words) == 2:
            if method == "PATCH":
                self._set(number, body)
            return 200, self._shown(number)
        if words[2] == "survey_spec":
            return self._survey(method, number, body)
        if words[2] == "create_approval_template":
            made = self._make("workflow_approval_templates", body)
            self._set(number, {"unified_job_template": made["id"]})
            return 201, self._shown(made["id"])
        return self._association(method, (number, words[2]), body)

    def _survey(self, method: str, number: int, body: Any) -> tuple[int, Any]:
        if method == "POST":
            if missing := [field for field in ("name", "description", "spec") if field not in body]:
                return 400, {"error": f"Field '{missing[0]}' is missing from survey spec."}
            if not body["spec"]:
                return 400, {"error": "'spec' doesn't contain any items."}
            self.surveys[number] = body
        elif method == "DELETE":
            self.surveys.pop(number, None)
        return 200, self.surveys.get(number, {}) if method == "GET" else {}

    def _association(self, method: str, key: tuple[int, str], body: Any) -> tuple[int, Any]:
        if self.objects[key[0]][0] == "workflow_approval_templates":
            return 404, {"detail": "Not found."}
        held = self.associated.setdefault(key, [])
        if method == "GET":
            return self._page([self._shown(other) for other in held], key[1], {})
        if body.get("disassociate"):
            held.remove(body["id"])
        else:
            held.append(body["id"])
        return 204, {}

    def _list(self, name: str, query: dict[str, str]) -> tuple[int, Any]:
        lists = _UNIFIED if name == "unified_job_templates" else (name,)
        if not set(lists) <= _FIELDS.keys() - {"workflow_approval_templates"}:
            return 404, {"detail": "The requested resource could not be found."}
        found = [self._shown(number) for number, (kind, _one) in self.objects.items() if kind in lists]
        given = {key: value for key, value in query.items() if key != "page"}
        for key, value in given.items():
            *path, last = key.split("__")
            if last == "in":
                found = [one for one in found if str(self._value(one, path)) in value.split(",")]
            elif name != "unified_job_templates" and [*path, last][0] not in {"name", "id", *_FIELDS[name][1]}:
                return 400, {"detail": f"{_FIELDS[name][0]} has no field named '{key}'"}
            else:
                found = [one for one in found if str(self._value(one, [*path, last])) == value]
        return self._page(found, name, query)

    def _value(self, one: dict[str, Any], path: list[str]) -> Any:
        """A field, also of an object that another field names."""
        value = one.get(path[0])
        return self._value(self.objects[value][1], path[1:]) if len(path) > 1 and value is not None else value

    def _page(self, found: list[dict[str, Any]], name: str, query: dict[str, str]) -> tuple[int, Any]:
        page = int(query.get("page", "1"))
        more = urllib.parse.urlencode({**query, "page": page + 1})
        further = f"/api/v2/{name}/?{more}" if page * PAGE < len(found) else None
        return 200, {"count": len(found), "next": further, "results": found[(page - 1) * PAGE : page * PAGE]}
