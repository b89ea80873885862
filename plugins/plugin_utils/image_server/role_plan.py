# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role image_server does on a machine: queries, refusals, downloads and settings (pure)."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import secrets as random
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import without_login
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import known_arch
from ansible_collections.kubenode.provision.plugins.module_utils._node import node_artifacts
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings.context import Setting

from ..node_plan import templates
from ..node_plan.plan_types import absent, file, setting
from ..role_specs import plain
from . import pack_program, role_inputs
from .role_inputs import RoleInputs

PACKAGES = ("python3-httptools", "python3-yaml")
_NO_FILES = {"directory": "a directory", "other": "a pipe, a socket or a device"}
_LEAST_SYSTEMD = 247  # LoadCredential, ProcSubset
#: Files that the running service reads again at a reload, without cutting a connection.
_RELOADED = ("tls_key", "tls_certificate")
_PROGRAM = re.compile(re.escape(role_inputs.PROGRAMS) + r"/[0-9a-f]{16}\.pyz")
_BASE = re.compile(re.escape(role_inputs.BASES) + r"/coreos(_[a-z0-9_]+)?\.(iso|initramfs)")
_FETCHED = re.compile(r"image-server-[a-z0-9_]+-(iso|initramfs)")
_GROUPED = {"owner": "root", "group": role_inputs.USER}
_FOLDERS = (role_inputs.CONFIG, role_inputs.DATA, role_inputs.BASES, role_inputs.NMSTATE, role_inputs.OVERLAYS)
#: Files that the service reads at its start.
_CONFIGURATION = {
    "environment": role_inputs.ENVIRONMENT,
    "secret": role_inputs.SECRET,
    "pull_secret": role_inputs.PULL_SECRET,
    "tls_key": role_inputs.TLS_KEY,
    "tls_certificate": role_inputs.TLS_CERTIFICATE,
    "registries_conf": role_inputs.REGISTRIES,
    "ca_bundle": role_inputs.CA_BUNDLE,
}
#: purposes that need nothing that was seen on the machine
_WITHOUT_NODE = ("inputs", "queries", "artifacts", "unfit", "junk")
Facts = Mapping[str, Any]


def image_server_plan(
    inputs: Mapping[str, Any], purpose: str, node: Facts | None = None, record: Facts | None = None,
    found: Facts | None = None,
) -> Any:  # fmt: skip
    """What the role asks for; a ValueError names all that is wrong.

    ``inputs``: for ``inputs``, the role's variables without ``image_server_``; else what ``inputs`` returned.
    ``purpose``: ``inputs`` (checked, with defaults), ``refusals`` (why this machine cannot become an image server),
    ``warnings`` (what may not work as it is meant), ``missing`` (Debian packages to install), ``url`` (where machines
    find the images), ``unfit`` (why the server would not start, by what ``trial`` ``found``), ``junk`` (fetched files
    that are no bases, by the same), or the options of a module: ``queries`` of node_info, ``artifacts``, ``trial`` of
    command, ``settings`` and ``secrets``. ``record``: what an earlier run wrote.
    """
    inputs_, node_, record_ = plain(inputs), plain(node), plain(record) or {}
    answers: dict[str, Callable[[], Any]] = {
        "inputs": lambda: role_inputs.checked(inputs_),
        "queries": lambda: queries(inputs_),
        "refusals": lambda: refusals(inputs_, node_),
        "warnings": lambda: warnings(inputs_, node_),
        "missing": lambda: missing(inputs_, node_),
        "url": lambda: url(inputs_, node_),
        "artifacts": lambda: artifacts(inputs_),
        "trial": lambda: trial(inputs_, node_),
        "unfit": lambda: unfit(inputs_, plain(found) or {}),
        "junk": lambda: junk(inputs_, plain(found) or {}),
        "settings": lambda: settings(inputs_, node_, record_),
        "secrets": lambda: secrets(inputs_, node_),
    }
    if purpose not in answers:
        raise ValueError(f"image_server_plan: {purpose!r} must be one of {', '.join(answers)}")
    needs_node = purpose not in _WITHOUT_NODE
    if not isinstance(inputs, Mapping) or (needs_node and not isinstance(node, Mapping)):
        raise ValueError(f"image_server_plan: {purpose} needs a dictionary{' and node' if needs_node else ''}")
    return answers[purpose]()


