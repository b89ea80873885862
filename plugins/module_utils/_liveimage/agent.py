# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Ironic's agent: what it is given, from the environment and from files, and what of that an Ignition says (pure)."""

from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from .._common.masking import configuration, without_login
from .._common.names import HOST_NAME
from .._common.ssh_access import InvalidHostKey, parse_host_key
from .._common.text import has_control, json_object
from .ignition import Config
from .image_error import ImageError

IRONIC_PORT, INSPECTOR_PORT = 6385, 5050
_SERVER = re.compile(r"[A-Za-z0-9:.%_-]{1,253}\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,500}\Z")
_KEY = re.compile(r"(ssh-[a-z0-9-]+|ecdsa-sha2-[a-z0-9-]+|sk-[a-z0-9@.-]+) [A-Za-z0-9+/]+=* ?[^\x00-\x1f\x7f]*\Z")
_PULL_SECRET = "/run/secrets/pull-secret"
VLAN_MODES = ("automatic", "always", "never")
_AUTOMATIC = ("", "auto")  # what others call it
_TRUE, _FALSE = ("1", "true", "yes", "on", "t", "y"), ("", "0", "false", "no", "off", "f", "n")
_ARGUMENT = re.compile(r"(?:^|.*\s)[A-Za-z][A-Za-z0-9._-]*=\S")
CONFIG, AUTH = "/etc/ironic-python-agent.conf", "/etc/authfile.json"
PROFILES = "/etc/NetworkManager/system-connections"
CA = "/etc/pki/ca-trust/source/anchors/ca.crt"
UNIT = "ironic-agent.service"
_ID_FILE = "/run/ironic-agent.cid"
_CLIENT_ID = "[connection]\nipv6.dhcp-duid=ll\nipv6.dhcp-iaid=mac\n"
_HOSTNAME = """#!/bin/sh
# A name from DHCPv6 that has a domain is kept; a host without any name gets the one it was given.
set -u
if [ -n "${DHCP6_FQDN_FQDN-}" ]; then
    case $DHCP6_FQDN_FQDN in
        *.*) hostnamectl --static --transient set-hostname "$DHCP6_FQDN_FQDN" ;;
    esac
fi
case $(uname -n) in
    localhost | localhost.localdomain) hostnamectl --transient set-hostname %s ;;
esac
exit 0
"""
_ISSUE = "This is a live image that inspects and provisions this host. It is not a node, and nothing on it is kept.\n"
_TRUST = """[Unit]
Description=Trust the further authorities
ConditionPathExists=%s
Before=network-online.target %s

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/update-ca-trust extract

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class AgentInputs:
    """What is the same for all hosts of a server; each field names the variable that the peer reads it from."""

    agent_image: str = ""  # IRONIC_AGENT_IMAGE
    ironic_urls: tuple[str, ...] = ()  # IRONIC_BASE_URL
    inspector_urls: tuple[str, ...] = ()  # IRONIC_INSPECTOR_BASE_URL
    insecure: bool = False  # the peer: always
    pull_secret: str = ""  # IRONIC_AGENT_PULL_SECRET, base64 there; the JSON of a registry's auth file
    vlan_interfaces: str = "automatic"  # IRONIC_AGENT_VLAN_INTERFACES
    ssh_keys: tuple[str, ...] = ()  # IRONIC_RAMDISK_SSH_KEY
    registries_conf: str = ""  # the content of REGISTRIES_CONF_PATH
    ip_options: str = ""  # IP_OPTIONS
    http_proxy: str = ""  # HTTP_PROXY
    https_proxy: str = ""  # HTTPS_PROXY
    no_proxy: str = ""  # NO_PROXY
    ntp_servers: tuple[str, ...] = ()  # ADDITIONAL_NTP_SERVERS
    ca_bundle: str = ""  # the content of CA_BUNDLE
    environment: Mapping[str, str] = field(default_factory=dict)  # more for the agent's container
    podman_options: tuple[str, ...] = ()

    def checked(self) -> AgentInputs:
        """The same with URLs made whole; the first value that cannot be is an error."""
        if not _IMAGE.match(self.agent_image):
            raise ImageError(
                f"agent_image (IRONIC_AGENT_IMAGE) {configuration(self.agent_image)!r} is no image reference"
            )
        ironic = urls("ironic_urls (IRONIC_BASE_URL)", self.ironic_urls, IRONIC_PORT)
        if not ironic:
            raise ImageError("ironic_urls (IRONIC_BASE_URL) is empty; give the URL of Ironic's API")
        found = [
            with_path(url, "/v1/continue")
            for url in urls("inspector_urls (IRONIC_INSPECTOR_BASE_URL)", self.inspector_urls, INSPECTOR_PORT)
        ]
        vlans = self.vlan_interfaces.strip().lower()
        vlans = "automatic" if vlans in _AUTOMATIC else vlans
        if vlans not in VLAN_MODES:
            raise ImageError(
                f"vlan_interfaces (IRONIC_AGENT_VLAN_INTERFACES) {self.vlan_interfaces!r} is not one of "
                f"{', '.join(VLAN_MODES)}"
            )
        if self.pull_secret:
            _check_pull_secret(self.pull_secret)
        for key in self.ssh_keys:
            ssh_key(key)
        for server in self.ntp_servers:
            if not _SERVER.match(server):
                raise ImageError(f"NTP server (ADDITIONAL_NTP_SERVERS) {server!r:.100} is no name or address")
        for name in ("http_proxy", "https_proxy", "no_proxy", "ip_options"):
            without_control(f"{name} ({name.upper()})", getattr(self, name))
        if self.ip_options and not _ARGUMENT.match(self.ip_options):
            raise ImageError(
                f"ip_options (IP_OPTIONS) {self.ip_options!r:.200} has no kernel argument in it, such as ip=dhcp or "
                "ip=dhcp6"
            )
        for name, value in self.environment.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ImageError(f"environment variable {name!r:.60} is no name")
            without_control(f"environment variable {name}", value)
        for option in self.podman_options:
            without_control("podman option", option)
        if self.ca_bundle and "-----BEGIN CERTIFICATE-----" not in self.ca_bundle:
            raise ImageError("ca_bundle (CA_BUNDLE) has no certificate in PEM")
        return replace(self, ironic_urls=ironic, inspector_urls=tuple(found), vlan_interfaces=vlans)


def from_environment(environ: Mapping[str, str], read: Callable[[str], str | None]) -> AgentInputs:
    """The inputs by the peer's variables; ``read`` gives a file's text, None when it is not there."""

    def file(variable: str) -> str:
        path = environ.get(variable, "")
        text = read(path) if path else ""
        if text is None:
            raise ImageError(f"{variable}: file {path} cannot be read")
        return text

    coded = environ.get("IRONIC_AGENT_PULL_SECRET", "") or (read(_PULL_SECRET) or "")
    insecure = environ.get("IRONIC_INSECURE", "").strip().lower()
    if insecure not in (*_TRUE, *_FALSE):
        raise ImageError(f"IRONIC_INSECURE {insecure!r:.60} is neither true nor false; give one of these two")
    return AgentInputs(
        agent_image=environ.get("IRONIC_AGENT_IMAGE", "").strip(),
        ironic_urls=words(environ.get("IRONIC_BASE_URL", "")),
        inspector_urls=words(environ.get("IRONIC_INSPECTOR_BASE_URL", "")),
        insecure=insecure in _TRUE,
        pull_secret=_decoded(coded.strip()),
        vlan_interfaces=environ.get("IRONIC_AGENT_VLAN_INTERFACES", ""),
        ssh_keys=tuple(line.strip() for line in environ.get("IRONIC_RAMDISK_SSH_KEY", "").splitlines() if line.strip()),
        registries_conf=file("REGISTRIES_CONF_PATH"),
        ip_options=environ.get("IP_OPTIONS", ""),
        http_proxy=environ.get("HTTP_PROXY", ""),
        https_proxy=environ.get("HTTPS_PROXY", ""),
        no_proxy=environ.get("NO_PROXY", ""),
        ntp_servers=words(environ.get("ADDITIONAL_NTP_SERVERS", "")),
        ca_bundle=file("CA_BUNDLE"),
    )


def words(text: str) -> tuple[str, ...]:
    """A list with commas, without blanks and empty entries."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def urls(name: str, given: tuple[str, ...], port: int) -> tuple[str, ...]:
    """URLs with their port; one that is none is refused by name."""
    found = []
    for text in given:
        shown = f"{name}: {without_login(text)!r:.200}"
        try:
            parts = urllib.parse.urlsplit(text)
            own_port = parts.port
        except ValueError as error:
            why = "" if "@" in text else f": {error}"  # which may repeat a part of a login
            raise ImageError(f"{shown} is no URL{why}") from error
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or re.search(r"[\s\"'\\<>]", text)
            or "@" in parts.netloc
        ):
            raise ImageError(f"{shown} is no http or https URL without credentials")
        if own_port == 0:
            raise ImageError(f"{shown} has the port 0, which no server has")
        netloc = parts.netloc if own_port else f"{parts.netloc.rstrip(':')}:{port}"
        found.append(urllib.parse.urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), parts.query, "")))
    return tuple(found)


