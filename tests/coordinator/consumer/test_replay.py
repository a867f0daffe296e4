"""Reading a group's records: also those of older versions, and those whose context was compacted away."""

from typing import Any

import pytest

from tests.coordinator.consumer.harness import GROUP, GroupHarness, owned, told, topic_id
from tidelog.coordinator.entry import Entry
from tidelog.coordinator.group.classic.records import entry as classic_entry
from tidelog.coordinator.group.classic.records import new_group
from tidelog.coordinator.group.consumer import entries
from tidelog.coordinator.group.consumer.replay import REPLAY
from tidelog.coordinator.group.consumer.state import ConsumerGroup, GroupState, MemberState
from tidelog.coordinator.group.fold import fold
from tidelog.coordinator.group.state import EMPTY, GroupsState
from tidelog.machine.machine import Position
from tidelog.wire.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicPartitions,
)

TIDES = topic_id("tides")


def folded(*read: Entry, state: GroupsState = EMPTY) -> GroupsState:
    return fold(state, read, Position(len(read) - 1, 0, 0))


def current(member_id: str, **fields: Any) -> Entry:
    return Entry(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(**fields),
    )


def group_of(state: GroupsState) -> ConsumerGroup:
    group = state.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def test_a_group_is_gone_after_its_tombstones() -> None:
    harness = GroupHarness({"tides": 3, "winds": 1})
    harness.join("a", "tides", subscribed_topic_regex="w.*", instance_id="anchor")
    harness.join("b", "tides")
    harness.write(entries.group_gone(harness.group))
    assert harness.state == EMPTY
    harness.reread()


@pytest.mark.parametrize("place", range(7))
def test_a_tombstone_of_what_is_not_there_changes_nothing(place: int) -> None:
    gone = entries.tombstones(GROUP, ["a"], ["w.*"])[place]
    assert folded(gone) == EMPTY
    assert folded(gone, state=EMPTY) is not None
    made = GroupHarness({"tides": 1})
    made.join("other", "tides")
    after = folded(gone, state=made.state)
    if isinstance(after.groups.get(GROUP), ConsumerGroup):
        assert group_of(after).members == made.group.members


def test_partitions_without_epochs_have_the_members() -> None:
    """As brokers before 4.3 wrote them."""
    listed = [TopicPartitions(topic_id=TIDES, partitions=[0, 1], assignment_epochs=None)]
    member = group_of(
        folded(current("a", member_epoch=7, state=MemberState.STABLE, assigned_partitions=listed))
    ).members["a"]
    assert member.assigned == {TIDES: {0: 7, 1: 7}}
    resting = folded(current("a", member_epoch=-2, state=MemberState.STABLE, assigned_partitions=listed))
    assert group_of(resting).members["a"].assigned == {TIDES: {0: 0, 1: 0}}


def test_states_have_kafkas_numbers() -> None:
    assert [(state.name, int(state)) for state in MemberState] == [
        ("STABLE", 0),
        ("UNREVOKED", 1),
        ("UNRELEASED", 2),
        ("UNKNOWN", 127),
    ]


def test_a_state_that_is_not_known_is_unknown() -> None:
    member = group_of(folded(current("a", member_epoch=7, state=9))).members["a"]
    assert member.state == MemberState.UNKNOWN


def test_a_partition_that_two_records_name_is_of_the_later_one() -> None:
    """The former owner's record that gave it up may come later in a compacted log."""
    mine = [TopicPartitions(topic_id=TIDES, partitions=[0], assignment_epochs=[1])]
    state = folded(
        current("a", member_epoch=1, state=MemberState.STABLE, assigned_partitions=mine),
        current("b", member_epoch=2, state=MemberState.STABLE, assigned_partitions=mine),
        current("a", member_epoch=2, state=MemberState.STABLE),
    )
    assert dict(group_of(state).owners) == {(TIDES, 0): "b"}


def test_the_record_of_older_versions_is_taken_away_with_the_next_heartbeat() -> None:
    harness = GroupHarness({"tides": 2})
    harness.join("a", "tides")
    key = ConsumerGroupPartitionMetadataKey(group_id=GROUP)
    harness.write([Entry(key, ConsumerGroupPartitionMetadataValue())])
    assert harness.group.has_partition_metadata
    harness.beat("a", 2)
    assert harness.written == [Entry(key, None)]
    assert not harness.group.has_partition_metadata


def test_a_record_of_this_protocol_ends_a_classic_group() -> None:
    classic = folded(classic_entry(GROUP, new_group(0)))
    after = folded(entries.epoch_entry(GROUP, 4, 0), state=classic)
    assert group_of(after).epoch == 4


def test_every_record_type_is_replayed() -> None:
    assert len(REPLAY) == 7


def test_a_member_leaves_nothing_behind() -> None:
    harness = GroupHarness({"tides": 3, "winds": 1})
    harness.join("a", "tides", subscribed_topic_regex="w.*")
    harness.leave("a")
    group = harness.group
    assert (group.state, len(group.target), len(group.owners), len(group.resolved)) == (GroupState.EMPTY, 0, 0, 0)
    assert (group.epoch, group.metadata_hash) == (3, 0)
    harness.reread()


def test_what_a_join_writes() -> None:
    """The order is Kafka's: the member, the group's epoch, the target, what the member has."""
    harness = GroupHarness({"tides": 1})
    harness.join("a", "tides")
    assert [type(entry.key).__name__ for entry in harness.written] == [
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
    ]
    harness.beat("a", 2)
    assert harness.written == []


def test_only_members_whose_part_changed_are_written() -> None:
    harness = GroupHarness({"tides": 4})
    harness.join("a", "tides")
    harness.join("b", "tides")
    assert told(harness.beat("a", 2, topic_partitions=owned(tides=[0, 1]))) == {"tides": [0, 1]}
    harness.beat("b", 3, topic_partitions=[])
    harness.leave("b")
    harness.beat("a", 3)
    names = [type(entry.key).__name__ for entry in harness.written]
    assert names.count("ConsumerGroupTargetAssignmentMemberKey") == 1