def queries(inputs: RoleInputs) -> dict[str, list[str]]:
    """Options for node_info."""
    given = [source["path"] for _arch, _kind, source in _sources(inputs) if "path" in source]
    given += [inputs["python"]] if inputs["python"] else []
    return {"packages": list(PACKAGES), "files": [role_inputs.RECORD, role_inputs.UNIT_FILE, *map(_normal, given)]}


def refusals(inputs: RoleInputs, node: Facts) -> list[str]:
    """Why this machine cannot become an image server; a line each."""
    found = []
    if node["uid"] != 0:
        found.append(f"the role needs the rights of root, but tasks run as user id {node['uid']}; set become: true")
    if not node["systemd"] or node["systemd"] < _LEAST_SYSTEMD:
        found.append(f"systemd is {node['systemd'] or 'absent'}; the service needs {_LEAST_SYSTEMD} or newer")
    if inputs["state"] == "absent":
        return found
    if inputs["python"]:
        is_what = _no_file(inputs["python"], node)
        if is_what:
            found.append(
                f"image_server_python is {inputs['python']!r}, and {is_what}; make a Python 3.8 or newer with httptools"
                " and PyYAML there before the role runs, or name the one that there is"
            )
    elif node["package_manager"] != "apt":
        found.append(
            f"the machine's package manager is {node['package_manager']}, whose distributions do not package both"
            f" {' and '.join(PACKAGES)}; make a Python 3.8 or newer with httptools and PyYAML, and name it in"
            " image_server_python (such as /opt/image-server/bin/python3)"
        )
    elif not inputs["manage_packages"] and missing(inputs, node, True):
        found.append(
            f"{', '.join(missing(inputs, node, True))} not installed, and image_server_manage_packages is false;"
            " install what is missing"
        )
    if inputs["agent_image"] and own_architecture(inputs, node) not in inputs["bases"]:
        found.append(
            f"image_server_bases has {', '.join(sorted(inputs['bases']))}, and the hosts' images are made of that for"
            f" {own_architecture(inputs, node)}; add it, or name another one in image_server_architecture"
        )
    for arch, kind, source in _sources(inputs):
        is_what = _no_file(source["path"], node) if "path" in source else ""
        if is_what:
            found.append(
                f"image_server_bases[{arch}].{kind}.path is {source['path']!r}, and {is_what}; bring the base there"
                " before the role runs, name the file that it is in, or give url and sha256 instead"
            )
    if not inputs["publish_addr"] and not _address(node):
        found.append("the machine has no default route; give the URL it is reached by in image_server_publish_addr")
    return found


def _no_file(path: str, node: Facts) -> str:
    """Why there is no file at a path that the machine was asked for; "" when there is one."""
    here = node["files"][_normal(path)]["leads_to"]
    if here is None:
        return "no such file is on the machine"
    return "" if here == "file" else f"it is {_NO_FILES[here]}"


def _normal(path: str) -> str:
    """A path as node_info takes it."""
    return "/" + posixpath.normpath(path).lstrip("/")


def warnings(inputs: RoleInputs, node: Facts) -> list[str]:
    """What may not work as it is meant; a line each."""
    found = list(inputs["warnings"])
    if inputs["state"] != "absent" and inputs["tls_key"]:
        published = url(inputs, node)
        name = urllib.parse.urlsplit(published).hostname or ""
        verdict = role_inputs.certificate_verdict(inputs["tls_certificate"], inputs["tls_key"], name)
        if verdict.refused:
            found.append(
                f"image_server_tls_certificate: {verdict.refused} ({published}); management controllers that verify"
                " certificates get no image"
            )
    return found


def missing(inputs: RoleInputs, node: Facts, even_unmanaged: bool = False) -> list[str]:
    """Debian packages that are to be installed."""
    if inputs["python"] or not (inputs["manage_packages"] or even_unmanaged):
        return []
    return [name for name in PACKAGES if not node["packages"].get(name)]


def own_architecture(inputs: RoleInputs, node: Facts) -> str:
    """The architecture whose base images are made of unless a host names another."""
    return str(inputs["architecture"] or known_arch(node["arch"]))


