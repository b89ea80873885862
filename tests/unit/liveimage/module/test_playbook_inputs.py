# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host variables of the playbook become options of the module; every option can be set."""

from __future__ import annotations

import base64
import copy
import random
import re

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubenode.provision.plugins.filter import preprov_images
from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.module import image_build
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import conflicts, machine_specs
from tests.unit.docs.plugin_specs import CHECKOUT

PLAY = yaml.safe_load((CHECKOUT / "playbooks/preprov_images.yml").read_text(encoding="utf-8"))[-1]
MODULE = "kubenode.provision.preprov_image_build"
#: What no packing makes small enough for an embed area.
RANDOM = random.Random(1).randbytes(400_000).hex()


def host(name="web-1", folder="/inventory", **variables):
    own = {"kubenode_image_" + key: value for key, value in variables.items()}
    return {"inventory_hostname": name, "inventory_dir": str(folder), **own}


def inputs(*hosts):
    return preprov_images.preprov_images(hosts, "inputs")


def test_every_option_of_the_module_has_a_variable():
    task = next(task[MODULE] for task in PLAY["tasks"] if MODULE in task)
    spec = image_build.argument_spec()
    made_by_the_playbook = {
        "images",
        "outputs",
        "ssh_keys",
        "pull_secret_file",
        "registries_conf_file",
        "ca_bundle_file",
    }
    assert set(spec) - set(task) == made_by_the_playbook
    assert set(task) <= set(spec)
    from_files = {f"{name}_file" for name in preprov_images.IN_FILES}
    assert set(spec["hosts"]["options"]) - {"name"} - from_files == set(preprov_images.OWN)
    assert set(preprov_images.COMMON) - {"server"} <= set(task)


def test_every_variable_is_documented():
    text = (CHECKOUT / "docs/live_images.md").read_text(encoding="utf-8")
    names = [
        *preprov_images.COMMON,
        *preprov_images.OWN,
        *(f"{name}_file" for name in preprov_images.IN_FILES),
        "name",
    ]
    assert [name for name in names if f"`kubenode_image_{name}`" not in text] == []


def test_variables_that_are_not_set_are_left_to_the_module():
    assert inputs(host(), host("web-2", hostname="")) == {
        "hosts": [{"name": "web-1"}, {"name": "web-2", "hostname": ""}],
        "common": {},
    }


def test_files_are_read_where_the_inventory_is(tmp_path):
    (tmp_path / "a.yml").write_text("interfaces: []\n")
    (tmp_path / "b").write_bytes(b"\0\1")
    found = inputs(
        host(folder=tmp_path, network_file="a.yml", files=[{"path": "/x", "src": "b"}], pull_secret_file="a.yml"),
        host("web-2", folder=tmp_path, network_file=str(tmp_path / "a.yml"), pull_secret_file="a.yml"),
    )
    assert [one["network"] for one in found["hosts"]] == ["interfaces: []\n"] * 2
    assert found["hosts"][0]["files"] == [{"path": "/x", "content_base64": base64.b64encode(b"\0\1").decode()}]
    assert found["common"] == {"pull_secret": "interfaces: []\n"}


def test_a_file_of_one_host_that_is_missing_is_left_to_the_module_to_tell(tmp_path):
    found = inputs(host(folder=tmp_path, network_file="none.yml", units=[{"name": "a.service", "src": "none"}]))
    assert found["hosts"] == [
        {
            "name": "web-1",
            "network_file": str(tmp_path / "none.yml"),
            "units": [{"name": "a.service", "src": str(tmp_path / "none")}],
        }
    ], "by their folders"


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([host(force=True), host("web-2")], "kubenode_image_force differs between web-1 and web-2"),
        ([host(), host("web-2", dest="/x")], "kubenode_image_dest differs"),
        ([host(network={}, network_file="a")], "kubenode_image_network and kubenode_image_network_file"),
        ([host(ca_bundle_file="/nowhere/ca")], "kubenode_image_ca_bundle_file: /nowhere/ca"),
        ([{"name": "web-1"}], "hostvars"),
    ],
    ids=["differs", "differs-when-unset", "twice", "missing-file", "no-host"],
)
def test_an_ambiguous_or_incomplete_inventory_is_refused(hosts, words):
    with pytest.raises(AnsibleFilterError, match=words.replace("|", "\\|")):
        inputs(*hosts)


