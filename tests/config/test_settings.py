"""The settings: names, values, bounds, and what is refused with which words."""

from pathlib import Path

import pytest

from tidelog.config import BrokerConfig, ConfigError, TopicConfig, resolve_topic
from tidelog.config.__main__ import page
from tidelog.config.broker import synonyms
from tidelog.config.environment import environment_names
from tidelog.config.topic import BROKER_SYNONYMS, check_topic, new_topic
from tidelog.config.unused import UNUSED


def refused(given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(given)
    return caught.value.message


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig.parse({})
    assert config.log_segment_bytes == 1 << 30
    assert config.num_partitions == 1
    assert config.offsets_topic_num_partitions == 50
    assert config.log_retention_ms is None
    assert config.topic_defaults.retention_ms == 7 * 24 * 3_600_000
    assert config.topic_defaults.cleanup_policy == ("delete",)


def test_the_finest_unit_that_is_set_counts() -> None:
    assert BrokerConfig.parse({"log.retention.hours": "2"}).topic_defaults.retention_ms == 7_200_000
    both = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert BrokerConfig.parse(both).topic_defaults.retention_ms == 180_000
    assert BrokerConfig.parse({**both, "log.retention.ms": "5"}).topic_defaults.retention_ms == 5
    assert BrokerConfig.parse({"log.retention.hours": "-1"}).topic_defaults.retention_ms == -1
    assert BrokerConfig.parse({"log.roll.hours": "1"}).topic_defaults.segment_ms == 3_600_000
    assert BrokerConfig.parse({"log.flush.scheduler.interval.ms": "9"}).topic_defaults.flush_ms == 9


def test_a_topic_takes_its_own_settings_first_and_the_brokers_then() -> None:
    broker = BrokerConfig.parse({"log.segment.bytes": "2000000", "compression.type": "zstd"})
    topic = resolve_topic({"segment.bytes": "3000000"}, broker)
    assert (topic.segment_bytes, topic.compression_type) == (3_000_000, "zstd")
    assert resolve_topic({}, broker) is broker.topic_defaults


def test_names_of_another_version_are_passed_over_when_resolving_but_refused_when_set() -> None:
    broker = BrokerConfig.parse({})
    assert resolve_topic({"from.the.future": "1"}, broker).segment_bytes == 1 << 30
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: from\.the\.future$"):
        check_topic({"from.the.future": "1"}, broker)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (12500000.0, "1.25E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_numbers_with_a_point_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert BrokerConfig.SETTINGS["log.cleaner.io.max.bytes.per.second"].text(value) == text


def test_where_a_topic_is_kept_is_written_down_when_it_is_made() -> None:
    disk, memory = BrokerConfig.parse({}), BrokerConfig.parse({"tidelog.storage": "memory"})
    own = {"retention.ms": "5"}
    assert new_topic(own, disk) == own
    assert new_topic(own, memory) == {"retention.ms": "5", "tidelog.storage": "memory"}
    assert new_topic({"tidelog.storage": "disk"}, memory) == {"tidelog.storage": "disk"}
    assert new_topic({"cleanup.policy": "compact"}, memory) == {"cleanup.policy": "compact"}
    compacting = BrokerConfig.parse({"tidelog.storage": "memory", "log.cleanup.policy": "compact"})
    assert new_topic({}, compacting) == {}
    assert resolve_topic({}, memory).tidelog_storage == "disk", "of one that was made before"


def test_a_topic_in_memory_is_bounded() -> None:
    broker = BrokerConfig.parse({"tidelog.memory.retention.bytes": "5000"})
    assert resolve_topic({"tidelog.storage": "memory"}, broker).retention_bytes == 5000
    assert resolve_topic({"tidelog.storage": "memory", "retention.bytes": "7"}, broker).retention_bytes == 7
    with pytest.raises(ConfigError, match="kept on disk"):
        check_topic({"tidelog.storage": "memory", "cleanup.policy": "compact"}, broker)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        ("segment.bytes", "x", "Invalid value x for configuration segment.bytes: Not a number of type INT"),
        (
            "segment.bytes",
            "3000000000",
            "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "3_000_000",
            "Invalid value 3_000_000 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "cleanup.policy",
            "delete,burn",
            "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "leader.replication.throttled.replicas",
            "1:x",
            "Invalid value [1:x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            "max.compaction.lag.ms",
            "5",
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_a_value_that_is_none_is_refused_in_kafkas_words(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic({"min.compaction.lag.ms": "10", name: value}, BrokerConfig.parse({}))
    assert caught.value.message == reason


def test_an_unknown_setting_is_refused_with_a_way_out() -> None:
    assert refused({"log.segmnt.bytes": "1"}).endswith("did you mean log.segment.bytes?")
    assert "for all topics it is log.segment.bytes" in refused({"segment.bytes": "1"})
    assert "Apache Kafka has it" in refused({"num.io.threads": "1"})
    assert not UNUSED & set(BrokerConfig.SETTINGS)


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert "socket.request.max.bytes" in refused({"queued.max.request.bytes": "5"})
    assert "log.retention.ms" in refused({"log.retention.ms": "0"})
    assert "log.roll.ms" in refused({"log.roll.ms": "0"})


def test_dynamic_settings_win_over_static_ones_and_the_own_over_the_default() -> None:
    static = BrokerConfig.parse({"log.retention.ms": "1000", "num.partitions": "3"})
    config = static.with_dynamic(
        {"log.retention.ms": "2000", "message.max.bytes": "77", "num.partitions": "9", "unheard.of": "1"},
        {"log.retention.ms": "3000", "log.segment.bytes": "nonsense"},
    )
    assert config.topic_defaults.retention_ms == 3000
    assert config.topic_defaults.max_message_bytes == 77
    assert config.num_partitions == 3, "not one that may change while the broker runs"
    assert config.dynamic_default == {"log.retention.ms": "2000", "message.max.bytes": "77"}
    assert config.dynamic_own == {"log.retention.ms": "3000"}
    assert config.with_dynamic({}, {}).topic_defaults.retention_ms == 1000


def test_settings_do_not_change_in_place() -> None:
    config = BrokerConfig.parse({})
    with pytest.raises(AttributeError):
        config.num_partitions = 2
    with pytest.raises(AttributeError):
        config.topic_defaults.segment_bytes = 2


def test_each_topic_setting_falls_back_to_a_broker_setting_that_exists() -> None:
    for topic_name, broker_name in BROKER_SYNONYMS.items():
        assert topic_name in TopicConfig.SETTINGS
        assert BrokerConfig.SETTINGS[broker_name].dynamic
    assert synonyms("log.retention.minutes") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)


def test_each_setting_has_a_variable() -> None:
    names = environment_names()
    assert names["TIDELOG_LOG_SEGMENT_BYTES"] == "log.segment.bytes"
    assert names["TIDELOG_DURABILITY"] == "tidelog.durability"
    assert len(names) == len(BrokerConfig.SETTINGS)


def test_the_documentation_is_what_the_declarations_say() -> None:
    written = Path(__file__).parents[2] / "docs" / "settings.md"
    assert written.read_text() == page(), "run: python -m tidelog.config > docs/settings.md"


@pytest.mark.parametrize("name", ["offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"])
def test_segments_of_internal_topics_have_the_bound_of_all_topics(name: str) -> None:
    """Else the broker would start, and the topic couldn't be made when the first group or transaction comes."""
    assert BrokerConfig.parse({name: "1048576"}).value(name) == 1048576
    with pytest.raises(ConfigError, match=rf"{name}.*1048576"):
        BrokerConfig.parse({name: "1048575"})
