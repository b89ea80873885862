# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook preprov_images as an operator types it: files for a group, and descriptors on an image server."""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import iso
from tests.integration.controller import Controller
from tests.integration.liveimage.program import Program
from tests.unit.liveimage import maker

DOCUMENT = Path(__file__).parents[2] / "unit/liveimage/nmstate/documents/ethernet-static.yaml"
SECRET = "c2VjcmV0LXVzZXI6c2VjcmV0LXBhc3M="


class Site(Controller):
    """An inventory and runs of the playbook on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None, folder)
        maker.make(folder / "coreos.iso", maker.Layout())
        (folder / "nmstate").mkdir()
        shutil.copy(DOCUMENT, folder / "nmstate/web-1.yml")
        self.hosts = {
            "web-1": {"kubenode_image_network_file": "nmstate/web-1.yml"},
            "web-2": {"kubenode_image_kernel_arguments": {"append": ["console=ttyS0"]}},
        }
        self.variables = {
            "kubenode_image_base_iso": str(folder / "coreos.iso"),
            "kubenode_image_dest": str(folder / "images"),
            "kubenode_image_agent_image": "quay.io/example/agent:1",
            "kubenode_image_ironic_urls": ["http://ironic.example.com"],
            "kubenode_image_pull_secret": {"auths": {"quay.io": {"auth": SECRET}}},
        }

    @property
    def environment(self) -> dict[str, str]:
        """That of a user without proxies, in the folder."""
        found = {name: value for name, value in super().environment.items() if not name.lower().endswith("_proxy")}
        return {**found, "ANSIBLE_REMOTE_TEMP": str(self.folder / "tmp"), "PWD": str(self.folder)}

    def run_folder(self, hosts: Iterable[str], shared: Mapping[str, object]) -> tuple[Path, str]:
        """With the documents beside the inventory."""
        folder, inventory = super().run_folder(hosts, shared)
        (folder / "nmstate").symlink_to(self.folder / "nmstate")
        return folder, inventory

    def run(self, *flags: str, **variables: object) -> tuple[dict[str, dict[str, int]], str]:
        """The recap of each host, and everything that was printed."""
        done = self.play("kubenode.provision.preprov_images", *flags, shared={**self.variables, **variables})
        recap = re.findall(r"^(\S+) +: (ok=.*)$", done.output, re.MULTILINE)
        assert recap, done.output
        counts = {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)} for host, line in recap}
        return counts, done.output


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


def test_files_for_a_group_one_bad_host_and_a_second_run(site):
    site.hosts["web-3"] = {"kubenode_image_network": {"interfases": []}}
    recap, printed = site.run("--diff", "-v", kubenode_image_publish_url="http://images.example.com")
    assert {host: count["failed"] for host, count in recap.items()} == {"web-1": 0, "web-2": 0, "web-3": 1}, printed
    assert sum(count["changed"] for count in recap.values()) == 1
    words = ("kubenode_image_network: interfases: unknown key", "http://images.example.com/web-1.iso")
    assert [word for word in words if word not in printed] == []
    assert SECRET not in printed
    made = iso.inspect(str(site.folder / "images/web-1.iso"))
    assert "etc/coreos-firstboot-network/eno1.nmconnection" in made.embedded
    assert iso.inspect(str(site.folder / "images/web-2.iso")).kernel_arguments.current.endswith("console=ttyS0")
    assert not (site.folder / "images/web-3.iso").exists()
    site.hosts["web-3"] = {"kubenode_image_state": "absent"}
    recap, printed = site.run(kubenode_image_publish_url="http://images.example.com")
    assert {(count["changed"], count["failed"]) for count in recap.values()} == {(0, 0)}, printed


def test_files_of_others_are_neither_replaced_nor_removed(site):
    images = site.folder / "images"
    images.mkdir()
    (images / "web-2.iso").write_text("foreign")
    named = f"kubenode_image_dest: {images / 'web-2.iso'} is there and is not a file that was written here; move it"
    for flags in (["--check"], []):
        recap, printed = site.run(*flags)
        assert {host: count["failed"] for host, count in recap.items()} == {"web-1": 0, "web-2": 1}, printed
        assert named in printed
        assert (images / "web-2.iso").read_text() == "foreign"
    (images / "web-1.iso").unlink()
    (images / "web-1.iso").write_text("foreign")
    site.hosts["web-1"] = {"kubenode_image_state": "absent"}
    recap, printed = site.run("--limit", "web-1")
    assert recap["web-1"]["failed"] == 1, printed
    assert f"kubenode_image_dest: {images / 'web-1.iso'} is not the file that was written; move it away or" in printed
    assert (images / "web-1.iso").read_text() == "foreign"


def test_descriptors_on_a_server_that_serves_them(site):
    overlays = site.folder / "overlays"
    overlays.mkdir()
    site.hosts["images-1"] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    for name in ("web-1", "web-2"):  # the server has no image, so what all images share need not be said of it
        site.hosts[name]["kubenode_image_nmstate"] = "builtin"
    with Program("--overlays-dir", str(overlays), "--guessable", bases=site.folder) as server:
        given = {
            "kubenode_image_server": "images-1", "kubenode_image_group": "root",
            "image_server_url": server.url(""), "image_server_unguessable": False,
            "kubenode_image_outputs": ["iso", "pxe"],
        }  # fmt: skip
        folder = ("-e", f"kubenode__image_folder={site.folder}")
        recap, printed = site.run("--check", *folder, **{**given, "kubenode_image_dest": "/srv/images"})
        assert "kubenode_image_dest is /srv/images, but images-1 serves the descriptors in" in printed, printed
        del site.variables["kubenode_image_dest"]
        site.hosts["images-1"]["image_server_hosts"] = {"web-2": {}}
        recap, printed = site.run(*folder, **given)
        assert (list(overlays.iterdir()), {count["failed"] for count in recap.values()}) == ([], {1}), (recap, printed)
        assert "web-2: images-1 has an image of that name by its image_server_hosts" in printed
        del site.hosts["images-1"]["image_server_hosts"]
        recap, printed = site.run("--check", *folder, **given)
        assert (list(overlays.iterdir()), recap["web-1"]["failed"]) == ([], 0), printed
        assert f"would be at {server.url('/web-1.ipxe')}" in printed
        recap, printed = site.run(*folder, **given)
        assert server.url("/web-1.ipxe") in printed
        assert "would be at" not in printed
        assert "images-1.iso" not in printed  # the server itself gets no image
        server.until_served("/web-1.iso")
        (site.folder / "served.iso").write_bytes(server.get("/web-1.iso").content)
        found = iso.inspect(str(site.folder / "served.iso"))
        assert "config.ign" in found.embedded
        assert {path.stat().st_mode & 0o777 for path in overlays.iterdir()} == {0o640}


def test_what_must_be_the_same_for_all_and_is_not_stops_the_run(site):
    site.hosts["web-2"]["kubenode_image_ironic_urls"] = ["http://other.example.com"]
    recap, printed = site.run()
    assert recap["web-1"]["failed"] == 1
    assert (
        'kubenode_image_ironic_urls is ["http://ironic.example.com"] for web-1 and ["http://other.example.com"] for '
        "web-2, but it counts for the whole run"
    ) in " ".join(printed.split())
    assert not (site.folder / "images").exists()


def test_a_wrong_value_of_one_host_is_named_before_anything_is_made(site):
    site.hosts["web-2"] = {"kubenode_image_kernel_arguments": "console=ttyS0"}
    site.hosts["web-1"]["kubenode_image_files"] = [{"path": "/etc/x", "contnt": "s3cret"}]
    recap, printed = site.run()
    words = " ".join(printed.split())
    assert "TASK [Check that the variables of the machines go together]" in words
    for said in (
        "web-2: kubenode_image_kernel_arguments 'console=ttyS0': give a dictionary with keys of these: append, delete, "
        "replace, reset",
        "web-1: kubenode_image_files[0] (hidden): contnt is no key; use one of content, content_base64, mode, path, "
        "src",
    ):
        assert said in words
    assert ("s3cret" in printed, (site.folder / "images").exists()) == (False, False)
    assert recap["web-1"]["failed"] == 1


def test_a_server_that_the_inventory_does_not_have_is_refused(site):
    recap, printed = site.run(kubenode_image_server="imags-1")
    words = " ".join(printed.split())
    assert "kubenode_image_server names imags-1, and the inventory has no such host or group; correct the name" in words
    assert recap["web-1"]["failed"] == 1
    assert "ssh" not in words


def test_an_initramfs_that_is_none_is_named(site):
    (site.folder / "junk").write_bytes(b"junk\n")
    base = str(site.folder / "junk")
    _recap, printed = site.run(kubenode_image_base_initramfs=base, kubenode_image_outputs=["initramfs"])
    assert f"base {site.folder}/junk is no initramfs" in " ".join(printed.split())
    assert not (site.folder / "images").exists()