@pytest.mark.parametrize(("odd", "why"), [("a\0b", "NUL"), ("~a\0b", "NUL"), ("a\ud800b", "lone surrogate")])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("network_file", lambda path: path),
        ("pull_secret_file", lambda path: path),
        ("dest", lambda path: path),
        ("files", lambda path: [{"path": "/x", "src": path}]),
        ("units", lambda path: [{"name": "a.service", "src": path}]),
    ],
)
def test_what_can_be_no_path_is_named_with_its_host_and_variable(tmp_path, name, value, odd, why):
    with pytest.raises(AnsibleFilterError) as refused:
        inputs(host(folder=tmp_path, **{name: value(odd)}))
    said = f"web-1: kubenode_image_{name}: there can be no {odd!r}: a path has no {why} in it; correct the path"
    assert str(refused.value) == said


@pytest.mark.parametrize(
    "content", [None, b"\xff", b"x" * (preprov_images._MOST_BYTES + 1)], ids=["folder", "no-utf-8", "long"]
)
def test_a_file_of_all_hosts_that_is_no_text_is_named_with_the_fix(tmp_path, content):
    path = tmp_path / "secret"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(AnsibleFilterError) as refused:
        inputs(host(folder=tmp_path, pull_secret_file="secret"))
    assert str(refused.value) == (
        "web-1: kubenode_image_pull_secret_file: secret cannot be read, or is no text in UTF-8 of at most 16777216 "
        "bytes; correct the path or the file"
    )


def test_the_table_has_a_line_for_each_image_once():
    image = {"kind": "iso", "size": 2**20, "url": "http://i/web-1.iso", "path": "/x", "changed": True}
    result = {
        "hosts": [{"name": "web-1", "failed": False, "images": [image]}, {"name": "b", "failed": True, "msg": "why"}],
        "shared": [{**image, "kind": "kernel", "url": ""}],
    }
    assert preprov_images.preprov_images([result, result], "table") == [
        "host      image   MiB  where",
        "web-1     iso     1.0  http://i/web-1.iso",
        "b         failed       why",
        "(shared)  kernel  1.0  /x",
    ]


def test_what_a_run_in_check_mode_would_write_would_be_there():
    image = {"kind": "iso", "size": 2**20, "url": "", "path": "/x", "changed": True}
    there = {**image, "kind": "initramfs", "path": "/y", "changed": False}
    result = {"hosts": [{"name": "web-1", "failed": False, "images": [image, there]}]}
    assert preprov_images.preprov_images([result], "table", check=True)[1:] == [
        "web-1  iso        1.0  would be at /x",
        "web-1  initramfs  1.0  /y",
    ]


#: Whatever a user may have meant: values of each kind, and dictionaries that are nearly right.
ODD = (
    "console=ttyS0", "", 5, True, ["console=ttyS0"], [5], [{}], [None], {}, {"console": "ttyS0"}, {"append": {"a": 1}},
    {"append": "console=ttyS0"}, {"reset": "maybe"}, {"reset": []}, {"append": [["a"]]},
    [{"path": "/x", "contnt": "x"}], [{"content": "x"}],
    [{"name": "a.service", "content": "x"}], [{"path": "/x"}, "/y"], "path=/x", {"path": "/x"},
    [{"path": "/x", "mode": ["0600"]}],
)  # fmt: skip
OWN = image_build.argument_spec()["hosts"]["options"]


def refusals(options):
    """What Ansible says of the options of the module."""
    try:
        return ArgumentSpecValidator(image_build.argument_spec()).validate(copy.deepcopy(options)).error_messages
    except TypeError as error:  # it looks into what is no dictionary
        return [str(error)]


