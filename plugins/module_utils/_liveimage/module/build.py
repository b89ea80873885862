# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The module's run: everything of every host is made and checked first, then what differs is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from ..._common.text import listed
from ..errors import ImageError
from ..overlay import Overlay
from ..overlay_io import read
from . import inspection, request
from .inspection import DiffEntry
from .products import HostProducts, Maker, Product, clashes
from .request import HostRequest
from .stores import Descriptors, Files, Found, Owned, Store

if TYPE_CHECKING:
    from ..hosts import Run

FILE, OVERLAY, SHOW, RESET = "file", "overlay", "show", "reset"
MODES = (FILE, OVERLAY, SHOW, RESET)
_SCRIPT = 64 * 1024


class ImageResult(TypedDict):
    """One image of a host, or one that hosts share; sizes in bytes."""

    kind: str
    name: str
    path: str
    url: str
    size: int
    etag: str
    own_bytes: int  # that are not in the base
    changed: bool


class HostResult(TypedDict):
    """What the module returns for a host."""

    name: str
    changed: bool
    failed: bool
    msg: str
    images: list[ImageResult]
    urls: dict[str, str]  # kind → URL
    ignition_bytes: int
    area_bytes: int | None
    warnings: list[str]


@dataclass
class Result:
    """What became of one host, or of what hosts share."""

    name: str
    changed: bool = False
    error: str = ""
    msg: str = ""
    images: list[ImageResult] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    ignition_bytes: int = 0
    area_bytes: int | None = None

    def as_result(self) -> HostResult:
        """As the module returns it."""
        return {
            "name": self.name, "changed": self.changed, "failed": bool(self.error), "msg": self.error or self.msg,
            "images": self.images, "urls": {one["kind"]: one["url"] for one in self.images if one["url"]},
            "ignition_bytes": self.ignition_bytes, "area_bytes": self.area_bytes, "warnings": list(self.warnings),
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """A product and what is there in its place."""

    product: Product
    found: Found
    owner_differs: bool

    @property
    def changes(self) -> bool:
        """Whether anything is not as it should be."""
        return not (self.found.same and self.found.permissions) or self.owner_differs


class Build:
    """One run over a list of hosts."""

    def __init__(self, params: Mapping[str, Any], *, check: bool, diff: bool, owned: Owned, run: Run | None) -> None:
        """Common input is checked here: ImageError: nothing can be made for any host."""
        self._params = params
        self._check, self._with_diff = check, diff
        self._names = request.names(params)
        common = request.common(params)
        self._agent = request.agent_of(params) if request.needs_agent(params) else None
        self._store: Store = (
            Files(common.dest, owned, full=common.full) if params["mode"] == FILE else Descriptors(common.dest, owned)
        )
        self._store.check()
        self._maker = Maker(common, run)
        self.diff: list[DiffEntry] = []
        self.results: list[Result] = []
        self.shared = Result("")

    def run(self) -> None:
        """Make, compare, write; one host's error is that host's."""
        self.results = [Result(name) for name in self._names]
        made, absent = self._make()
        steps = self._compare(made)
        if not self._check and (any(step.changes for found in steps.values() for step in found)):
            self._store.make()
        self._write(self.shared, steps[""])  # first: images of hosts point at them
        for result in self.results:
            if result.error:
                continue
            if result.name in absent:
                self._remove(result)
            else:
                self._write(result, steps[result.name])
                result.msg = _summary(result, self._check)

    def _make(self) -> tuple[dict[str, HostProducts], set[str]]:
        made: dict[str, HostProducts] = {}
        absent: set[str] = set()
        for result, entry in zip(self.results, self._params["hosts"]):
            try:
                wanted: HostRequest = request.host_request(self._params, entry, self._agent)
                if not wanted.present:
                    absent.add(result.name)
                    continue
                found = made[result.name] = self._maker.make(wanted)
                result.warnings, result.area_bytes = found.warnings, found.area_bytes
                result.ignition_bytes = found.ignition_bytes
            except ImageError as error:
                result.error = str(error)
        wrong = clashes({host: found.products for host, found in made.items()})
        for result in self.results:
            if result.name in wrong:
                result.error = wrong[result.name]
                del made[result.name]
        return made, absent

    def _compare(self, made: Mapping[str, HostProducts]) -> dict[str, list[Comparison]]:
        """What is there for each host; also for "", the key of what they share."""
        steps: dict[str, list[Comparison]] = {"": []}
        shared: dict[str, Product] = {}
        for result in self.results:
            if result.name not in made:
                continue
            try:
                steps[result.name] = [self._step(product) for product in made[result.name].products]
                shared.update({product.name: product for product in made[result.name].shared})
            except ImageError as error:
                result.error = str(error)
        try:
            steps[""] = [self._step(product) for product in shared.values()]
        except ImageError as error:
            self.shared.error = str(error)
        return steps

    def _step(self, product: Product) -> Comparison:
        return Comparison(product, self._store.compare(product), self._store.owner_differs(product.name))

    def _write(self, result: Result, steps: list[Comparison]) -> None:
        try:
            for step in steps:
                if step.changes:
                    self._add_differences(step)
                    if not self._check:
                        self._store.write(step.product, step.found)
                elif not step.found.known and not self._check:
                    self._store.write(step.product, step.found)  # its record only
                result.changed = result.changed or step.changes
                result.images.append(self._image_result(step))
        except ImageError as error:
            result.error = str(error)

    def _remove(self, result: Result) -> None:
        """Only what was written here for this host."""
        try:
            gone = [name for name in self._maker.names_of(result.name) if self._store.is_of(name, result.name)]
            for name in gone:
                if not self._check:
                    self._store.remove(name)
                if self._with_diff:
                    path = self._store.path(name)
                    self.diff.append(DiffEntry(before_header=path, after_header=path, before="there\n", after=""))
            result.changed = bool(gone)
            result.msg = "%s %s" % ("would be removed:" if self._check else "removed:", ", ".join(gone) or "nothing")
        except ImageError as error:
            result.error = str(error)

    def _image_result(self, step: Comparison) -> ImageResult:
        product = step.product
        return {
            "kind": product.kind, "name": product.name, "path": self._store.path(product.name), "url": product.url,
            "size": product.overlay.size, "etag": product.overlay.etag(), "own_bytes": product.overlay.own_bytes(),
            "changed": step.changes,
        }  # fmt: skip

    def _add_differences(self, step: Comparison) -> None:
        """A difference for what is embedded, and one for the kernel arguments."""
        if not self._with_diff:
            return
        path, product = self._store.path(step.product.name), step.product
        try:
            there = self._store.before(product.name)
            before = {} if there is None else _texts(product.kind, there)
        except ImageError as error:
            before = {"": f"({error})\n"}
        after = _texts(product.kind, product.overlay)
        if step.found.same:
            before, after = {"": "other owner or permissions\n"}, {"": "as wanted\n"}
        elif before == after:
            before, after = {"": "other bytes\n"}, {"": "as wanted\n"}
        for part in sorted({*before, *after}):
            pair = before.get(part, ""), after.get(part, "")
            if pair[0] != pair[1]:
                self._add(path, product, part, pair)

    def _add(self, path: str, product: Product, part: str, pair: tuple[str, str]) -> None:
        for entry in self.diff:
            if (entry["before"], entry["after"]) == pair and product.host:  # images of one host differ in the same way
                entry["before_header"] = entry["after_header"] = f"{entry['after_header']}, {product.name}"
                return
        header = f"{path} ({part})" if part else path
        self.diff.append(DiffEntry(before_header=header, after_header=header, before=pair[0], after=pair[1]))


def _texts(kind: str, overlay: Overlay) -> dict[str, str]:
    if kind == "ipxe":
        return {"": read(overlay, 0, _SCRIPT).decode("utf-8", "replace")}
    if kind in ("kernel", "rootfs"):
        digest = overlay.etag() if overlay.base.identity else "others"
        return {"": f"{kind} of {overlay.size} bytes, {digest}\n"}
    return inspection.diff_texts(inspection.inspect_overlay(overlay))


def _summary(result: Result, check: bool) -> str:
    changed = [one["name"] for one in result.images if one["changed"]]
    if not changed:
        return "nothing differs"
    return f"{'would be written' if check else 'written'}: {', '.join(changed)}"


def failures(results: list[Result]) -> str:
    """Who failed and why; hosts with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.error:
            reasons.setdefault(result.error, []).append(result.name or "what hosts share")
    return "; ".join(f"{listed(hosts, 5)}: {reason}" for reason, hosts in reasons.items())
