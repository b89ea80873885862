# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""An AnsibleModule whose arguments may hold secrets deep inside."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule


class NoLogModule(AnsibleModule):
    """Does not write its arguments to the machine's log, where Ansible can hide top-level options only."""

    def _log_invocation(self) -> None:
        self.log("Invoked; the arguments are not logged, since they may hold secrets")
