# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official Python library, unmodified, does what an installer does."""

import hcloud
import pytest
from hcloud.actions import ActionFailedException
from hcloud.images import Image
from hcloud.load_balancers import (
    LoadBalancerHealthCheck,
    LoadBalancerService,
    LoadBalancerTarget,
    LoadBalancerTargetLabelSelector,
)
from hcloud.locations import Location
from hcloud.server_types import ServerType
from hcloud.servers import ServerCreatePublicNetwork

from tests.key_pairs import public_key
from tests.waiting import until


@pytest.fixture
def client(lab_dry):
    return hcloud.Client(lab_dry.token, api_endpoint=lab_dry.endpoint, poll_interval=0.05, poll_max_retries=3000)


def create(client, name="n1", **options):
    """A powered-off server, as an installer makes it."""
    answer = client.servers.create(
        name,
        ServerType(name="cx23"),
        Image(name="ubuntu-24.04"),
        location=Location(name="fsn1"),
        start_after_create=False,
        **options,
    )
    answer.action.wait_until_finished()
    return client.servers.get_by_id(answer.server.id)


def wait_for_status(server, status):
    def reached():
        server.reload()
        return server.status == status

    until(reached, f"the status {status}", pause=0.06, show=lambda: server.status)


def test_the_way_of_an_installer(client):
    key = client.ssh_keys.create("installer", public_key(), labels={"made-by": "test"})
    server = create(client, ssh_keys=[key], labels={"role": "worker"})
    assert (server.status, server.locked, server.rescue_enabled) == ("off", False, False)
    assert server.labels == {"role": "worker"}
    assert server.location.name == "fsn1"
    assert server.server_type.name == "cx23"
    assert server.public_net.ipv4.ip

    armed = server.enable_rescue("linux64", [key.id])
    armed.action.wait_until_finished()
    assert armed.root_password
    server.reload()
    assert (server.status, server.rescue_enabled) == ("off", True)

    server.power_on().wait_until_finished()
    server.reload()
    assert (server.status, server.rescue_enabled) == ("running", False), "the boot consumes the rescue"

    commands = [action.command for action in server.get_actions()]
    assert commands == ["create_server", "enable_rescue", "start_server"]

    server.delete().wait_until_finished()
    assert client.servers.get_by_name("n1") is None


def test_create_starts_unless_switched_off(client):
    answer = client.servers.create("n1", ServerType(name="cx23"), Image(name="debian-12"))
    assert [action.command for action in answer.next_actions] == ["start_server"]
    assert answer.root_password, "without a key there is a password"
    for action in (answer.action, *answer.next_actions):
        action.wait_until_finished()
    assert client.servers.get_by_name("n1").status == "running"


def test_every_action(client):
    server = create(client)
    server.enable_rescue().action.wait_until_finished()
    server.disable_rescue().wait_until_finished()
    server.power_on().wait_until_finished()
    server.shutdown().wait_until_finished()
    wait_for_status(server, "off")
    assert not server.rescue_enabled
    server.rebuild(Image(name="debian-12")).action.wait_until_finished()
    server.reset().wait_until_finished()
    server.reboot().wait_until_finished()
    server.reload()
    assert (server.status, server.image.name) == ("running", "debian-12")
    with pytest.raises(hcloud.APIException, match=r"\(server_not_stopped"):
        server.change_type(ServerType(name="cx33"), upgrade_disk=True)
    server.power_off().wait_until_finished()
    server.change_type(ServerType(name="cx33"), upgrade_disk=True).wait_until_finished()
    server.update(name="renamed", labels={"x": "y"})
    server = client.servers.get_by_name("renamed")
    assert (server.server_type.name, server.primary_disk_size, server.status) == ("cx33", 80, "off")
    assert (server.labels, client.servers.get_all(status=["running"])) == ({"x": "y"}, [])
    server.change_protection(delete=True, rebuild=True).wait_until_finished()
    with pytest.raises(hcloud.APIException, match=r"\(protected"):
        server.delete()


def test_snapshot_and_server_from_it(client):
    server = create(client)
    answer = server.create_image(description="golden", type="snapshot", labels={"caph-image-name": "v1"})
    assert answer.image.status == "creating"
    answer.action.wait_until_finished()
    (image,) = client.images.get_all(label_selector="caph-image-name=v1", type=["snapshot"])
    assert (image.status, image.description, image.disk_size) == ("available", "golden", 40)
    assert image.created_from.id == server.id

    second = client.servers.create("n2", ServerType(name="cx23"), Image(id=image.id), start_after_create=False)
    second.action.wait_until_finished()
    assert client.servers.get_by_name("n2").image.id == image.id

    image.update(description="silver", labels={"a": "b"})
    assert client.images.get_by_id(image.id).description == "silver"
    image.change_protection(delete=True).wait_until_finished()
    with pytest.raises(hcloud.APIException, match=r"\(protected"):
        image.delete()
    image.change_protection(delete=False).wait_until_finished()
    assert image.delete()
    assert client.images.get_all(type=["snapshot"]) == []


