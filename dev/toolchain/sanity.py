# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-test sanity on one ansible-core, without the hosts that ansible-test would download from."""

from __future__ import annotations

import os
from pathlib import Path

from .paths import cache

#: ansible-test fetches this program from a host of its own; ensurepip's wheel does the same from the machine itself
GET_PIP = """\
import ensurepip, glob, os, sys, sysconfig
# Debian keeps the wheels outside of ensurepip
folders = [os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")]
folders += filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR"), "/usr/share/python-wheels"])
wheels = [wheel for folder in folders for wheel in sorted(glob.glob(os.path.join(folder, "pip-*.whl")))]
if not wheels:
    sys.exit("ensurepip of %s has no pip wheel; on Debian and Ubuntu install python3-venv" % sys.executable)
sys.path.insert(0, wheels[0])
from pip._internal.cli.main import main
arguments = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(main(["install", "--upgrade", "--force-reinstall"] + arguments))
"""
#: the names under which ansible-test 2.18 … 2.21 looks for it
GET_PIP_NAMES = ("get_pip_24_2.py", "get_pip_25_2.py")


def home(core: str) -> Path:
    """A home folder for ansible-test, so that nothing is put into the user's own and cores do not meet."""
    folder = cache() / ("ansible-test-" + core)
    downloads = folder / ".ansible" / "test" / "cache"
    downloads.mkdir(parents=True, exist_ok=True)
    for name in GET_PIP_NAMES:
        (downloads / name).write_text(GET_PIP, encoding="utf-8")
    _keep_pip_settings(folder)
    return folder


def _keep_pip_settings(folder: Path) -> None:
    """ansible-test passes HOME to pip but no PIP_ variables; the user's mirror settings must reach it all the same."""
    settings = {
        name[len("PIP_") :].lower().replace("_", "-"): value
        for name, value in sorted(os.environ.items())
        if name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_PROXY", "PIP_TRUSTED_HOST")
    }
    target = folder / ".config" / "pip" / "pip.conf"
    for own in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
        if own.exists() and not settings:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(own.read_bytes())
            target.chmod(0o600)
            return
    if settings:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text("[global]\n" + "".join("%s = %s\n" % pair for pair in settings.items()), encoding="utf-8")
