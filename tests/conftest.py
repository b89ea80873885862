# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for all tests."""

from lab.testing import coreos, lab, lab_dry, lab_nspawn, lab_qemu, pytest_runtest_protocol

__all__ = ["coreos", "lab", "lab_dry", "lab_nspawn", "lab_qemu", "pytest_runtest_protocol"]
