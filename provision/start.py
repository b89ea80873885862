# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`__main__` of the archive. Its syntax is every Python's, so that an old one ends with a sentence, not a traceback."""

import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    version = ".".join(str(part) for part in sys.version_info[:3])
    sys.stderr.write("provision: Python 3.11 to 3.14 is needed, this is " + version + "; run it as ./provision\n")
    sys.exit(1)

from provision.program import main

sys.exit(main())
