# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of the lab: hardware, disk and power switch; `backend.open_backend` is the way in."""

#: A machine of a kind is nothing but files (dry), a container (nspawn), or a virtual machine (qemu).
KINDS = ("dry", "nspawn", "qemu")
