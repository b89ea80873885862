# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the role image_server, checked all at once before any machine is asked anything."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import tempfile
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, cast

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._common.masking import configuration, without_login
from ansible_collections.kubenode.provision.plugins.module_utils._common.names import HOST_NAME
from ansible_collections.kubenode.provision.plugins.module_utils._common.web import is_http_url
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import agent as agents
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import hosts, nmstate
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.bases import known_arch
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError

from .. import role_specs
from ..role_specs import plain
from . import pack_program
from .daemon import certificates, static_folders

# --- where the role image_server puts what, on the machine


USER = "kubenode-images"
UNIT = "kubenode-image-server.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
LAUNCHER = "/usr/local/bin/kubenode-image-server"
PROGRAMS = "/usr/local/lib/kubenode-image-server"

CONFIG = "/etc/kubenode-image-server"
ENVIRONMENT = CONFIG + "/environment"
SECRET = CONFIG + "/secret"
PULL_SECRET = CONFIG + "/pull-secret"
TLS_CERTIFICATE = CONFIG + "/tls.crt"
TLS_KEY = CONFIG + "/tls.key"
REGISTRIES = CONFIG + "/registries.conf"
CA_BUNDLE = CONFIG + "/ca-bundle.pem"

DATA = "/var/lib/kubenode-image-server"
BASES = DATA + "/bases"
NMSTATE = DATA + "/nmstate"
OVERLAYS = DATA + "/overlays"

RUNTIME = "kubenode-image-server"  # below /run and /var/cache
URLS = f"/run/{RUNTIME}/urls.json"
DIGESTS = f"/var/cache/{RUNTIME}/base-digests.json"  # the service writes it
#: What earlier runs of the role wrote, so that only that is ever removed.
RECORD = "/etc/kubenode/image-server.json"
ARTIFACTS = "/etc/kubenode/artifacts"


def host(name: str) -> str:
    """A file of a host, by its name."""
    return f"{NMSTATE}/{name}"


def base(kind: str, arch: str = "") -> str:
    """The file of a base (``iso`` or ``initramfs``) by the program's rule; without architecture the usual one."""
    return f"{BASES}/coreos_{arch}.{kind}" if arch else f"{BASES}/coreos.{kind}"


# --- the variables

