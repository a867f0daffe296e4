"""OffsetFetch: where groups go on; stable offsets only, for those who ask for them."""

from typing import Any

import pytest

from tests.apis.offsets import GROUP, TOPIC, commit, commit_fields, committed, fetch, shard, sim_broker
from tests.apis.sim_broker import SimBroker
from tidelog.coordinator.entry import Entry
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.uuids import ZERO_UUID

VERSIONS = range(RANGES[ApiKey.OFFSET_FETCH].min, RANGES[ApiKey.OFFSET_FETCH].max + 1)


def ask_for(port: SimBroker, version: int, group: str, partitions: list[int] | None, **more: Any) -> Any:
    """The answer's one group (or, before v8, the answer itself)."""
    named = {"name": TOPIC} if version < 10 else {"topic_id": port.services.metadata.image.topics[TOPIC].id}
    topics = None if partitions is None else [{**named, "partition_indexes": partitions}]
    if version < 8:
        return port.ask(ApiKey.OFFSET_FETCH, version, {"group_id": group, "topics": topics, **more})
    groups = [{"group_id": group, "topics": topics}]
    return port.ask(ApiKey.OFFSET_FETCH, version, {"groups": groups, **more}).groups[0]


def in_transaction(
    port: SimBroker, producer_id: int, offsets: dict[int, int], group: str = GROUP, epoch: int = 0
) -> None:
    """As TxnOffsetCommit writes them."""
    entries = [
        Entry(
            OffsetCommitKey(group=group, topic=TOPIC, partition=index),
            OffsetCommitValue(offset=offset, commit_timestamp=port.timeline.now_ms()),
        )
        for index, offset in offsets.items()
    ]
    port.wait(shard(port, group).submit(lambda state, now_ms: (entries, None), producer=(producer_id, epoch)))


def end(port: SimBroker, producer_id: int, *, commit: bool, group: str = GROUP, epoch: int = 0) -> None:
    port.wait(shard(port, group).end_transaction(producer_id, epoch, 0, commit))


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_found_in_every_version(version: int) -> None:
    port = sim_broker()
    commit(port, {0: 5, 2: 7}, metadata="note")
    (topic,) = ask_for(port, version, GROUP, [0, 1, 2]).topics
    assert [(one.partition_index, one.committed_offset, one.metadata, one.error_code) for one in topic.partitions] == [
        (0, 5, "note", 0),
        (1, -1, "", 0),
        (2, 7, "note", 0),
    ]
    if version >= 2:
        (topic,) = ask_for(port, version, GROUP, None).topics
        assert [one.partition_index for one in topic.partitions] == [0, 2]
    assert [one.committed_offset for one in ask_for(port, version, "others", [0]).topics[0].partitions] == [-1]


def test_leader_epochs_are_told() -> None:
    port = sim_broker()
    fields = commit_fields(GROUP, {0: 5})
    fields["topics"][0]["partitions"][0]["committed_leader_epoch"] = 3
    port.ask(ApiKey.OFFSET_COMMIT, 8, fields)
    assert ask_for(port, 8, GROUP, [0]).topics[0].partitions[0].committed_leader_epoch == 3


def test_many_groups_are_answered_in_their_order() -> None:
    port = sim_broker()
    names = [f"{GROUP}-{number}" for number in range(9)]
    for number, name in enumerate(names):
        commit(port, {0: number}, name)
    groups = [{"group_id": name, "topics": [{"name": TOPIC, "partition_indexes": [0]}]} for name in reversed(names)]
    answer = port.ask(ApiKey.OFFSET_FETCH, 8, {"groups": groups})
    found = [(one.group_id, one.topics[0].partitions[0].committed_offset) for one in answer.groups]
    assert found == [(name, number) for number, name in reversed(list(enumerate(names)))]


def test_an_id_that_no_topic_has_is_unknown() -> None:
    port = sim_broker()
    commit(port, {0: 5})
    topics = [{"topic_id": b"x" * 16, "partition_indexes": [0]}]
    (topic,) = port.ask(ApiKey.OFFSET_FETCH, 10, {"groups": [{"group_id": GROUP, "topics": topics}]}).groups[0].topics
    assert topic.topic_id == b"x" * 16
    assert (topic.partitions[0].committed_offset, topic.partitions[0].error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)


