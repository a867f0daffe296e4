"""What CreateTopics tells of the settings of new topics."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.apis.create_topics import Description
from tidelog.apis.describe_configs import topic_entries
from tidelog.config import BrokerConfig
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

OVERRIDES: list[dict[str, str]] = [
    {},
    {"retention.ms": "1000"},
    {"cleanup.policy": "compact,delete", "segment.bytes": "1048576"},
    {"tidelog.storage": "memory"},  # retention.bytes follows from it
    {"tidelog.storage": "memory", "retention.bytes": "5000000"},
    {"internal.segment.bytes": "20000"},  # not shown unless it is set
    {"leader.replication.throttled.replicas": "*"},
]


@pytest.mark.parametrize("overrides", OVERRIDES, ids=str)
@pytest.mark.parametrize("settings", [{}, {"log.retention.hours": "5", "compression.type": "zstd"}], ids=str)
def test_settings_of_a_new_topic_are_those_that_describing_it_would_tell(
    overrides: dict[str, str], settings: dict[str, str]
) -> None:
    config = BrokerConfig.parse(settings)
    expected = [
        (entry.name, overrides.get(entry.name, entry.value), entry.config_source)
        for entry in topic_entries(overrides, config)
    ]
    described = Description(config).of(overrides)
    assert [(entry.name, entry.value, entry.config_source) for entry in described] == expected


def topics(*names: str) -> dict[str, Any]:
    made = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return {"topics": made, "timeout_ms": 1000}


def test_settings_are_told_from_version_5_on() -> None:
    broker = SimBroker()
    assert len(broker.ask(ApiKey.CREATE_TOPICS, 5, topics("new")).topics[0].configs) > 20
    assert broker.ask(ApiKey.CREATE_TOPICS, 4, topics("newer")).topics[0].error_code == ErrorCode.NONE


def test_changes_of_others_wait_for_a_long_one_and_are_made() -> None:
    broker = SimBroker()
    many = [f"t{number}" for number in range(400)]
    long = broker.send(ApiKey.CREATE_TOPICS, 7, topics(*many))
    short = broker.send(ApiKey.CREATE_TOPICS, 7, topics("t5", "short"))
    assert not long.done
    assert {topic.error_code for topic in broker.answer(long).topics} == {ErrorCode.NONE}
    assert [topic.error_code for topic in broker.answer(short).topics] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]


def test_stop_amid_a_long_change_answers_it() -> None:
    """What can't be decided any more is refused; what is there after a restart is all of it, or nothing."""
    broker = SimBroker()
    many = [f"t{number}" for number in range(400)]
    asked = broker.send(ApiKey.CREATE_TOPICS, 7, topics(*many))
    broker.wait(broker.broker.stop())
    codes = {topic.error_code for topic in broker.answer(asked).topics}
    assert codes in ({ErrorCode.NONE}, {ErrorCode.NOT_CONTROLLER})
    again = SimBroker(disk=broker.kill())
    found = sum(name in again.services.metadata.image.topics for name in many)
    assert found == (400 if codes == {ErrorCode.NONE} else 0)
