# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What is wrong with an image or with what it shall be made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class ImageError(ValueError):
    """Input that no image can be made of; the text names the field, the value and the fix."""


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """An OSError becomes an ImageError: what could not be done, and the system's reason."""
    try:
        yield
    except OSError as error:
        raise ImageError(f"{what}: {error.strerror or error}") from error
