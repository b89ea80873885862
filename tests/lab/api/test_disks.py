# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images and what is done with whole disks; the lab's files and its metadata service."""

import requests
import yaml
from requests.adapters import HTTPAdapter

BODY = {"server_type": "cx23", "image": "debian-12", "start_after_create": False}


def snapshot(api, server, **body):
    answer = api.good("POST", f"/servers/{server}/actions/create_image", body)
    api.wait(answer["action"])
    return answer["image"]


def test_a_system_image_says_when_another_system_boots(api):
    images = api.good("GET", "/images?type=system&per_page=50")["images"]
    said = {image["name"]: image["description"] for image in images}
    assert said.pop("debian-12") == "Debian 12"  # what the lab's own Debian is
    assert said["debian-13"] == "Lab Debian (stands in for Debian 13)"
    assert all(text.startswith("Lab Debian") for text in said.values())


def test_snapshot(api, server):
    image = snapshot(api, server, description="golden", labels={"caph-image-name": "v1"})
    assert (image["status"], image["image_size"], image["name"], image["type"]) == ("creating", None, None, "snapshot")
    assert image["created_from"] == {"id": server, "name": "n1"}
    seen = api.good("GET", f"/images/{image['id']}")["image"]
    assert seen["status"] == "available"
    assert seen["image_size"] is not None
    assert (seen["disk_size"], seen["bound_to"], seen["os_flavor"]) == (40, None, "ubuntu")
    assert [
        found["id"] for found in api.good("GET", "/images?type=snapshot&label_selector=caph-image-name=v1")["images"]
    ] == [image["id"]]


def test_image_of_a_large_disk_does_not_fit_a_small_type(api):
    image = snapshot(api, api.create(server_type="cx33"))
    answer = api("POST", "/servers", BODY | {"name": "n2", "image": image["id"]})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "image disk is bigger than server type disk"
    assert api.refused("POST", "/servers", BODY | {"name": "n2", "image": image["id"], "server_type": "cax21"}) == (
        422,
        "invalid_input",
    )


def test_snapshot_by_string_id(api):
    image = snapshot(api, api.create())
    assert api.server(api.create("n2", image=str(image["id"])))["image"]["id"] == image["id"]


def test_image_rules(api):
    image = snapshot(api, api.create())
    path = f"/images/{image['id']}"
    assert api.good("PUT", path, {"description": "d", "labels": {"a": "b"}})["image"]["labels"] == {"a": "b"}
    api.wait(api.good("POST", f"{path}/actions/change_protection", {"delete": True})["action"])
    assert api.refused("DELETE", path) == (423, "protected")
    api.wait(api.good("POST", f"{path}/actions/change_protection", {"delete": False})["action"])
    assert api("DELETE", path).status_code == 204
    assert api.refused("GET", path) == (404, "not_found")
    assert api.refused("DELETE", "/images/161547269") == (403, "forbidden")
    assert api.refused("PUT", "/images/161547269", {"description": "mine"}) == (403, "forbidden")


def test_a_failed_snapshot_leaves_no_image(api, server):
    api.lab.control("POST", "/faults", {"point": "action", "command": "create_image"})
    answer = api.good("POST", f"/servers/{server}/actions/create_image", {})
    assert api.wait(answer["action"])["status"] == "error"
    assert api.refused("GET", f"/images/{answer['image']['id']}") == (404, "not_found")


def test_backup_needs_the_option(api, server):
    body = {"type": "backup"}
    assert api.refused("POST", f"/servers/{server}/actions/create_image", body) == (422, "invalid_input")
    api.act(server, "enable_backup")
    image = snapshot(api, server, type="backup")
    assert image["bound_to"] == server
    assert api.good("GET", f"/images?bound_to={server}")["images"][0]["id"] == image["id"]
    assert api.good("PUT", f"/images/{image['id']}", {"type": "snapshot"})["image"]["bound_to"] is None


