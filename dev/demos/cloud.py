# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on the lab, as an operator would run it: from nothing to a verified new system, and then again."""

from collections.abc import Sequence

from dev.demos import done, parser, say, show, twice
from dev.testbed import CHECKOUT, PROOF_FILE, Testbed


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 when the machines run their new system and the second run changed nothing."""
    options = parser("cloud", __doc__)
    options.add_argument("--kind", default="auto", choices=("auto", "nspawn", "qemu"), help="kind of lab machine")
    options.add_argument("--machines", type=int, default=1, help="how many machines")
    chosen = options.parse_args(arguments)
    names = [f"demo-{number}" for number in range(1, chosen.machines + 1)]
    say("starting the lab (the first time it builds a rescue system and a Debian image from packages)")
    lab = ["--kind", chosen.kind, "--profile", chosen.profile]
    testbed = Testbed(CHECKOUT / "build" / "demo", "demo", lab_options=lab, keep=chosen.keep)
    with testbed:
        say(f"the lab's machines are of the kind {testbed.lab['kind']}: {testbed.lab['reason']}")
        if testbed.lab["kind"] == "dry":
            say("machines of this kind do not boot, so there is nothing to show; run it as root: sudo make demo")
            return 1
        testbed.write_inventory(names)

        def proof() -> bool:
            for name in names:
                say(f"proof from inside {name}: hostname, boot id, the file that the bootstrap data made")
                show(testbed.ssh(name, f"hostname; cat /proc/sys/kernel/random/boot_id {PROOF_FILE}"))
            return True

        code = twice(testbed, proof)
    return done(testbed, code)
