# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report callback exports at the end of a run: a file of metrics, and the report by one POST.

Nothing here fails a run: what does not work is a warning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.template import Templar

from . import metrics_file, notify, report_files

#: Options of the callback that are variables of a playbook, too, since a job of AWX has no other place for them.
VARIABLES = {
    "notify_url": "kubenode_notify_url",
    "notify_secret": "kubenode_notify_secret",
    "notify_timeout": "kubenode_notify_timeout",
}
#: The longest time limit of a notification, in seconds.
_LONGEST = 600.0


class Exports:
    """``option`` reads an option of the callback; ``say`` and ``warn`` show a line."""

    def __init__(self, option: Callable[[str], Any], say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._option, self._say, self._warn = option, say, warn
        self._variables: dict[str, Any] = {}

    def play(self, play: Any) -> None:
        """Read our variables as the first host of a play has them; the first play that sets one counts."""
        for name, value in _variables_of(play, [one for one in VARIABLES.values() if one not in self._variables]):
            if isinstance(value, Exception):
                self._warn(f"{name} cannot be read ({type(value).__name__}), so it does nothing")
            else:
                self._variables[name] = value

    def send(self, data: Mapping[str, Any]) -> None:
        """Export the report; with ``data["check"]`` only say what would be."""
        self._write_metrics(data)
        self._notify(data)

    def _write_metrics(self, data: Mapping[str, Any]) -> None:
        path = self._option("metrics_file")
        if not path:
            return
        path = os.path.abspath(path)
        if not path.endswith(".prom"):
            self._warn(f"No metrics are written: node_exporter reads files that end in .prom, and {path} does not")
            return
        try:
            text = metrics_file.render(data, metrics_file.parse_labels(self._option("metrics_labels") or []))
            if data.get("check"):
                self._say(f"Metrics: nothing is written in check mode; a run writes {path}")
                return
            report_files.write(path, text)
        except (metrics_file.BadLabel, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._warn(f"The metrics could not be written to {path}: {reason}")
        else:
            self._say(f"Metrics: {path}")

    def _notify(self, data: Mapping[str, Any]) -> None:
        url = self._get("notify_url")
        if not url:
            return
        try:
            target = notify.Target(str(url), str(self._get("notify_secret") or ""), self._seconds())
            shown, body = target.shown, notify.body(data)
            if data.get("check"):
                signed = "signed" if target.secret else "not signed"
                text = f"a run sends {len(body)} bytes ({signed}) to {shown}"
                self._say(f"Notification: nothing is sent in check mode; {text}")
                return
            status = notify.send(target, body)
        except notify.NotSent as error:
            self._warn(f"The report could not be sent to kubenode_notify_url: {error}")
        else:
            self._say(f"Notification: {shown} took {len(body)} bytes ({status})")

    def _seconds(self) -> float:
        given = self._get("notify_timeout")
        try:
            seconds = float(given)
        except (TypeError, ValueError):
            seconds = 0.0
        if not 0 < seconds <= _LONGEST:
            raise notify.NotSent(f"kubenode_notify_timeout is no number of seconds up to {_LONGEST:.0f}")
        return seconds

    def _get(self, option: str) -> Any:
        value = self._variables.get(VARIABLES[option])
        return self._option(option) if value is None else value


def _variables_of(play: Any, names: list[str]) -> list[tuple[str, Any]]:
    """Those of ``names`` that the first host of a play has, with their values, or with the error of a template."""
    manager = play.get_variable_manager()
    if manager is None or not names:
        return []
    found = manager.get_vars(play=play)
    inventory = getattr(manager, "_inventory", None)
    hosts = found.get("ansible_play_hosts_all") or []
    host = inventory.get_host(hosts[0]) if inventory is not None and hosts else None
    if host is not None:
        found = manager.get_vars(play=play, host=host)
    templar = Templar(loader=play.get_loader(), variables=found)
    values: list[tuple[str, Any]] = []
    for name in names:
        if found.get(name) is None:
            continue
        try:
            values.append((name, templar.template(found[name])))
        except AnsibleError as error:
            values.append((name, error))
    return values