def test_keys(client):
    material = public_key()
    key = client.ssh_keys.create("first", material)
    assert client.ssh_keys.get_by_name("first").id == key.id
    assert client.ssh_keys.get_by_fingerprint(key.fingerprint).id == key.id
    for name, text, field in (("first", public_key(), "name"), ("second", material, "public_key")):
        with pytest.raises(hcloud.APIException) as refusal:
            client.ssh_keys.create(name, text)
        assert refusal.value.code == "uniqueness_error"
        assert refusal.value.details == {"fields": [{"name": field}]}
    key.update(name="renamed", labels={"a": "b"})
    assert client.ssh_keys.get_all(label_selector="a=b")[0].name == "renamed"
    assert key.delete()
    assert client.ssh_keys.get_all() == []


def test_names_are_unique_and_lists_are_paged(client):
    for number in range(53):
        create(client, f"n{number:02}", labels={"parity": "odd" if number % 2 else "even"})
    assert len(client.servers.get_all()) == 53
    assert len(client.servers.get_all(label_selector="parity=odd")) == 26
    assert len(client.servers.get_all(label_selector="parity notin (odd)")) == 27
    page = client.servers.get_list(page=3, per_page=25)
    assert len(page.servers) == 3
    assert page.meta.pagination.total_entries == 53
    with pytest.raises(hcloud.APIException, match=r"\(uniqueness_error"):
        create(client, "n00")


def test_catalogue(client):
    assert [location.name for location in client.locations.get_all()] == ["fsn1", "nbg1", "hel1", "ash", "hil", "sin"]
    server_type = client.server_types.get_by_name("cax11")
    assert (server_type.architecture, server_type.cores, server_type.disk) == ("arm", 2, 40)
    for architecture in ("x86", "arm"):
        image = client.images.get_by_name_and_architecture("ubuntu-24.04", architecture)
        assert (image.architecture, image.status, image.type) == (architecture, "available", "system")
    assert client.isos.get_all() == []


def test_addresses_networks_groups_firewalls(client):
    network = client.networks.create("net", "10.0.0.0/16")
    firewall = client.firewalls.create("fw", rules=[]).firewall
    group = client.placement_groups.create("pg", "spread").placement_group
    server = create(
        client,
        networks=[network],
        firewalls=[firewall],
        placement_group=group,
        public_net=ServerCreatePublicNetwork(enable_ipv4=True, enable_ipv6=False),
    )
    assert server.private_net[0].network.id == network.id
    assert server.private_net[0].ip.startswith("10.0.")
    assert server.placement_group.name == "pg"
    assert server.public_net.ipv6 is None
    assert server.public_net.firewalls[0].status == "applied"
    assert client.primary_ips.get_all()[0].assignee_id == server.id
    server.detach_from_network(network).wait_until_finished()
    server.reload()
    assert server.private_net == []


def test_load_balancers(client):
    server = create(client, labels={"role": "control-plane"})
    network = client.networks.create("net", "10.0.0.0/16")
    service = LoadBalancerService(
        protocol="tcp",
        listen_port=6443,
        destination_port=6443,
        proxyprotocol=False,
        health_check=LoadBalancerHealthCheck("tcp", 6443, interval=15, retries=3, timeout=10),
    )
    by_label = LoadBalancerTarget("label_selector", label_selector=LoadBalancerTargetLabelSelector("role"))
    by_label.use_private_ip = False
    kind = client.load_balancer_types.get_by_name("lb11")
    answer = client.load_balancers.create("lb", kind, location=Location(name="fsn1"), targets=[by_label])
    answer.action.wait_until_finished()
    balancer = answer.load_balancer
    balancer.add_service(service).wait_until_finished()
    balancer.attach_to_network(network).wait_until_finished()
    target = LoadBalancerTarget("server", server=server, use_private_ip=False)
    balancer.add_target(target).wait_until_finished()
    balancer.reload()
    assert (balancer.targets[0].type, balancer.targets[0].health_status) == ("label_selector", [])
    assert balancer.targets[1].health_status[0].status == "unhealthy"
    server.power_on().wait_until_finished()
    (balancer,) = client.load_balancers.get_all()
    assert [item.health_status[0].status for item in (balancer.targets[0].targets[0], balancer.targets[1])] == [
        "healthy",
        "healthy",
    ]
    assert balancer.services[0].health_check.port == 6443
    assert balancer.private_net[0].network.id == network.id
    balancer.remove_target(target).wait_until_finished()
    balancer.delete().action.wait_until_finished()
    assert client.load_balancers.get_by_name("lb") is None


def test_an_action_without_an_agent_fails(client):
    server = create(client)
    answer = server.reset_password()
    with pytest.raises(ActionFailedException, match="guest agent"):
        answer.action.wait_until_finished()


def test_lost_answer_after_create_leaves_a_server(lab_dry, client):
    lab_dry.control(
        "POST",
        "/faults",
        {
            "method": "POST",
            "path": "/servers",
            "status": 500,
            "after_effect": True,
            "code": "server_error",
            "point": "request",
        },
    )
    with pytest.raises(hcloud.APIException, match=r"\(server_error"):
        create(client)
    assert client.servers.get_by_name("n1") is not None


def test_tokens(lab_dry):
    with pytest.raises(hcloud.APIException, match=r"\(unauthorized"):
        hcloud.Client("wrong", api_endpoint=lab_dry.endpoint).servers.get_all()
    reader = hcloud.Client(lab_dry.read_only_token, api_endpoint=lab_dry.endpoint)
    assert reader.servers.get_all() == []
    with pytest.raises(hcloud.APIException) as refusal:
        reader.ssh_keys.create("k", public_key())
    assert refusal.value.code == "token_readonly"
    assert refusal.value.correlation_id
