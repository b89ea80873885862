# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths of the controller that lead nowhere, or that can be none."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.filter.local_path import local_path
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import wrong_value
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import cloud_orders
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.catalog import Unfit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import request
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import (
    controller_paths,
    leaving,
    specification,
)

NUL = "keys/a\0b"
#: what "\\ud800" in YAML or JSON becomes, and no encoding can write
HALF = "keys/a\ud800b"


def test_a_link_that_leads_nowhere_is_named_with_its_variable(tmp_path):
    (tmp_path / "ca.crt").symlink_to("gone.crt")
    with pytest.raises(AnsibleFilterError) as refused:
        local_path("ca.crt", str(tmp_path), variable="join_ca_file")
    assert str(refused.value) == f"join_ca_file: {tmp_path}/ca.crt is a link that leads nowhere; mend the link"
    (tmp_path / "gone.crt").touch()
    assert local_path("ca.crt", str(tmp_path)) == str(tmp_path / "ca.crt")


def test_what_is_nowhere_is_named_with_its_variable(tmp_path):
    with pytest.raises(AnsibleFilterError, match=f"^join_ca_file: there is no 'x'; looked at {tmp_path}/x, "):
        local_path("x", str(tmp_path), variable="join_ca_file")


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(("odd", "why"), [(NUL, "NUL"), (HALF, "lone surrogate")])
def test_a_path_has_no_nul_and_no_lone_surrogate_in_it(tmp_path, new, odd, why):
    with pytest.raises(AnsibleFilterError) as refused:
        local_path(odd, str(tmp_path), new=new)
    assert str(refused.value) == f"there can be no {odd!r}: a path has no {why} in it"
    with pytest.raises(controller_paths.NotThere):
        controller_paths.state_folder([str(tmp_path)], odd)
    assert controller_paths.as_found(odd, {"inventory_dir": str(tmp_path)}) == odd
    (error,) = leaving._of_host(
        {"inventory_hostname": "n1", "kubenode_kubeconfig": odd, "inventory_dir": str(tmp_path)}
    )
    assert "which this controller cannot read; correct the path" in error


def test_a_variable_that_holds_a_path_is_judged_before_it_is_read():
    paths = [one for one in specification.variables().values() if one.type == "path"]
    assert paths
    for one in paths:
        assert specification.wrong_kind(one, NUL) == r"'keys/a\x00b': give a path"
        assert specification.wrong_kind(one, HALF) == r"'keys/a\ud800b': give a path"
        assert specification.wrong_kind(one, "keys/ab") == ""
    assert wrong_value({"type": "str"}, NUL) == ""


@pytest.mark.parametrize(("odd", "why"), [(NUL, "NUL"), (HALF, "lone surrogate")])
def test_a_file_of_a_module_that_can_be_none_is_refused(odd, why):
    said = f"there can be no {odd!r}: a path has no {why} in it; correct the path"
    with pytest.raises(Unfit) as refused:
        cloud_orders.read_user_data({"name": "n1", "user_data_file": odd})
    assert str(refused.value) == f"user_data_file: {said}"
    with pytest.raises(ImageError) as failed:
        request.read_file("files: src of /x", odd)
    assert str(failed.value) == f"files: src of /x: {said}"
