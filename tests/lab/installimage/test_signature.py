# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An ASCII-armored key as GnuPG exports it, and a signature made with it, held against each other by gpgv."""

import base64
import subprocess
from pathlib import Path

import pytest

from lab.installimage.emulator import image

_KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawF2MRYJKwYBBAHaRw8BAQdAmBn+GXxV72KiYWbBTjvY+L5SW4KKxRAZ9k5G
j+AevNW0GmxhYiB0ZXN0IDxsYWJAZXhhbXBsZS5vcmc+iJAEExYIADgWIQSFMG9j
TYHpTzjKlKj1wIzG5XbwBQUCawF2MQIbAwULCQgHAgYVCgkICwIEFgIDAQIeAQIX
gAAKCRD1wIzG5XbwBaG/AP0We7W4wjXvnbrXBNEyjrZrJ5H2LNw+k/EAh3+NSjtV
sQEAyTPW/YPCHCSJCP5ah5RSNCyfID4gpYIjJbg6cM7ZIg8=
=9dCj
-----END PGP PUBLIC KEY BLOCK-----
"""
_SIGNATURE = (
    "iHUEABYIAB0WIQSFMG9jTYHpTzjKlKj1wIzG5XbwBQUCawF2MgAKCRD1wIzG5XbwBfbqAQD8VLN3x1P66CrTkDPFuQ5oNlwfKQHyS8hpkgoc"
    "/IrnlQD9GxT/qi/+luEmQoirOTJTQcKDNRimU/o9HCIAlUVy8Qg="
)


@pytest.mark.parametrize(("content", "good"), [(b"an image\n", True), (b"another image\n", False)])
def test_gpgv_reads_the_key_that_was_taken_out_of_its_armor(tmp_path: Path, content: bytes, good: bool) -> None:
    (tmp_path / "ring").write_bytes(image.dearmored(_KEY))
    (tmp_path / "image").write_bytes(content)
    (tmp_path / "image.sig").write_bytes(base64.b64decode(_SIGNATURE))
    done = subprocess.run(
        ["gpgv", "--keyring", tmp_path / "ring", tmp_path / "image.sig", tmp_path / "image"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode == 0) is good


def test_text_that_is_no_key_is_an_error() -> None:
    with pytest.raises(ValueError):
        image.dearmored("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nÜber!\n-----END")
