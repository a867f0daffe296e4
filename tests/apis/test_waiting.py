"""Requests that ask the controller for a change, on a disk that has no room for it: answered, not hung up on."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

BROKER, TOPIC = 4, 2

CHANGES: list[tuple[ApiKey, int, dict[str, Any], str]] = [
    (
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000},
        "topics",
    ),
    (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "tide"}], "timeout_ms": 1000}, "responses"),
    (
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [{"name": "tide", "count": 9, "assignments": None}], "timeout_ms": 1000},
        "results",
    ),
    (
        ApiKey.ALTER_CONFIGS,
        2,
        {"resources": [{"resource_type": BROKER, "resource_name": "1", "configs": [{"name": "a", "value": "b"}]}]},
        "responses",
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": TOPIC,
                    "resource_name": "tide",
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1000"}],
                }
            ]
        },
        "responses",
    ),
]


@pytest.mark.parametrize(("key", "version", "fields", "results"), CHANGES, ids=[key.name for key, *_ in CHANGES])
def test_change_that_does_not_fit_on_the_disk_is_answered_and_made_later(
    key: ApiKey, version: int, fields: dict[str, Any], results: str
) -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    broker.disk.capacity = broker.disk.used_bytes()
    refused = getattr(broker.ask(key, version, fields), results)
    assert [one.error_code for one in refused] == [ErrorCode.KAFKA_STORAGE_ERROR]
    broker.disk.capacity = None
    made = getattr(broker.ask(key, version, fields), results)
    assert [one.error_code for one in made] == [ErrorCode.NONE]


def test_a_change_that_is_not_decided_in_time_is_not_made_any_more() -> None:
    """Others come before it; and what it was asked with may be gone by then."""
    broker = SimBroker()
    busy = {"topics": [{"name": f"t{n}", "num_partitions": 20, "replication_factor": 1} for n in range(400)]}
    first = broker.send(ApiKey.CREATE_TOPICS, 7, {**busy, "timeout_ms": 60_000})
    late = [{"name": f"late{n}", "num_partitions": 1, "replication_factor": 1} for n in range(200)]
    second = broker.send(ApiKey.CREATE_TOPICS, 7, {"topics": late, "timeout_ms": 1})
    assert {topic.error_code for topic in broker.answer(second).topics} == {ErrorCode.REQUEST_TIMED_OUT}
    assert {topic.error_code for topic in broker.answer(first).topics} == {ErrorCode.NONE}
    broker.pass_time(5)
    assert not any(name.startswith("late") for name in broker.services.metadata.image.topics)


@pytest.mark.parametrize("timeout_ms", [1, 3, 6, 10, 15])
def test_a_change_that_times_out_while_it_is_decided_is_made_whole_or_not_at_all(timeout_ms: int) -> None:
    broker = SimBroker()
    configs = [{"name": "retention.ms", "value": "1000"}]
    topics = [
        {"name": f"t{number}", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        for number in range(600)
    ]
    asked = broker.send(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": timeout_ms})
    codes = {topic.error_code for topic in broker.answer(asked).topics}
    broker.pass_time(5)
    image = broker.services.metadata.image
    found = [name for name in image.topics if name.startswith("t")]
    assert len(found) in (0, 600)
    assert all(image.topic_config(name) == {"retention.ms": "1000"} for name in found)
    assert codes == {ErrorCode.REQUEST_TIMED_OUT} or (codes == {ErrorCode.NONE} and found)
