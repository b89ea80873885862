# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in itself: Python ≥ 3.9, standard library and the program openssl only, since it runs on machines."""
