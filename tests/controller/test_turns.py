"""Changes of thousands of topics or partitions: however large, they hold the loop for no longer than any other."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batches import Batch, Sent
from tests.raw import Connection
from tests.turns import WatchedBroker
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

TOPICS = 5000
"""A request may make twice as many."""
PARTITIONS = 9999
TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path_factory.mktemp("turns")) as broker:
        warm_up(broker)
        yield broker


def warm_up(broker: WatchedBroker) -> None:
    """Each API's first request has it imported, and its codec compiled, whatever the request is."""
    delete = {"topics": [{"name": "first"}], "timeout_ms": TIMEOUT_MS}
    more = {"topics": [{"name": "first", "count": 2, "assignments": None}], "timeout_ms": TIMEOUT_MS}
    with Connection(broker.bootstrap) as connection:
        for key, version, fields in (
            (ApiKey.CREATE_TOPICS, 7, create(["first"])),
            (ApiKey.CREATE_PARTITIONS, 3, more),
            (ApiKey.METADATA, 12, demand(["second"])),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter(1, 1)),
            (ApiKey.ELECT_LEADERS, 2, {"topic_partitions": None, "timeout_ms": TIMEOUT_MS}),
            (ApiKey.DELETE_TOPICS, 6, delete),
        ):
            connection.ask(key, version, fields)


@pytest.fixture(scope="module", params=["few.", "many-"])
def prefix(request: pytest.FixtureRequest) -> str:
    """Names with a dot may collide with others that have an underscore there."""
    return request.param


def ask(broker: WatchedBroker, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """The answer; the loop was held for no long turn meanwhile, and synced nothing itself."""
    with Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as connection:
        with broker.watching() as seen:
            answer = connection.ask(key, version, fields)
        seen.check()
        return answer


def ask_unheld(broker: WatchedBroker, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """The same of a request that changes nothing when it is asked again."""
    with Connection(broker.bootstrap, timeout_s=TIMEOUT_MS / 1000) as connection:
        return broker.unheld(lambda: connection.ask(key, version, fields))


def create(names: list[str], partitions: int = 1, configs: Callable[[int], str] | None = None) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "configs": [{"name": "retention.ms", "value": configs(number)}] if configs else [],
            }
            for number, name in enumerate(names)
        ],
        "timeout_ms": TIMEOUT_MS,
    }


def demand(names: list[str]) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}


def alter(resources: int, settings: int) -> dict[str, Any]:
    """Settings of brokers; only broker 1 is there."""
    configs = [{"name": f"made.up.{number}", "config_operation": 0, "value": "x"} for number in range(settings)]
    return {
        "resources": [
            {"resource_type": 4, "resource_name": str(number), "configs": configs} for number in range(1, resources + 1)
        ],
        "validate_only": False,
    }


def errors(results: Any) -> set[int]:
    return {result.error_code for result in results}


def test_thousands_of_topics_in_one_request(broker: WatchedBroker, prefix: str) -> None:
    names = [f"{prefix}{number}" for number in range(TOPICS)]
    assert errors(ask(broker, ApiKey.CREATE_TOPICS, 7, create(names)).topics) == {0}
    again = ask_unheld(broker, ApiKey.CREATE_TOPICS, 7, create(names))
    assert errors(again.topics) == {ErrorCode.TOPIC_ALREADY_EXISTS}
    delete = {"topics": [{"name": name} for name in names], "timeout_ms": TIMEOUT_MS}
    assert errors(ask(broker, ApiKey.DELETE_TOPICS, 6, delete).responses) == {0}


def test_thousands_of_topics_with_settings_of_their_own(broker: WatchedBroker) -> None:
    names = [f"own{number}" for number in range(3333)]
    made = ask(broker, ApiKey.CREATE_TOPICS, 7, create(names, configs=lambda number: str(100_000 + number)))
    assert errors(made.topics) == {0}


