# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenPGP keys made by GnuPG for these tests (their secret halves were thrown away), and what GnuPG says of them."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """An ASCII-armoured public key and its fingerprint."""

    text: str
    fingerprint: str


KUBERNETES_LIKE = Key(
    """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawGluRYJKwYBBAHaRw8BAQdAZPDw52NL+S6t+BImkJrSTSRf7lSs/8kTffeG
lGxroMu0H3Rlc3Qta3ViZXJuZXRlc0BleGFtcGxlLmludmFsaWSIkAQTFggAOBYh
BLAyPwslK6nPS+2KV6vqBsYRkxzGBQJrAaW5AhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJEKvqBsYRkxzGweUBALpkQ1BR8d/ZxBvWAiziaBaXsYlb9hMFPC+h
pzMBsgM0AQDmV+ljND34s6tMZV/2wyxavVKAY+7sKZSnrYe0s+1vBA==
=onh5
-----END PGP PUBLIC KEY BLOCK-----
""",
    "B0323F0B252BA9CF4BED8A57ABEA06C611931CC6",
)
DOCKER_LIKE = Key(
    """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawGluRYJKwYBBAHaRw8BAQdAPkyhGSXC/TWmtwbkW0DV50/DZUOzJe7OFdSr
H6viM3K0G3Rlc3QtZG9ja2VyQGV4YW1wbGUuaW52YWxpZIiQBBMWCAA4FiEEbxGz
mNLjCWU6XS+RmWpHZcXT/8EFAmsBpbkCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgEC
F4AACgkQmWpHZcXT/8EEIwEA4OswaVQfboRGPh5quE0pMSFT+ehipjTHrkGnERKO
PC4A/R80UljWAl0nH4i3UiQhkywG24XA/6x0pr7ARCNfQVAA
=wo15
-----END PGP PUBLIC KEY BLOCK-----
""",
    "6F11B398D2E309653A5D2F91996A4765C5D3FFC1",
)
#: both keys in one block
BOTH = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawGluRYJKwYBBAHaRw8BAQdAZPDw52NL+S6t+BImkJrSTSRf7lSs/8kTffeG
lGxroMu0H3Rlc3Qta3ViZXJuZXRlc0BleGFtcGxlLmludmFsaWSIkAQTFggAOBYh
BLAyPwslK6nPS+2KV6vqBsYRkxzGBQJrAaW5AhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJEKvqBsYRkxzGweUBALpkQ1BR8d/ZxBvWAiziaBaXsYlb9hMFPC+h
pzMBsgM0AQDmV+ljND34s6tMZV/2wyxavVKAY+7sKZSnrYe0s+1vBJgzBGsBpbkW
CSsGAQQB2kcPAQEHQD5MoRklwv01prcG5FtA1edPw2VDsyXuzhXUqx+r4jNytBt0
ZXN0LWRvY2tlckBleGFtcGxlLmludmFsaWSIkAQTFggAOBYhBG8Rs5jS4wllOl0v
kZlqR2XF0//BBQJrAaW5AhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEJlq
R2XF0//BBCMBAODrMGlUH26ERj4earhNKTEhU/noYqY0x65BpxESjjwuAP0fNFJY
1gJdJx+It1IkIZMsBtuFwP+sdKa+wEQjX0FQAA==
=tsZS
-----END PGP PUBLIC KEY BLOCK-----
"""
