# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook out of the unpacked payload: a process of its own, without environment variables for Python."""

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent / "site"))
    # a shell that starts us in the background ignores Ctrl-C, yet our parent ends us by this signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from ansible.cli.playbook import main

    sys.exit(main())
