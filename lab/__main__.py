# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m lab"""

import sys

from .cli import main

sys.exit(main())
