# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dev/demo [NAME] [OPTION …]``: one of the demos, ``cloud`` where none is named."""

import importlib
import sys

NAMES = ("cloud", "fleet", "robot", "node", "site", "live-images", "node-images")


def main(name: str = "cloud", *options: str) -> int:
    if name.startswith("-"):
        name, options = "cloud", (name, *options)
    if name not in NAMES:
        print(f"dev/demo: there is no demo {name}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(f"dev.demos.{name.replace('-', '_')}").main(options)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
