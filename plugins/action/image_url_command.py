# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import commands
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import StepAction


class ActionModule(StepAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.image_url_command_spec)
    step = staticmethod(commands.image_url_command)
