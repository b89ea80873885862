# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m lab"""

import importlib.util
import sys

# before anything is started, since some are imported by the process in the background only
missing = [name for name in ("aiohttp", "cryptography", "pydantic", "yaml") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(
        f"lab: this Python has no {', '.join(missing)}; in a virtual environment: pip install ./lab, "
        "in a checkout: make setup && dev/run python -m lab …"
    )

from .cli import main  # noqa: E402

sys.exit(main())
