# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a reference to the layers for this machine."""

from __future__ import annotations

import platform
import re

from commands.parts.errors import Refused
from commands.parts.registry import Descriptor, Registry

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
EMPTY = "application/vnd.oci.empty.v1+json"


class OciImage:
    """What a reference stands for on this machine: layers, in order, and whether they are layers of a file system."""

    def __init__(self, registry: Registry):
        url, machine = registry.url, platform.machine()
        self.architecture = ARCHITECTURES.get(machine, machine)
        found, self.digest = registry.manifest(url.reference)
        for _depth in range(3):
            if "manifests" not in found:
                break
            if "layers" in found or "config" in found:
                raise Refused("image: %s is index and manifest at once, refused" % url.shown)
            found, _digest = registry.manifest(self._choose(found, url.shown).digest)
        if "manifests" in found or not isinstance(found.get("layers"), list):
            raise Refused("image: %s is no image manifest with layers" % url.shown)
        config = Descriptor(found.get("config"))
        self.container = config.media_type in CONFIGS
        self.layers = [one for one in map(Descriptor, found["layers"]) if one.media_type != EMPTY]
        if not self.layers:
            raise Refused("image: %s has no layers" % url.shown)
        for layer in self.layers:
            if "encrypted" in layer.media_type:
                raise Refused("image: %s has encrypted layers" % url.shown)
        if self.container:
            self._check(registry.document(config, "configuration"))

    def _choose(self, index: dict, shown: str) -> Descriptor:
        entries = index["manifests"] if isinstance(index["manifests"], list) else []
        there = []
        for entry in map(Descriptor, entries):
            words = [entry.platform.get(name) for name in ("os", "architecture", "variant")]
            name = "/".join(re.sub("[^!-~]", "?", str(word))[:40] for word in words if word)
            if words[:2] == ["linux", self.architecture] and (not words[2] or words[2] in ("v1", "v8")):
                return entry
            if name and name not in there and name != "unknown/unknown":
                there.append(name)
        raise Refused("image: %s has nothing for linux/%s; there is %s" % (
            shown, self.architecture, ", ".join(there) or "nothing with a platform"
        ))  # fmt: skip

    def _check(self, config: dict) -> None:
        found = (config.get("os", "linux"), config.get("architecture", self.architecture))
        if found != ("linux", self.architecture):
            raise Refused("image: it is made for %.40s/%.40s, this machine is linux/%s" % (*found, self.architecture))

    def only_layer(self, title: str) -> Descriptor:
        """Return the layer with the image in it: the only one, or the one with this title."""
        titles = [layer.title for layer in self.layers if layer.title]
        if title:
            named = [layer for layer in self.layers if layer.title == title]
            if len(named) != 1:
                raise Refused("image: file=%.200s is not in it; there is %s" % (title, ", ".join(titles) or "no title"))
            return named[0]
        if len(self.layers) != 1:
            raise Refused("image: it has %d files; name one with #file= behind the image URL: %s" % (
                len(self.layers), ", ".join(titles)
            ))  # fmt: skip
        return self.layers[0]