def test_thousands_of_partitions_in_one_topic(broker: WatchedBroker) -> None:
    made = ask(broker, ApiKey.CREATE_TOPICS, 7, create(["wide"], PARTITIONS))
    assert (made.topics[0].error_code, made.topics[0].num_partitions) == (0, PARTITIONS)
    more = {"topics": [{"name": "wide", "count": 2 * PARTITIONS, "assignments": None}], "timeout_ms": TIMEOUT_MS}
    assert errors(ask(broker, ApiKey.CREATE_PARTITIONS, 3, more).results) == {0}
    ask_unheld(broker, ApiKey.ELECT_LEADERS, 2, {"topic_partitions": None, "timeout_ms": TIMEOUT_MS})


def test_thousands_of_topics_made_on_demand(broker: WatchedBroker) -> None:
    names = [f"demand{number}" for number in range(10_000)]
    assert errors(ask(broker, ApiKey.METADATA, 12, demand(names)).topics) == {0}


def test_more_topics_than_one_request_may_make_are_not_made_on_demand(broker: WatchedBroker) -> None:
    """None of them, as in Kafka; and that costs no long turn either."""
    names = [f"flood{number}" for number in range(100_000)]
    answer = ask_unheld(broker, ApiKey.METADATA, 12, demand(names))
    assert errors(answer.topics) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not any(name.startswith("flood") for name in broker.broker.services.metadata.image.topics)


@pytest.mark.parametrize(
    ("key", "version", "fields", "results"),
    [
        (ApiKey.CREATE_TOPICS, 7, create([f"flood{number}" for number in range(100_000)]), "topics"),
        (ApiKey.CREATE_TOPICS, 7, create(["flood"], 10_001), "topics"),
        (ApiKey.CREATE_TOPICS, 7, create([f"flood{number}" for number in range(200)], 100), "topics"),
        (
            ApiKey.DELETE_TOPICS,
            6,
            {"topics": [{"name": f"flood{number}"} for number in range(100_000)], "timeout_ms": TIMEOUT_MS},
            "responses",
        ),
        (
            ApiKey.CREATE_PARTITIONS,
            3,
            {
                "topics": [{"name": f"t{number}", "count": 2, "assignments": None} for number in range(100_000)],
                "timeout_ms": TIMEOUT_MS,
            },
            "results",
        ),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter(100_000, 1), "responses"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter(1, 10_001), "responses"),
    ],
    ids=["topics", "partitions", "both", "deletions", "more partitions", "resources", "settings"],
)
def test_too_much_for_one_request_is_refused(
    broker: WatchedBroker, key: ApiKey, version: int, fields: dict[str, Any], results: str
) -> None:
    assert errors(getattr(ask_unheld(broker, key, version, fields), results)) == {ErrorCode.POLICY_VIOLATION}


def test_thousands_of_settings_in_one_request(broker: WatchedBroker) -> None:
    assert errors(ask_unheld(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter(1, 10_000)).responses) == {0}


def test_topics_that_hold_records_are_deleted(tmp_path: Path) -> None:
    """Their logs are closed, and their folders renamed."""
    names = [f"full{number}" for number in range(2000)]
    with WatchedBroker(tmp_path, {"tidelog.durability": "os"}) as broker:
        warm_up(broker)
        assert errors(ask(broker, ApiKey.CREATE_TOPICS, 7, create(names, 4)).topics) == {0}
        for first in range(0, len(names), 100):
            some = names[first : first + 100]
            assert broker.call(lambda some=some: write_to_all(broker, some, 4)) == 400
        delete = {"topics": [{"name": name} for name in names], "timeout_ms": TIMEOUT_MS}
        assert errors(ask(broker, ApiKey.DELETE_TOPICS, 6, delete).responses) == {0}


def write_to_all(broker: WatchedBroker, names: list[str], partitions: int) -> int:
    """A record to each partition, without the way over the network; how many."""
    now_ms = int(time.time() * 1000)
    data = Batch([Sent(b"value")], base_timestamp=now_ms).encode()
    written = 0
    for name in names:
        for index in range(partitions):
            view = memoryview(bytearray(data))
            broker.broker.services.replicas.get(name, index).append(view, 0, len(view), 1, now_ms)
            written += 1
    return written
