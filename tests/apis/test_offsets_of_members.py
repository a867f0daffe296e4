"""Offsets of groups with members: whose commits count, which offsets are in use, and when they expire."""

import struct
from typing import Any

from tests.apis.groups import beat, join_fields, leave, stable
from tests.apis.offsets import TOPIC, commit, committed, sim_broker
from tests.apis.sim_broker import SimBroker
from tests.apis.test_offset_expiry import MINUTE, SETTINGS, names
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

GROUP = "g"
OTHER = "other"
SLOW = {**SETTINGS, "group.initial.rebalance.delay.ms": "0", "group.max.session.timeout.ms": "1800000"}


def reading(*topics: str) -> list[dict[str, Any]]:
    """What a consumer says of itself when it subscribes."""
    listed = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    metadata = struct.pack(">hi", 3, len(topics)) + listed + struct.pack(">ii", -1, 0)
    return [{"name": "range", "metadata": metadata}]


def port_with_member(
    protocol_type: str = "consumer", protocols: list[dict[str, Any]] | None = None
) -> tuple[SimBroker, str]:
    port = sim_broker(SLOW)
    port.make_topic(OTHER, 1)
    more = {"protocols": protocols or reading(TOPIC), "session_timeout_ms": 1_800_000}
    (member_id,) = stable(port, **more) if protocol_type == "consumer" else _connector(port, protocol_type, more)
    return port, member_id


def _connector(port: SimBroker, protocol_type: str, more: dict[str, Any]) -> list[str]:
    """A member that isn't a consumer: nothing is known of what it reads."""
    fields = join_fields("", protocol_type=protocol_type, **more)
    member_id = port.ask(ApiKey.JOIN_GROUP, 9, fields).member_id
    assert port.ask(ApiKey.JOIN_GROUP, 9, {**fields, "member_id": member_id}).error_code == 0
    return [member_id]


def delete_offsets(port: SimBroker, *topics: str) -> tuple[int, list[int]]:
    asked = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in topics]
    answer = port.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": GROUP, "topics": asked})
    return answer.error_code, [topic.partitions[0].error_code for topic in answer.topics]


def as_member(member_id: str, generation: int = 1) -> dict[str, Any]:
    return {"group": GROUP, "generation_id_or_member_epoch": generation, "member_id": member_id}


def test_offsets_in_use_are_not_deleted() -> None:
    port, member_id = port_with_member()
    assert commit(port, {0: 1}, **as_member(member_id)) == {0}
    assert commit(port, {0: 1}, topic=OTHER, **as_member(member_id)) == {0}
    assert delete_offsets(port, TOPIC, OTHER) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])
    assert (committed(port, GROUP), committed(port, GROUP, OTHER)) == ({0: 1}, {})
    deleted = port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results[0].error_code
    assert deleted == ErrorCode.NON_EMPTY_GROUP


def test_of_members_that_can_not_be_understood_everything_is_in_use() -> None:
    port, member_id = port_with_member(protocols=[{"name": "range", "metadata": b"?"}])
    commit(port, {0: 1}, **as_member(member_id))
    assert delete_offsets(port, TOPIC) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    port, _ = port_with_member("connect")
    assert delete_offsets(port, TOPIC) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_a_commit_keeps_a_members_session_alive() -> None:
    port = sim_broker({"group.initial.rebalance.delay.ms": "0"})
    (member_id,) = stable(port, protocols=reading(TOPIC))
    for offset in range(4):
        port.pass_time(8)
        assert commit(port, {0: offset}, **as_member(member_id)) == {0}
    assert beat(port, member_id, 1) == 0
    port.pass_time(11)
    assert commit(port, {0: 9}, **as_member(member_id)) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_while_members_are_there_only_offsets_of_topics_that_none_reads_expire() -> None:
    port, member_id = port_with_member()
    commit(port, {0: 1}, **as_member(member_id))
    commit(port, {0: 1}, topic=OTHER, **as_member(member_id))
    port.pass_time(12 * MINUTE)
    assert (committed(port, GROUP), committed(port, GROUP, OTHER)) == ({0: 1}, {})


def test_offsets_expire_from_when_the_group_became_empty() -> None:
    port, member_id = port_with_member()
    commit(port, {0: 1}, **as_member(member_id))
    port.pass_time(15 * MINUTE)
    leave(port, {"member_id": member_id})
    port.pass_time(9 * MINUTE)
    assert committed(port, GROUP) == {0: 1}
    port.pass_time(3 * MINUTE)
    assert committed(port, GROUP) == {}
    assert names(port) == set()


def test_an_empty_group_without_offsets_goes_with_the_next_look() -> None:
    port, member_id = port_with_member()
    leave(port, {"member_id": member_id})
    assert names(port) == {GROUP}
    port.pass_time(2 * MINUTE)
    assert names(port) == set()
    assert stable(port, protocols=reading(TOPIC)), "and whoever comes then begins it anew"


# -- the consumer protocol


def join(port: SimBroker, member_id: str, epoch: int = 0, **more: Any) -> Any:
    first = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    fields = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **(more or first)}
    answer = port.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)
    assert answer.error_code == 0, answer
    return answer


