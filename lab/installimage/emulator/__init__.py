# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""installimage of the lab: partitions, formats, unpacks a tarball and makes it boot, as the provider's does.

It runs inside a rescue with nothing but Python and the rescue's tools; `lab.images.share()` puts it there.
"""
