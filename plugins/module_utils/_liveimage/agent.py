# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The Ignition that starts the Ironic agent on a host: its settings, its unit, the host's network and name (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .agent_inputs import AgentInputs, host_name
from .ignition import Config

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
class Host:
    """What is a host's own. ``profiles``: NetworkManager keyfiles by name; ``files``: path → (content, mode)."""

    hostname: str = ""
    profiles: Mapping[str, str] = field(default_factory=dict)
    has_network_data: bool = False
    files: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    ssh_keys: tuple[str, ...] = ()


def build(given: AgentInputs, host: Host) -> Config:
    """The configuration of a host; equal inputs give equal bytes."""
    inputs = given.checked()
    hostname = host_name(host.hostname) if host.hostname else ""
    config = Config()
    config.file(CONFIG, _settings(inputs, host), 0o644, overwrite=False)
    for name in sorted(host.profiles):
        config.file("%s/%s" % (PROFILES, name), host.profiles[name], 0o600)
    if inputs.pull_secret:
        config.file(AUTH, inputs.pull_secret, 0o600)
    keys = [*inputs.ssh_keys, *host.ssh_keys]
    if keys:
        config.user("core", keys)
    if inputs.ca_bundle:
        config.file(CA, inputs.ca_bundle, 0o644)
        config.unit("kubenode-ca-trust.service", _TRUST % (CA, UNIT), enabled=True)
    config.file("/etc/NetworkManager/conf.d/clientid.conf", _CLIENT_ID, 0o644)
    if inputs.ntp_servers:
        lines = "".join("server %s iburst\n" % server for server in inputs.ntp_servers)
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
    """The agent's unit; whatever a value has in it, systemd reads it back as it was given."""
    command = [
        "/usr/bin/podman", "run", "--detach", "--replace", "--rm", "--cgroups=no-conmon", "--sdnotify=conmon",
        "--cidfile=" + _ID_FILE, "--privileged", "--network=host", "--ipc=host", "--uts=host",
        "--volume=%s:/etc/ironic-python-agent/ignition.conf" % CONFIG, "--volume=/dev:/dev", "--volume=/sys:/sys",
        "--volume=/run/dbus/system_bus_socket:/run/dbus/system_bus_socket", "--volume=/:/mnt/coreos",
        "--volume=/run/udev:/run/udev",
        "--env=IPA_COREOS_IP_OPTIONS=" + inputs.ip_options,
        "--env=IPA_COREOS_COPY_NETWORK=" + ("true" if host.profiles else "false"),
        "--env=IPA_DEFAULT_HOSTNAME=" + hostname,
        *("--env=%s=%s" % pair for pair in sorted(inputs.environment.items())),
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
        *('Environment=%s' % quoted("%s=%s" % pair) for pair in proxies if pair[1]),
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
    return '"%s"' % text


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
    return "[DEFAULT]\n" + "".join("%s = %s\n" % (key, value.replace("$", "$$")) for key, value in values.items())


def _motd(inputs: AgentInputs, host: Host, hostname: str) -> str:
    """What somebody sees who logs in."""
    rows = {
        "Ironic": ", ".join(inputs.ironic_urls),
        "Inspector": ", ".join(inputs.inspector_urls),
        "Agent": inputs.agent_image,
        "Hostname": hostname,
        "Network": "as given for this host" if host.profiles else "",
    }
    text = "".join("  %-10s %s\n" % (key + ":", value) for key, value in rows.items() if value)
    return "%s\n%s\n  Look at: journalctl -u %s; nmcli; podman ps\n" % (_ISSUE, text, UNIT)
