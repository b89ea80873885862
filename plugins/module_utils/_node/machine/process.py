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
    # files in memory: a daemon that a program leaves behind would keep pipes open for ever
    streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        if given is not None:
            os.write(streams[0], given.encode("utf-8", "surrogateescape"))
            os.lseek(streams[0], 0, os.SEEK_SET)
        results[index] = _run(argv, seconds, environment, streams)
    finally:
        for fd in streams:
            os.close(fd)


def _run(argv, seconds, environment, streams):
    try:
        # AnsibleModule.run_command can run one program at a time only, and cannot limit it.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            argv,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Done(MISSING, "", "%s cannot be run (%s)" % (argv[0], error.strerror))
    late = threading.Event()

    def end():
        late.set()
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)

    guard = threading.Timer(seconds, end)
    guard.start()
    try:
        process.wait()
    finally:
        guard.cancel()
    if late.is_set():
        return Done(LATE, _text(streams[1]), "%s did not end within %d s" % (argv[0], seconds))
    return Done(process.returncode, _text(streams[1]), _text(streams[2]))


def _text(fd):
    return os.pread(fd, LONGEST_OUTPUT, 0).decode("utf-8", "replace")
