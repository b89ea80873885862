# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The official client of the Kubernetes API, on the controller only."""

from __future__ import annotations

import traceback

from ansible.module_utils.basic import missing_required_lib

try:
    import kubernetes
    import kubernetes.client.exceptions

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

_TIMEOUT = 30


def options():
    """Options of every module that speaks to a cluster with a kubeconfig."""
    return {
        "kubeconfig": {"type": "path"},
        "context": {"type": "str"},
    }


class Cluster:
    """A cluster through ``module``'s kubeconfig; every error fails the module with a text that names it."""

    def __init__(self, module):
        self._module = module
        if IMPORT_ERROR is not None:
            module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
        params = module.params
        try:
            client = kubernetes.config.new_client_from_config(
                config_file=params["kubeconfig"], context=params["context"]
            )
        except (kubernetes.config.ConfigException, OSError, ValueError) as error:
            module.fail_json(msg="kubeconfig: %s cannot be used: %s" % (params["kubeconfig"] or "(default)", error))
        self._core = kubernetes.client.CoreV1Api(client)

    def node(self, name):
        """The Node as the API's object, None when there is none, and None with a warning when it may not be seen."""
        try:
            return self._call(self._core.read_node, name)
        except Forbidden as error:
            self._module.warn("whether there is a Node %s is not known: %s" % (name, error))
            return None

    def delete_node(self, node):
        """Delete this very Node, not one that took its name meanwhile; whether it was there."""
        same = kubernetes.client.V1Preconditions(uid=node.metadata.uid)
        body = kubernetes.client.V1DeleteOptions(preconditions=same)
        return self._call(self._core.delete_node, node.metadata.name, body=body) is not None

    def secret_exists(self, namespace, name):
        """Whether there is such a Secret."""
        return self._call(self._core.read_namespaced_secret, name, namespace) is not None

    def create_secret(self, namespace, body):
        """Create a Secret."""
        self._call(self._core.create_namespaced_secret, namespace, body)

    def delete_secret(self, namespace, name):
        """Delete a Secret; whether there was one."""
        return self._call(self._core.delete_namespaced_secret, name, namespace) is not None

    def _call(self, function, *values, **more):
        try:
            return function(*values, _request_timeout=_TIMEOUT, **more)
        except kubernetes.client.exceptions.ApiException as error:
            if error.status == 404:
                return None
            if error.status == 403 and function == self._core.read_node:
                raise Forbidden(error.reason) from error
            self._module.fail_json(
                msg="the API server answers %s %s for %s" % (error.status, error.reason, function.__name__)
            )
        except Exception as error:  # pylint: disable=broad-except # noqa: BLE001 - urllib3's and those of exec plugins
            self._module.fail_json(
                msg="the cluster of the kubeconfig does not answer: %s" % error,
                failure={"code": "api_unreachable", "detail": str(error)},
            )


class Forbidden(Exception):
    """The kubeconfig's user may not do that."""
