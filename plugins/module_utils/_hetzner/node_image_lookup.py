# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Find images by CAPH's rules (what the module hcloud_node_image_info does)."""

from __future__ import annotations

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import (
    IMAGE_LABEL,
    Catalog,
    Unfit,
    newest_first,
    of_architecture,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.deadline import Deadline
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.inputs import refuse_findings
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.node_image_fleet import describe


class ImageLookup:
    """One call of hcloud_node_image_info; without names, every snapshot that is named by label is told."""

    def __init__(self, api, images, newest=False, timeout=60):
        self._api = api
        self._given = images
        self._newest = newest
        self._deadline = Deadline(timeout, "the list of images")

    def run(self):
        """Returns one result for each image that was asked for, in that order; raises FleetError."""
        if self._given is None:
            return [_result(describe(image), image) for image in self._all()]
        empty = ["images[%d].name: missing" % place for place, wanted in enumerate(self._given) if not wanted["name"]]
        refuse_findings(empty)
        catalog = Catalog(self._api, self._deadline)
        return [self._find(wanted, catalog.image_candidates(wanted["name"])) for wanted in self._given]

    def _all(self):
        params = {"type": "snapshot", "label_selector": IMAGE_LABEL}
        images = self._api.read_all("/images", "images", self._deadline, params=params)[0]
        return sorted(newest_first(images), key=lambda image: (image["labels"][IMAGE_LABEL], image["architecture"]))

    def _find(self, wanted, candidates):
        name, architecture = wanted["name"], wanted["architecture"]
        try:
            image = of_architecture(name, candidates, architecture, self._newest)
            if image.get("status", "available") != "available":
                raise Unfit("image: '%s' is not available yet (status %s); wait for it" % (name, image["status"]))
        except Unfit as finding:
            nothing = {"id": None, "name": name, "architecture": architecture}
            return dict(nothing, type=None, failed=True, changed=False, msg=str(finding))
        return dict(_result(describe(image), image), name=name)


def _result(about, image):
    return dict(about, type=image.get("type"), failed=False, changed=False, msg="found")
