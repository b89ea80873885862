# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The border check finds what docs/design.md forbids and nothing else."""

from __future__ import annotations

import pytest

from dev.toolchain import rules
from tests.folders import put

OURS = "ansible_collections.kubenode.provision.plugins"


def findings(tmp_path, name: str, source: str) -> list[str]:
    put(tmp_path / name, source)
    return rules.crossings(tmp_path, [name])


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("lab/lab.py", f"from {OURS}.module_utils._common import text"),
        ("lab/lab.py", "import plugins.module_utils._common.text"),
        ("lab/lab.py", "from tests.unit import helper"),
        ("plugins/action/a.py", "from lab.api import app"),
        ("plugins/modules/m.py", f"from {OURS}.plugin_utils import ssh"),
        ("plugins/modules/m.py", "from ..plugin_utils import ssh"),
        ("plugins/module_utils/_common/text.py", f"from {OURS}.module_utils._hetzner import client"),
        ("plugins/module_utils/_common/text.py", "from .._hetzner import client"),
        ("plugins/module_utils/_hetzner/client.py", "from .._rescue.protocol import PATHS"),
        ("plugins/module_utils/_rescue/runner.py", f"from {OURS}.module_utils._hetzner.client import Client"),
        ("plugins/module_utils/_rescue/runner.py", "def late():\n    from .._hetzner import client\n"),
        ("tests/unit/hetzner/test_client.py", "from lab.lab import Lab"),
        ("lab/lab.py", f"from {OURS}.module_utils._common.text import whole_number"),
        ("plugins/module_utils/_liveimage/iso.py", "from .._rescue import protocol"),
        ("plugins/plugin_utils/image_server/daemon/service.py", "from .. import role_plan"),
        ("plugins/plugin_utils/image_server/pack_program.py", "from . import role_inputs"),
        ("plugins/module_utils/_common/text.py", "from .._rescue import protocol"),
    ],
)
def test_crossing_a_border_is_found(tmp_path, name, source):
    assert len(findings(tmp_path, name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("lab/lab.py", "from lab.machines import base\nfrom . import routes\nimport aiohttp"),
        ("plugins/action/a.py", f"from {OURS}.plugin_utils import ssh\nfrom {OURS}.module_utils import _common"),
        ("plugins/modules/m.py", "from ..module_utils._hetzner.client import Client\nimport json"),
        ("plugins/module_utils/_hetzner/client.py", "from .._common import text\nfrom . import budget"),
        ("plugins/module_utils/_rescue/runner.py", f"from {OURS}.module_utils._common.boot_states import Timeline"),
        ("tests/integration/test_flow.py", "from lab.lab import Lab"),
        ("plugins/module_utils/_rescue/disks/parse.py", "from ..._common.text import whole_number"),
        ("plugins/module_utils/_common/names.py", "from . import text"),
        ("plugins/module_utils/_liveimage/iso.py", "from .._common.names import machine_error"),
        ("plugins/modules/m.py", f"from {OURS}.module_utils._common.text import whole_number"),
    ],
)
def test_allowed_imports_are_left_alone(tmp_path, name, source):
    assert findings(tmp_path, name, source) == []


def test_finding_names_line_and_border(tmp_path):
    line = findings(tmp_path, "lab/x.py", "import os\n\nfrom plugins import y\n")[0]
    assert line == "lab/x.py:3: imports plugins/y; it may import lab"
