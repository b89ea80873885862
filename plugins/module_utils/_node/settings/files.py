# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Files, directories and links."""

from __future__ import annotations

import base64
import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Callable

from ..._common import masking, mounts, safe_files
from ..._common.text import whole_number
from ..host import Done, Host, make_parents, missing_parents, sync_folder, write_file, write_link
from .context import Context, Setting, SettingError, Step, same

#: of a user or group; one more means "leave it as it is"
_LARGEST_ID = (1 << 32) - 2

SECRET = "(secret)\n"
#: files of a tree that a diff names
_MOST_LISTED = 200


def content(setting: Setting) -> bytes:
    """The bytes that a file setting asks for."""
    if setting.get("content_b64") is not None:
        return base64.b64decode(setting["content_b64"])
    return (setting.get("content") or "").encode("utf-8", "surrogateescape")


def plan_file(context: Context, setting: Setting) -> Step:
    """A regular file with content, mode, owner and group."""
    host, path = context.host, setting["path"]
    status = host.status(path)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise SettingError(f"{path} is a directory")
    if status is not None and setting.get("create_only"):
        return same(describe(status), "exists, and is only created")
    wanted, mode = content(setting), int(setting.get("mode") or ("0600" if setting.get("secret") else "0644"), 8)
    uid, gid = owner(context, setting)
    old = host.data(path) if status is not None and stat.S_ISREG(status.st_mode) else None
    reasons = _reasons(status, stat.S_ISREG, mode, uid, gid)
    if status is not None and old != wanted and reasons[:1] != ["is not a regular file"]:
        reasons.insert(0, "content differs")
    before = state(host, path)
    after = f"{mode:04o} {setting.get('owner', 'root')}:{setting.get('group', 'root')}"
    if not reasons:
        return same(before)
    context.touches(path)

    def act() -> None:
        made = missing_parents(host, path)
        write_file(host, path, wanted, mode, uid, gid, lambda temporary: validate(context, setting, temporary))
        context.wrote(path)
        context.label(made + [path])

    secret = bool(setting.get("secret"))
    diff = {"before_header": f"{path} ({before})", "after_header": f"{path} ({after})"}
    if old == wanted:
        # a mode or an owner alone: the texts would be equal, and no line would tell of it
        diff.update(before=f"{path} {before}\n", after=f"{path} {after}\n")
        return Step(True, before, after, "; ".join(reasons), act, diff=diff, heard=False)
    diff["before"] = f"{before}\n" if status is not None and old is None else shown(old, secret)
    diff["after"] = shown(wanted, secret, old is not None)
    return Step(True, before, after, "; ".join(reasons), act, diff=diff)


def plan_directory(context: Context, setting: Setting) -> Step:
    """A directory with mode, owner and group."""
    host, path, mode = context.host, setting["path"], int(setting.get("mode", "0755"), 8)
    status = host.status(path)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        if not (stat.S_ISLNK(status.st_mode) and host.is_dir(path)):
            raise SettingError(f"{path} exists and is not a directory")
        return same("link to a directory")
    uid, gid = owner(context, setting)
    reasons = _reasons(status, stat.S_ISDIR, mode, uid, gid)
    after = f"directory {mode:04o} {setting.get('owner', 'root')}:{setting.get('group', 'root')}"
    if not reasons:
        return same(describe(status))
    context.touches(path)

    def act() -> None:
        made = make_parents(host, os.path.join(path, "x"))
        os.chown(host.path(path), -1 if uid is None else uid, -1 if gid is None else gid)
        os.chmod(host.path(path), mode)
        context.wrote(path)
        context.label(made + [path])

    before = describe(status)
    diff = {"before_header": path, "after_header": path, "before": f"{path} {before}\n", "after": f"{path} {after}\n"}
    return Step(True, before, after, "; ".join(reasons), act, diff=diff)


def plan_link(context: Context, setting: Setting) -> Step:
    """A symbolic link; a file in its place is replaced, a directory is not."""
    host, path, target = context.host, setting["path"], setting["target"]
    status, after = host.status(path), "link to " + setting["target"]
    before = state(host, path)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise SettingError(f"{path} is a directory")
    if before == after:
        return same(before)
    context.touches(path)

    def act() -> None:
        made = missing_parents(host, path)
        write_link(host, path, target)
        context.wrote(path)
        context.label(made + [path])

    diff = {"before_header": f"{path} ({before})", "after_header": f"{path} ({after})", "after": f"{after}\n"}
    diff["before"] = removed(host, path, True) if status is not None else ""
    return Step(True, before, after, "does not exist" if status is None else "is " + before, act, diff=diff)