def with_path(url: str, path: str) -> str:
    """The URL that ends with a path, which it may have already."""
    parts = urllib.parse.urlsplit(url)
    if parts.path.endswith(path):
        return url
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, parts.query, ""))


def host_name(name: str) -> str:
    """A name by RFC 1123, in lower case."""
    lower = name.lower()
    if len(lower) > 253 or not HOST_NAME.fullmatch(lower):
        raise ImageError(
            f"hostname {name!r:.300} is not one by RFC 1123: letters, digits and hyphens, parts of at most 63 "
            "characters"
        )
    return lower


def ssh_key(line: str) -> str:
    """A line for authorized_keys."""
    try:
        parse_host_key(line)
    except InvalidHostKey as error:
        raise ImageError(
            f"ssh_keys (IRONIC_RAMDISK_SSH_KEY): {line!r:.60} is no line of a .pub file: {error}"
        ) from error
    if not _KEY.match(line):
        raise ImageError(f"ssh_keys (IRONIC_RAMDISK_SSH_KEY): {line!r:.60} is no line of a .pub file")
    return line


def without_control(what: str, text: str) -> str:
    if has_control(text):
        raise ImageError(f"{what} has a line break or another control character")
    return text


def _decoded(coded: str) -> str:
    """A pull secret as JSON; the peer takes it in base64."""
    if not coded or coded.lstrip().startswith("{"):
        return coded
    try:
        return base64.b64decode("".join(coded.split()), validate=True).decode("utf-8")
    except ValueError as error:
        raise ImageError("IRONIC_AGENT_PULL_SECRET is neither JSON nor base64") from error