def test_members_of_the_consumer_protocol_commit_in_their_epoch_or_since_they_have_the_partition() -> None:
    port = sim_broker({"group.consumer.min.assignment.interval.ms": "0", "group.consumer.assignment.interval.ms": "0"})
    epoch = join(port, "one").member_epoch
    assert commit(port, {0: 1}, version=9, **as_member("one", epoch)) == {0}
    assert commit(port, {0: 2}, version=9, **as_member("one", epoch + 1)) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(port, {0: 2}, version=9, **as_member("two", epoch)) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(port, {0: 2}, version=8, **as_member("one", epoch)) == {ErrorCode.UNSUPPORTED_VERSION}
    assert commit(port, {0: 2}, version=9, group=GROUP) == {ErrorCode.UNKNOWN_MEMBER_ID}
    join(port, "two")
    topic_id = port.services.metadata.image.topics[TOPIC].id
    kept = join(port, "one", epoch, topic_partitions=[{"topic_id": topic_id, "partitions": [0, 1, 2]}]).assignment
    left = kept.topic_partitions[0].partitions
    later = join(port, "one", epoch, topic_partitions=[{"topic_id": topic_id, "partitions": left}]).member_epoch
    assert later > epoch
    gone = next(iter({0, 1, 2} - set(left)))
    assert commit(port, {left[0]: 5}, version=9, **as_member("one", epoch)) == {0}, "it has had it since then"
    assert commit(port, {gone: 5}, version=9, **as_member("one", epoch)) == {ErrorCode.STALE_MEMBER_EPOCH}


def test_fetches_of_the_consumer_protocol_are_fenced_by_epoch() -> None:
    port = sim_broker()
    epoch = join(port, "one").member_epoch
    commit(port, {0: 1}, version=9, **as_member("one", epoch))

    def fetch(member_id: str | None, member_epoch: int) -> int:
        group = {"group_id": GROUP, "member_id": member_id, "member_epoch": member_epoch, "topics": None}
        return port.ask(ApiKey.OFFSET_FETCH, 9, {"groups": [group]}).groups[0].error_code

    assert fetch("one", epoch) == fetch(None, -1) == 0
    assert fetch("one", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("one", -1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("two", epoch) == fetch(None, epoch) == fetch(None, 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_each_way_of_describing_sends_clients_to_the_other() -> None:
    port = sim_broker()
    join(port, "one")
    commit(port, {0: 1}, "simple")
    for version, code in ((5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        (group,) = port.ask(ApiKey.DESCRIBE_GROUPS, version, {"groups": [GROUP]}).groups
        assert (group.group_state, group.error_code) == ("Dead", code)
    (group,) = port.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["simple"]}).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_consumer_group_are_in_use_while_it_subscribes() -> None:
    port = sim_broker()
    port.make_topic(OTHER, 1)
    epoch = join(port, "one").member_epoch
    commit(port, {0: 1}, version=9, **as_member("one", epoch))
    commit(port, {0: 1}, version=9, topic=OTHER, **as_member("one", epoch))
    assert delete_offsets(port, TOPIC, OTHER) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])
    deleted = port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results[0].error_code
    assert deleted == ErrorCode.NON_EMPTY_GROUP
    port.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": GROUP, "member_id": "one", "member_epoch": -1})
    assert port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results[0].error_code == 0
    assert names(port) == set()
    port = sim_broker(disk=port.kill())
    assert names(port) == set()


AT_ONCE = {"group.consumer.min.assignment.interval.ms": "0", "group.consumer.assignment.interval.ms": "0"}


def test_a_commit_from_before_the_partition_was_assigned_is_stale() -> None:
    port = sim_broker(AT_ONCE)
    topic_id = port.services.metadata.image.topics[TOPIC].id
    join(port, "one")
    epoch = join(port, "two").member_epoch
    join(port, "one", -1, topic_partitions=None)
    later = join(port, "two", epoch, topic_partitions=[])
    given = later.assignment.topic_partitions[0].partitions
    assert later.member_epoch > epoch
    join(port, "two", later.member_epoch, topic_partitions=[{"topic_id": topic_id, "partitions": given}])
    assert commit(port, {given[0]: 5}, version=9, **as_member("two", epoch)) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(port, {given[0]: 5}, version=9, **as_member("two", later.member_epoch)) == {0}


def test_of_a_group_that_nobody_is_in_only_who_claims_to_be_no_member_commits() -> None:
    port = sim_broker()
    for generation in (0, 1):
        as_former = as_member("one", generation)
        assert commit(port, {0: 1}, version=8, **as_former) == {ErrorCode.ILLEGAL_GENERATION}, "there is no group"
        assert commit(port, {0: 1}, version=9, **as_former) == {ErrorCode.GROUP_ID_NOT_FOUND}
    asked = port.ask(ApiKey.JOIN_GROUP, 9, join_fields("", protocols=reading(TOPIC)))
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert commit(port, {0: 1}, version=9, **as_member("one")) == {ErrorCode.UNKNOWN_MEMBER_ID}, "somebody joins it"
    epoch = join(port, "one").member_epoch
    join(port, "one", -1, topic_partitions=None)
    for former in (0, epoch):
        assert commit(port, {0: 1}, version=9, **as_member("one", former)) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(port, {0: 1}, version=9, group=GROUP) == {0}


def test_of_a_group_that_was_deleted_a_former_member_is_told_that_it_is_gone() -> None:
    port = sim_broker(SLOW)
    (member_id,) = stable(port)
    leave(port, {"member_id": member_id, "group_instance_id": None})
    assert commit(port, {0: 1}, version=9, **as_member(member_id)) == {ErrorCode.UNKNOWN_MEMBER_ID}, "it is empty"
    (deleted,) = port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results
    assert deleted.error_code == 0
    assert commit(port, {0: 1}, version=8, **as_member(member_id)) == {ErrorCode.ILLEGAL_GENERATION}
    assert commit(port, {0: 1}, version=9, **as_member(member_id)) == {ErrorCode.GROUP_ID_NOT_FOUND}
