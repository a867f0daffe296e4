"""Metadata, DescribeCluster and DescribeTopicPartitions: what a client is told of brokers, topics and partitions."""

from tests.apis.described import HEADLESS, LEADER, broker, context, image, topic
from tidelog.apis import describe_cluster, describe_topic_partitions, metadata
from tidelog.env.slices import whole
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TIDES = topic("tides", LEADER, HEADLESS, LEADER)
CLUSTER = image(TIDES, topic("__consumer_offsets", LEADER))
NO_MAKING = {"auto.create.topics.enable": "false"}


def ask(
    *names: str, version: int = 13, cluster: ClusterImage = CLUSTER, listener: str = "PLAINTEXT"
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = whole(
        metadata.handle(
            context(cluster, version, settings=NO_MAKING, listener=listener), MetadataRequest(topics=topics)
        )
    )
    assert isinstance(answer, MetadataResponse)
    return answer


def test_a_topic_is_told_with_leaders_epochs_and_replicas() -> None:
    answer = ask("tides")
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, "host1", 9001)], "not the fenced one"
    assert (answer.cluster_id, answer.controller_id) == ("c" * 22, 1)
    told = answer.topics[0]
    assert (told.name, told.topic_id, told.error_code, told.is_internal) == ("tides", TIDES.id, 0, False)
    led, headless, _ = told.partitions
    assert (led.error_code, led.leader_id, led.leader_epoch) == (0, 1, 4)
    assert (led.replica_nodes, led.isr_nodes, led.offline_replicas) == ([1, 2], [1], [2])
    assert (headless.error_code, headless.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_leader_that_is_fenced_is_none() -> None:
    """The only replica of a partition keeps its leadership while its broker is away."""
    away = image(topic("alone", LEADER), brokers=(broker(1, fenced=True), broker(2)))
    led = ask("alone", cluster=away).topics[0].partitions[0]
    assert (led.error_code, led.leader_id, led.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 4)


def test_version_0_leaves_out_replicas_that_are_not_there() -> None:
    led = ask("tides", version=0).topics[0].partitions[0]
    assert (led.error_code, led.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])


def test_a_leader_without_the_listener_is_an_error_of_its_own_from_version_6_on() -> None:
    for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        answer = ask("tides", version=version, listener="OTHER")
        assert answer.topics[0].partitions[0].error_code == code
        assert answer.brokers == []


def test_unknown_and_impossible_names_are_told_apart() -> None:
    answer = ask("ebb", "no/topic", "ebb")
    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("ebb", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no/topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_null_means_all_topics_and_so_does_nothing_in_version_0() -> None:
    for version, topics in ((1, None), (0, [])):
        answer = whole(metadata.handle(context(CLUSTER, version), MetadataRequest(topics=topics)))
        assert isinstance(answer, MetadataResponse)
        assert [(one.name, one.is_internal) for one in answer.topics] == [
            ("tides", False),
            ("__consumer_offsets", True),
        ]
    assert ask().topics == []


def test_topics_are_asked_for_by_id_from_version_12_on() -> None:
    asked = [MetadataRequestTopic(name=None, topic_id=TIDES.id), MetadataRequestTopic(name=None, topic_id=b"?" * 16)]
    answer = whole(metadata.handle(context(CLUSTER, 12), MetadataRequest(topics=asked)))
    assert isinstance(answer, MetadataResponse)
    assert [(one.name, one.error_code) for one in answer.topics] == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("tides", ErrorCode.NONE),
    ]
    answer = whole(metadata.handle(context(CLUSTER, 11), MetadataRequest(topics=asked)))
    assert isinstance(answer, MetadataResponse)
    assert {one.error_code for one in answer.topics} == {ErrorCode.INVALID_REQUEST}


def test_the_cluster_is_described_with_fenced_brokers_where_asked_for() -> None:
    request = DescribeClusterRequest(include_fenced_brokers=True, include_cluster_authorized_operations=True)
    answer = describe_cluster.handle(context(CLUSTER, 2), request)
    assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [(1, False), (2, True)]
    assert (answer.controller_id, answer.cluster_authorized_operations) == (1, 8096)
    assert len(describe_cluster.handle(context(CLUSTER, 2), DescribeClusterRequest()).brokers) == 1


def test_a_brokers_listener_does_not_describe_controllers() -> None:
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert (
            describe_cluster.handle(context(CLUSTER, 1), DescribeClusterRequest(endpoint_type=kind)).error_code == code
        )


def test_without_a_live_broker_nobody_is_the_controller() -> None:
    alone = image(brokers=(broker(1, fenced=True),))
    assert describe_cluster.handle(context(alone, 1), DescribeClusterRequest()).controller_id == -1


def page(limit: int, cursor: Cursor | None = None, names: tuple[str, ...] = ()) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return whole(describe_topic_partitions.handle(context(CLUSTER, 0), request))


def test_partitions_are_read_page_by_page_without_gap_or_double() -> None:
    found: list[tuple[str | None, int]] = []
    cursor = None
    for _ in range(9):
        answer = page(2, cursor)
        found += [(one.name, part.partition_index) for one in answer.topics for part in one.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert found == [("__consumer_offsets", 0), ("tides", 0), ("tides", 1), ("tides", 2)]


def test_a_missing_topic_is_told_only_where_it_was_named() -> None:
    answer = page(10, names=("ebb", "tides"))
    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("ebb", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("tides", ErrorCode.NONE),
    ]


def test_a_cursor_must_point_into_what_was_asked_for() -> None:
    for cursor in (Cursor(topic_name="ebb", partition_index=0), Cursor(topic_name="tides", partition_index=-1)):
        assert [one.error_code for one in page(5, cursor, ("tides",)).topics] == [ErrorCode.INVALID_REQUEST]
