# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Run a program on the controller with a limit on its time and on what it may say."""

from __future__ import annotations

import subprocess
import threading

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import FleetError

#: The most bytes that are read from either stream.
LONGEST_OUTPUT = 65536
#: What a program that had to be killed returns here.
KILLED = -1


def run_limited(argv, seconds):
    """Run ``argv`` without a shell and without input; returns (exit code or KILLED, stdout, stderr) as text."""
    # AnsibleModule.run_command can limit neither, and what is read here may come from a hostile machine.
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise FleetError(
            "the program '%s' cannot be run on the controller (%s); install the OpenSSH client" % (argv[0], error)
        ) from error
    if process.stdout is None or process.stderr is None:
        raise AssertionError("both are pipes")
    guard = threading.Timer(seconds, process.kill)
    guard.start()
    try:
        output = process.stdout.read(LONGEST_OUTPUT)
        if len(output) == LONGEST_OUTPUT:
            process.kill()
        errors = process.stderr.read(LONGEST_OUTPUT)
        if len(errors) == LONGEST_OUTPUT:
            process.kill()
        returncode = process.wait()
    finally:
        guard.cancel()
        process.stdout.close()
        process.stderr.close()
    return (
        returncode if returncode >= 0 else KILLED,
        output.decode("utf-8", "replace"),
        errors.decode("utf-8", "replace"),
    )
