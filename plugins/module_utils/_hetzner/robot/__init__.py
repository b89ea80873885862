# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The Robot webservice for a fleet of dedicated servers (private to the collection)."""
