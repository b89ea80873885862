# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One question to the system that answers: who are you? One shell script, no Python needed over there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import probe
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_object, one_line

#: BOOT_ID: reboots the system of that boot ("any": whichever answers), and says whether it does.
REBOOT = r"""
read -r boot </proc/sys/kernel/random/boot_id
if [ "$1" = any ] || [ "$1" = "$boot" ]; then
  # Detached and a moment later, so that this answer still gets through. An orderly reboot writes to the disks by
  # itself, when little is left to do; a sync here would wait for all that is being written.
  nohup sh -c 'sleep 0.3; reboot || systemctl reboot || { sync; reboot -f; }' </dev/null >/dev/null 2>&1 &
  echo reboot=sent
else
  echo reboot=no
fi
"""
#: The first argument, if any: the boot id of the system that is to reboot now ("any" for whichever answers).
#: The second: the seconds that may be waited for cloud-init's end before answering. What takes longest to find out, and
#: cannot change meanwhile, comes before: the answer follows at once.
SCRIPT = probe.script(
    before=r"""
tenths=$((${2:-0} * 10))
while [ "$tenths" -gt 0 ] && [ ! -e /run/cloud-init/result.json ] && [ -e /run/cloud-init/enabled ]; do
  sleep 0.4 2>/dev/null || sleep 1
  tenths=$((tenths - 4))
done
if [ -e /run/cloud-init/result.json ]; then state=done
elif ! command -v cloud-init >/dev/null 2>&1; then state=absent
elif [ -e /run/cloud-init/disabled ] || [ -e /etc/cloud/cloud-init.disabled ]; then state=disabled
elif [ -e /run/cloud-init/enabled ] || [ -e /run/cloud-init/status.json ]; then state=running
else state=unknown
fi
echo "cloud_init=$state"
""",
    texts=r"""
text host_keys; cat /etc/ssh/ssh_host_*_key.pub | head -c 65536
text instance /run/cloud-init/.instance-id 200
text cloud_init_result /run/cloud-init/result.json 65536
text cloud_init_status /run/cloud-init/status.json 65536
""",
    after=r"""
[ -z "${1-}" ] || {
"""
    + REBOOT
    + "}\n",
)

_SEEDED = re.compile(r"iid-kubenode-([0-9a-f]{32})\Z")


class ProbeError(ValueError):
    """The answer is not one of the probe."""


@dataclass(frozen=True)
class CloudInit:
    """How far cloud-init is: ``absent``, ``disabled``, ``unknown``, ``running`` or ``done``, and what went wrong."""

    state: str
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    datasource: str = ""

    @property
    def status(self) -> str:
        """In cloud-init's own words, as far as it has any."""
        if self.state == "done":
            return "error" if self.errors else "degraded" if self.warnings else "done"
        return self.state


@dataclass(frozen=True)
class System:
    """What answered."""

    boot_id: str
    hostname: str
    kernel: str
    os: str
    origin: probe.Origin
    cloud_init: CloudInit
    record: dict[str, Any] | None
    #: Its own IP addresses.
    addresses: tuple[str, ...] = ()
    #: Lines of its public host keys, where they lie in their usual place.
    host_keys: tuple[str, ...] = ()
    reboot_sent: bool = False
    #: The id of the installation whose cloud-init seed this boot was given; empty when it shows none.
    seeded: str = ""

    @property
    def is_rescue(self) -> bool:
        """Whether it is the provider's rescue, by what it runs from."""
        return self.origin.is_rescue


def parse(text: str, mask: Callable[[str], str] = str) -> System:
    """Read the probe's answer; nothing in it is trusted to be well-formed.

    ``mask``: takes secrets out of what cloud-init says, before it is cut to a line.
    """
    fields = probe.fields_of(text)
    if fields is None or fields.get("end") != "1":
        raise ProbeError("no complete answer: " + (one_line(text, 200) or "nothing"))
    boot_id = probe.boot_id_of(fields)
    if not boot_id:
        raise ProbeError("it tells no boot id; only Linux with /proc can be proven")
    return System(
        boot_id=boot_id,
        hostname=one_line(fields.get("hostname", ""), 253),
        kernel=one_line(fields.get("kernel", ""), 100),
        os=one_line(fields.get("os", ""), 200),
        origin=probe.Origin.parse(fields),
        cloud_init=_cloud_init(fields, mask),
        record=json_object(fields.get("record", "")),
        addresses=probe.addresses_of(fields),
        host_keys=tuple(fields.get("host_keys", "").splitlines()),
        reboot_sent=fields.get("reboot") == "sent",
        seeded=seeded[1] if (seeded := _SEEDED.match(fields.get("instance", "").strip())) else "",
    )


def _cloud_init(fields: dict[str, str], mask: Callable[[str], str]) -> CloudInit:
    result = _inner(json_object(fields.get("cloud_init_result", "")))
    status = _inner(json_object(fields.get("cloud_init_status", "")))
    errors = _strings(result.get("errors"), mask)
    warnings = []
    for stage in status.values():
        if not isinstance(stage, dict):
            continue
        errors += [error for error in _strings(stage.get("errors"), mask) if error not in errors]
        recoverable = stage.get("recoverable_errors")
        for level, texts in (recoverable if isinstance(recoverable, dict) else {}).items():
            # A deprecated key is advice to the author of the bootstrap data, no fault of the new system.
            if level != "DEPRECATED":
                warnings += [text for text in _strings(texts, mask) if text not in warnings]
    datasource = result.get("datasource") or status.get("datasource")
    return CloudInit(
        state=one_line(fields.get("cloud_init", "absent"), 20),
        errors=errors,
        warnings=warnings,
        datasource=one_line(datasource, 200) if isinstance(datasource, str) else "",
    )


def _inner(content: dict[str, Any] | None) -> dict[str, Any]:
    inner = (content or {}).get("v1")
    return inner if isinstance(inner, dict) else {}


def _strings(value: Any, mask: Callable[[str], str]) -> list[str]:
    return [one_line(mask(str(item))) for item in value[:50]] if isinstance(value, list) else []
