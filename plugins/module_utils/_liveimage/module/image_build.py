# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The module preprov_image_build: everything of every host is made and checked first, then what differs is written.

Secrets may be deep inside of the options: they are neither logged nor returned.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ansible.module_utils.basic import env_fallback

from ..._common.masking import without_login
from ..._common.option_values import VARIABLES, NoLogModule, in_variables
from ..._common.text import json_value, listed
from ..base_file import DIGESTS
from ..image_error import ImageError
from ..nmstate.conversion import Run, chosen
from ..overlay import Overlay, read
from . import inspection, request
from .inspection import DiffEntry
from .products import Descriptors, Files, Found, HostProducts, Maker, Owned, Product, Store, clashes, rewrite
from .request import OUTPUTS, HostRequest

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
            for result in self.results:  # their images would point at what cannot be written
                if result.name in steps and made[result.name].shared:
                    del steps[result.name]
                    result.error = str(error)
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
            result.msg = f"{'would be removed:' if self._check else 'removed:'} {', '.join(gone) or 'nothing'}"
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


#: what may be seen of the arguments: nothing of it is a secret
_SHOWN = (
    "base_initramfs", "base_iso", "base_kernel", "base_rootfs", "dest", "enlarge", "force", "group", "images", "mode",
    "nmstate", "on_error", "outputs", "owner", "permissions", "publish_url", "rootfs_url", "shared_dir", "verify",
)  # fmt: skip
REQUIRED_IF = [
    ("mode", FILE, ["hosts", "dest"]),
    ("mode", OVERLAY, ["hosts", "dest"]),
    ("mode", SHOW, ["images"]),
    ("mode", RESET, ["images"]),
]


def _or_variable(variable: str, **option: Any) -> dict[str, Any]:
    """An option that falls back to the variable the peer reads."""
    return dict(option, fallback=(env_fallback, [variable]))


def _texts_option(**option: Any) -> dict[str, Any]:
    return dict(option, type="list", elements="str")


def _host_options() -> dict[str, Any]:
    file = {
        "path": {"type": "str", "required": True},
        "content": {"type": "str"},
        "content_base64": {"type": "str"},
        "src": {"type": "path"},
        "mode": {"type": "str", "default": "0644"},
    }
    unit = {"name": {"type": "str", "required": True}, "contents": {"type": "str"}, "src": {"type": "path"}}
    arguments = {
        "append": _texts_option(default=[]),
        "replace": _texts_option(default=[]),
        "delete": _texts_option(default=[]),
        "reset": {"type": "bool", "default": False},
    }
    return {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "hostname": {"type": "str"},
        "architecture": {"type": "str"},
        "outputs": _texts_option(choices=list(OUTPUTS)),
        "network": {"type": "raw"},
        "network_file": {"type": "path"},
        "ignition": {"type": "raw"},
        "ignition_file": {"type": "path"},
        "merge": {"type": "raw"},
        "merge_file": {"type": "path"},
        "files": {"type": "list", "elements": "dict", "default": [], "options": file},
        "units": {"type": "list", "elements": "dict", "default": [], "options": unit},
        "ssh_keys": _texts_option(default=[], no_log=False),
        "kernel_arguments": {"type": "dict", "options": arguments},
        "initramfs_network": {"type": "bool", "default": True},
        "agent_image": {"type": "str"},
    }


def argument_spec() -> dict[str, Any]:
    return {
        "mode": {"type": "str", "choices": list(MODES), "default": FILE},
        "variables": dict(VARIABLES),
        "hosts": {"type": "list", "elements": "dict", "options": _host_options()},
        "images": {"type": "list", "elements": "path"},
        "dest": {"type": "path"},
        "outputs": _texts_option(choices=list(OUTPUTS), default=["iso"]),
        "base_iso": _or_variable("DEPLOY_ISO", type="path"),
        "base_initramfs": _or_variable("DEPLOY_INITRD", type="path"),
        "base_kernel": {"type": "path"},
        "base_rootfs": {"type": "path"},
        "shared_dir": _or_variable("IMAGE_SHARED_DIR", type="path"),
        "publish_url": {"type": "str"},
        "rootfs_url": {"type": "str"},
        "names_secret_file": {"type": "path", "no_log": False},
        "agent_image": _or_variable("IRONIC_AGENT_IMAGE", type="str"),
        "ironic_urls": _or_variable("IRONIC_BASE_URL", **_texts_option()),
        "inspector_urls": _or_variable("IRONIC_INSPECTOR_BASE_URL", **_texts_option()),
        "ironic_insecure": _or_variable("IRONIC_INSECURE", type="bool", default=False),
        "pull_secret": _or_variable("IRONIC_AGENT_PULL_SECRET", type="json", no_log=True),
        "pull_secret_file": {"type": "path", "no_log": False},
        "vlan_interfaces": _or_variable("IRONIC_AGENT_VLAN_INTERFACES", type="str"),
        "ssh_keys": _texts_option(no_log=False),
        "registries_conf": {"type": "str"},
        "registries_conf_file": _or_variable("REGISTRIES_CONF_PATH", type="path"),
        "ip_options": _or_variable("IP_OPTIONS", type="str"),
        "http_proxy": _or_variable("HTTP_PROXY", type="str"),
        "https_proxy": _or_variable("HTTPS_PROXY", type="str"),
        "no_proxy": _or_variable("NO_PROXY", type="str"),
        "ntp_servers": _or_variable("ADDITIONAL_NTP_SERVERS", **_texts_option()),
        "ca_bundle": {"type": "str"},
        "ca_bundle_file": _or_variable("CA_BUNDLE", type="path"),
        "agent_environment": {"type": "dict"},
        "podman_options": _texts_option(),
        "nmstate": {"type": "str", "choices": ["auto", "builtin", "nmstatectl"], "default": "builtin"},
        "force": {"type": "bool", "default": False},
        "enlarge": {"type": "bool", "default": False},
        "verify": {"type": "str", "choices": ["record", "full"], "default": "record"},
        "permissions": {"type": "str", "default": "0600"},
        "owner": {"type": "str"},
        "group": {"type": "str"},
        "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
    }


