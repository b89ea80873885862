# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that look like numbers to one program and not to another, and a server that says what it is given."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from hypothesis import example
from hypothesis import strategies as st

#: what str.isdigit, int() or float() of Python take, or fail at, and what is no number of ASCII digits
NUMBERS = (
    "²", "٣", "１", "1_000", "-1", "+1", " 1", "1\n", "1 ", "", "0x10", "1e9", "1.0", "nan", "inf", "Infinity", "True",
    "9" * 20, "9" * 5000,
)  # fmt: skip
#: the same, as far as it fits into one line without blanks at its ends
WORDS = tuple(text for text in NUMBERS if text and text == text.strip())
#: URLs that no client can go to
PLACES = ("http://[", "http://[::1/x", "http://127.0.0.1:99999/", "http://127.0.0.1:²/", "http://127.0.0.1:1_0/",
          "http://a..b/", "http://" + "a" * 64 + ".example/", "http://h:" + "9" * 30 + "/")  # fmt: skip
#: JSON that Python reads as deep as it may, and then not at all
DEEP = "[" * 100_000

texts = st.one_of(st.text(max_size=30), st.text(alphabet="0123456789_+-. eE²³٣\n", max_size=25))


def examples(*texts: str) -> Callable:
    """An explicit example of a property for each of these texts, the odd numbers when there is none."""

    def decorate(function: Callable) -> Callable:
        for text in texts or NUMBERS:
            function = example(text)(function)
        return function

    return decorate


@contextlib.contextmanager
def server(*answers: bytes) -> Iterator[str]:
    """The URL of a server that sends these bytes, the last ones again and again, for any request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            left = list(answers)
            with contextlib.suppress(OSError):
                while True:
                    connection, _address = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        request = b""
                        while b"\r\n\r\n" not in request:
                            piece = connection.recv(65536)
                            if not piece:
                                break
                            request += piece
                        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def answer(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    """An answer with exactly these headers; their names are written with underscores."""
    lines = ["HTTP/1.1 " + status, *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace") + body
