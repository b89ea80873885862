# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The script that installimage runs inside of the new system: the user's own, then what makes it ours (pure).

installimage neither passes on its exit status nor keeps its output apart, so it reports by lines of its own, marked
with a word that nobody can know before.
"""

from __future__ import annotations

import base64
import json
import re

TAG = "kubenode-post-install"
SEED = "/var/lib/cloud/seed/nocloud-net"
#: cloud-init settings in user data that make other host keys than those installimage made.
_OWN_KEYS = re.compile(r"(?:^|[{,])\s*['\"]?(ssh_keys|ssh_deletekeys|ssh_genkeytypes)['\"]?\s*:", re.MULTILINE)

_SCRIPT = r"""#!/bin/sh
# Written by kubenode.provision for installimage; it removes itself.
say() { printf '\n%s %s %s\n' @TAG@ @NONCE@ "$*"; }
fail() { say "failed $*"; exit 1; }
self=$0
dir=$(mktemp -d /root/.kubenode.XXXXXX) || fail "0 no directory can be made in /root of the new system"
trap 'rm -rf "$dir"; rm -f "$self" 2>/dev/null' EXIT
put() { # MODE PATH: what comes in, base64; whole or not at all
    mkdir -p "${2%/*}" && (umask 077 && base64 -d >"$2.new") && chmod "$1" "$2.new" && mv -f "$2.new" "$2" ||
        fail "0 $2 cannot be written in the new system"
}
say begin
@USER@say scripted
@SEED@if [ -d /etc/cloud ]; then
    put 644 /etc/cloud/cloud.cfg.d/zz-kubenode-installimage.cfg <<'END'
@CONFIG@
END
    rm -f /var/lib/cloud/instance
fi
put 644 /etc/kubenode/installed.json <<'END'
@RECORD@
END
@SCRUB@@KEYS@for key in /etc/ssh/ssh_host_*_key.pub; do
    [ ! -r "$key" ] || say "host-key $(head -n 1 "$key")"
done
awk '$2 == "/" { print $1, $3, $4 }' /proc/mounts 2>/dev/null | tail -n 1 | while read -r root; do
    say "root $root"
done
sync
say done
"""

_USER = r"""put 700 "$dir/script" <<'END'
@SCRIPT@
END
(cd / && exec "$dir/script") </dev/null 2>&1
code=$?
[ "$code" -eq 0 ] || fail "$code the post-install script"
"""

_SEED = r"""command -v cloud-init >/dev/null 2>&1 ||
    fail "0 bootstrap_data: the new system lacks cloud-init; use an image with it, or install it by post_install_script"
[ ! -e /etc/cloud/cloud-init.disabled ] ||
    fail "0 bootstrap_data: /etc/cloud/cloud-init.disabled switches cloud-init off in the new system; remove that file"
mkdir -p @DIR@ && chmod 700 @DIR@
put 600 @DIR@/meta-data <<'END'
@META@
END
put 600 @DIR@/user-data <<'END'
@DATA@
END
"""

#: installimage makes keys only of those types that the image has, and an image for many machines has none. What sshd
#: is to show is made now, so that the first contact is proven.
_KEYS = r"""command -v ssh-keygen >/dev/null 2>&1 && ssh-keygen -A >/dev/null 2>&1
if command -v sshd >/dev/null 2>&1 || [ -x /usr/sbin/sshd ]; then
    set -- /etc/ssh/ssh_host_*_key.pub
    [ -s "$1" ] ||
        fail "0 the new system has an SSH server and no host keys, and none can be made; install ssh-keygen in it"
fi
"""

#: In case installimage has written it already; otherwise it is done when installimage has ended.
_SCRUB = "[ ! -f /installimage.conf ] || sed -i '/CRYPTPASSWORD/d' /installimage.conf\n"


def script(spec, nonce, instance, record):
    """The script; ``nonce`` marks its lines, ``instance`` is cloud-init's instance id."""
    user = spec["post_install_script"]
    data = spec["bootstrap_data"]
    parts = {
        "USER": _fill(_USER, {"SCRIPT": _encode(_program(user))}) if user.strip() else "",
        "SEED": "",
        "CONFIG": _encode(cloud_config(data is not None)),
        "RECORD": _encode(json.dumps(record, indent=2, sort_keys=True) + "\n"),
        "SCRUB": _SCRUB if spec["crypt_password"] else "",
        # Not in place of keys that the bootstrap data brings.
        "KEYS": "" if own_host_keys(data) else _KEYS,
        "TAG": TAG,
        "NONCE": nonce,
    }
    if data is not None:
        meta = "instance-id: %s\nlocal-hostname: %s\n" % (json.dumps(instance), json.dumps(spec["hostname"]))
        parts["SEED"] = _fill(_SEED, {"DIR": SEED, "META": _encode(meta), "DATA": _encode(data)})
    return _fill(_SCRIPT, parts)


def cloud_config(seeded):
    """cloud-init keeps the host keys that installimage made, and looks nowhere else when it got a seed."""
    pin = "datasource_list: [ NoCloud, None ]\n" if seeded else ""
    return "# written by kubenode.provision\nssh_deletekeys: false\n" + pin


def own_host_keys(bootstrap_data):
    """Whether the bootstrap data gives the new system other host keys than those made during the installation."""
    return bool(_OWN_KEYS.search(bootstrap_data or ""))


class Report:
    """What the script said, found in whatever installimage made of its output."""

    def __init__(self, text, nonce):
        self.begun = self.scripted = self.done = False
        self.failure, self.root = None, ""
        self.host_keys: list[str] = []
        for match in re.finditer(r"%s %s (\S+) ?([^\r\n]*)" % (TAG, re.escape(nonce)), text):
            word, rest = match.group(1), match.group(2).strip()
            if word == "begin":
                self.begun = True
            elif word == "scripted":
                self.scripted = True
            elif word == "failed":
                self.failure = rest
            elif word == "host-key":
                key = " ".join(rest.split()[:2])
                if key not in self.host_keys:
                    self.host_keys.append(key)
            elif word == "root":
                self.root = rest
            elif word == "done":
                self.done = True


def output_of(text, nonce):
    """What the user's script printed: the lines between ours."""
    found = re.search(
        r"{0} {1} begin[^\n]*\n(.*?)(?:^[^\n]*{0} {1} |\Z)".format(TAG, re.escape(nonce)), text, re.S | re.M
    )
    return found.group(1).strip("\n") if found else ""


def _program(text):
    return text if text.startswith("#!") else "#!/bin/bash\n" + text


def _encode(text):
    # Lines of a length that every shell and every installimage copes with.
    encoded = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")
    return "\n".join(encoded[start : start + 76] for start in range(0, len(encoded), 76))


def _fill(template, parts):
    # One pass, so that nothing in a part is taken for a place to fill.
    return re.sub(
        r"@([A-Z]+)@", lambda match: parts[match.group(1)] if match.group(1) in parts else match.group(), template
    )