def url(inputs: RoleInputs, node: Facts) -> str:
    """Where machines find the images, without a slash at the end."""
    if inputs["publish_addr"]:
        return str(inputs["publish_addr"]).rstrip("/")
    host, port = role_inputs.address(inputs["bind_addr"])
    host = host or _address(node)
    scheme = "https" if inputs["tls_key"] else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def artifacts(inputs: RoleInputs) -> list[node_artifacts.Artifact]:
    """The bases to fetch, as node_artifacts takes them."""
    return [
        {
            "name": _artifact(arch, kind),
            "version": source["sha256"][:12],
            "url": source["url"],
            "sha256": source["sha256"],
            "kind": "binary",
            "install": [{"path": role_inputs.base(kind, arch), "mode": "0644"}],
        }
        for arch, kind, source in _sources(inputs)
        if "url" in source
    ]


#: Takes the program and its settings on standard input, so that nothing is written but for the moment.
_TRIAL = """
import base64, json, sys, tempfile
given = json.load(sys.stdin)
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/program", "wb") as file:
        file.write(base64.b64decode(given["program"]))
    sys.path.insert(0, folder + "/program")
    from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.command_line import trial
    sys.exit(trial(given["argv"], given["environ"], given))
"""


def trial(inputs: RoleInputs, node: Facts) -> dict[str, Any]:
    """Options for command: whether the server would start with these settings in place of the one that may run."""
    fetched = {artifact["name"]: artifact for artifact in artifacts(inputs)}
    bases = {}
    for arch, kind, source in _sources(inputs):
        files = [source["path"]] if "path" in source else [
            node_artifacts.part_path(fetched[_artifact(arch, kind)]), role_inputs.base(kind, arch)
        ]  # fmt: skip
        bases[_base_name(arch, kind, source)] = [kind, *files]
    python, given, _program, *words = arguments(inputs, "", url(inputs, node))
    stdin = {
        "program": base64.b64encode(pack_program.program_bytes(python)).decode("ascii"),
        "argv": words,
        "environ": {"DEPLOY_ISO": role_inputs.base("iso")},
        "unit": role_inputs.UNIT,
        "bases": bases,
    }
    return {"argv": [python, given, "-c", _TRIAL], "stdin": json.dumps(stdin)}


def unfit(inputs: RoleInputs, found: Facts) -> list[str]:
    """Why the server would not start, or has a base that is none; a line each. ``found``: the result of command."""
    if "rc" not in found:  # in check mode, before there are the packages
        return []
    problems = _problems(found)
    if problems is None:
        lines = (str(found.get("stderr") or found.get("msg") or "").strip() or "it says nothing").splitlines()
        return [_no_python(inputs, f"it cannot run the image server: {lines[-1][:200]}")]
    sources = {_base_name(arch, kind, source): (kind, source) for arch, kind, source in _sources(inputs)}
    return [_unfit(inputs, name, text, sources) for name, text in problems]


def junk(inputs: RoleInputs, found: Facts) -> list[str]:
    """The fetched files that are no bases, which nothing would install. ``found``: the result of command."""
    fetched = {artifact["name"]: artifact for artifact in artifacts(inputs)}
    refused = {name for name, _text in _problems(found) or ()}
    return [
        node_artifacts.part_path(fetched[_artifact(arch, kind)])
        for arch, kind, source in _sources(inputs)
        if "url" in source and _base_name(arch, kind, source) in refused
    ]


def _problems(found: Facts) -> list[tuple[str, str]] | None:
    """What the trial said: names of options and what is wrong with them; None when it said nothing of the kind."""
    if found.get("rc") != 0:
        return None
    try:
        said = json_value(str(found.get("stdout", "")).strip().rpartition("\n")[2])
        return [(str(name), str(text)) for name, text in said] if isinstance(said, list) else None
    except (TypeError, ValueError):
        return None


def _unfit(inputs: RoleInputs, name: str, text: str, sources: Mapping[str, tuple[str, Mapping[str, str]]]) -> str:
    if name in sources:
        kind, source = sources[name]
        given = without_login(source.get("path") or source["url"])
        wanted = {"iso": "the published live ISO", "initramfs": "the live initramfs that is published beside it"}[kind]
        return f"image_server_{name} is {given!r}: {text}; give {wanted}. The base that was there before stays"
    variables = {"images-bind-addr": "bind_addr", "metrics-addr": "metrics_addr", "nmstate": "nmstate"}
    if name not in variables:
        return _no_python(inputs, text)
    values: Mapping[str, object] = inputs
    fix = "" if name == "nmstate" else "; end what uses it, or give an address and a port that this machine has free"
    return f"image_server_{variables[name]} is {values[variables[name]]!r}: {text}{fix}"


