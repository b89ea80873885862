# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The SSH key that opens a rescue: its private half here, its public half registered with the provider."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .._common.ssh_access import key_blob
from .api_failures import ApiError, Deadline
from .api_types import RegisteredKey
from .catalog import Unfit, pick
from .ssh import run_limited

if TYPE_CHECKING:
    from .robot_client import Robot


def material(public_key: str | None) -> tuple[str, ...] | None:
    """Type and base64 body of a public key line, without its comment; None when it is no such line."""
    parts = (public_key or "").split()
    return tuple(parts[:2]) if len(parts) >= 2 else None


def public_half(path: str) -> str:
    """The public key line of the private key file ``path``; falls back to ``path``.pub for a key with a passphrase."""
    if not os.path.isfile(path):
        raise Unfit(f"ssh_private_key: '{path}' is no file on the controller; name the file of the private key")
    if not os.access(path, os.R_OK):
        raise Unfit(f"ssh_private_key: '{path}' cannot be read; check its owner and mode")
    returncode, output, errors = run_limited(["ssh-keygen", "-y", "-P", "", "-f", path], 20)
    if returncode == 0:
        return output.strip()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(16384).strip()
        if key_blob(text) is not None:
            # ssh takes it, too: it names the key of an agent.
            return text
    except (OSError, UnicodeDecodeError):
        pass
    try:
        with open(path + ".pub", encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        reason = errors.strip().splitlines()[-1:] or ["no reason given"]
        raise Unfit(
            f"ssh_private_key: the public half of '{path}' cannot be had ({reason[0]}) and there is no readable "
            f"'{path}.pub' beside it"
        ) from None


def known_key(key: RegisteredKey) -> RegisteredKey:
    """What a result carries of a registered key."""
    return cast("RegisteredKey", {name: key.get(name) for name in ("id", "name", "public_key")})


def resolve_keys(
    wanted: Sequence[object] | None,
    registered: Sequence[RegisteredKey],
    private_key_public: str | None = None,
    private_key_path: str | None = None,
    with_labels: Callable[[str], list[RegisteredKey]] | None = None,
) -> list[RegisteredKey]:
    """The registered keys named by ``wanted``; the private key must open at least one of them.

    An entry may be a dictionary with ``label_selector``, which ``with_labels`` looks up.
    """
    if not wanted:
        raise Unfit("ssh_keys: empty; name at least one SSH key of the project, or no one can log in to the rescue")
    keys: list[RegisteredKey] = []
    for entry in wanted:
        found = (
            _selected(entry, with_labels) if isinstance(entry, Mapping) else [pick("ssh_keys", str(entry), registered)]
        )
        keys += [key for key in found if key["id"] not in [one["id"] for one in keys]]
    if private_key_public is not None and material(private_key_public) not in [
        material(key.get("public_key")) for key in keys
    ]:
        others = [key["name"] for key in registered if material(key.get("public_key")) == material(private_key_public)]
        names = ", ".join(f"'{key['name']}'" for key in keys)
        fix = "register its public half with the project and name it here"
        if others:
            fix = f"name '{others[0]}', which is its public half"
        raise Unfit(f"ssh_keys: the private key '{private_key_path}' opens none of {names}; {fix}")
    return keys


def _selected(
    entry: Mapping[str, object], with_labels: Callable[[str], list[RegisteredKey]] | None
) -> list[RegisteredKey]:
    """The keys of a label selector; one that selects none is an error."""
    selector = entry.get("label_selector")
    if with_labels is None or set(entry) != {"label_selector"} or not isinstance(selector, str) or not selector:
        raise Unfit(f"ssh_keys: {dict(entry)!r} is no key; give its name or id, or {{label_selector: TEXT}}")
    found = with_labels(selector)
    if not found:
        raise Unfit(f"ssh_keys: no SSH key of the project has the labels '{selector}'")
    return found


def choose_keys(ssh_public_key: str | None, ssh_private_key: str | None) -> list[str]:
    """Public key lines (type, base64), of which one opens the rescue; raises Unfit for what cannot work.

    Where neither key is given, they are those of the agent, and which one is meant shows in those that are registered.
    """
    if not ssh_public_key and not ssh_private_key:
        held = agent_keys()
        if not held:
            raise Unfit(
                "ssh_private_key: missing, and no agent of SSH has a key; set it, or ssh_public_key when the private "
                "half is elsewhere, or no one can log in to the rescue"
            )
        return held
    given = _text_of(ssh_public_key) if ssh_public_key else None
    if given is not None and key_blob(given) is None:
        raise Unfit(
            "ssh_public_key: neither a public key ('ssh-ed25519 AAAA…') nor a file that holds one; use the .pub file"
        )
    private = public_half(ssh_private_key) if ssh_private_key else None
    if given and private and material(given) != material(private):
        raise Unfit(
            f"ssh_public_key: not the public half of '{ssh_private_key}'; leave it out, or correct one of the two"
        )
    return [" ".join(material(given or private) or ())]


def agent_keys() -> list[str]:
    """The keys that the agent of SSH holds, as ``type base64``; none when there is no agent."""
    if not os.environ.get("SSH_AUTH_SOCK"):
        return []
    returncode, output, _errors = run_limited(["ssh-add", "-L"], 20)
    lines = [line for line in output.splitlines() if returncode == 0 and key_blob(line) is not None]
    return [" ".join(material(line) or ()) for line in lines if "-cert-" not in line.split()[0]]


def known_among(keys: Sequence[str], registered: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those of the keys that Robot lists; with one key alone, none means that it has to be registered.

    Raises Unfit when it is not clear which one is to be registered.
    """
    known = [key for key in keys if is_registered(key, registered)]
    if not known and len(keys) > 1:
        raise Unfit(
            f"ssh_public_key: missing; the agent of SSH holds {len(keys)} keys, and Robot knows none of them. Set it "
            "to the one that is to open the rescue, or register that one in Robot"
        )
    return known


def md5_fingerprint(public_key: str) -> str:
    """The MD5 fingerprint by which Robot names a key: 16 bytes in hexadecimal, with colons."""
    # Robot's name for a key; nothing is trusted because of it.
    digest = hashlib.md5(key_blob(public_key) or b"").hexdigest()
    return ":".join(digest[index : index + 2] for index in range(0, 32, 2))


def is_registered(public_key: str, registered: Iterable[Mapping[str, Any]]) -> bool:
    """Whether this key, by its material, is among the keys Robot lists."""
    return any(
        item.get("fingerprint") == md5_fingerprint(public_key)
        and (
            item.get("data") is None
            or (isinstance(item["data"], str) and material(item["data"]) == material(public_key))
        )
        for item in registered
    )


def register(api: Robot, public_key: str, name: str, deadline: Deadline) -> None:
    """Make Robot know the key; another run may do it at the same moment."""
    path = f"/key/{md5_fingerprint(public_key)}"

    def look() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = api.read(path, deadline)
            return found
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    try:
        api.change("POST", "/key", deadline, look, data={"name": name, "data": public_key})
    except ApiError as error:
        if error.code != "KEY_ALREADY_EXISTS":
            raise
        api.read(path, deadline)


def _text_of(key: str) -> str:
    """The option's value, or the content of the file it names."""
    if key_blob(key) is not None:
        return key
    path = os.path.expanduser(key.strip())
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(16384).strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise Unfit(
            f"ssh_public_key: {key[:60]!r} is neither a public key ('ssh-ed25519 AAAA…') nor a file that can be "
            f"read ({type(error).__name__})"
        ) from error
