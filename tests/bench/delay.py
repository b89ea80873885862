# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An SSH ProxyCommand that lets every byte arrive later: delay.py HOST PORT MILLISECONDS (in each direction)."""

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable


def pass_on(
    read: Callable[[], bytes], write: Callable[[bytes], object], end: Callable[[], object], delay: float
) -> None:
    """Hand over what is read after ``delay`` seconds, as a long line would: nothing waits for anything but its time."""
    line: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def fill() -> None:
        while True:
            data = read()
            line.put((time.monotonic() + delay, data))
            if not data:
                return

    threading.Thread(target=fill, daemon=True).start()
    while True:
        moment, data = line.get()
        time.sleep(max(0.0, moment - time.monotonic()))
        if not data:
            end()
            return
        write(data)


def main() -> None:
    """Until either side ends."""
    host, port, milliseconds = sys.argv[1:]
    delay = float(milliseconds) / 1000
    server = socket.create_connection((host, int(port)))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    up = threading.Thread(
        target=pass_on,
        args=(lambda: os.read(0, 65536), server.sendall, lambda: server.shutdown(socket.SHUT_WR), delay),
        daemon=True,
    )
    up.start()
    pass_on(lambda: server.recv(65536), lambda data: os.write(1, data), lambda: os.close(1), delay)


if __name__ == "__main__":
    main()
