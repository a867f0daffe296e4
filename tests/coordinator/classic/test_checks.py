"""Commits of members, of former members and of strangers; deletion; what offsets expire by."""

import pytest

from tests.coordinator.classic.harness import GroupHarness
from tidelog.coordinator.group.classic.checks import (
    check_commit,
    check_delete,
    check_offset_delete,
    expires_from,
    note_commit,
    subscribed,
)
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.subscription import topics_of
from tidelog.coordinator.group.classic.view import described, listed
from tidelog.wire.errors import ErrorCode, KafkaError


def subscription(*topics: str) -> bytes:
    named = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


def code(
    harness: GroupHarness, member_id: str, generation: int, *, instance: str | None = None, transactional: bool = False
) -> ErrorCode:
    try:
        check_commit(harness.group, member_id, instance, generation, transactional=transactional)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_members_commit_in_their_generation_and_nobody_else_does() -> None:
    harness = GroupHarness()
    a, b = harness.stable("a", "b")
    assert code(harness, a, 1) == code(harness, b, 1) == ErrorCode.NONE
    assert code(harness, a, 0) == ErrorCode.ILLEGAL_GENERATION
    assert code(harness, a, -1) == ErrorCode.ILLEGAL_GENERATION
    assert code(harness, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(harness, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    assert code(harness, "", -1, transactional=True) == ErrorCode.NONE, "old producers say no more"
    harness.join("a", a)
    assert code(harness, b, 1) == ErrorCode.NONE, "a last commit before it joins again"
    harness.join("b", b)
    assert code(harness, b, 1) == ErrorCode.ILLEGAL_GENERATION
    assert code(harness, b, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert code(harness, b, 2, transactional=True) == ErrorCode.NONE


def test_a_former_self_does_not_commit() -> None:
    harness = GroupHarness()
    harness.join("ship", instance="one")
    harness.wait(0)
    harness.settle()
    former = harness.group.static["one"]
    harness.join("ship", instance="one")
    assert code(harness, former, 1, instance="one") == ErrorCode.FENCED_INSTANCE_ID
    assert code(harness, former, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_anybody_commits_while_a_group_is_empty() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.leave(a)
    assert code(harness, "", -1) == ErrorCode.NONE
    assert code(harness, a, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life() -> None:
    harness = GroupHarness()
    (a,) = harness.stable("a")
    harness.wait(9000)
    note_commit(harness.group, a, harness.now)
    note_commit(harness.group, "stranger", harness.now)
    harness.wait(9000)
    assert a in harness.group.members


def test_a_group_with_members_is_not_deleted() -> None:
    harness = GroupHarness()
    check_delete(None, harness.group)
    (a,) = harness.stable("a")
    with pytest.raises(KafkaError) as refused:
        check_delete(None, harness.group)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    harness.leave(a)
    check_delete(None, harness.group)


def test_offsets_of_topics_that_consumers_read_are_known() -> None:
    harness = GroupHarness()
    harness.stable("a", protocols=(("range", subscription("tides", "moons")),))
    check_offset_delete(None, harness.group)
    assert subscribed(harness.group)("tides")
    assert not subscribed(harness.group)("winds")


def test_of_other_protocols_nothing_is_known() -> None:
    harness = GroupHarness()
    harness.stable("a", protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        check_offset_delete(None, harness.group)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


def test_of_consumers_that_cannot_be_read_everything_counts_as_read() -> None:
    harness = GroupHarness()
    harness.stable("a", protocols=(("range", b"\x00"),))
    assert subscribed(harness.group)("anything")
    assert expires_from(None, harness.group)(5) is None


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x00\xff\xff\xff\xff",
        subscription("a")[:-6],
    ],
)
def test_a_subscription_that_is_none_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="subscription"):
        topics_of(bad)


def test_offsets_expire_from_the_moment_that_counts() -> None:
    harness = GroupHarness()
    assert expires_from(None, None)(5) == 5, "a group that only commits"
    (a,) = harness.stable("a", protocols=(("range", subscription("tides")),))
    assert expires_from(None, harness.group)(5) == 5
    harness.join("a", a)
    assert harness.group.phase is Phase.COMPLETING
    assert expires_from(None, harness.group)(5) is None
    harness.wait(50_000)
    assert harness.group.phase is Phase.EMPTY
    assert expires_from(None, harness.group)(5) == harness.group.since_ms


def test_a_group_is_shown_as_it_stands() -> None:
    harness = GroupHarness()
    assert listed("g", None, None).group_state == "Empty"
    harness.member("a", protocols=(("range", b"meta"),))
    shown = described("g", None, harness.group)
    assert (shown.group_state, shown.protocol_type, shown.protocol_data) == ("PreparingRebalance", "consumer", "")
    harness.wait(0)
    assert described("g", None, harness.group).group_state == "CompletingRebalance"
    harness.settle()
    shown = described("g", None, harness.group)
    member = shown.members[0]
    assert (shown.group_state, shown.protocol_data) == ("Stable", "range")
    assert (member.client_id, member.client_host, member.member_metadata) == ("a", "/127.0.0.1", b"meta")
    assert member.member_assignment == member.member_id.encode()
    row = listed("g", None, harness.group)
    assert (row.protocol_type, row.group_state, row.group_type) == ("consumer", "Stable", "classic")
