# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet on the lab of which three machines fail, each in its own way, and the page that explains the run."""

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from dev.demos import parser, say
from dev.testbed import CHECKOUT, Testbed

#: What goes wrong with whom: a wrong digest, a rescue that the machine does not boot, bootstrap data with an error.
BAD_IMAGE, NO_RESCUE, BAD_DATA = "fleet-4", "fleet-7", "fleet-10"


def main(arguments: Sequence[str]) -> int:
    """Exit code 1, as the playbook's own, when just the three machines failed; 2 for anything else."""
    options = parser("fleet", __doc__)
    options.add_argument("--machines", type=int, default=12, help="how many machines, at least 10")
    chosen = options.parse_args(arguments)
    names = [f"fleet-{number}" for number in range(1, max(10, chosen.machines) + 1)]
    lab = ["--kind", "nspawn", "--profile", chosen.profile]
    testbed = Testbed(CHECKOUT / "build" / "demo-fleet", "demo-fleet", lab_options=lab, keep=chosen.keep)
    with testbed:
        write_inventory(testbed, names)
        testbed.control(
            "POST", "/faults", {"point": "boot", "machine": NO_RESCUE, "effect": "ignore_rescue", "times": 2}
        )
        say(f"{len(names)} machines; {BAD_IMAGE} has a wrong digest, {NO_RESCUE} does not boot its rescue,")
        say(f"and the bootstrap data of {BAD_DATA} ends with an error")
        testbed.provision(say=say)
    if not testbed.report.exists():
        say("the playbook ended before it did anything")
        return 2
    report = json.loads(testbed.report.read_text(encoding="utf-8"))
    failed = {machine["name"] for machine in report["machines"] if machine["failed"]}
    verified = {machine["name"] for machine in report["machines"] if machine["verified"]}
    say(f"the page of this run: {testbed.report.with_suffix('.html')}")
    if failed != {BAD_IMAGE, NO_RESCUE, BAD_DATA} or verified != set(names) - failed:
        say(f"this is not what was expected: failed {sorted(failed)}, verified {sorted(verified)}")
        return 2
    return 1


def write_inventory(testbed: Testbed, names: list[str]) -> None:
    """An ordinary inventory, with one wrong digest and one wrong user data."""
    testbed.write_inventory(names, kubenode_rescue_timeout=90)
    inventory = yaml.safe_load(testbed.inventory.read_text(encoding="utf-8"))
    hosts, variables = inventory["machines"]["hosts"], inventory["machines"]["vars"]
    wrong = variables["kubenode_image_url"].partition("#")[0] + "#sha256=" + "0" * 64
    hosts[BAD_IMAGE] = {"kubenode_image_url": wrong}
    data = yaml.safe_load(Path(variables["kubenode_bootstrap_data_file"]).read_text(encoding="utf-8"))
    bad = testbed.folder / "bad-user-data.yml"
    bad.touch(mode=0o600)
    bad.write_text("#cloud-config\n" + yaml.safe_dump({**data, "runcmd": [["false"]]}), encoding="utf-8")
    hosts[BAD_DATA] = {"kubenode_bootstrap_data_file": str(bad)}
    testbed.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False), encoding="utf-8")