def _check_pull_secret(text: str) -> None:
    if not isinstance((json_object(text) or {}).get("auths"), dict):
        raise ImageError("pull_secret (IRONIC_AGENT_PULL_SECRET) is no JSON object with 'auths'")


@dataclass(frozen=True)
class Host:
    """What is a host's own. ``profiles``: NetworkManager keyfiles by name; ``files``: path → (content, mode)."""

    hostname: str = ""
    profiles: Mapping[str, str] = field(default_factory=dict)
    has_network_data: bool = False
    files: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


def build(given: AgentInputs, host: Host) -> Config:
    """The configuration of a host; equal inputs give equal bytes."""
    inputs = given.checked()
    hostname = host_name(host.hostname) if host.hostname else ""
    config = Config()
    config.file(CONFIG, _settings(inputs, host), 0o644, overwrite=False)
    for name in sorted(host.profiles):
        config.file(f"{PROFILES}/{name}", host.profiles[name], 0o600)
    if inputs.pull_secret:
        config.file(AUTH, inputs.pull_secret, 0o600)
    if inputs.ssh_keys:
        config.user("core", inputs.ssh_keys)
    if inputs.ca_bundle:
        config.file(CA, inputs.ca_bundle, 0o644)
        config.unit("kubenode-ca-trust.service", _TRUST % (CA, UNIT), enabled=True)
    config.file("/etc/NetworkManager/conf.d/clientid.conf", _CLIENT_ID, 0o644)
    if inputs.ntp_servers:
        lines = "".join(f"server {server} iburst\n" for server in inputs.ntp_servers)
        config.file("/etc/chrony.conf", "\n" + lines, append=True)
    if hostname:
        config.file("/etc/NetworkManager/dispatcher.d/01-hostname", _HOSTNAME % hostname, 0o744)
    if inputs.registries_conf:
        config.file("/etc/containers/registries.conf", inputs.registries_conf, 0o644)
    config.file("/etc/issue.d/ipa.issue", _ISSUE, 0o644)
    config.file("/etc/motd.d/ipa.motd", _motd(inputs, host, hostname), 0o644)
    for path, (data, mode) in sorted(host.files.items()):
        config.file(path, data, mode)
    config.unit(UNIT, unit(inputs, host, hostname), enabled=True)
    for name, text in sorted(host.units.items()):
        config.unit(name, text, enabled=True)
    return config


