"""After a start: a request that needs logs which aren't open yet waits for them, before anything of it is done."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker, batch, produce_fields
from tidelog.apis import SERVED
from tidelog.apis.shared.needed_logs import NEEDS_BY_API
from tidelog.server.bounds import OPEN_WAIT_S
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
GROUP, TRANSACTION = "crew", "cargo"
TOUCHES = re.compile(r"services\.(replicas|store|groups|transactions)\b|replicas\.(get|by_id)\(")
NEEDS_NONE = {
    ApiKey.FIND_COORDINATOR,  # makes the topic, where it isn't there
    ApiKey.WRITE_TXN_MARKERS,  # waits for each partition by itself
    ApiKey.DESCRIBE_LOG_DIRS,  # asks the disk
    ApiKey.DELETE_TOPICS,
    ApiKey.METADATA,
}


def commit_fields(offset: int = 1) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {"group_id": GROUP, "topics": [{"name": "tide", "partitions": [partition]}]}


@pytest.fixture
def restarted() -> SimBroker:
    """Everything is on disk, and nothing was asked for since the start."""
    broker = SimBroker(SETTINGS)
    broker.make_topic("tide", 2)
    for partition in (0, 1):
        broker.append("tide", b"a", partition=partition)
    for key_type, key in ((0, GROUP), (1, TRANSACTION)):
        broker.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": [key]})
    assert broker.ask(ApiKey.OFFSET_COMMIT, 8, commit_fields()).topics[0].partitions[0].error_code == 0
    made = broker.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": TRANSACTION, "transaction_timeout_ms": 10_000})
    assert made.error_code == 0
    broker.wait(broker.broker.stop())
    return SimBroker(SETTINGS, disk=broker.kill())


def topic(**partition: Any) -> list[dict[str, Any]]:
    return [{"name": "tide", "partitions": [partition]}]


NOBODY = {"group_id": GROUP, "member_id": "nobody"}
MEMBER = {**NOBODY, "generation_id": 1}
TXN = {"transactional_id": TRANSACTION, "producer_id": 99, "producer_epoch": 0}
REQUESTS: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.PRODUCE: (9, produce_fields("tide", batch(b"b"))),
    ApiKey.FETCH: (12, {"topics": [{"topic": "tide", "partitions": [{"partition": 0, "fetch_offset": 0}]}]}),
    ApiKey.LIST_OFFSETS: (5, {"replica_id": -1, "topics": topic(partition_index=0, timestamp=-1)}),
    ApiKey.DELETE_RECORDS: (2, {"timeout_ms": 1000, "topics": topic(partition_index=0, offset=1)}),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, {"topics": [{"topic": "tide", "partitions": [{"partition": 0}]}]}),
    ApiKey.DESCRIBE_PRODUCERS: (0, {"topics": [{"name": "tide", "partition_indexes": [0]}]}),
    ApiKey.JOIN_GROUP: (5, {**NOBODY, "session_timeout_ms": 10_000, "protocol_type": "consumer"}),
    ApiKey.SYNC_GROUP: (4, MEMBER),
    ApiKey.HEARTBEAT: (4, MEMBER),
    ApiKey.LEAVE_GROUP: (2, NOBODY),
    ApiKey.OFFSET_COMMIT: (8, commit_fields(2)),
    ApiKey.OFFSET_DELETE: (0, {"group_id": GROUP, "topics": topic(partition_index=0)}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, {"group_id": GROUP, "member_id": "x", "member_epoch": 3}),
    ApiKey.OFFSET_FETCH: (8, {"groups": [{"group_id": GROUP, "topics": None}]}),
    ApiKey.DESCRIBE_GROUPS: (5, {"groups": [GROUP]}),
    ApiKey.DELETE_GROUPS: (2, {"groups_names": [GROUP]}),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, {"group_ids": [GROUP]}),
    ApiKey.LIST_GROUPS: (4, {}),
    ApiKey.TXN_OFFSET_COMMIT: (3, {**TXN, **commit_fields(3)}),
    ApiKey.INIT_PRODUCER_ID: (4, {"transactional_id": TRANSACTION, "transaction_timeout_ms": 10_000}),
    ApiKey.END_TXN: (3, TXN),
    ApiKey.ADD_OFFSETS_TO_TXN: (3, {**TXN, "group_id": GROUP}),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3, {f"v3_and_below_{name}": value for name, value in TXN.items()}),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, {"transactional_ids": [TRANSACTION]}),
    ApiKey.LIST_TRANSACTIONS: (0, {}),
}
NOT_READY = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


def test_the_requests_of_this_test_are_all_that_need_logs() -> None:
    assert set(REQUESTS) == set(NEEDS_BY_API)


def test_every_api_that_touches_logs_is_listed() -> None:
    touching: set[int] = set()
    for key, name in SERVED.items():
        path = import_module(f"tidelog.apis.{name}").__file__
        assert path is not None
        sources = Path(path).parent.glob("*.py") if path.endswith("__init__.py") else [Path(path)]
        if any(re.search(TOUCHES, source.read_text()) for source in sources):
            touching.add(key)
    assert touching - set(NEEDS_BY_API) <= NEEDS_NONE


@pytest.mark.parametrize("key", sorted(REQUESTS), ids=lambda key: ApiKey(key).name)
@pytest.mark.parametrize("fast", [True, False])
def test_it_waits_for_the_logs_and_is_answered_as_if_they_had_been_open(
    restarted: SimBroker, key: ApiKey, fast: bool
) -> None:
    if not fast:
        restarted.take_the_general_way()
    restarted.hold_syncs()
    version, fields = REQUESTS[key]
    asked = restarted.send(key, version, fields)
    restarted.pass_time(1)
    assert not asked.done
    assert not asked.late.runs_ahead, "what comes behind it waits too"
    restarted.let_sync()
    restarted.pass_time(10)
    told = {int(code) for code in re.findall(r"error_code=<?(?:ErrorCode\.\w+: )?(\d+)", repr(asked.response))}
    assert not told & NOT_READY, asked.response


def test_nothing_of_a_request_is_done_before_all_of_its_logs_are_open(restarted: SimBroker) -> None:
    first = restarted.partition("tide", 0)
    restarted.hold_syncs()
    data = [{"index": index, "records": batch(b"b")} for index in (0, 1)]
    fields = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "tide", "partition_data": data}]}
    asked = restarted.send(ApiKey.PRODUCE, 9, fields)
    restarted.pass_time(1)
    assert first.log.log_end == 1
    restarted.let_sync()
    restarted.pass_time(1)
    assert [one.base_offset for one in asked.response.responses[0].partition_responses] == [1, 1]


def test_who_waited_long_is_told_to_try_again_where_a_log_is_still_not_open(restarted: SimBroker) -> None:
    restarted.partition("tide", 0)
    restarted.hold_syncs()
    asked = [{"partition_index": index, "timestamp": -1} for index in (0, 1)]
    sent = restarted.send(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": [{"name": "tide", "partitions": asked}]})
    restarted.pass_time(OPEN_WAIT_S - 1)
    assert not sent.done
    restarted.pass_time(2)
    told = [(one.error_code, one.offset) for one in sent.response.topics[0].partitions]
    assert told == [(0, 1), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    restarted.let_sync()
    assert restarted.partition("tide", 1).log.log_end == 1


LIST_OFFSETS = (ApiKey.LIST_OFFSETS, *REQUESTS[ApiKey.LIST_OFFSETS])


def test_a_topic_deleted_while_a_request_waits_for_its_log(restarted: SimBroker) -> None:
    restarted.hold_syncs()
    sent = restarted.send(*LIST_OFFSETS)
    deleted = restarted.send(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "tide"}], "timeout_ms": 10_000})
    restarted.pass_time(1)
    restarted.let_sync()
    restarted.pass_time(1)
    assert deleted.response.responses[0].error_code == 0
    assert sent.response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    restarted.make_topic("tide", 2)
    assert restarted.append("tide", b"new") == 0


def test_a_fetch_that_is_so_large_that_it_is_read_in_steps_waits_for_records(restarted: SimBroker) -> None:
    many = 3000
    restarted.make_topic("many", many)
    asked = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in range(many)]
    fields = {"max_wait_ms": 20_000, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    sent = restarted.send(ApiKey.FETCH, 12, {**fields, "topics": [{"topic": "many", "partitions": asked}]})
    restarted.pass_time(5)
    assert not sent.done
    restarted.append("many", b"a", partition=many - 1)
    restarted.pass_time(1)
    assert sent.response.responses[0].partitions[-1].high_watermark == 1