class SecretiveModule(NoLogModule):
    """Keeps its arguments out of the machine's log and out of every result."""

    def exit_json(self, **result: Any) -> None:
        """As it is, with what may be seen of the arguments."""
        super().exit_json(**dict({"invocation": {"module_args": self._seen()}}, **result))

    def fail_json(self, msg: str, **result: Any) -> None:
        """The same; also for arguments that are no good."""
        super().fail_json(msg, **dict({"invocation": {"module_args": self._seen()}}, **result))

    def _seen(self) -> dict[str, Any]:
        params = self.params if isinstance(self.params, dict) else {}
        found = {name: params.get(name) for name in _SHOWN}
        for name in ("publish_url", "rootfs_url"):
            found[name] = without_login(str(found[name])) if found[name] else found[name]
        hosts = params.get("hosts")
        if isinstance(hosts, list):
            found["hosts"] = [str(host.get("name")) if isinstance(host, dict) else "?" for host in hosts]
        return found


def run(module: Any) -> None:
    """The module's work; ends it."""
    module.no_log_values.update(secret_texts(module.params))
    DIGESTS.keep(os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kubenode.provision"))
    try:
        if module.params["mode"] in (SHOW, RESET):
            _inspect_images(module)
        else:
            _build_images(module)
    except ImageError as error:
        msg = in_variables(str(error), module.params["variables"])
        module.fail_json(msg=msg, hosts=[], shared=[], shared_msg="", images=[], urls={})


def secret_texts(params: Mapping[str, Any]) -> set[str]:
    """Texts inside of secrets: Ansible masks a secret as a whole only, not a part of it."""
    found: set[str] = set()
    try:
        auths = json_value(params["pull_secret"] or "{}")["auths"].values()
    except (ValueError, KeyError, AttributeError, TypeError):
        return found
    for entry in auths:
        if isinstance(entry, dict):
            found.update(text for text in entry.values() if isinstance(text, str) and len(text) >= 8)
    return found


def _build_images(module: Any) -> None:
    params = module.params
    owned = Owned(request.mode_of("permissions", params["permissions"]), _owner(module))
    work = Build(params, check=module.check_mode, diff=module._diff, owned=owned, run=_nmstatectl(module))
    work.run()
    everyone = [*work.results, work.shared]
    for result in everyone:
        result.error = in_variables(result.error, params["variables"])
        result.warnings = tuple(in_variables(text, params["variables"]) for text in result.warnings)
        for warning in result.warnings:
            module.warn(f"{result.name}: {warning}")
    hosts = [result.as_result() for result in work.results]
    outcome: dict[str, Any] = {
        "changed": any(result.changed for result in everyone),
        "hosts": hosts,
        "shared": work.shared.images,
        "shared_msg": work.shared.error,
        "images": [],
        "urls": {host["name"]: host["urls"] for host in hosts if host["urls"]},
    }
    if module._diff:
        outcome["diff"] = work.diff
    failed = [result for result in everyone if result.error]
    if failed and params["on_error"] == "fail":
        count = sum(1 for result in work.results if result.error)
        module.fail_json(msg=f"{count} of {len(hosts)} hosts failed: {failures(failed)}", **outcome)
    module.exit_json(**outcome)


def _inspect_images(module: Any) -> None:
    diff: list[inspection.DiffEntry] = []
    if module.params["mode"] == SHOW:
        images = inspection.show_images(module.params["images"])
    else:
        images, diff = inspection.reset_images(module.params["images"], check=module.check_mode, write=rewrite)
    outcome: dict[str, Any] = {
        "changed": any(image["changed"] for image in images), "images": images, "hosts": [], "shared": [],
        "shared_msg": "", "urls": {},
    }  # fmt: skip
    if module._diff:
        outcome["diff"] = diff
    failed = [image for image in images if image["failed"]]
    if failed and module.params["on_error"] == "fail":
        text = "; ".join(image["msg"] for image in failed)
        module.fail_json(msg=f"{len(failed)} of {len(images)} images failed: {text}", **outcome)
    module.exit_json(**outcome)


def _owner(module: Any) -> Any:
    """Sets user and group; with ``check`` it only returns whether they differ."""
    user, group = module.params["owner"], module.params["group"]
    for option, name, known in (("owner", user, pwd.getpwnam), ("group", group, grp.getgrnam)):
        if name is not None and not re.fullmatch(r"[0-9]{1,10}", name):
            try:
                known(name)
            except KeyError as error:
                raise ImageError(f"{option} {name!r} does not exist on this machine") from error

    def set_owner(path: str, check: bool) -> bool:
        if user is None and group is None:
            return False
        was, module.check_mode = module.check_mode, check or module.check_mode
        try:
            changed = module.set_owner_if_different(path, user, False)
            return bool(module.set_group_if_different(path, group, changed))
        finally:
            module.check_mode = was

    return set_owner


def _nmstatectl(module: Any) -> Any:
    def start(command: Sequence[str], text: str) -> tuple[int, str, str]:
        code, out, err = module.run_command(list(command), data=text, binary_data=True)
        return code, out, err

    return chosen(module.params["nmstate"], module.get_bin_path, start)