def unit(inputs: AgentInputs, host: Host, hostname: str) -> str:
    """The agent's unit; systemd reads every value back as it was given, with any characters."""
    command = [
        "/usr/bin/podman", "run", "--detach", "--replace", "--rm", "--cgroups=no-conmon", "--sdnotify=conmon",
        "--cidfile=" + _ID_FILE, "--privileged", "--network=host", "--ipc=host", "--uts=host",
        f"--volume={CONFIG}:/etc/ironic-python-agent/ignition.conf", "--volume=/dev:/dev", "--volume=/sys:/sys",
        "--volume=/run/dbus/system_bus_socket:/run/dbus/system_bus_socket", "--volume=/:/mnt/coreos",
        "--volume=/run/udev:/run/udev",
        "--env=IPA_COREOS_IP_OPTIONS=" + inputs.ip_options,
        "--env=IPA_COREOS_COPY_NETWORK=" + ("true" if host.profiles else "false"),
        "--env=IPA_DEFAULT_HOSTNAME=" + hostname,
        *(f"--env={name}={value}" for name, value in sorted(inputs.environment.items())),
    ]  # fmt: skip
    if inputs.pull_secret:
        command.append("--authfile=" + AUTH)
    command += [*inputs.podman_options, "--name=ironic-agent", inputs.agent_image]
    proxies = [(name, getattr(inputs, name.lower())) for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")]
    lines = [
        "[Unit]", "Description=Ironic agent", "After=network-online.target kubenode-ca-trust.service",
        "Wants=network-online.target", "StartLimitIntervalSec=0", "",
        "[Service]", "Type=notify", "NotifyAccess=all", "Restart=on-failure", "RestartSec=5",
        "TimeoutStartSec=infinity",
        *("Environment=" + quoted(f"{name}={value}") for name, value in proxies if value),
        "ExecStartPre=/bin/rm -f " + _ID_FILE,
        "ExecStart=" + " ".join([command[0], *(quoted(word, variables=True) for word in command[1:])]),
        "ExecStop=-/usr/bin/podman stop --ignore --cidfile=" + _ID_FILE,
        "ExecStopPost=-/usr/bin/podman rm --force --ignore --cidfile=" + _ID_FILE, "",
        "[Install]", "WantedBy=multi-user.target",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def quoted(word: str, *, variables: bool = False) -> str:
    """One word of a unit file: specifiers and quotes as they are; in a command line, dollar signs too."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if variables:
        text = text.replace("$", "$$")
    return f'"{text}"'


def _settings(inputs: AgentInputs, host: Host) -> str:
    """The agent's own file (oslo.config)."""
    with_vlans = inputs.vlan_interfaces == "always" or (
        inputs.vlan_interfaces == "automatic" and not host.has_network_data
    )
    values = {
        "api_url": ",".join(inputs.ironic_urls),
        "inspection_callback_url": ",".join(inputs.inspector_urls),
        "insecure": str(inputs.insecure),
        "enable_vlan_interfaces": "all" if with_vlans else "",
    }
    return "[DEFAULT]\n" + "".join(f"{key} = {value.replace('$', '$$')}\n" for key, value in values.items())


def _motd(inputs: AgentInputs, host: Host, hostname: str) -> str:
    """What is shown at a login."""
    rows = {
        "Ironic": ", ".join(inputs.ironic_urls),
        "Inspector": ", ".join(inputs.inspector_urls),
        "Agent": inputs.agent_image,
        "Hostname": hostname,
        "Network": "as given for this host" if host.profiles else "",
    }
    text = "".join(f"  {key + ':':<10} {value}\n" for key, value in rows.items() if value)
    return f"{_ISSUE}\n{text}\n  Look at: journalctl -u {UNIT}; nmcli; podman ps\n"
