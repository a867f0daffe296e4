"""FindCoordinator: which partition, which broker, which internal topic."""

import pytest

from tests.apis.described import LEADER, context, image, topic
from tidelog.apis import find_coordinator
from tidelog.apis.shared.internal_topics import creatable
from tidelog.config import BrokerConfig
from tidelog.coordinator.placement import partition_of
from tidelog.env.slices import whole
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

CLUSTER = image(topic("__consumer_offsets", *[LEADER] * 50))


def ask(version: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return whole(find_coordinator.handle(context(CLUSTER, version), request))


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("", 0),
        ("g", 103),
        ("console-consumer-12345", 158455506),
        ("тест", 33542036),
        ("🌊", 1773134),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_a_key_lands_where_kafka_puts_it(key: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert partition_of(key, 50) == expected


def test_the_leader_of_the_keys_partition_is_the_coordinator() -> None:
    answer = ask(3, FindCoordinatorRequest(key="g", key_type=0))
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "host1", 9001)
    many = ask(4, FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=0)).coordinators
    assert [(one.key, one.node_id, one.port) for one in many] == [("g", 1, 9001), ("h", 1, 9001)]


def test_a_kind_of_coordinator_that_there_is_not_is_refused() -> None:
    assert ask(3, FindCoordinatorRequest(key="g", key_type=9)).error_code == ErrorCode.INVALID_REQUEST
    many = ask(6, FindCoordinatorRequest(coordinator_keys=["g"], key_type=2)).coordinators
    assert [(one.error_code, one.node_id, one.port) for one in many] == [(ErrorCode.INVALID_REQUEST, -1, -1)]


def test_internal_topics_have_as_many_replicas_as_the_brokers_allow_unless_set() -> None:
    plain = BrokerConfig.parse({})
    assert [creatable("__consumer_offsets", plain, brokers).replication_factor for brokers in (1, 2, 5)] == [1, 2, 3]
    given = BrokerConfig.parse({"offsets.topic.replication.factor": "3"})
    assert creatable("__consumer_offsets", given, 1).replication_factor == 3
    state = creatable("__transaction_state", plain, 1)
    configs = {config.name: config.value for config in state.configs}
    assert (state.num_partitions, state.replication_factor) == (50, 1)
    assert configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert creatable("tides", plain, 1).num_partitions == -1
