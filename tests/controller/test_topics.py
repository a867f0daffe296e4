"""Topics, decided: whole lists of records, and what each answer says."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.metadata.images import DIRECTORY, TOPIC_ID, broker, directory, image_of, partition, topic
from tidelog.controller.leaders import Defaults
from tidelog.controller.topics import create_partitions, create_topics, delete_topics
from tidelog.env.slices import Steps, whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.records.cluster import ConfigRecord
from tidelog.wire.records.nodes import BrokerRegistrationChangeRecord
from tidelog.wire.records.topics import PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.wire.uuids import ZERO_UUID

DEFAULTS = Defaults(num_partitions=2, replication_factor=1)


def complete_configs(topic: str, configs: Any) -> Any:
    if "bad" in configs:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "no such setting")
    return configs


def create(
    image: ClusterImage, *topics: CreatableTopic, validate_only: bool = False
) -> tuple[list[Any], CreateTopicsResponse]:
    numbers = count()
    return whole(
        create_topics(
            image,
            CreateTopicsRequest(topics=list(topics), validate_only=validate_only),
            lambda: b"topic number %3d" % next(numbers),
            DEFAULTS,
            complete_configs,
            lambda configs: [CreatableTopicConfigs(name=name, value=value) for name, value in configs.items()],
        )
    )


def new(name: str = "n", partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def assigned(*replicas: list[int], name: str = "n", first: int = 0) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=i, broker_ids=r) for i, r in enumerate(replicas, first)
        ],
    )


def test_new_topic_is_a_topic_record_its_configs_and_its_partitions() -> None:
    id = b"topic number   0"
    records, response = create(image_of(broker()), new(partitions=2, a="1"))
    assert records == [
        TopicRecord(name="n", topic_id=id),
        ConfigRecord(resource_type=2, resource_name="n", name="a", value="1"),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DIRECTORY],
            )
            for index in range(2)
        ),
    ]
    result = response.topics[0]
    assert (result.name, result.topic_id, result.error_code, result.error_message) == ("n", id, 0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert result.configs == [CreatableTopicConfigs(name="a", value="1")]


def test_minus_one_is_the_default() -> None:
    _, response = create(image_of(broker()), new(partitions=-1, factor=-1))
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (2, 1)


def test_validate_only_writes_nothing() -> None:
    records, response = create(image_of(broker()), new(), validate_only=True)
    assert records == []
    assert response.topics[0].error_code == 0


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (new("t"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("ü"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("x.y"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (new(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (new(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (new(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new(factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new(factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new(bad="1"), ErrorCode.INVALID_CONFIG),
        (new(a=None), ErrorCode.INVALID_CONFIG),
        (assigned([9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            CreatableTopic(
                name="n",
                num_partitions=1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
            ),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, CreatableTopic | ErrorCode) else None,
)
def test_bad_topic_is_refused_and_the_next_one_made(asked: CreatableTopic, code: ErrorCode) -> None:
    image = image_of(broker(), *topic(), *topic("x_y", b"another topic id"))
    records, response = create(image, asked, new("good"))
    by_name = {result.name: result.error_code for result in response.topics}
    assert by_name == {asked.name: code, "good": 0}
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["good"]


def test_topic_named_twice_is_made_not_at_all() -> None:
    records, response = create(image_of(broker()), new("a"), new("b"), new("a"))
    assert [(result.name, result.error_code) for result in response.topics] == [
        ("b", 0),
        ("a", ErrorCode.INVALID_REQUEST),
    ]
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["b"]


def test_manual_assignment_is_kept() -> None:
    image = image_of(broker(), broker(2), broker(3, fenced=True))
    records, response = create(image, assigned([2, 1], [1, 3]))
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    assert [(p.replicas, p.isr, p.leader, p.directories) for p in partitions] == [
        ([2, 1], [2, 1], 2, [directory(2), directory(1)]),
        ([1, 3], [1], 1, [directory(1), directory(3)]),
    ]
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (2, 2)


def test_partitions_assigned_unlike_numbers_of_replicas_are_refused() -> None:
    _, response = create(image_of(broker(), broker(2)), assigned([2, 1], [1]))
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_no_topic_without_an_active_broker() -> None:
    _, response = create(image_of(broker(fenced=True)), new())
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    stopping = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, in_controlled_shutdown=1)
    _, response = create(image_of(broker(), stopping), new())
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([new("a", 5_000), new("b", 5_001)], "10001 partitions in one request; 10000 are allowed"),
        ([new("a", -1)] * 5_001, "10002 partitions"),
        ([new("a", 10_001)], "10001 partitions"),
        ([new("a", **{f"s{number}": "x" for number in range(10_001)})], "10001 settings"),
    ],
)
def test_too_many_partitions_or_settings_refuse_the_whole_request(wanted: list[CreatableTopic], words: str) -> None:
    with pytest.raises(KafkaError, match=words) as raised:
        create(image_of(broker()), *wanted)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_more_partitions_than_one_request_may_add_are_refused() -> None:
    image = image_of(broker(), *topic(), *topic("u", b"another topic id"))
    request = CreatePartitionsRequest(topics=[more("t", 9_001), more("u", 1_002), more("u2", 5)])
    records, response = whole(create_partitions(image, request))
    assert [result.error_code for result in response.results] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(records) == 9_000


def test_more_topics_than_one_request_may_delete_are_refused() -> None:
    ids = [b"topic %10d" % number for number in range(10_001)]
    made = [record for number, id in enumerate(ids) for record in topic(f"n{number}", id)]
    image = image_of(broker(), *made)
    with pytest.raises(KafkaError, match="10001 topics in one request"):
        whole(delete_topics(image, DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=id) for id in ids])))
    records, _ = whole(
        delete_topics(image, DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=id) for id in ids[1:]]))
    )
    assert len(records) == 10_000


@pytest.mark.parametrize(
    ("there", "wanted", "refused"), [("a.b", "a_b", True), ("a_b", "a.b", True), ("a-b", "a.b", False)]
)
def test_name_that_metrics_could_not_tell_from_another_is_refused(there: str, wanted: str, refused: bool) -> None:
    _, response = create(image_of(broker(), *topic(there)), new(wanted))
    assert response.topics[0].error_code == (ErrorCode.INVALID_TOPIC_EXCEPTION if refused else 0)


def test_ten_thousand_partitions_in_one_topic() -> None:
    records, response = create(image_of(broker()), new(partitions=10_000))
    assert response.topics[0].num_partitions == 10_000
    assert len(fold(image_of(broker()), records, 1, 1, 1).topics["n"].partitions) == 10_000


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = image_of(broker(), *topic(), *topic("u", b"another topic id"))
    asked = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=b"another topic id")]
    records, response = whole(delete_topics(image, DeleteTopicsRequest(topics=asked)))
    assert records == [RemoveTopicRecord(topic_id=TOPIC_ID), RemoveTopicRecord(topic_id=b"another topic id")]
    assert response.responses == [
        DeletableTopicResult(name="t", topic_id=TOPIC_ID),
        DeletableTopicResult(name="u", topic_id=b"another topic id"),
    ]


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        (DeleteTopicsRequest(topic_names=["v"]), [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (DeleteTopicsRequest(topic_names=["t", "t"]), [ErrorCode.INVALID_REQUEST]),
        (DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=b"nobody has thiss")]), [ErrorCode.UNKNOWN_TOPIC_ID]),
        (DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=TOPIC_ID)] * 2), [ErrorCode.INVALID_REQUEST]),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="t")] * 2), [ErrorCode.INVALID_REQUEST]),
        (DeleteTopicsRequest(topics=[DeleteTopicState()]), [ErrorCode.INVALID_REQUEST]),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=TOPIC_ID)]), [ErrorCode.INVALID_REQUEST]),
        (
            DeleteTopicsRequest(topics=[DeleteTopicState(name="t"), DeleteTopicState(topic_id=TOPIC_ID)]),
            [ErrorCode.INVALID_REQUEST],
        ),
    ],
)
def test_what_cannot_be_deleted_stays(asked: DeleteTopicsRequest, codes: list[ErrorCode]) -> None:
    records, response = whole(delete_topics(image_of(broker(), *topic()), asked))
    assert records == []
    assert [result.error_code for result in response.responses] == codes


def more(name: str, to: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    made = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=to, assignments=made)


def test_more_partitions_go_on_after_those_there_are() -> None:
    image = image_of(broker(), *topic(partitions=2))
    records, response = whole(create_partitions(image, CreatePartitionsRequest(topics=[more("t", 4)])))
    assert records == [partition(2), partition(3)]
    assert [(result.name, result.error_code, result.error_message) for result in response.results] == [("t", 0, None)]


def test_more_partitions_as_assigned() -> None:
    image = image_of(broker(), broker(2), *topic())
    records, _ = whole(create_partitions(image, CreatePartitionsRequest(topics=[more("t", 2, [[2]])])))
    assert records == [partition(1, replicas=(2,))]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (more("v", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more("t", 2), ErrorCode.INVALID_PARTITIONS),
        (more("t", 1), ErrorCode.INVALID_PARTITIONS),
        (more("t", -1), ErrorCode.INVALID_PARTITIONS),
        (more("t", 200_000), ErrorCode.POLICY_VIOLATION),
        (more("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [[7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_increase_is_refused(asked: CreatePartitionsTopic, code: ErrorCode) -> None:
    image = image_of(broker(), broker(2), *topic(partitions=2))
    records, response = whole(create_partitions(image, CreatePartitionsRequest(topics=[asked])))
    assert records == []
    assert [result.error_code for result in response.results] == [code]


def test_increase_can_be_checked_only_and_named_once_only() -> None:
    image = image_of(broker(), *topic(partitions=2))
    request = CreatePartitionsRequest(topics=[more("t", 4)], validate_only=True)
    assert whole(create_partitions(image, request))[0] == []
    records, response = whole(create_partitions(image, CreatePartitionsRequest(topics=[more("t", 4), more("t", 5)])))
    assert records == []
    assert [result.error_code for result in response.results] == [ErrorCode.INVALID_REQUEST]


def test_zero_id_stands_in_a_refusal_by_name() -> None:
    _, response = whole(delete_topics(image_of(), DeleteTopicsRequest(topic_names=["v"])))
    assert response.responses[0].topic_id == ZERO_UUID


@pytest.mark.parametrize("factor", [0, -2])
def test_who_asks_for_no_replicas_hears_what_may_be_asked_for(factor: int) -> None:
    _, response = create(image_of(broker()), new(factor=factor))
    assert response.topics[0].error_message == "Replication factor must be larger than 0, or -1 for the default."


def test_a_topic_without_partitions_takes_no_room_from_others() -> None:
    _, response = create(image_of(broker()), new("many", 10_000), new("none", 0), new("negative", -2))
    assert {result.name: result.error_code for result in response.topics} == {
        "many": ErrorCode.NONE,
        "none": ErrorCode.INVALID_PARTITIONS,
        "negative": ErrorCode.INVALID_PARTITIONS,
    }


def test_a_partition_that_is_assigned_twice_is_refused() -> None:
    asked = assigned([1])
    asked.assignments.append(CreatableReplicaAssignment(partition_index=0, broker_ids=[1]))
    records, response = create(image_of(broker()), asked)
    assert records == []
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert response.topics[0].error_message == "Partition 0 is assigned more than once."


def test_who_assigns_a_partition_to_fenced_brokers_hears_which() -> None:
    _, response = create(image_of(broker(), broker(2, fenced=True)), assigned([1], [2]))
    assert response.topics[0].error_message == (
        "All brokers assigned to partition 1 are fenced or in controlled shutdown."
    )


def test_a_topic_that_grows_is_spread_as_one_that_was_made_so_large() -> None:
    image = image_of(broker(), broker(2), broker(3))
    large, _ = create(image, new(partitions=5))
    small, _ = create(image, new(partitions=2))
    grown, _ = whole(create_partitions(fold(image, small, 1, 1, 1), CreatePartitionsRequest(topics=[more("n", 5)])))
    assert [*small, *grown] == large


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_topics_of_the_coordinators_stay_and_do_not_grow(name: str) -> None:
    image = image_of(broker(), *topic(name), *topic("u", b"another topic id"))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=TOPIC_ID), DeleteTopicState(name="u")])
    records, deleted = whole(delete_topics(image, request))
    assert records == [RemoveTopicRecord(topic_id=b"another topic id")]
    assert {(result.name, result.error_code) for result in deleted.responses} == {
        (name, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("u", ErrorCode.NONE),
    }
    records, grown = whole(create_partitions(image, CreatePartitionsRequest(topics=[more(name, 9)])))
    assert records == []
    assert grown.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


MANY = 1024


def many_created() -> Steps[Any]:
    return creations([new(f"n{number}") for number in range(MANY)])


def one_of_many_partitions() -> Steps[Any]:
    return creations([new(partitions=MANY)])


def creations(topics: list[CreatableTopic]) -> Steps[Any]:
    request = CreateTopicsRequest(topics=topics)
    return create_topics(image_of(broker()), request, lambda: TOPIC_ID, DEFAULTS, complete_configs, lambda configs: [])


def many_deleted() -> Steps[Any]:
    made = [record for number in range(MANY) for record in topic(f"n{number}", b"topic %10d" % number)]
    return deletions(image_of(broker(), *made))


def many_unknown_ids_deleted() -> Steps[Any]:
    return deletions(image_of())


def deletions(image: ClusterImage) -> Steps[Any]:
    topics = [DeleteTopicState(topic_id=b"topic %10d" % number) for number in range(MANY)]
    return delete_topics(image, DeleteTopicsRequest(topics=topics))


def many_unknown_names_deleted() -> Steps[Any]:
    return delete_topics(image_of(), DeleteTopicsRequest(topic_names=[f"n{number}" for number in range(MANY)]))


def many_grown() -> Steps[Any]:
    request = CreatePartitionsRequest(topics=[more(f"n{number}", 2) for number in range(MANY)])
    return create_partitions(image_of(), request)


@pytest.mark.parametrize(
    ("request_of_many", "turns"),
    [
        (many_created, MANY / 256 + MANY / 16),
        (one_of_many_partitions, MANY / 64),
        (many_deleted, MANY / 256 + 2 * MANY / 64),
        (many_unknown_ids_deleted, MANY / 256 + MANY / 64),
        (many_unknown_names_deleted, MANY / 256 + MANY / 64),
        (many_grown, MANY / 256 + MANY / 16),
    ],
)
def test_a_request_of_many_leaves_others_their_turns(request_of_many: Callable[[], Steps[Any]], turns: float) -> None:
    assert turns - 1 <= sum(1 for _ in request_of_many()) <= turns + 1


def test_a_topic_in_memory_has_one_replica() -> None:
    image = image_of(broker(1), broker(2))
    in_memory = {"tidelog.storage": "memory"}
    _, response = create(image, new("a", factor=2, **in_memory), new("b", **in_memory), new("c", factor=2))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REPLICATION_FACTOR, 0, 0]
    assert response.topics[0].error_message == (
        "Topic 'a' would have 2 replicas, and be kept in memory (tidelog.storage=memory): a broker that restarts has "
        "nothing of it, so there is one replica, and no copy. Ask for one, or for tidelog.storage=disk."
    )
    assigned = CreatableTopic(
        name="d",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
        configs=[CreatableTopicConfig(name="tidelog.storage", value="memory")],
    )
    assert create(image, assigned)[1].topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