@pytest.mark.parametrize("name", [*preprov_images.COMMON[1:], *preprov_images.OWN])
def test_what_the_module_would_refuse_for_all_hosts_is_found_before_with_host_and_variable(name):
    variable = f"kubenode_image_{name}"
    for value in ODD:
        options = {"hosts": [{"name": "web-1", name: value}]} if name in OWN else {name: value}
        refused = refusals(options)
        found = conflicts.variable_findings([host(), host("web-2", **{name: value})], "preprov_images")
        named = [text for text in found if text.startswith(f"web-2: {variable}")]
        assert bool(named) or not refused, (value, refused, found)
        assert not any("web-1: " in text for text in found)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "kernel_arguments", "console=ttyS0",
            " 'console=ttyS0': give a dictionary with keys of these: append, delete, replace, reset",
        ),
        (
            "kernel_arguments", {"apend": ["a"]},
            " '{apend: […]}': apend is no key; use one of append, delete, replace, reset",
        ),
        (
            "files", [{"path": "/x", "content": "s3cret"}, {"path": "/y", "contnt": "s3cret"}],
            "[1] (hidden): contnt is no key; use one of content, content_base64, mode, path, src",
        ),
        ("pull_secret", 5, " (hidden): give JSON, as a text or as a dictionary"),
        ("files", [{"content": "s3cret"}], "[0] (hidden): path is missing"),
        (
            "files", ["s3cret"],
            "[0] (hidden): give a dictionary with keys of these: content, content_base64, mode, path, src",
        ),
        (
            "units", [{"name": "a.service", "content": "s3cret"}],
            "[0] (hidden): content is no key; use one of contents, name, src",
        ),
    ],
)  # fmt: skip
def test_a_wrong_dictionary_is_named_with_its_keys_and_no_secret(name, value, said):
    found = conflicts.variable_findings([host(), host("web-2", **{name: value})], "preprov_images")
    assert [text for text in found if "counts for the whole run" not in text] == [f"web-2: kubenode_image_{name}{said}"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"kernel_arguments": {"delete": ["nope"]}},
            "kernel argument 'nope' cannot be deleted: there is 'coreos.liveiso=… ignition.firstboot "
            "ignition.platform.id=metal'",
        ),
        (
            {"ignition": {"ignition": {"version": "2.2.0"}}},
            "kubenode_image_ignition: 'ignition.version' '2.2.0' is not 3.0.0 to 3.9.0",
        ),
        ({"ssh_keys": ["nothing"]}, "kubenode_image_ssh_keys (IRONIC_RAMDISK_SSH_KEY): 'nothing' is no line of a"),
        ({"name": "Web"}, "kubenode_image_name 'Web' is not in lower case"),
        ({"network_file": "/inventory/nope.yml"}, "kubenode_image_network_file: /inventory/nope.yml cannot be read"),
        ({"files": [{"path": "/a", "content": RANDOM}]}, "shorten it, or set kubenode_image_enlarge to true"),
    ],
)
def test_a_message_names_what_the_user_has_set_and_leaves_the_rest_as_it_is(workshop, options, said):
    given = inputs(host(**options))["hosts"]
    result = workshop.build(*given, on_error="report")[given[0]["name"]]
    message = in_variables(result["msg"], machine_specs.variable_names("preprov_image_build"))
    assert said in re.sub(r"coreos\.liveiso=\S+", "coreos.liveiso=…", message)


def test_two_hosts_of_one_name_are_named_before_anything_is_made():
    names = {"a": "same", "b": None, "c": "same", "d": "b"}
    hosts = [{**host(inventory_name), "kubenode_image_name": name} for inventory_name, name in names.items()]
    assert [text for text in conflicts.variable_findings(hosts, "preprov_images") if "_name is" in text] == [
        "a, c: kubenode_image_name is same for each of them; give each machine its own",
        "b, d: kubenode_image_name is b for each of them; give each machine its own",
    ]