def test_rebuild(api):
    server = api.create(user_data="#cloud-config\n")
    api.act(server, "poweron")
    assert api.act(server, "rebuild", {"image": "debian-13"})["command"] == "rebuild_server"
    seen = api.server(server)
    assert (seen["status"], seen["image"]["name"]) == ("running", "debian-13")
    api.act(server, "change_protection", {"delete": True, "rebuild": True})
    assert api.refused("POST", f"/servers/{server}/actions/rebuild", {"image": "debian-12"}) == (423, "protected")
    assert api.refused("POST", f"/servers/{server}/actions/change_protection", {"delete": False}) == (
        422,
        "invalid_input",
    )


def test_change_type(api, server):
    path = f"/servers/{server}/actions/change_type"
    for wanted, code in (("cax11", "invalid_server_type"), ("cpx11", "invalid_input"), ("cx99", "invalid_input")):
        assert api.refused("POST", path, {"server_type": wanted, "upgrade_disk": False}) == (422, code)
    api.act(server, "change_type", {"server_type": "cx33", "upgrade_disk": False})
    seen = api.server(server)
    assert (seen["server_type"]["name"], seen["primary_disk_size"], seen["status"]) == ("cx33", 40, "off")
    api.act(server, "change_type", {"server_type": "cx43", "upgrade_disk": True})
    assert api.server(server)["primary_disk_size"] == 160
    assert api.refused("POST", path, {"server_type": "cx23", "upgrade_disk": False}) == (422, "invalid_server_type")
    api.act(server, "poweron")
    assert api.refused("POST", path, {"server_type": "cx53", "upgrade_disk": True}) == (422, "server_not_stopped")


def test_what_the_lab_cannot_do_is_refused(api, server):
    assert api.refused("POST", f"/servers/{server}/actions/attach_iso", {"iso": "x"}) == (422, "invalid_input")
    assert api.refused("POST", f"/servers/{server}/actions/request_console") == (422, "unsupported_error")
    assert api.act(server, "reset_password")["status"] == "error"


class FromAddress(HTTPAdapter):
    """Sends requests from one of the machines' addresses."""

    def __init__(self, address):
        self.address = address
        super().__init__()

    def init_poolmanager(self, *args, **options):
        super().init_poolmanager(*args, source_address=(self.address, 0), **options)


def test_metadata_service_knows_machines_by_their_address(api):
    api.key("k1")
    server = api.create(user_data="#cloud-config\nhostname: x\n", ssh_keys=["k1"])
    address = api.server(server)["public_net"]["ipv4"]["ip"]
    url = api.lab.lab.metadata_url
    with requests.Session() as machine:
        machine.mount("http://", FromAddress(address))
        document = yaml.safe_load(machine.get(f"{url}/metadata", timeout=600).text)
        assert (document["hostname"], document["instance-id"]) == ("n1", server)
        assert document["public-ipv4"] == address
        assert len(document["public-keys"]) == 1
        assert machine.get(f"{url}/metadata/hostname", timeout=600).text == "n1"
        assert machine.get(f"{url}/metadata/instance-id", timeout=600).text == str(server)
        assert machine.get(f"{url}/userdata", timeout=600).text == "#cloud-config\nhostname: x\n"
    assert requests.get(f"{url}/metadata", timeout=600).status_code == 404, "strangers learn nothing"


def test_published_files(lab, tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "x.raw").write_bytes(b"0123456789")
    (tmp_path / "secret").write_text("no")
    url = lab(state_dir=tmp_path).images_url
    assert requests.get(f"{url}/x.raw", timeout=600).content == b"0123456789"
    part = requests.get(f"{url}/x.raw", headers={"Range": "bytes=2-4"}, timeout=600)
    assert (part.status_code, part.content) == (206, b"234")
    assert requests.get(f"{url}/", timeout=600).text == "x.raw\n"
    for name in ("nothing", "..%2fsecret", "%2e%2e/secret"):
        assert requests.get(f"{url}/{name}", timeout=600).status_code == 404
