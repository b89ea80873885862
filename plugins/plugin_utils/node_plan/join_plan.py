# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a join, of its undoing and of leaving, for node_settings (pure).

``dump`` turns a dictionary into YAML; it is handed in, since machines may have no YAML.
"""

from __future__ import annotations

import json
import posixpath

from ansible_collections.kubenode.provision.plugins.module_utils._node.api.client import split_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import kubeconfig, paths

from .join_inputs import InvalidInput
from .kubelet import Kubelet

#: kubeadm speaks v1beta4 since then.
_KUBEADM_SINCE = (1, 31)


#: What the unit is restarted for although no file changed: its Node was deleted while it ran.
REGISTER = "join:register"
UNIT = "kubelet.service"


def present(node, inputs, seen, dump):
    """The settings that make this machine join, or keep it joined.

    ``node`` is node_info's, ``inputs`` what join_inputs.checked() returned, ``seen`` the result of node_join_check.
    """
    kubelet = Kubelet(node, inputs)
    listed = [_directory("etc", paths.ETC), _directory("pki", paths.ETC + "/pki")]
    listed += _credentials(inputs, seen)
    if inputs["method"] == "kubeadm":
        files = _kubeadm_files(kubelet, inputs, dump) if seen["need_bootstrap"] else []
    else:
        files = _bootstrap_files(kubelet, inputs, seen, dump)
    listed += files
    if inputs["cni_config"]:
        text = inputs["cni_config"]
        text = text if isinstance(text, str) else json.dumps(text, indent=2) + "\n"
        listed.append(_file("cni", paths.CNI, text))
    elif paths.CNI in (seen.get("record") or {}).get("files", []):
        listed.append(_absent("cni", paths.CNI))
    if inputs["method"] == "bootstrap":
        ids = [one["id"] for one in listed if one["kind"] in ("file", "absent") and one["id"] != "join/cni"]
        restart = [one for one in ids if one != "join/bootstrap-removed"] + [REGISTER]
        listed.append(_unit(state="started", enabled=True, restart_on=restart, wait=0))
    if not seen["need_bootstrap"]:
        listed.append(recorded(node, inputs, seen))
    return listed


def finished(node, inputs, seen):
    """The settings once the Node is there: no secret is left, and what was joined is written down."""
    return [
        _absent("bootstrap-removed", paths.BOOTSTRAP_KUBECONFIG),
        _absent("kubeadm-join", paths.KUBEADM_JOIN),
        recorded(node, inputs, seen),
    ]


def undone(seen):
    """The settings after a join that failed while it asked for a certificate: nothing runs, nothing new is left."""
    before = set(seen["present"])
    listed = [
        _unit(state="stopped", optional=True),
        _absent("bootstrap-removed", paths.BOOTSTRAP_KUBECONFIG),
        _absent("kubeadm-join", paths.KUBEADM_JOIN),
        _absent("key-unused", paths.PKI + "/kubelet-client.key.tmp"),
    ]
    listed += [_absent("undo" + path, path) for path in paths.MADE if path not in before]
    folders = paths.MADE_FOLDERS + paths.STATE
    listed += [_absent("undo" + path, path, recursive=True) for path in folders if path not in before]
    unique = {one.get("path", one["id"]): one for one in listed}
    return list(unique.values())


def absent(seen):
    """The settings of leaving a cluster; what base made stays, so that the machine can join again."""
    listed = [_unit(state="stopped", optional=True)]
    listed += [_absent("leave" + path, path) for path in paths.MADE if path != paths.CNI]
    if paths.CNI in (seen.get("record") or {}).get("files", []):
        listed.append(_absent("leave" + paths.CNI, paths.CNI))
    listed += [_absent("leave" + path, path, recursive=True) for path in paths.MADE_FOLDERS]
    # what is mounted below them is unmounted first, never emptied
    listed += [_absent("leave" + path, path, recursive=True) for path in paths.STATE]
    return listed


def changed_before(seen):
    """Ids for node_settings' ``changed_before``."""
    return [REGISTER] if seen.get("need_registration") else []