def test_the_first_version_tells_an_error_with_each_partition() -> None:
    port = SimBroker()
    port.make_topic(TOPIC)
    answer = ask_for(port, 1, GROUP, [0, 1])
    assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert ask_for(port, 2, GROUP, [0, 1]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ask_for(port, 8, GROUP, [0, 1]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_topic_made_again_under_its_name_has_no_offsets_of_the_old_one() -> None:
    port = sim_broker()
    commit(port, {0: 5})
    old = shard(port).state.offsets[GROUP][TOPIC, 0]
    port.delete_topic(TOPIC)
    port.make_topic(TOPIC, 3)
    port.settle()
    assert committed(port) == {}
    assert ask_for(port, 10, GROUP, [0]).topics[0].partitions[0].committed_offset == -1
    assert old.topic_id not in (ZERO_UUID, port.services.metadata.image.topics[TOPIC].id)


# -- transactions


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    port = sim_broker()
    commit(port, {0: 1, 1: 1})
    in_transaction(port, 70, {0: 5, 2: 6})
    assert committed(port) == {0: 1, 1: 1}
    end(port, 70, commit=True)
    assert committed(port) == {0: 5, 1: 1, 2: 6}
    in_transaction(port, 70, {0: 9})
    end(port, 70, commit=False)
    assert committed(port) == {0: 5, 1: 1, 2: 6}


def test_who_needs_stable_offsets_is_told_which_are_not() -> None:
    port = sim_broker()
    commit(port, {0: 1, 1: 1})
    in_transaction(port, 70, {0: 5})
    unstable = -ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetch(port, require_stable=True) == {(TOPIC, 0): unstable, (TOPIC, 1): 1}
    assert committed(port) == {0: 1, 1: 1}
    partitions = ask_for(port, 7, GROUP, [0, 1, 2], require_stable=True).topics[0].partitions
    assert [(one.committed_offset, -one.error_code) for one in partitions] == [(-1, unstable), (1, 0), (-1, 0)]
    end(port, 70, commit=True)
    assert fetch(port, require_stable=True) == {(TOPIC, 0): 5, (TOPIC, 1): 1}


def test_who_needs_stable_offsets_waits_for_commits_on_their_way() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    port.hold_syncs()
    port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 2}))
    asked = port.send(ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None, "require_stable": True})
    port.settle()
    assert not asked.done
    port.let_sync()
    assert asked.response.topics[0].partitions[0].committed_offset == 2


def test_a_plain_commit_after_that_of_an_open_transaction_wins() -> None:
    port = sim_broker()
    in_transaction(port, 70, {0: 5, 1: 5})
    commit(port, {0: 8})
    end(port, 70, commit=True)
    assert committed(port) == {0: 8, 1: 5}


def test_two_transactions_the_later_record_wins_whichever_ends_first() -> None:
    port = sim_broker()
    in_transaction(port, 70, {0: 5})
    in_transaction(port, 71, {0: 6})
    end(port, 71, commit=True)
    assert committed(port) == {0: 6}
    end(port, 70, commit=True)
    assert committed(port) == {0: 6}


def test_an_open_transaction_survives_a_crash_and_can_be_ended_after_it() -> None:
    port = sim_broker()
    commit(port, {0: 1})
    in_transaction(port, 70, {0: 5})
    in_transaction(port, 71, {1: 5})
    in_transaction(port, 72, {2: 5})
    end(port, 72, commit=True)
    port = sim_broker(disk=port.kill())
    assert committed(port) == {0: 1, 2: 5}
    end(port, 70, commit=True)
    end(port, 71, commit=False)
    assert committed(port) == {0: 5, 2: 5}
    port = sim_broker(disk=port.kill())
    assert committed(port) == {0: 5, 2: 5}
    assert not shard(port).state.pending
    assert not shard(port).state.writers


def test_the_epoch_that_a_marker_ended_writes_nothing_more() -> None:
    port = sim_broker()
    in_transaction(port, 70, {0: 5}, epoch=3)
    end(port, 70, commit=True, epoch=4)
    with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
        in_transaction(port, 70, {0: 6}, epoch=3)
    with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
        end(port, 70, commit=True, epoch=3)
    assert committed(port) == {0: 5}


def test_one_marker_ends_the_offsets_of_all_groups_of_the_shard() -> None:
    port = sim_broker({"offsets.topic.num.partitions": "1"})
    in_transaction(port, 70, {0: 5}, "one")
    in_transaction(port, 70, {0: 6}, "two")
    end(port, 70, commit=True)
    assert (committed(port, "one"), committed(port, "two")) == ({0: 5}, {0: 6})
