# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""python3 -m PACKAGE.service"""

from __future__ import annotations

import os
import sys

from .main import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
