# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The TLS front of Robot, for clients that cannot be aimed elsewhere: a certificate for the real service's name."""

from __future__ import annotations

import errno
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509

from lab.certificates import Authority, key_pem, new_key
from lab.state import write_secret

HOST = "robot-ws.your-server.de"
PORT = 443


def listen() -> socket.socket:
    """A socket on the port of HTTPS, on a loopback address of its own; without the right to that, any port."""
    for last in range(1, 255):
        try:
            return socket.create_server((f"127.77.0.{last}", PORT), backlog=1024)
        except PermissionError:
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return socket.create_server(("127.0.0.1", 0), backlog=1024)


def context(folder: Path, address: str) -> ssl.SSLContext:
    """Make a CA (``folder/ca.pem``; its key is thrown away) and a certificate for the service's name and address."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, key = Authority("kubenode lab CA", new_key()), new_key()
    names = [x509.DNSName(HOST), x509.IPAddress(ip_address(address))]
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "server.pem").write_bytes(authority.issue(HOST, key, names))
    write_secret(folder / "server.key", key_pem(key))
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(folder / "server.pem", folder / "server.key")
    return made