def _no_python(inputs: RoleInputs, why: str) -> str:
    named = f"image_server_python is {inputs['python']!r}" if inputs["python"] else pack_program.PYTHON
    return f"{named}: {why}; give a Python 3.8 or newer that has httptools and PyYAML in image_server_python"


def _base_name(arch: str, kind: str, source: Mapping[str, str]) -> str:
    return f"bases[{arch}].{kind}.{'path' if 'path' in source else 'url'}"


def settings(inputs: RoleInputs, node: Facts, record: Facts) -> list[Setting]:
    """What node_settings is to bring about. ``record``: what an earlier run wrote down, empty at the first."""
    if inputs["state"] == "absent":
        return _absent(record)
    content = pack_program.program_bytes(inputs["python"] or pack_program.PYTHON)
    here = f"{role_inputs.PROGRAMS}/{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    mine, files, record = _record(inputs, node, here), _configuration(inputs, node), _believed(record)
    found = [
        *(
            setting("directory", f"folder{path}", step="folders", path=path, mode="0750", **_GROUPED)
            for path in _FOLDERS
        ),
        setting("file", "program", path=here, mode="0755", content_b64=base64.b64encode(content).decode("ascii")),
        setting("link", "launcher", step="program", path=role_inputs.LAUNCHER, target=here),
        *files,
        file("unit", role_inputs.UNIT_FILE, unit(inputs, here, url(inputs, node))),
        # before what it names: a run that is cut off leaves nothing that no record names
        *_outdated(record, mine),
        file("record", role_inputs.RECORD, json.dumps(mine, indent=1, sort_keys=True) + "\n"),
        *_links(inputs, node),
        *(
            setting(
                "file",
                f"host/{name}",
                path=role_inputs.host(name),
                mode="0640",
                content_secret=f"host/{name}",
                **_GROUPED,
            )
            for name in (*sorted(inputs["documents"]), *sorted(inputs["own"]))
        ),
    ]
    if inputs["firewall"] == "open":
        ports = [f"{role_inputs.address(inputs['bind_addr'])[1]}/tcp"]
        found.append(setting("firewall", "firewall", ports=ports))
    read_at_start = [item["id"] for item in files if item["id"] not in _RELOADED]
    restart_on = ["program", "unit", *read_at_start, "packages"]
    started = {"enabled": True, "state": "started", "restart_on": restart_on, "reload_on": list(_RELOADED)}
    found.append(setting("unit", "service", name=role_inputs.UNIT, wait=150, **started))
    # last, since the running one may still read it
    return [*found, *([absent("program/old", record["program"])] if record["program"] not in ("", here) else [])]


def secrets(inputs: RoleInputs, node: Facts) -> dict[str, str]:
    """Contents of the files that are shown nowhere; a naming secret of the server's own is new at each call."""
    if inputs["state"] == "absent":
        return {}
    found = {name: inputs[name] for name in ("pull_secret", "tls_key") if inputs[name]}
    found.update((f"host/{name}", text) for name, text in (*inputs["documents"].items(), *inputs["own"].items()))
    if _hidden(inputs):
        found["environment"] = environment_file(inputs, own_architecture(inputs, node))
    return {**found, "secret": (inputs["secret"] or random.token_hex(32)) + "\n"}


