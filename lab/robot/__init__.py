# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Robot webservice: dedicated servers, their boot configuration, resets and SSH keys."""
