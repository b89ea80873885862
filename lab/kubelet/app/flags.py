# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: what a minor knows is taken, what it does not know ends the program (pure)."""

from __future__ import annotations

BOOLEAN = frozenset(
    [
        "anonymous-auth",
        "authentication-token-webhook",
        "cgroups-per-qos",
        "contention-profiling",
        "cpu-cfs-quota",
        "enable-controller-attach-detach",
        "enable-debugging-handlers",
        "enable-load-reader",
        "enable-server",
        "exit-on-lock-contention",
        "experimental-allocatable-ignore-eviction",
        "fail-cgroupv1",
        "fail-swap-on",
        "help",
        "kernel-memcg-notification",
        "local-storage-capacity-isolation",
        "log-cadvisor-usage",
        "log-json-split-stream",
        "log-text-split-stream",
        "make-iptables-util-chains",
        "protect-kernel-defaults",
        "register-node",
        "rotate-certificates",
        "rotate-server-certificates",
        "runonce",
        "seccomp-default",
        "serialize-image-pulls",
        "storage-driver-secure",
        "version",
    ]
)
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
SHORT = {"h": "help", "v": "v"}
DEPRECATED = (
    "Flag --%s has been deprecated, This parameter should be set via the config file specified by the Kubelet's "
    "--config flag. See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."
)


class FlagError(ValueError):
    """The command line is refused; the text is the real one's."""


def parse(arguments: list[str], known: dict[str, str]) -> dict[str, str]:
    """Flag → value of the last time it was given; raises :class:`FlagError`."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            if rest:
                raise FlagError("unknown command %s" % rest)
            break
        if not word.startswith("-") or word == "-":
            raise FlagError("unknown command [%s]" % word)
        name, value = _named(word, known)
        if value is None:
            if name in BOOLEAN:
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise FlagError("flag needs an argument: --%s" % name)
        if name in BOOLEAN and value not in _TRUE + _FALSE and name != "version":
            raise FlagError('invalid argument "%s" for "--%s" flag: strconv.ParseBool: invalid syntax' % (value, name))
        found[name] = value
    return found


def _named(word: str, known: dict[str, str]) -> tuple[str, str | None]:
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if name not in known:
            raise FlagError("unknown flag: --%s" % name)
        return name, value if equals else None
    letter, value = word[1], word[2:]
    name = SHORT.get(letter, "")
    if not name:
        raise FlagError("unknown shorthand flag: '%s' in %s" % (letter, word))
    return name, value.lstrip("=") if value else None


def truth(flags: dict[str, str], name: str) -> bool:
    """Whether a boolean flag was given and not switched off."""
    return flags.get(name, "false") not in _FALSE


def pairs(text: str) -> dict[str, str]:
    """``a=b,c=d`` as a dictionary; raises :class:`FlagError`."""
    found = {}
    for part in text.split(","):
        if part.strip():
            key, equals, value = part.strip().partition("=")
            if not equals:
                raise FlagError("malformed pair, expect string=string")
            found[key.strip()] = value.strip()
    return found
