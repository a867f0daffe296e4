"""Who has replicas of what, known without a look at the topics."""

from hypothesis import given
from hypothesis import strategies as st

from tests.metadata.images import TOPIC_ID, broker, image_of, partition, topic
from tidelog.metadata.apply import fold
from tidelog.metadata.broker_replicas import bits_of, indexes, replicas_of
from tidelog.metadata.image import NO_LEADER, ClusterImage
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.topics import PartitionChangeRecord, RemoveTopicRecord, TopicRecord

OTHER_ID = b"another topic id"
REPLICAS = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)


def held_by(image: ClusterImage, broker_id: int) -> dict[str, list[int]]:
    return {name: list(some) for name, some in replicas_of(image, broker_id)}


@given(st.sets(st.integers(0, 5000)))
def test_bits_are_the_numbers_they_were_made_of(some: set[int]) -> None:
    assert list(indexes(bits_of(some))) == sorted(some)


def test_replicas_stay_whatever_becomes_of_isr_and_leader() -> None:
    image = image_of(broker(), broker(2), *topic(partitions=2, replicas=(1, 2)), *topic("u", OTHER_ID))
    assert (held_by(image, 1), held_by(image, 2)) == ({"t": [0, 1], "u": [0]}, {"t": [0, 1]})
    gone = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[], leader=NO_LEADER)
    image = fold(image, [gone], image.offset + 1, 1, 1)
    assert held_by(image, 1) == {"t": [0, 1], "u": [0]}
    assert held_by(image, NO_LEADER) == {"t": [1]}
    back = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[2], leader=2)
    image = fold(image, [back], image.offset + 1, 1, 1)
    assert NO_LEADER not in image.broker_replicas
    image = fold(image, [RemoveTopicRecord(topic_id=TOPIC_ID)], image.offset + 1, 1, 1)
    assert (held_by(image, 1), held_by(image, 2)) == ({"u": [0]}, {})
    image.check_invariants()


@given(st.lists(st.tuples(REPLICAS, REPLICAS), min_size=1, max_size=20), st.data())
def test_agrees_with_the_topics_after_any_changes(
    moves: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    """`check_invariants` computes it anew."""
    made = [partition(index, replicas=tuple(first)) for index, (first, _) in enumerate(moves)]
    image = image_of(*(broker(id) for id in range(1, 5)), TopicRecord(name="t", topic_id=TOPIC_ID), *made)
    changes: list[Record] = []
    for index, (_, then) in enumerate(moves):
        leader = data.draw(st.sampled_from([*then, NO_LEADER]))
        isr = then if leader != NO_LEADER else []
        changes.append(
            PartitionChangeRecord(
                partition_id=index, topic_id=TOPIC_ID, replicas=then, isr=isr, leader=leader, directories=[]
            )
        )
    chosen = data.draw(st.lists(st.sampled_from(changes)))
    for few in (chosen, changes):
        image = fold(image, few, image.offset + 1, 1, 1)
        image.check_invariants()