DOCUMENT, OWN = ".yaml", static_folders.OPTIONS_SUFFIX
_LONGEST_NAME = 240  # with the longest ending it is the name of a file
_NAME_RULE = (
    "the key is a host's name by RFC 1123: letters in lower case, digits, hyphens, dots between parts of at most 63"
    " characters"
)
ARCHITECTURES = ("x86_64", "aarch64", "ppc64le", "s390x")
#: variable → image-customization-controller's environment variable, which AgentInputs reads
AGENT = {
    "agent_image": "IRONIC_AGENT_IMAGE",
    "ironic_urls": "IRONIC_BASE_URL",
    "inspector_urls": "IRONIC_INSPECTOR_BASE_URL",
    "ironic_insecure": "IRONIC_INSECURE",
    "vlan_interfaces": "IRONIC_AGENT_VLAN_INTERFACES",
    "ssh_keys": "IRONIC_RAMDISK_SSH_KEY",
    "registries_conf": "REGISTRIES_CONF_PATH",
    "ip_options": "IP_OPTIONS",
    "http_proxy": "HTTP_PROXY",
    "https_proxy": "HTTPS_PROXY",
    "no_proxy": "NO_PROXY",
    "ntp_servers": "ADDITIONAL_NTP_SERVERS",
    "ca_bundle": "CA_BUNDLE",
}
_FILES = {"registries_conf": REGISTRIES, "ca_bundle": CA_BUNDLE}
_HIDDEN = ("hosts", "host_options", "pull_secret", "secret", "tls_key", "tls_certificate", "download_headers")
_URLS = ("publish_addr", "ironic_urls", "inspector_urls")
_RANGES = {
    "download_timeout": (1, 86400),
    "signed_urls": (0, 366 * 86400),
    "max_connections": (1, 100_000),
    "max_connections_per_address": (0, 100_000),
}
#: What the service does not see of the machine, and where its own bases are.
_UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/", "/dev/", f"{BASES}/")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z.-]*)):([0-9]{1,5})")
_SIZE = re.compile(r"[1-9][0-9]*[KMGT]?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SECRET = re.compile(r"[!-~]{32,1024}")


class RoleInputs(TypedDict):
    """The variables of the role without ``image_server_``, checked, and what is made of those of the hosts."""

    state: str
    hosts: dict[str, Any]  # host → NMState, as data or text
    host_options: dict[str, Any]
    bases: dict[str, dict[str, dict[str, str]]]  # architecture → iso, initramfs → url and sha256, or path
    architecture: str
    download_headers: dict[str, str]
    download_timeout: int  # seconds
    download_ca: list[str]
    bind_addr: str
    publish_addr: str
    metrics_addr: str
    unguessable: bool
    signed_urls: int  # seconds
    secret: str
    tls_certificate: str
    tls_key: str
    max_connections: int
    max_connections_per_address: int
    nmstate: str
    log_level: str
    memory_max: str
    allow: list[str]
    firewall: str
    manage_packages: bool
    python: str
    agent_image: str
    ironic_urls: list[str]
    inspector_urls: list[str]
    ironic_insecure: bool
    pull_secret: str
    vlan_interfaces: str
    ssh_keys: list[str]
    registries_conf: str
    ip_options: str
    http_proxy: str
    https_proxy: str
    no_proxy: str
    ntp_servers: list[str]
    ca_bundle: str
    documents: dict[str, str]  # file → NMState document, maybe with keys and passwords
    own: dict[str, str]  # file → what else is a host's own, maybe a secret
    warnings: list[str]


@dataclass
class HostFiles:
    """File name → content: NMState documents, and what else is a host's own, which may hold secrets."""

    documents: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def host_files(
    given: Mapping[str, Any], options: Mapping[str, Any], bases: Mapping[str, Any], agent: AgentInputs | None, *,
    converted: bool,
) -> HostFiles:  # fmt: skip
    """Documents and options of all hosts; with ``agent``, each is built as the program will build it.

    ``converted``: documents by our own converter; what nmstatectl will say of them is only known on the machine.
    """
    found = HostFiles()
    for name in options:
        if name not in given:
            found.errors.append(f"image_server_host_options[{name}]: image_server_hosts has no such host; add it there")
    for name, network in given.items():
        if not is_host_name(name):
            found.errors.append(f"image_server_hosts is {str(name)[:120]!r}; {_NAME_RULE}")
            continue
        place = f"image_server_hosts[{name}]"
        try:
            text = _document_text(network, "an NMState document")
            parsed = nmstate.parse(text)
            if converted:
                found.warnings.extend(f"{place}: {warning}" for warning in nmstate.convert(parsed).warnings)
            found.documents[name + DOCUMENT] = text
            own = static_folders.HostOptions()
            if options.get(name):
                place = f"image_server_host_options[{name}]"
                own_text = _document_text(options[name], "options")
                own = _own_options(own_text, bases)
                found.own[name + OWN] = own_text
            if agent is not None:
                host = hosts.HostInputs(name=name, network=text if converted else None)
                hosts.build(replace(agent, **own.agent), own.laid_over(host))
        except (ImageError, TypeError, ValueError, RecursionError) as error:
            found.errors.append(f"{place}: {error}")
    return found


def _own_options(text: str, bases: Mapping[str, Any]) -> static_folders.HostOptions:
    own = static_folders.parse_options(text)
    if own.arch and known_arch(own.arch) not in bases:
        raise ImageError(f"arch is {own.arch!r}, and image_server_bases has {', '.join(sorted(bases)) or 'none'}")
    return own


def is_host_name(name: object) -> bool:
    """Whether this is a host's name by RFC 1123 in lower case, short enough for the names of its files."""
    return isinstance(name, str) and len(name) <= _LONGEST_NAME and bool(HOST_NAME.fullmatch(name))


def is_host_file(name: object) -> bool:
    """Whether this is the name of a file that the role writes for a host."""
    return isinstance(name, str) and any(
        name.endswith(end) and is_host_name(name[: -len(end)]) for end in (OWN, DOCUMENT)
    )


def _document_text(value: Any, what: str) -> str:
    """A file's content: text as it is, data as YAML; nothing is an empty file."""
    if value is None or value == "" or value == {}:
        return ""
    if isinstance(value, str):
        return value if value.endswith("\n") else value + "\n"
    if not isinstance(value, Mapping):
        raise TypeError(f"give {what}, as a dictionary or as text, or nothing")
    return yaml.safe_dump(plain(value), default_flow_style=False, sort_keys=False, allow_unicode=True, width=10000)


class InvalidInput(ValueError):
    """Variables that no image server could be made of; one line for each, with its name, its value and the fix."""


class _Problems(list[str]):
    def say(self, name: str, value: object, fix: str) -> None:
        """One wrong variable; secrets are named without their value, URLs without their login."""
        if name in _URLS:
            value = [without_login(str(one)) for one in value] if isinstance(value, list) else without_login(str(value))
        value = configuration(str(value))
        shown = "" if name.partition(".")[0].partition("[")[0] in _HIDDEN else f" is {value[:120]!r}"
        self.append(f"image_server_{name}{shown}; {fix}" if shown else f"image_server_{name}: {fix}")


def checked(given: Mapping[str, Any]) -> RoleInputs:
    """The variables (without their prefix) with their types and defaults; InvalidInput names all that is wrong."""
    unknown = sorted(set(given) - set(role_specs.options("image_server")))
    if unknown:
        raise InvalidInput(f"there is no variable image_server_{unknown[0]}")
    problems = _Problems()
    inputs = {name: _typed(name, given.get(name), problems) for name in role_specs.options("image_server")}
    inputs.update(documents={}, own={}, warnings=[])
    if not problems:
        for check in (_addresses, _numbers, _security, _bases, _agent, _hosts):
            check(inputs, problems)
    if problems:
        raise InvalidInput("\n".join(problems))
    return cast(RoleInputs, inputs)


def environment(inputs: Mapping[str, object]) -> dict[str, str]:
    """What the program reads about the agent, by the names in `AGENT`; what is empty is left out."""
    found = {variable: _worded(name, inputs[name]) for name, variable in AGENT.items()}
    return {variable: value for variable, value in found.items() if value}


def address(text: str) -> tuple[str, int]:
    """Host (empty: all addresses) and port; ValueError when it is neither ``:PORT`` nor ``ADDRESS:PORT``."""
    found = _ADDRESS.fullmatch(text)
    if not found or not 1 <= int(found[3]) <= 65535:
        raise ValueError(text)
    host = found[1] or found[2] or ""
    if found[1]:
        ipaddress.IPv6Address(found[1])
    elif host and host != "localhost":
        ipaddress.IPv4Address(host)
    return host, int(found[3])


def _typed(name: str, value: Any, problems: _Problems) -> Any:
    """The value in its default's type; numbers and truth values of the command line (-e) arrive as text."""
    option = role_specs.options("image_server")[name]
    default, choices = option["default"], option.get("choices")
    if value is None:
        return default
    if isinstance(default, bool):
        value = _WORDS.get(str(value).lower(), value)
    elif isinstance(default, int) and isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    elif name == "pull_secret" and isinstance(value, Mapping):
        value = json.dumps(value)
    elif isinstance(default, list) and isinstance(value, str):
        value = [value] if value else []
    kind = type(default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {bool: "true or false", int: "a number", list: "a list", dict: "a dictionary", str: "a text"}[kind]
        problems.say(name, value, f"give {wanted}")
        return default
    if kind is list and not all(isinstance(item, str) for item in value):
        problems.say(name, value, "give a list of texts")
        return default
    if choices and value not in choices:
        problems.say(name, value, f"give one of {', '.join(choices)}")
    return value


def _addresses(inputs: dict[str, Any], problems: _Problems) -> None:
    ports = {}
    for name in ("bind_addr", "metrics_addr"):
        text = inputs[name]
        if name == "metrics_addr" and text in ("", "0"):
            continue
        try:
            ports[name] = address(text)[1]
        except ValueError:
            problems.say(name, text, "give :PORT, ADDRESS:PORT or [IPv6]:PORT with a port from 1 to 65535")
    if len(set(ports.values())) < len(ports):
        problems.say("metrics_addr", inputs["metrics_addr"], "image_server_bind_addr has this port; give another one")
    if inputs["publish_addr"] and not _is_url(inputs["publish_addr"], bare=True):
        problems.say("publish_addr", inputs["publish_addr"], "give the URL that machines reach this server by, "
                     "such as http://192.0.2.1:8084")  # fmt: skip
    elif inputs["publish_addr"]:
        scheme = urllib.parse.urlsplit(inputs["publish_addr"]).scheme
        if scheme == "http" and inputs["tls_key"]:
            problems.say("publish_addr", inputs["publish_addr"], "the server has a certificate; give an https URL")
    for text in inputs["allow"]:
        try:
            # a zone may be any text
            ipaddress.ip_network("" if "%" in text else text)
        except ValueError:
            problems.say("allow", text, "give addresses and networks such as 192.0.2.0/24 or 2001:db8::/64")


def _is_url(text: str, bare: bool = False) -> bool:
    if not is_http_url(text) or re.search(r"[^!-~]|[\"'\\<>]", text):
        return False
    parts = urllib.parse.urlsplit(text)
    return not (bare and (parts.username or parts.query or parts.fragment or "%" in text or "$" in text))


def _numbers(inputs: dict[str, Any], problems: _Problems) -> None:
    for name, (least, most) in _RANGES.items():
        if not least <= inputs[name] <= most:
            problems.say(name, inputs[name], f"give a number from {least} to {most}")
    if inputs["memory_max"] and not _SIZE.fullmatch(inputs["memory_max"]):
        problems.say("memory_max", inputs["memory_max"], "give bytes, such as 512M")
    if inputs["python"] and not pack_program.INTERPRETER.fullmatch(inputs["python"]):
        problems.say("python", inputs["python"], "give the full path of an interpreter, without blanks")
    if inputs["architecture"] and inputs["architecture"] not in ARCHITECTURES:
        problems.say("architecture", inputs["architecture"], f"give one of {', '.join(ARCHITECTURES)}")


def _security(inputs: dict[str, Any], problems: _Problems) -> None:
    if inputs["secret"] and not _SECRET.fullmatch(inputs["secret"]):
        problems.say("secret", "", "give 32 to 1024 printable characters without blanks, the same on every replica")
    before = len(problems)
    for name, mark in (("tls_certificate", "CERTIFICATE"), ("tls_key", "PRIVATE KEY")):
        text = inputs[name]
        if text and not re.search(rf"-----BEGIN [A-Z ]*{mark}-----", text):
            problems.say(name, "", f"give it in PEM (no BEGIN … {mark} is in it)")
    if "ENCRYPTED" in inputs["tls_key"]:
        problems.say("tls_key", "", "it is encrypted, and the service has no passphrase for it; give it in plain PEM")
    if bool(inputs["tls_certificate"]) != bool(inputs["tls_key"]):
        problems.say("tls_certificate", "", "certificate and key come together; give image_server_tls_key too")
    if len(problems) == before and inputs["tls_key"] and inputs["state"] != "absent":
        try:
            wrong = certificate_verdict(inputs["tls_certificate"], inputs["tls_key"]).out_of_date
        except ImageError as error:
            wrong = str(error)
        if wrong:
            problems.append(f"image_server_tls_certificate and image_server_tls_key cannot be used: {wrong}")
    for header, value in inputs["download_headers"].items():
        if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", str(header)) or not re.fullmatch(r"[ -~]*", str(value)):
            problems.say("download_headers", "", "names are letters, digits and hyphens, values one line of ASCII")


def certificate_verdict(certificate: str, key: str, name: str = "") -> certificates.Verdict:
    """What clients that ask for this name will say of the pair; ImageError: no server can use it."""
    with tempfile.TemporaryDirectory(prefix="kubenode-tls-") as folder:  # 0700; OpenSSL reads files only
        for file, text in (("crt", certificate), ("key", key)):
            with open(os.open(f"{folder}/{file}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                target.write(text.encode("utf-8", "surrogatepass"))
        context = certificates.loaded(f"{folder}/crt", f"{folder}/key")
        return certificates.judged(context, f"{folder}/crt", name)


def _bases(inputs: dict[str, Any], problems: _Problems) -> None:
    for arch, files in inputs["bases"].items():
        place = f"bases[{arch}]"
        if arch not in ARCHITECTURES:
            problems.say(place, arch, f"the key is an architecture, one of {', '.join(ARCHITECTURES)}")
        elif not isinstance(files, Mapping) or not set(files) <= {"iso", "initramfs"} or "iso" not in files:
            problems.say(place, files, "give iso, and initramfs if you want, each with url and sha256, or with path")
        else:
            for kind, source in files.items():
                _base(f"{place}.{kind}", source, problems)


def _base(place: str, source: Any, problems: _Problems) -> None:
    if not isinstance(source, Mapping) or set(source) not in ({"url", "sha256"}, {"path"}):
        found = sorted(source) if isinstance(source, Mapping) else source
        problems.say(place, found, "give url and sha256, or path (of a file that is on the machine)")
    elif "path" in source:
        path = str(source["path"])
        if not re.fullmatch(r"/[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*", path) or ".." in path.split("/"):
            problems.say(f"{place}.path", path, "give the full path of a file on the machine")
        elif path.startswith(_UNSEEN):
            problems.say(f"{place}.path", path, "the service sees no file there; move it elsewhere")
    else:
        if not _is_url(str(source["url"])):
            problems.append(f"image_server_{place}.url: give an http or https URL")
        if not _SHA256.fullmatch(str(source["sha256"])):
            problems.say(f"{place}.sha256", source["sha256"], "give 64 lower-case hexadecimal digits")


def _hosts(inputs: dict[str, Any], problems: _Problems) -> None:
    agent = None
    if inputs["agent_image"] and not problems:
        environ = {**environment(inputs), "IRONIC_AGENT_PULL_SECRET": inputs["pull_secret"]}
        agent = agents.from_environment(environ, _reader(inputs)).checked()
    converted = inputs["nmstate"] == "builtin"
    made = host_files(inputs["hosts"], inputs["host_options"], inputs["bases"], agent, converted=converted)
    problems += made.errors
    inputs.update(documents=made.documents, own=made.own, warnings=made.warnings)


def _agent(inputs: dict[str, Any], problems: _Problems) -> None:
    """Each variable alone, by the program's own rules, so that all errors are reported at once."""
    if inputs["state"] == "absent":
        return
    if not inputs["agent_image"]:
        if inputs["hosts"]:
            problems.say("agent_image", "", "image_server_hosts needs the image of the agent that their images start")
    else:
        if not inputs["bases"]:
            problems.say("bases", "{}", "give the base that the hosts' images are made of")
        if not inputs["ironic_urls"]:
            problems.say("ironic_urls", "[]", "give the URL of Ironic's API, which the agent reports to")
    good = {"IRONIC_AGENT_IMAGE": "registry.example/agent", "IRONIC_BASE_URL": "http://192.0.2.1"}
    for name, variable in AGENT.items():
        if inputs[name] and inputs[name] != role_specs.options("image_server")[name]["default"]:
            _try(name, {**good, variable: _worded(name, inputs[name])}, _reader(inputs), inputs[name], problems)
    if inputs["pull_secret"]:
        _try("pull_secret", {**good, "IRONIC_AGENT_PULL_SECRET": inputs["pull_secret"]}, _reader(inputs), "", problems)
    for name in ("ironic_urls", "inspector_urls", "ntp_servers"):
        if any("," in item for item in inputs[name]):
            problems.say(name, inputs[name], "an entry has a comma; make two of it")


def _try(
    name: str, environ: Mapping[str, str], read: Callable[[str], str | None], value: Any, problems: _Problems
) -> None:
    try:
        agents.from_environment(environ, read).checked()
    except ImageError as error:
        if name.endswith("_proxy"):  # may hold a password
            problems.append(f"image_server_{name}: {error}")
        else:
            problems.say(name, value, str(error))
        return
    if any(ord(one) < 32 and one not in "\n\t" for text in environ.values() for one in text):
        problems.append(f"image_server_{name}: has a control character; remove it")


def _reader(inputs: Mapping[str, Any]) -> Callable[[str], str | None]:
    texts = {path: inputs[name] for name, path in _FILES.items()}
    return texts.get


def _worded(name: str, value: Any) -> str:
    if name in _FILES:
        return _FILES[name] if value else ""
    if isinstance(value, bool):
        return "true" if value else ""
    if isinstance(value, list):
        return ("\n" if name == "ssh_keys" else ",").join(item.strip() for item in value)
    return str(value)
