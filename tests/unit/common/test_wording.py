# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message names the variable that the user has set, and leaves everything else as it is."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables

VARIABLES = {
    "image_url": "kubenode_image_url",
    "image": "kubenode_image",
    "command": "kubenode_image_url_command",
    "command_dir": "kubenode_command_dir",
    "location": "kubenode_location",
    "adopt": "kubenode_adopt",
    "partitions": "kubenode_partitions",
    "subvolumes": "kubenode_subvolumes",
    "server_number": "kubenode_server_number",
    "root_devices": "kubenode_root_devices",
    "ssh_private_key": "ansible_ssh_private_key_file",
    "timeout": "kubenode_command_timeout",
    "health": "kubenode_disk_health",
    "wipe": "kubenode_wipe",
    "proof": "kubenode_proof",
    "success": "kubenode_success",
    "wait_cloud_init": "kubenode_wait_cloud_init",
    "ignition": "kubenode_ignition",
    "hosts[].name": "kubenode_image_name",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('image_url "x": no URL', 'kubenode_image_url "x": no URL'),
        ('command "x": no; set command_dir', 'kubenode_image_url_command "x": no; set kubenode_command_dir'),
        ("timeout -5: give a number", "kubenode_command_timeout -5: give a number"),
        ("machine 'n': location: 'moon1' does not exist", "machine 'n': kubenode_location: 'moon1' does not exist"),
        ("a: b; location: server type 'x' is not offered", "a: b; kubenode_location: server type 'x' is not offered"),
        ("rename it, or set adopt to true for it", "rename it, or set kubenode_adopt to true for it"),
        ("set server_number or server_ip right", "set kubenode_server_number or server_ip right"),
        ("image.url 'u': image.digest is missing", "kubenode_image.url 'u': kubenode_image.digest is missing"),
        ("the installation failed: partitions: no", "the installation failed: kubenode_partitions: no"),
        ("the installation would fail: health: no", "the installation would fail: kubenode_disk_health: no"),
        ("partitions[1].size: too small", "kubenode_partitions[1].size: too small"),
        (
            "partitions: none; add entries to subvolumes",
            "kubenode_partitions: none; add entries to kubenode_subvolumes",
        ),
        (
            "it did not end within 3 s. Set timeout higher",
            "it did not end within 3 s. Set kubenode_command_timeout higher",
        ),
        ("replace it, or set health: ignore", "replace it, or set kubenode_disk_health: ignore"),
        ("wipe: 'x' names no disk", "kubenode_wipe: 'x' names no disk"),
        ("no id, and proof: nonce asks for one", "no id, and kubenode_proof: nonce asks for one"),
        ("not verified, as proof: port says", "not verified, as kubenode_proof: port says"),
        ("it ended with 1 (success: marker ignores it)", "it ended with 1 (kubenode_success: marker ignores it)"),
        ("wait_cloud_init: false skips this", "kubenode_wait_cloud_init: false skips this"),
        ("ignition.version is '2'", "kubenode_ignition.version is '2'"),
        (
            "kernel_arguments: ignition.firstboot and ignition.platform.id=x are the live system's",
            "kernel_arguments: ignition.firstboot and ignition.platform.id=x are the live system's",
        ),
        ("hosts[].name: 'a' is given twice", "kubenode_image_name: 'a' is given twice"),
        ("ssh_private_key '/k': no", "ansible_ssh_private_key_file '/k': no"),
    ],
)
def test_options_are_named_as_the_variables_that_hold_them(text, expected):
    assert in_variables(text, VARIABLES) == expected
    assert in_variables(text, {}) == text
    assert in_variables(text, None) == text


@pytest.mark.parametrize(
    "text",
    [
        "name 'image_url': no host name",
        "there is no /srv/root_devices/image_url or 'root_devices'",
        "https://command_dir.example/image_url",
        "the image command failed; the location of the image is unknown",
        "its command ended; image and command differ",
        "kubenode_image_url: no",
        "the server's own image.",
        "the proof of the rescue",
        "nvme printed no health",
        "it would wipe a disk that the layout does not use",
        "the time limit (timeout) has passed",
        "'quiet' cannot be deleted: there is 'location=x image.firstboot image.platform.id=metal'",
        "its disks' names: 'image.version' 'timeout 3' is not 3.0.0",
    ],
)
def test_what_names_no_option_stays(text):
    assert in_variables(text, VARIABLES) == text
