# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image server's unit and its environment file, as text (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import inputs as inputs_
from . import paths, program

#: Ports below need a capability.
_FIRST_FREE_PORT = 1024
_HARDENING = """\
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateMounts=yes
PrivateDevices=yes
DevicePolicy=closed
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
KeyringMode=private
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
"""


def unit(inputs: Mapping[str, Any], programfile: str, publish: str) -> str:
    """The service's unit file. ``publish``: the URL that machines reach it by."""
    command = " ".join(_word(word) for word in arguments(inputs, programfile, publish))
    lines = [
        "# Made by the role kubenode.provision.image_server; changes are lost at its next run.",
        "[Unit]",
        "Description=Live images of kubenode.provision",
        "Wants=network-online.target",
        "After=network-online.target",
        "# It is never given up: machines that boot depend on it.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        f"User={paths.USER}",
        f"Group={paths.USER}",
        f"EnvironmentFile={paths.ENVIRONMENT}",
        *(f"LoadCredential={name}:{path}" for name, path in credentials(inputs).items()),
        f"ExecStart={command}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=always",
        "RestartSec=500ms",
        "WatchdogSec=30s",
        "TimeoutStartSec=600s",
        "TimeoutStopSec=20s",
        f"RuntimeDirectory={paths.RUNTIME}",
        "RuntimeDirectoryMode=0750",
        "# The digests of the bases, computed once for each.",
        f"CacheDirectory={paths.RUNTIME}",
        "CacheDirectoryMode=0700",
        f"WorkingDirectory={paths.DATA}",
        "LimitNOFILE=65536",
        "LimitCORE=0",
        "TasksMax=256",
        *([f"MemoryMax={inputs['memory_max']}"] if inputs["memory_max"] else []),
        "",
        *_capabilities(inputs),
        _HARDENING + "\n".join(_addresses(inputs)),
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def arguments(inputs: Mapping[str, Any], programfile: str, publish: str) -> list[str]:
    """The program's command line; what begins with a dollar sign is replaced by systemd."""
    found = [
        inputs["python"] or program.PYTHON,
        "-I",
        programfile,
        "--images-bind-addr",
        inputs["bind_addr"],
        "--images-publish-addr",
        publish,
        "--metrics-addr",
        inputs["metrics_addr"] or "0",
        "--overlays-dir",
        paths.OVERLAYS,
        "--secret-file",
        "${CREDENTIALS_DIRECTORY}/secret",
        "--urls-file",
        paths.URLS,
        "--max-connections",
        str(inputs["max_connections"]),
        "--max-connections-per-address",
        str(inputs["max_connections_per_address"]),
        "--nmstate",
        inputs["nmstate"],
        "--log-level",
        inputs["log_level"],
    ]
    if inputs["agent_image"]:
        found += ["--nmstate-dir", paths.NMSTATE]
    if inputs["pull_secret"]:
        found += ["--pull-secret-file", "${CREDENTIALS_DIRECTORY}/pull-secret"]
    if inputs["tls_key"]:
        found += ["--tls-cert", paths.TLS_CERTIFICATE, "--tls-key", paths.TLS_KEY]
    found.append("--unguessable" if inputs["unguessable"] else "--guessable")
    if inputs["signed_urls"]:
        found += ["--signed-urls", str(inputs["signed_urls"])]
    return found


def credentials(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Name of each credential → the file of root's that it is read from."""
    found = {"secret": paths.SECRET}
    if inputs["pull_secret"]:
        found["pull-secret"] = paths.PULL_SECRET
    return found


def environment(inputs: Mapping[str, Any], own: str) -> str:
    """The environment file: the bases, and the agent's settings in the words of image-customization-controller."""
    here = inputs["bases"].get(own, {})
    values = {
        # what is not there is not named, or the server would wait for it
        **({"DEPLOY_ISO": paths.base("iso")} if "iso" in here else {}),
        **({"DEPLOY_INITRD": paths.base("initramfs")} if "initramfs" in here else {}),
        "IMAGE_SHARED_DIR": paths.BASES,
        **(inputs_.environment(inputs) if inputs["agent_image"] else {}),
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


def _capabilities(inputs: Mapping[str, Any]) -> list[str]:
    if inputs_.address(inputs["bind_addr"])[1] < _FIRST_FREE_PORT:
        # a capability of a user namespace of its own would not count for the port
        return ["CapabilityBoundingSet=CAP_NET_BIND_SERVICE", "AmbientCapabilities=CAP_NET_BIND_SERVICE"]
    return ["CapabilityBoundingSet=", "AmbientCapabilities=", "PrivateUsers=yes"]


def _addresses(inputs: Mapping[str, Any]) -> list[str]:
    if not inputs["allow"]:
        return [""]
    return [f"IPAddressAllow=localhost {' '.join(inputs['allow'])}", "IPAddressDeny=any", ""]
