# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Numbers for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        """Everything is zero."""
        self.requests: dict[int, int] = {}
        self.bytes_sent = 0
        self.cut = 0  # answers that did not reach their end
        self.connections = 0
        self.connections_refused = 0

    def answered(self, status: int, length: int, whole: bool) -> None:
        """An answer is over."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.bytes_sent += length
        self.cut += not whole

    def text(self, images: int, fetched: Mapping[str, int], failed: int = 0) -> str:
        """Everything, with what the registry and the progress of readers say."""
        counter, gauge = "counter", "gauge"
        by_status = (({"code": str(status)}, count) for status, count in sorted(self.requests.items()))
        by_host = (({"host": host}, count) for host, count in sorted(fetched.items()))
        families: Iterable[tuple[str, str, str, Iterable[tuple[Mapping[str, str], int]]]] = (
            ("requests_total", counter, "Requests answered, by status.", by_status),
            ("sent_bytes_total", counter, "Bytes of bodies sent.", (({}, self.bytes_sent),)),
            ("answers_cut_total", counter, "Answers that ended before their last byte.", (({}, self.cut),)),
            ("connections", gauge, "Connections open now.", (({}, self.connections),)),
            ("connections_refused_total", counter, "Connections over the limits.", (({}, self.connections_refused),)),
            ("images", gauge, "Images that are served.", (({}, images),)),
            ("hosts_failed", gauge, "Hosts whose image could not be made.", (({}, failed),)),
            ("host_sent_bytes_total", counter, "Bytes of images sent, by host.", by_host),
        )
        lines = []
        for name, kind, text, samples in families:
            full = "kubenode_image_server_" + name
            lines += ["# HELP %s %s" % (full, text), "# TYPE %s %s" % (full, kind)]
            for labels, value in samples:
                told = ",".join('%s="%s"' % (key, _escaped(label)) for key, label in labels.items())
                lines.append("%s%s %d" % (full, "{%s}" % told if told else "", value))
        return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