def recorded(node, inputs, seen):
    """The facts file of a join."""
    kubelet = Kubelet(node, inputs)
    record = {
        "node_name": kubelet.name,
        "api_server": inputs["api_server"],
        "ca_hashes": seen["ca_hashes"],
        "method": inputs["method"],
        "kubelet": kubelet.version,
        "node_ips": kubelet.addresses,
        "drop_ins": sorted(inputs["kubelet_drop_ins"]),
        "files": [paths.CNI] if inputs["cni_config"] else [],
    }
    return _file("record", paths.RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n")


def secrets(node, inputs, seen, token, dump):
    """Contents for node_settings' ``secrets``: what holds the token."""
    if not token or not seen["need_bootstrap"]:
        return {}
    if inputs["method"] == "kubeadm":
        whole = join_configuration(Kubelet(node, inputs), inputs, token, seen["ca_hashes"])
        return {"kubeadm-join": dump(whole)}
    return {"bootstrap-kubeconfig": kubeconfig.bootstrap(inputs["api_server"], token)}


def _credentials(inputs, seen):
    listed = [_file("ca", paths.CA, seen["ca_cert"])]
    if inputs["method"] == "kubeadm" and seen["need_bootstrap"]:
        # it writes these itself, and its preflight refuses a machine that has them, or a kubelet that runs
        mine = (paths.CA, paths.BOOTSTRAP_KUBECONFIG, paths.KUBECONFIG, paths.CLIENT_PEM)
        return [_unit(state="stopped", optional=True)] + [_absent("before" + path, path) for path in mine]
    if inputs["method"] == "kubeadm":
        return listed
    client = seen["client"]
    if seen["need_bootstrap"]:
        if client["state"] == "refused":
            # still valid by its dates, so the kubelet would go on using it
            listed.append(_absent("client-refused", paths.CLIENT_PEM))
            listed.append(_absent("kubeconfig-refused", paths.KUBECONFIG))
        listed.append(
            dict(_file("bootstrap", paths.BOOTSTRAP_KUBECONFIG, None, "0600"), content_secret="bootstrap-kubeconfig")
        )
        return listed
    listed.append(_absent("bootstrap-removed", paths.BOOTSTRAP_KUBECONFIG))
    if client["server"] != inputs["api_server"]:
        listed.append(_file("kubeconfig", paths.KUBECONFIG, kubeconfig.final(inputs["api_server"]), "0600"))
    return listed


def _bootstrap_files(kubelet, inputs, seen, dump):
    listed = [
        _directory("kubelet", paths.KUBELET_DIR, "0750"),
        _file("config", paths.CONFIG, dump(kubelet.config()), "0600"),
    ]
    if kubelet.reads_drop_ins:
        listed.append(_directory("drop-ins", paths.DROP_INS))
    for name, content in sorted(inputs["kubelet_drop_ins"].items()):
        text = dump(dict({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}, **content))
        listed.append(_file("drop-in/" + name, posixpath.join(paths.DROP_INS, name), text, "0600"))
    for name in (seen.get("record") or {}).get("drop_ins", []):
        if name not in inputs["kubelet_drop_ins"] and "/" not in name:
            listed.append(_absent("drop-in/" + name, posixpath.join(paths.DROP_INS, name)))
    listed.append(_file("args", paths.KUBELET_ENV, 'KUBELET_ARGS="%s"\n' % " ".join(kubelet.args())))
    return listed


def _file(name, path, content, mode="0644"):
    setting = {"id": "join/" + name, "step": "join", "kind": "file", "path": path, "mode": mode}
    return setting if content is None else dict(setting, content=content)


def _absent(name, path, recursive=False):
    setting = {"id": "join/" + name, "step": "join", "kind": "absent", "path": path}
    return dict(setting, recursive=True) if recursive else setting


def _directory(name, path, mode="0755"):
    return {"id": "join/dir/" + name, "step": "join", "kind": "directory", "path": path, "mode": mode}


def _unit(**fields):
    return dict({"id": "join/kubelet", "step": "join", "kind": "unit", "name": UNIT}, **fields)


def _kubeadm_files(kubelet, inputs, dump):
    """Settings of the files that `kubeadm join` reads; the one with the token comes from node_settings' secrets."""
    if tuple(map(int, kubelet.minor.split("."))) < _KUBEADM_SINCE:
        raise InvalidInput("join_method: kubeadm needs Kubernetes 1.31 or newer, the kubelet is %s" % kubelet.version)
    patch = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    flags = "--bootstrap-kubeconfig=%s --kubeconfig=%s --config=%s" % (
        paths.BOOTSTRAP_KUBECONFIG,
        paths.KUBECONFIG,
        paths.CONFIG,
    )
    if kubelet.reads_drop_ins:
        flags += " --config-dir=" + paths.DROP_INS
    common = {"step": "join", "kind": "file", "mode": "0644"}
    listed = [
        {"id": "join/dir/patches", "step": "join", "kind": "directory", "path": paths.PATCHES, "mode": "0755"},
        dict(
            common,
            id="join/patch",
            path=paths.PATCHES + "/kubeletconfiguration+merge.yaml",
            content=dump(dict(patch, **_over(kubelet, inputs))),
        ),
        dict(common, id="join/args", path=paths.KUBELET_ENV, content='KUBELET_ARGS="%s"\n' % flags),
        dict(common, id="join/kubeadm-join", path=paths.KUBEADM_JOIN, mode="0600", content_secret="kubeadm-join"),
    ]
    if kubelet.reads_drop_ins:
        listed.append(
            {"id": "join/dir/drop-ins", "step": "join", "kind": "directory", "path": paths.DROP_INS, "mode": "0755"}
        )
        for name, content in sorted(inputs["kubelet_drop_ins"].items()):
            text = dump(dict(patch, **content))
            listed.append(dict(common, id="join/drop-in/" + name, path=paths.DROP_INS + "/" + name, content=text))
    return listed


def join_configuration(kubelet, inputs, token, ca_hashes):
    """The JoinConfiguration as a dictionary; it holds the token."""
    host, port = split_server(inputs["api_server"])
    extra = {
        "node-ip": ",".join(kubelet.addresses),
        "node-labels": ",".join("%s=%s" % item for item in sorted(inputs["labels"].items())),
        "cloud-provider": inputs["cloud_provider"],
    }
    extra.update(kubelet.extra_args())
    limit = "%dm%ds" % divmod(inputs["timeout"], 60)
    return {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port),
                "token": token,
                "caCertHashes": list(ca_hashes),
            }
        },
        "nodeRegistration": {
            "name": kubelet.name,
            "criSocket": kubelet.config()["containerRuntimeEndpoint"],
            "taints": kubelet.taints,
            "kubeletExtraArgs": [{"name": name, "value": value} for name, value in sorted(extra.items()) if value],
        },
        "patches": {"directory": paths.PATCHES},
        "timeouts": {"discovery": limit, "kubeletHealthCheck": limit, "tlsBootstrap": limit},
    }


def _over(kubelet, inputs):
    """The fields of this machine; all else is the cluster's, from its ConfigMap kubelet-config."""
    made = kubelet.config()
    own = ("resolvConf", "kubeReserved", "systemReserved", "providerID", "volumePluginDir", "memorySwap", "maxPods")
    over = {name: made[name] for name in own if name in made}
    if not made.get("failSwapOn", True):
        over["failSwapOn"] = False
    if made.get("serverTLSBootstrap"):
        over["serverTLSBootstrap"] = True
    over.update(inputs["kubelet_config"])
    return over