def _configuration(inputs: RoleInputs, node: Facts) -> list[Setting]:
    """The files of `_CONFIGURATION`; those of features that are off are removed."""
    secret = {"content_secret": "secret", "create_only": not inputs["secret"]}
    found = [setting("file", "secret", path=_CONFIGURATION["secret"], mode="0600", **secret)]
    environment = environment_file(inputs, own_architecture(inputs, node))
    shown = {"content_secret": "environment"} if _hidden(inputs) else {"content": environment}
    found.append(setting("file", "environment", path=_CONFIGURATION["environment"], mode="0600", **shown))
    values: Mapping[str, object] = inputs
    for name, mode, content in (
        ("pull_secret", "0600", {"content_secret": "pull_secret"}),
        # no credential of systemd, which the service would see a new one of only after a restart
        ("tls_key", "0640", {"content_secret": "tls_key", **_GROUPED}),
        ("tls_certificate", "0644", {"content": inputs["tls_certificate"]}),
        ("registries_conf", "0640", {"content": inputs["registries_conf"], **_GROUPED}),
        ("ca_bundle", "0640", {"content": inputs["ca_bundle"], **_GROUPED}),
    ):
        path = _CONFIGURATION[name]
        wanted = setting("file", name, path=path, mode=mode, **content)
        found.append(wanted if values[name] else absent(name, path))
    return found


def _hidden(inputs: RoleInputs) -> bool:
    """Whether the environment holds the password of a proxy."""
    return any("@" in inputs[name] for name in ("http_proxy", "https_proxy"))


def _record(inputs: RoleInputs, node: Facts, here: str) -> dict[str, Any]:
    usual = inputs["bases"].get(own_architecture(inputs, node), {})
    return {
        "program": here,
        "hosts": sorted([*inputs["documents"], *inputs["own"]]),
        "bases": sorted(
            [
                *(role_inputs.base(kind) for kind in usual),
                *(role_inputs.base(kind, arch) for arch, kind, _from in _sources(inputs)),
            ]
        ),
        "fetched": sorted(_artifact(arch, kind) for arch, kind, source in _sources(inputs) if "url" in source),
    }


def _outdated(record: Facts, mine: Facts) -> list[Setting]:
    """What an earlier run wrote and this one does not want: documents, bases, records of downloads."""
    hosts = sorted(set(record["hosts"]) - set(mine["hosts"]))
    files = sorted(set(record["bases"]) - set(mine["bases"]))
    fetched = sorted(set(record["fetched"]) - set(mine["fetched"]))
    return [
        *(absent(f"host/{name}", role_inputs.host(name)) for name in hosts),
        *(absent(f"base/{path.rpartition('/')[2]}", path) for path in files),
        *(absent(f"fetched/{name}", f"{role_inputs.ARTIFACTS}/{name}.json") for name in fetched),
    ]


def _believed(record: Facts) -> dict[str, Any]:
    """The record with only what this role writes, so that the role removes nothing else because of it."""
    given = {name: record.get(name) for name in ("hosts", "bases", "fetched")}
    parts = {name: found if isinstance(found, list) else [] for name, found in given.items()}
    here = str(record.get("program", ""))
    return {
        "program": here if _PROGRAM.fullmatch(here) else "",
        "hosts": [name for name in parts["hosts"] if role_inputs.is_host_file(name)],
        "bases": [path for path in parts["bases"] if _BASE.fullmatch(str(path))],
        "fetched": [name for name in parts["fetched"] if _FETCHED.fullmatch(str(name))],
    }


def _absent(record: Facts) -> list[Setting]:
    record = _believed(record)
    files = {
        "unit": role_inputs.UNIT_FILE,
        "launcher": role_inputs.LAUNCHER,
        **_CONFIGURATION,
        "digests": role_inputs.DIGESTS,
    }
    if record["program"]:
        files["program"] = record["program"]
    nothing: dict[str, Any] = {"hosts": [], "bases": [], "fetched": []}
    return [
        setting("unit", "service", name=role_inputs.UNIT, optional=True, state="stopped", enabled=False),
        *(absent(name, path) for name, path in files.items()),
        *_outdated(record, nothing),
        absent("record", role_inputs.RECORD),
    ]


def _links(inputs: RoleInputs, node: Facts) -> list[Setting]:
    """Bases that are on the machine already, and which of all the usual ones are."""
    own = own_architecture(inputs, node)
    found = {
        role_inputs.base(kind, arch): source["path"] for arch, kind, source in _sources(inputs) if "path" in source
    }
    found.update({role_inputs.base(kind): role_inputs.base(kind, own) for kind in sorted(inputs["bases"].get(own, {}))})
    return [
        setting("link", f"base/{path.rpartition('/')[2]}", path=path, target=target) for path, target in found.items()
    ]