def owner(context: Context, setting: Setting) -> tuple[int | None, int | None]:
    """Numeric user and group; None for one that is not there yet, which only check mode may meet."""
    found: list[int | None] = []
    for field, look_up in (("owner", _uid), ("group", _gid)):
        name = str(setting.get(field, "root"))
        try:
            number = whole_number(name, _LARGEST_ID)
            found.append(look_up(name) if number is None else number)
        except KeyError:
            if not context.check_mode:
                raise SettingError(f"{field} {name} does not exist on this machine") from None
            found.append(None)
    return found[0], found[1]


def _uid(name: str) -> int:
    return 0 if name == "root" else pwd.getpwnam(name).pw_uid


def _gid(name: str) -> int:
    return 0 if name == "root" else grp.getgrnam(name).gr_gid


def _reasons(
    status: os.stat_result | None, kind: Callable[[int], bool], mode: int, uid: int | None, gid: int | None
) -> list[str]:
    if status is None:
        return ["does not exist"]
    if not kind(status.st_mode):
        return ["is not a regular file"]
    found = []
    if stat.S_IMODE(status.st_mode) != mode:
        found.append(f"mode is {stat.S_IMODE(status.st_mode):04o}")
    if uid is None or gid is None or (status.st_uid, status.st_gid) != (uid, gid):
        found.append(f"owner is {status.st_uid}:{status.st_gid}")
    return found


def describe(status: os.stat_result | None) -> str:
    """What is there, in a few words."""
    if status is None:
        return "absent"
    if stat.S_ISLNK(status.st_mode):
        return "link"
    kind = "directory " if stat.S_ISDIR(status.st_mode) else "" if stat.S_ISREG(status.st_mode) else "special file "
    return f"{kind}{stat.S_IMODE(status.st_mode):04o} {_user(status.st_uid)}:{_group(status.st_gid)}"


def state(host: Host, path: str) -> str:
    """What is at a path, in a few words; a link with its target."""
    status = host.status(path)
    is_link = status is not None and stat.S_ISLNK(status.st_mode)
    return "link to " + os.readlink(host.path(path)) if is_link else describe(status)


def removed(host: Host, path: str, with_content: bool) -> str:
    """What goes from a path, as a diff may show it: a text, where it holds no secret, else a line for each file."""
    status = host.status(path)
    if status is not None and stat.S_ISREG(status.st_mode) and with_content:
        data = host.data(path) or b""
        # whatever it should have been: a key is never shown
        return shown(data, b"PRIVATE KEY" in data) or f"{path} (empty)\n"
    if status is not None and stat.S_ISLNK(status.st_mode):
        return f"{state(host, path)}\n"
    listed = [path]
    if status is not None and stat.S_ISDIR(status.st_mode):
        real = host.path(path)
        mounted = mounts_below(host.text("/proc/self/mountinfo"), real)
        for folder, folders, names in os.walk(real):
            # what is mounted is not removed, only unmounted, and may be slow to look at
            folders[:] = sorted(name for name in folders if os.path.join(folder, name) not in mounted)
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            below = path + folder[len(real) :]
            listed += [f"{below}/{name}" for name in sorted(names + links)]
            if len(listed) > _MOST_LISTED:
                return "".join(f"{name}\n" for name in listed[:_MOST_LISTED]) + "(and more)\n"
    return "".join(f"{name}\n" for name in listed)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def shown(data: bytes | None, secret: bool = False, other: bool = False) -> str:
    """Content as a diff may show it: what a person has written there may hold a password."""
    if data is None:
        return ""
    if secret:
        return "(other secret)\n" if other else SECRET
    try:
        return masking.configuration(data.decode("utf-8"))
    except UnicodeDecodeError:
        return f"({len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()})\n"


def validate(context: Context, setting: Setting, temporary: str) -> None:
    """Run the setting's own check on the new content; raises SettingError."""
    argv = setting.get("validate")
    if not argv:
        return
    done = context.host.run([word.replace("%s", temporary) for word in argv], 60)
    if done.code:
        said = "its output may show the secret" if setting.get("secret") else tail(done)
        raise SettingError(f"{setting['path']}: the new content is refused by {argv[0]}: {said}")


