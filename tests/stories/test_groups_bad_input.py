"""Group requests that ask for what can't be: the protocol's error, and the group goes on.

BAD_INPUT_BOOTSTRAP names another broker with the same LIMITS, such as an Apache Kafka, to check the expectations.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.group_requests import (
    assignment,
    commit,
    commit_fields,
    committed,
    find_coordinator,
    heartbeat_fields,
    join_alone,
    join_fields,
)
from tests.raw import Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

LIMITS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "2",
    "group.consumer.max.size": "2",
    "offset.metadata.max.bytes": "100",
    "offsets.topic.num.partitions": "1",
}
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    other = os.environ.get("BAD_INPUT_BOOTSTRAP")
    if other:
        yield other
        return
    with Tidelog(tmp_path_factory.mktemp("bad-groups") / "data", LIMITS) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    name = f"tides-{os.getpid()}"
    create_topic(bootstrap, name, 2)
    return name


@pytest.fixture
def connection(bootstrap: str, topic: str) -> Iterator[Connection]:
    with Connection(bootstrap) as connection:
        find_coordinator(connection, "any")
        yield connection


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name[:60]}-{os.getpid()}"


def sync(connection: Connection, group: str, member: str, generation: int) -> int:
    fields = {"group_id": group, "generation_id": generation, "member_id": member, "assignments": []}
    return connection.ask(ApiKey.SYNC_GROUP, 3, fields).error_code


def beat(connection: Connection, group: str, member: str, generation: int) -> int:
    fields = {"group_id": group, "generation_id": generation, "member_id": member}
    return connection.ask(ApiKey.HEARTBEAT, 3, fields).error_code


def consumer_beat(connection: Connection, group: str, member: str, epoch: int, **more: Any) -> Any:
    return connection.ask(HEARTBEAT, 1, heartbeat_fields(group, member, epoch, **more))


def test_an_unknown_member_is_told_so_by_every_request(connection: Connection, group: str, topic: str) -> None:
    _, generation = join_alone(connection, group, topic, 0, 1)
    joined = connection.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic, "nobody"))
    left = connection.ask(ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": [{"member_id": "nobody"}]})
    assert {
        "join": joined.error_code,
        "sync": sync(connection, group, "nobody", generation),
        "heartbeat": beat(connection, group, "nobody", generation),
        "leave": left.members[0].error_code,
        "commit": commit(connection, group, {(topic, 0): 1}, generation, "nobody")[topic, 0],
    } == dict.fromkeys(("join", "sync", "heartbeat", "leave", "commit"), ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_stale_generation_can_neither_commit_nor_sync(connection: Connection, group: str, topic: str) -> None:
    member, generation = join_alone(connection, group, topic, 0, 1)
    assert commit(connection, group, {(topic, 0): 7}, generation, member) == {(topic, 0): 0}
    again = connection.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic, member))
    assert again.generation_id == generation + 1
    assert sync(connection, group, member, generation) == ErrorCode.ILLEGAL_GENERATION
    parts = [{"member_id": member, "assignment": assignment(topic, 0, 1)}]
    fields = {"group_id": group, "generation_id": again.generation_id, "member_id": member, "assignments": parts}
    assert connection.ask(ApiKey.SYNC_GROUP, 3, fields).error_code == 0
    assert beat(connection, group, member, generation) == ErrorCode.ILLEGAL_GENERATION
    assert commit(connection, group, {(topic, 0): 3}, generation, member) == {(topic, 0): ErrorCode.ILLEGAL_GENERATION}
    assert committed(connection, group) == {(topic, 0): 7}
    assert beat(connection, group, member, again.generation_id) == 0


def test_a_former_owner_that_was_put_out_cannot_commit(connection: Connection, group: str, topic: str) -> None:
    member, generation = join_alone(connection, group, topic, 0, 1)
    connection.ask(ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": [{"member_id": member}]})
    _, next_generation = join_alone(connection, group, topic, 0, 1)
    assert next_generation > generation
    for claimed in (generation, next_generation):
        assert commit(connection, group, {(topic, 0): 9}, claimed, member) == {(topic, 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(connection, group, {(topic, 0): 9}) == {(topic, 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert committed(connection, group) == {}


def test_a_stale_member_epoch_can_neither_commit_nor_heartbeat(connection: Connection, group: str, topic: str) -> None:
    first = consumer_beat(connection, group, "member", 0, subscribed_topic_names=[topic])
    assert first.error_code == 0
    epoch = first.member_epoch
    assert commit(connection, group, {(topic, 0): 7}, epoch, "member") == {(topic, 0): 0}
    assert consumer_beat(connection, group, "member", epoch + 5).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert consumer_beat(connection, group, "nobody", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    stale = commit(connection, group, {(topic, 0): 3}, epoch - 1, "member")
    assert stale == {(topic, 0): ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(connection, group, {(topic, 0): 3}, epoch, "nobody") == {(topic, 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(connection, group, {(topic, 0): 3}) == {(topic, 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert committed(connection, group) == {(topic, 0): 7}


def test_an_illegal_group_id_is_refused(connection: Connection, topic: str) -> None:
    assert connection.ask(ApiKey.JOIN_GROUP, 5, join_fields("", topic)).error_code == ErrorCode.INVALID_GROUP_ID
    assert sync(connection, "", "m", 1) == ErrorCode.INVALID_GROUP_ID
    assert beat(connection, "", "m", 1) == ErrorCode.INVALID_GROUP_ID
    refused = consumer_beat(connection, "", "m", 0, subscribed_topic_names=[topic])
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    deleted = connection.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [""]})
    assert deleted.results[0].error_code in (ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def test_metadata_that_is_too_large_is_refused_alone(connection: Connection, group: str, topic: str) -> None:
    fields = commit_fields(group, {(topic, 0): 1, (topic, 1): 2})
    fields["topics"][0]["partitions"][0]["committed_metadata"] = "x" * 101
    answer = connection.ask(ApiKey.OFFSET_COMMIT, 9, fields)
    codes = [part.error_code for part in answer.topics[0].partitions]
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert committed(connection, group) == {(topic, 1): 2}


def test_more_members_than_a_group_may_have_are_refused(
    connection: Connection, bootstrap: str, group: str, topic: str
) -> None:
    member, generation = join_alone(connection, group, topic, 0, 1)
    with Connection(bootstrap) as second, Connection(bootstrap) as third:
        made = second.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic)).member_id
        waiting = second.send(ApiKey.JOIN_GROUP, 5, join_fields(group, topic, made))
        wait_until_told(connection, group, member, generation, ErrorCode.REBALANCE_IN_PROGRESS)
        assert connection.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic, member)).error_code == 0
        assert second.answer(ApiKey.JOIN_GROUP, 5, waiting).error_code == 0
        answer = third.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic))
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = third.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic, answer.member_id))
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    consumers = f"{group}-consumers"
    codes = [
        consumer_beat(connection, consumers, name, 0, subscribed_topic_names=[topic]).error_code
        for name in ("one", "two", "three")
    ]
    assert codes == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def wait_until_told(connection: Connection, group: str, member: str, generation: int, code: ErrorCode) -> None:
    deadline = time.monotonic() + 10
    while beat(connection, group, member, generation) != code:
        assert time.monotonic() < deadline, f"{code.name} is not told"


@pytest.mark.parametrize("expression", ["tide-[0-9", "(?=a)b", "a{9999}", "*", r"(?P<x>a)(?P=x)"])
def test_an_expression_that_does_not_compile_is_refused(
    connection: Connection, group: str, topic: str, expression: str
) -> None:
    asked = {"subscribed_topic_names": [], "subscribed_topic_regex": expression}
    refused = consumer_beat(connection, group, "member", 0, **asked)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    described = connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups[0]
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_protocols_that_nobody_shares_are_refused(
    connection: Connection, bootstrap: str, group: str, topic: str
) -> None:
    join_alone(connection, group, topic, 0, 1)
    with Connection(bootstrap) as other:
        for wrong in ({"protocol_type": "connect"}, {"protocols": [{"name": "mine", "metadata": b""}]}):
            answer = other.ask(ApiKey.JOIN_GROUP, 5, join_fields(group, topic) | wrong)
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sessions_out_of_bounds_are_refused(connection: Connection, group: str, topic: str) -> None:
    for session_ms in (0, -1, 10, 10**9):
        fields = join_fields(group, topic) | {"session_timeout_ms": session_ms}
        assert connection.ask(ApiKey.JOIN_GROUP, 5, fields).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_commit_of_nothing_makes_no_group(connection: Connection, group: str, topic: str) -> None:
    refused = commit(connection, group, {(topic, 99): 1})
    assert refused == {(topic, 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if not os.environ.get("BAD_INPUT_BOOTSTRAP"):
        described = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [group]}).groups[0]
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