def _sources(inputs: RoleInputs) -> list[tuple[str, str, Mapping[str, str]]]:
    return [(arch, kind, files[kind]) for arch, files in sorted(inputs["bases"].items()) for kind in sorted(files)]


def _artifact(arch: str, kind: str) -> str:
    return f"image-server-{arch}-{kind}"


def _address(node: Facts) -> str:
    """The address of the default route, version 4 first; empty when there is none."""
    for family in ("4", "6"):
        route = node["network"]["default"].get(family)
        if route:
            return str(route["address"])
    return ""


# --- the image server's unit and its environment file, as text (pure)


def unit(inputs: RoleInputs, programfile: str, publish: str) -> str:
    """The service's unit file. ``publish``: the URL that machines reach it by."""
    return templates.render(
        "image_server",
        role_inputs.UNIT + ".j2",
        {**inputs, "template_path": ()},
        user=role_inputs.USER,
        environment=role_inputs.ENVIRONMENT,
        credentials=credentials(inputs),
        command=" ".join(_word(word) for word in arguments(inputs, programfile, publish)),
        runtime=role_inputs.RUNTIME,
        data=role_inputs.DATA,
        port=role_inputs.address(inputs["bind_addr"])[1],
    )


def arguments(inputs: RoleInputs, programfile: str, publish: str) -> list[str]:
    """The program's command line; what begins with a dollar sign is replaced by systemd."""
    options = {
        "--images-bind-addr": inputs["bind_addr"],
        "--images-publish-addr": publish,
        "--metrics-addr": inputs["metrics_addr"] or "0",
        "--overlays-dir": role_inputs.OVERLAYS,
        "--secret-file": "${CREDENTIALS_DIRECTORY}/secret",
        "--urls-file": role_inputs.URLS,
        "--max-connections": str(inputs["max_connections"]),
        "--max-connections-per-address": str(inputs["max_connections_per_address"]),
        "--nmstate": inputs["nmstate"],
        "--log-level": inputs["log_level"],
    }
    if inputs["agent_image"]:
        options["--nmstate-dir"] = role_inputs.NMSTATE
    if inputs["pull_secret"]:
        options["--pull-secret-file"] = "${CREDENTIALS_DIRECTORY}/pull-secret"
    if inputs["tls_key"]:
        options.update({"--tls-cert": role_inputs.TLS_CERTIFICATE, "--tls-key": role_inputs.TLS_KEY})
    words = [word for option in options.items() for word in option]
    words.append("--unguessable" if inputs["unguessable"] else "--guessable")
    if inputs["signed_urls"]:
        words += ["--signed-urls", str(inputs["signed_urls"])]
    return [inputs["python"] or pack_program.PYTHON, "-I", programfile, *words]


def credentials(inputs: RoleInputs) -> dict[str, str]:
    """Name of each credential → the file of root's that it is read from."""
    found = {"secret": role_inputs.SECRET}
    if inputs["pull_secret"]:
        found["pull-secret"] = role_inputs.PULL_SECRET
    return found


def environment_file(inputs: RoleInputs, own: str) -> str:
    """The environment file: the bases, and the agent's settings in the words of image-customization-controller."""
    here = inputs["bases"].get(own, {})
    values = {
        # what is not there is not named, or the server would wait for it
        **({"DEPLOY_ISO": role_inputs.base("iso")} if "iso" in here else {}),
        **({"DEPLOY_INITRD": role_inputs.base("initramfs")} if "initramfs" in here else {}),
        "IMAGE_SHARED_DIR": role_inputs.BASES,
        **(role_inputs.environment(inputs) if inputs["agent_image"] else {}),
    }
    return "".join(f"{name}={quoted(value)}\n" for name, value in values.items())


def quoted(value: str) -> str:
    """A value of an environment file: nothing in it is special to systemd any more, line breaks included."""
    for special in ("\\", '"', "$", "`"):
        value = value.replace(special, "\\" + special)
    return f'"{value}"'


def _word(word: str) -> str:
    """A word of ExecStart: specifiers are switched off, and variables too, but for the one that systemd sets."""
    own = "${CREDENTIALS_DIRECTORY}"
    rest = word[len(own) :] if word.startswith(own) else word
    plain = rest.replace("%", "%%").replace("$", "$$")
    return (own if rest != word else "") + plain
