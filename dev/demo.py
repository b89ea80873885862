# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on the lab, as an operator would run it: from nothing to a verified new system, and then again."""

from __future__ import annotations

import argparse
import sys

from dev.stage import CHECKOUT, PROOF_FILE, Stage


def say(line: str) -> None:
    """One line of the demo's own, apart from what the tools print."""
    print(f"demo: {line}", flush=True)


def main() -> int:
    """Exit code 0 when the machines run their new system and the second run changed nothing."""
    parser = argparse.ArgumentParser(prog="dev/demo", description=__doc__)
    parser.add_argument("--kind", default="auto", choices=("auto", "nspawn", "qemu"), help="kind of lab machine")
    parser.add_argument("--profile", default="instant", choices=("instant", "hetzner"), help="the platform's delays")
    parser.add_argument("--machines", type=int, default=1, help="how many machines")
    parser.add_argument("--keep", action="store_true", help="leave the lab up to look around in")
    chosen = parser.parse_args()
    names = [f"demo-{number}" for number in range(1, chosen.machines + 1)]
    say("starting the lab (the first time it builds a rescue system and a Debian image from packages)")
    options = ["--kind", chosen.kind, "--profile", chosen.profile]
    stage = Stage(CHECKOUT / "build" / "demo", "demo", lab_options=options, keep=chosen.keep)
    with stage:
        say(f"the lab's machines are of the kind {stage.lab['kind']}: {stage.lab['reason']}")
        if stage.lab["kind"] == "dry":
            say("machines of this kind do not boot, so there is nothing to show; run it as root: sudo make demo")
            return 1
        stage.write_inventory(names)
        if code := stage.provision(say=say):
            say(f"the run failed; its logs are in {stage.folder / 'kubenode' / 'logs'}")
            return code
        for name in names:
            say(f"proof from inside {name}: hostname, boot id, the file that the bootstrap data made")
            proof = f"hostname; cat /proc/sys/kernel/random/boot_id {PROOF_FILE}"
            print("".join(f"  {line}\n" for line in stage.ssh(name, proof).splitlines()), end="", flush=True)
        if not stage.unchanged_again(say):
            return 1
    say(f"done; the report of the first run: {stage.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
