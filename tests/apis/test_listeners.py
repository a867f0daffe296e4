"""Which API is served on which listener: Kafka's table, and what ApiVersions and the dispatch make of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.raw import Connection
from tidelog.apis import SERVED
from tidelog.apis.listeners import (
    BOTH,
    CONTROLLER_ONLY,
    FORWARDED,
    ListenerKind,
    listeners_of,
    served_on,
)
from tidelog.broker import Broker
from tidelog.config import BrokerConfig
from tidelog.env.real import real_environment
from tidelog.env.real_loop import RealLoop
from tidelog.rpc.peer import Peers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

KAFKA = {
    "broker controller": {
        1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51, 55, 57, 60, 64,
        80, 81,
    },
    "controller": {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82},
}  # fmt: skip
"""`listeners` in the request definitions of Apache Kafka 4.3; all others are for brokers."""


def test_the_table_is_kafkas() -> None:
    found: dict[str, set[int]] = {"broker": set(), "controller": set(), "broker controller": set()}
    for key in RANGES:
        found[" ".join(sorted(kind.value for kind in listeners_of(key)))].add(key)
    assert found["broker controller"] == KAFKA["broker controller"]
    assert found["controller"] == KAFKA["controller"]
    assert not CONTROLLER_ONLY & BOTH


def test_every_api_that_there_is_has_a_listener_to_be_asked_on() -> None:
    assert served_on(ListenerKind.BROKER) | served_on(ListenerKind.CONTROLLER) == set(SERVED)
    assert FORWARDED <= BOTH, "a controller serves what brokers pass on to it"


class Node:
    """A broker and controller on the loop of the test."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        self.loop = RealLoop()
        self.env = real_environment(self.loop)
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder),
            **(more or {}),
        }
        self.broker = Broker(self.env, BrokerConfig.parse(settings))
        self.loop.run_until(self.broker.start())
        self.ports = {
            ListenerKind.BROKER: self.broker.addresses["PLAINTEXT"].port,
            ListenerKind.CONTROLLER: self.broker.controller_addresses["CONTROLLER"].port,
        }

    def ask(self, kind: ListenerKind, request: object) -> Any:
        peers = Peers(self.env, "control", "node-2")
        answer = self.loop.run_until(peers.at(1, "127.0.0.1", self.ports[kind]).ask(request, 10_000))
        peers.close()
        return answer

    def ask_raw(self, kind: ListenerKind, key: ApiKey, version: int) -> Any:
        """In this version, whatever else is served."""

        def ask() -> Any:
            with Connection(f"127.0.0.1:{self.ports[kind]}") as connection:
                return connection.ask(key, version)

        return self.loop.run_until(self.loop.run_blocking(ask))

    def closes_on(self, kind: ListenerKind, key: ApiKey) -> bool:
        def ask() -> bool:
            with Connection(f"127.0.0.1:{self.ports[kind]}") as connection:
                connection.send_frame(connection.header(key, RANGES[key].max, 1) + bytes(30))
                return connection.is_closed()

        return self.loop.run_until(self.loop.run_blocking(ask))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("listeners"))
    yield node
    node.loop.run_until(node.broker.stop())
    node.loop.close()


@pytest.mark.parametrize("kind", ListenerKind)
def test_api_versions_lists_what_the_listener_serves(node: Node, kind: ListenerKind) -> None:
    request = ApiVersionsRequest(client_software_name="tidelog", client_software_version="1")
    listed = {each.api_key for each in node.ask(kind, request).api_keys}
    assert listed == served_on(kind) - {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.JOIN_GROUP])
def test_a_controllers_listener_closes_on_who_asks_for_a_brokers_api(node: Node, key: ApiKey) -> None:
    assert node.closes_on(ListenerKind.CONTROLLER, key)


@pytest.mark.parametrize("key", sorted(CONTROLLER_ONLY))
def test_a_brokers_listener_closes_on_who_asks_for_a_controllers_api(node: Node, key: ApiKey) -> None:
    assert node.closes_on(ListenerKind.BROKER, key)


def test_a_controllers_listener_answers_what_it_serves(node: Node) -> None:
    topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
    answer = node.ask(ListenerKind.CONTROLLER, DescribeQuorumRequest(topics=[topic]))
    assert answer.topics[0].partitions[0].leader_id == 1


def test_a_controllers_listener_has_no_records_of_topics(node: Node) -> None:
    asked = FetchTopic(topic_id=bytes(15) + b"\x07", partitions=[FetchPartition(partition=0)])
    answer = node.ask(ListenerKind.CONTROLLER, FetchRequest(max_wait_ms=0, topics=[asked]))
    assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_REQUEST, [])


def test_a_controllers_listener_tells_of_controllers_and_a_brokers_of_brokers(node: Node) -> None:
    brokers, controllers = DescribeClusterRequest(endpoint_type=1), DescribeClusterRequest(endpoint_type=2)
    for kind, right, wrong in (
        (ListenerKind.BROKER, brokers, controllers),
        (ListenerKind.CONTROLLER, controllers, brokers),
    ):
        told = node.ask(kind, right)
        assert [(one.broker_id, one.port) for one in told.brokers] == [(1, node.ports[kind])]
        assert (told.controller_id, told.endpoint_type) == (1, right.endpoint_type)
        assert node.ask(kind, wrong).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_who_cannot_ask_a_controllers_listener_for_controllers_is_told_so(node: Node) -> None:
    assert node.ask_raw(ListenerKind.CONTROLLER, ApiKey.DESCRIBE_CLUSTER, 0).error_code == ErrorCode.INVALID_REQUEST


def test_a_controllers_listener_without_a_host_is_for_this_machine_only(node: Node) -> None:
    assert node.broker.controller_addresses["CONTROLLER"].host == "localhost"
    assert "CONTROLLER" not in node.broker.endpoints, "clients aren't told of it"


def test_each_listener_of_a_controller_is_told_as_it_is_advertised(tmp_path: Path) -> None:
    """Also behind the first: others would be told of an address that means their own machine."""
    two = Node(
        tmp_path / "data",
        {
            "controller.listener.names": "CONTROLLER,SECOND",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://:0,SECOND://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SECOND://node1.example:9999",
        },
    )
    told = [(one.name, one.host, one.port) for one in two.broker.services.quorum.local.endpoints]
    assert told == [("CONTROLLER", "localhost", two.ports[ListenerKind.CONTROLLER]), ("SECOND", "node1.example", 9999)]
    two.loop.run_until(two.broker.stop())
    two.loop.close()