def tail(done: Done, lines: int = 20) -> str:
    """The last lines of what a program said."""
    said = (done.err.strip() + "\n" + done.out.strip()).strip() or f"exit code {done.code}"
    return "\n".join(said.splitlines()[-lines:])


def run(host: Host, argv: list[str], seconds: float = 60, failure: str = "") -> str:
    """What a program wrote; SettingError with its last lines when it fails, after ``failure`` or its own words."""
    done = host.run(argv, seconds)
    if done.code:
        raise SettingError(f"{failure or ' '.join(argv) + ' failed'}: {tail(done)}")
    return done.out


#: Where a tree may be removed; /run itself, unlike the others, may not.
TREES = ("/etc/kubernetes", "/var/lib/kubelet", "/etc/cni", "/var/lib/cni", "/etc/containerd")
_BELOW = ("/run",)


def tree_allowed(path: str) -> bool:
    """Whether a tree may be removed."""
    inside = any(path == place or path.startswith(place + "/") for place in TREES)
    return inside or any(path.startswith(place + "/") for place in _BELOW)


def mounts_below(mountinfo: str | None, path: str) -> list[str]:
    """Mount points strictly below a path, the deepest first. Pure."""
    found = [mount.point for mount in mounts.parse(mountinfo) if mount.point.startswith(path + "/")]
    return sorted(found, key=lambda name: -name.count("/"))


def is_mount(mountinfo: str | None, path: str) -> bool:
    """Whether something is mounted right there. Pure."""
    return any(mount.point == path for mount in mounts.parse(mountinfo))


def plan_absent(context: Context, setting: Setting) -> Step:
    """Nothing at this path."""
    host, path = context.host, setting["path"]
    status = host.status(path)
    if status is None:
        return same("absent")
    is_tree = stat.S_ISDIR(status.st_mode)
    names = host.names(path) if is_tree else []
    if setting.get("keep_full"):
        names = [name for name in names if context.paths.get(f"{path}/{name}", True)]
        if names:
            context.warn(f"{path} stays, since it has files that are not the role's: {', '.join(names)}")
            return same(describe(status), "has other files: " + ", ".join(names))
    full = bool(names)
    if full and not setting.get("recursive"):
        raise SettingError(f"{path} is a directory with content; it is removed only with recursive")
    mounted = is_tree and is_mount(host.text("/proc/self/mountinfo"), host.path(path))
    if mounted and not full:
        return same("an empty mount point")
    if full and os.path.realpath(host.path(path)) != os.path.join(os.path.realpath(host.root), path.lstrip("/")):
        raise SettingError(f"{path} lies behind a link; a tree is removed only at its real place")
    if "begins" in setting and not (host.text(path) or "").startswith(setting["begins"]):
        context.warn(f"{path} stays, since it is not as the role wrote it; remove it when it is wanted no more")
        return same(describe(status), "is not the role's")
    context.touches(path, False)

    def act() -> None:
        if not is_tree:
            os.unlink(host.path(path))
        elif full:
            _remove_tree(host, path)
        else:
            os.rmdir(host.path(path))
        context.wrote(path)
        sync_folder(os.path.dirname(host.path(path)))

    before, after = state(host, path), "an empty mount point" if mounted else "absent"
    diff = {"before_header": f"{path} ({before})", "after_header": f"{path} ({after})", "after": ""}
    diff["before"] = removed(host, path, bool(setting.get("shown")))
    return Step(True, before, after, "exists", act, diff=diff)


def _remove_tree(host: Host, path: str) -> None:
    """Empty and remove a directory; what is mounted below is unmounted, so that no other file system is emptied."""
    real = host.path(path)
    for mount in mounts_below(host.text("/proc/self/mountinfo"), real):
        done = host.run(["umount", "--", mount], 60)
        if done.code and mount in mounts_below(host.text("/proc/self/mountinfo"), real):
            raise SettingError(f"{mount} cannot be unmounted: {tail(done)}")
    left = mounts_below(host.text("/proc/self/mountinfo"), real)
    if left:
        raise SettingError(f"{left[0]} is still mounted")
    mounted = is_mount(host.text("/proc/self/mountinfo"), real)
    left = safe_files.empty(real) if mounted else safe_files.remove(real)
    if left:
        raise SettingError(f"{left[0]} is mounted: what is in it was left, and {path} is not removed")
