# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Runs programs of the machine, several at once, each with a limit on its time and on what it may say."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import namedtuple

#: The most bytes that are kept of either stream.
LONGEST_OUTPUT = 4 << 20
#: Exit codes for a program that is not there, and for one that was killed after its time.
MISSING = 127
LATE = 124

Done = namedtuple("Done", ("code", "out", "err"))


def run_all(commands):
    """Run (argv, seconds, stdin text or None) at the same time, without a shell; a list of :class:`Done`, in order."""
    threads, results = [], [None] * len(commands)
    for index, (argv, seconds, given) in enumerate(commands):
        thread = threading.Thread(target=_one, args=(results, index, argv, seconds, given), daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return results


def _one(results, index, argv, seconds, given):
    environment = dict(os.environ, LANG="C", LC_ALL="C", LANGUAGE="C", DEBIAN_FRONTEND="noninteractive")
    try:
        # AnsibleModule.run_command can run one program at a time only, and cannot limit it.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv,
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        results[index] = Done(MISSING, "", "%s cannot be run (%s)" % (argv[0], error.strerror))
        return
    late = threading.Event()

    def end():
        late.set()
        # the whole session, so that no child keeps the pipes open
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)

    guard = threading.Timer(seconds, end)
    guard.start()
    try:
        out, err = process.communicate(None if given is None else given.encode("utf-8", "surrogateescape"))
    finally:
        guard.cancel()
    if late.is_set():
        results[index] = Done(LATE, _text(out), "%s did not end within %d s" % (argv[0], seconds))
    else:
        results[index] = Done(process.returncode, _text(out), _text(err))


def _text(data):
    return data[:LONGEST_OUTPUT].decode("utf-8", "replace")
