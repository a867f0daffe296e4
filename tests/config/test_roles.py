"""What a node's roles ask of its settings, and where it is told that controllers are."""

import pytest

from tidelog.config import BrokerConfig, ConfigError
from tidelog.config.listeners import Listener

COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}
CONTROLLER = {
    "process.roles": "controller",
    "listeners": "CONTROLLER://10.0.0.1:9093",
    "controller.quorum.bootstrap.servers": "10.0.0.1:9093,10.0.0.2:9093",
}
BROKER = {
    "node.id": "4",
    "process.roles": "broker",
    "controller.quorum.voters": "1@c1:9093, 2@c2:9093,3@[::1]:9093",
}


def refused(given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(given)
    return caught.value.message


def test_a_node_that_is_told_nothing_is_a_cluster_of_one() -> None:
    config = BrokerConfig.parse({})
    assert (config.is_broker, config.is_controller, config.other_controllers) == (True, True, ())
    assert (config.controller_listener_list, config.inter_broker_listener.name) == ((), "PLAINTEXT")


def test_kafkas_own_example_is_a_cluster_of_one_whose_controller_is_for_this_machine() -> None:
    config = BrokerConfig.parse(COMBINED)
    assert config.bootstrap_controllers == (("localhost", 9093),)
    assert config.other_controllers == ()
    assert config.listener_list == (Listener("PLAINTEXT", "", 9092),)
    assert config.controller_listener_list == (Listener("CONTROLLER", "localhost", 9093),)
    assert config.advertised_controller_list == (Listener("CONTROLLER", "localhost", 9093),)


def test_other_controllers_are_those_that_are_not_this_node_by_any_of_its_names() -> None:
    own = {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://127.0.0.1:9093"}
    alone = BrokerConfig.parse({**own, "controller.quorum.bootstrap.servers": "localhost:9093"})
    assert alone.other_controllers == ()
    told = "LOCALHOST:9093,[::1]:9093,localhost:9094,host2:9093"
    among = BrokerConfig.parse({**own, "controller.quorum.bootstrap.servers": told})
    assert among.other_controllers == (("localhost", 9094), ("host2", 9093))


def test_a_controller_alone_needs_no_folder_but_that_of_the_metadata() -> None:
    given = {"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093", "log.dirs": "/data"}
    assert BrokerConfig.parse(given).folders == ("/data",)
    assert BrokerConfig.parse({**given, "metadata.log.dir": "/metadata"}).folders == ("/metadata",)
    both = {"log.dirs": "/data", "metadata.log.dir": "/metadata"}
    assert BrokerConfig.parse(both).folders == ("/data",)


def test_a_controller_that_others_are_told_of_is_listened_for_everywhere() -> None:
    advertised = COMBINED["advertised.listeners"].replace("localhost", "node1.example")
    config = BrokerConfig.parse(
        {**COMBINED, "advertised.listeners": advertised, "controller.quorum.bootstrap.servers": "node2.example:9093"}
    )
    assert config.controller_listener_list == (Listener("CONTROLLER", "0.0.0.0", 9093),)
    assert config.advertised_controller_list == (Listener("CONTROLLER", "node1.example", 9093),)
    assert config.other_controllers == (("node2.example", 9093),)
    as_voter = BrokerConfig.parse(
        {
            **COMBINED,
            "advertised.listeners": "PLAINTEXT://node1.example:9092",
            "controller.quorum.bootstrap.servers": "",
            "controller.quorum.voters": "1@node1.example:9093,2@node2.example:9093",
        }
    )
    assert as_voter.controller_listener_list == config.controller_listener_list
    assert as_voter.advertised_controller_list == config.advertised_controller_list
    assert as_voter.other_controllers == (("node2.example", 9093),)


def test_a_node_that_is_only_a_controller_has_no_listener_for_clients() -> None:
    config = BrokerConfig.parse(CONTROLLER)
    assert (config.is_broker, config.is_controller) == (False, True)
    assert (config.listener_list, config.advertised_list) == ((), ())
    assert config.controller_listener_list == (Listener("CONTROLLER", "10.0.0.1", 9093),)
    assert config.other_controllers == (("10.0.0.2", 9093),)
    assert "no listeners for clients" in refused({**CONTROLLER, "listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"})
    assert "each of these in listeners" in refused({**CONTROLLER, "controller.listener.names": "CONTROLLER,OTHER"})


def test_a_node_that_is_only_a_broker_has_no_listener_of_controllers_and_must_know_of_some() -> None:
    config = BrokerConfig.parse(BROKER)
    assert (config.is_broker, config.is_controller) == (True, False)
    assert config.static_voters == ((1, "c1", 9093), (2, "c2", 9093), (3, "::1", 9093))
    assert config.other_controllers == (("c1", 9093), ("c2", 9093), ("::1", 9093))
    assert "needs controllers" in refused({"process.roles": "broker"})
    assert "must name the controllers' listener" in refused({**BROKER, "controller.listener.names": ""})
    both = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
    assert "has no listener of controller.listener.names" in refused({**BROKER, "listeners": both})
    assert "can't be one of the voters" in refused({**BROKER, "node.id": "3"})
    assert "only a controller joins" in refused({**BROKER, "controller.quorum.auto.join.enable": "true"})


def test_a_controller_is_one_of_the_voters_and_has_a_listener() -> None:
    voters = {"controller.quorum.voters": "1@localhost:9093"}
    assert "node.id is 2" in refused({**COMBINED, **voters, "node.id": "2"})
    assert "each of these in listeners" in refused({**voters, "listeners": "PLAINTEXT://localhost:9092"})
    everywhere = "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093"
    assert "CONTROLLER://<host that they reach>:9093" in refused({"listeners": everywhere})
    assert "wildcard" in refused({**COMBINED, "advertised.listeners": "PLAINTEXT://h:1,CONTROLLER://:9093"})
    assert "for clients" in refused({**COMBINED, "advertised.listeners": "CONTROLLER://localhost:9093"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("controller.quorum.bootstrap.servers", "localhost"),
        ("controller.quorum.bootstrap.servers", ":9093"),
        ("controller.quorum.bootstrap.servers", "localhost:0"),
        ("controller.quorum.bootstrap.servers", "localhost:9093,::1:9093"),
        ("controller.quorum.voters", "localhost:9093"),
        ("controller.quorum.voters", "x@localhost:9093"),
        ("controller.quorum.voters", "1@localhost"),
        ("controller.quorum.voters", "1@0.0.0.0:9093"),
        ("controller.quorum.voters", "1@localhost:9093,1@localhost:9094"),
    ],
)
def test_what_is_no_controller_is_refused(name: str, value: str) -> None:
    assert f"for configuration {name}" in refused({name: value})


def test_the_listener_of_other_brokers() -> None:
    two = {
        "listeners": "OUTSIDE://localhost:9092,PLAINTEXT://localhost:9093",
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    assert BrokerConfig.parse(two).inter_broker_listener.name == "PLAINTEXT"
    assert BrokerConfig.parse({**two, "inter.broker.listener.name": "outside"}).inter_broker_listener.port == 9092
    only = {**two, "listeners": "OUTSIDE://localhost:9092"}
    assert BrokerConfig.parse(only).inter_broker_listener.name == "OUTSIDE"
    assert "no listener of that name" in refused({**two, "inter.broker.listener.name": "INSIDE"})
    assert "no listener of that name" in refused({**two, "security.inter.broker.protocol": "SSL"})
    both = {"inter.broker.listener.name": "OUTSIDE", "security.inter.broker.protocol": "PLAINTEXT"}
    assert "Only one of" in refused({**two, **both})


def test_replicas_to_read_from_are_chosen_by_rack_or_not_at_all() -> None:
    name = "replica.selector.class"
    known = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert BrokerConfig.parse({}).replica_selector_class is None
    assert BrokerConfig.parse({name: known}).replica_selector_class == known
    assert known in refused({name: "com.example.Nearest"})
