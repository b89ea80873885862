# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A large file from the controller into the memory of a rescue, over the connection of the task.

It goes in pieces: each one says how far it came, and after a lost connection the next one goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line, whole_number
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import image_file
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.processes import Refused

from ..ssh.remote import Patience, Remote, Unreachable

PIECE = 16 * 1024 * 1024

#: FILE SIZE: how much of it is there, its digest when it is all there, and what the memory holds.
_LOOK = r"""
umask 077
dir=${1%/*} && mkdir -p "$dir" || exit 1
for other in "$dir"/*; do [ "$other" = "$1" ] || [ "$other" = "$1.part" ] || rm -f "$other"; done
there=$(stat -c %s "$1.part" 2>/dev/null || echo 0)
if [ "$(stat -c %s "$1" 2>/dev/null)" = "$2" ]; then set -- $(sha256sum "$1"); echo "digest=$1"; fi
echo "there=$there"
echo "memory=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
echo "files=$(stat -f -c '%b %a %S' "$dir")"
echo end=1
"""
#: FILE OFFSET: what comes in goes there; what a cut piece left behind it is overwritten.
_PUT = r"""
umask 077
[ -e "$1.part" ] || : >"$1.part"
truncate -s "$2" "$1.part" && cat >>"$1.part" && echo "there=$(stat -c %s "$1.part")" && echo end=1
"""
#: FILE DIGEST MODE: the digest of what came, under its name when it is the wanted one.
_FINISH = r"""
set -- "$1" "$2" "$3" $(sha256sum "$1.part")
echo "digest=$4"
if [ "$4" = "$2" ]; then chmod "$3" "$1.part" && mv -f "$1.part" "$1"; else rm -f "$1.part"; fi
echo end=1
"""


class UploadFailed(Exception):
    """The file is not in the rescue; the text says why and what to do."""


@dataclass(frozen=True)
class Kind:
    """What an upload is, in messages, and how it lies in the rescue."""

    #: What the user set, in front of the file's name; what people call it; what to do when it is too large.
    setting: str
    noun: str
    way_out: str
    mode: str
    #: How many copies of it the start makes in the rescue's memory.
    copies: int


IMAGE = Kind("image.file", "image", image_file.IMAGE_WAY_OUT, "0600", copies=0)
COMMAND = Kind(
    "kubenode_image_url_command",
    "image command",
    "the program is there twice while it runs. Make it smaller (strip), or let a small one load what it needs",
    "0700",
    copies=1,
)
PRE_PROVISION = Kind(
    "kubenode_pre_provision_command", "pre-provision command", "make the program smaller (strip)", "0700", copies=0
)


def upload(
    remote: Remote,
    kind: Kind,
    source: Path,
    target: str,
    digest: str,
    progress: Callable[[str], None],
) -> None:
    """Put ``source`` to ``target`` unless it is there; ``digest``: its ``sha256:…``. Raises :class:`UploadFailed`."""
    size, wanted = source.stat().st_size, digest.partition(":")[2]
    shown = f"{kind.setting} {source.name}"
    answer = _ask(remote, kind, _LOOK, target, str(size))
    whole = answer.get("digest") == wanted
    there = size if whole else min(_there(answer), size)
    needed = size - there + kind.copies * size
    if needed:
        try:
            image_file.check_room(needed, _room(answer), shown, kind.way_out)
        except Refused as exc:
            raise UploadFailed(str(exc)) from exc
    if whole:
        return
    with open(source, "rb") as file:
        while there < size:
            file.seek(there)
            piece = file.read(PIECE)
            if not piece:  # it became shorter; the check of its digest will find that
                break
            answer = _ask(remote, kind, _PUT, target, str(there), data=piece)
            if _there(answer) <= there:
                raise UploadFailed(f"the rescue does not take more of the {kind.noun}; its memory is full")
            there = _there(answer)
            progress(f"uploaded {image_file.mebibytes(there)} of {image_file.mebibytes(size)} of the {kind.noun}")
    if not size:
        raise UploadFailed(f"{shown} is empty; give the {kind.noun}")
    found = _ask(remote, kind, _FINISH, target, wanted, kind.mode).get("digest", "")
    if found != wanted:
        raise UploadFailed(
            f"{shown}: the rescue got other bytes (sha256:{one_line(found, 64)}, expected {digest}); "
            "was the file changed while it was sent? Run again"
        )


def _ask(remote: Remote, kind: Kind, script: str, *arguments: str, data: bytes | None = None) -> dict[str, str]:
    """Run a script that can be run again; a lost connection is opened again."""
    patience = Patience(remote)
    while True:
        try:
            code, text = remote.run(script, *arguments, data=data)
            break
        except Unreachable as exc:
            patience.bear(exc)
    found = dict(re.findall(r"^([a-z]+)=(.*)$", text, re.MULTILINE))
    if found.get("end") != "1" or whole_number(found.get("there", "0")) is None:
        raise UploadFailed(f"the {kind.noun} cannot be put into the rescue (exit code {code}: {one_line(text, 200)})")
    return found


def _there(answer: dict[str, str]) -> int:
    return whole_number(answer.get("there")) or 0


def _room(answer: dict[str, str]) -> int:
    memory = (whole_number(answer.get("memory")) or 0) * 1024
    numbers = [whole_number(word) or 0 for word in answer.get("files", "").split()]
    # The file system of an initramfs does not know its size.
    return min(memory, numbers[1] * numbers[2]) if len(numbers) == 3 and numbers[0] else memory
