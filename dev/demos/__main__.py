# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dev/demo [NAME] [OPTION …]``: one of the demos, ``cloud`` where none is named."""

import importlib
import sys

#: demo → its function in a module beside this one
FUNCTIONS = {
    "cloud": "machines.cloud",
    "fleet": "machines.fleet",
    "robot": "machines.robot",
    "node": "node.node",
    "site": "node.site",
    "live-images": "live_images.main",
    "node-images": "node_images.main",
}


def main(name: str = "cloud", *options: str) -> int:
    if name.startswith("-"):
        name, options = "cloud", (name, *options)
    if name not in FUNCTIONS:
        print(f"dev/demo: there is no demo {name}; there are {', '.join(FUNCTIONS)}", file=sys.stderr)
        return 2
    module, _dot, function = FUNCTIONS[name].partition(".")
    code: int = getattr(importlib.import_module(f"dev.demos.{module}"), function)(options)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
