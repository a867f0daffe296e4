"""AlterConfigs and IncrementalAlterConfigs: which records they become, and what is refused with which words."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.metadata.images import broker, image_of
from tidelog.config import BrokerConfig
from tidelog.controller.configs import Change, Operation, Outcome, ResourceChange, alter_configs, check_own_id
from tidelog.env.slices import whole
from tidelog.metadata.chunks import Chunked
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, TopicImage
from tidelog.metadata.versions import ELR_VERSION
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import ClearElrRecord, ConfigRecord

BROKER = BrokerConfig.parse({})
TIDES = TopicImage("tides", b"t" * 16, Chunked())
OK = Outcome()


def image(configs: dict[tuple[int, str], dict[str, str]] | None = None, elr: int = 0) -> ClusterImage:
    return replace(
        image_of(broker(1), broker(2)),
        topics={"tides": TIDES},
        topics_by_id={TIDES.id: TIDES},
        configs=configs or {},
        features={ELR_VERSION: elr},
    )


def on_topic(*changes: Change, replaces: bool = False, name: str = "tides") -> ResourceChange:
    return ResourceChange(TOPIC_RESOURCE, name, changes, replaces)


def on_broker(*changes: Change, replaces: bool = False, name: str = "1") -> ResourceChange:
    return ResourceChange(BROKER_RESOURCE, name, changes, replaces)


def put(name: str, value: str | None) -> Change:
    return Change(name, Operation.SET, value)


def topic_record(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="tides", name=name, value=value)


def alter(
    *resources: ResourceChange, at: ClusterImage | None = None, validate_only: bool = False
) -> tuple[Sequence[object], list[Outcome]]:
    return whole(alter_configs(at or image(), resources, broker=BROKER, validate_only=validate_only))


def outcome(resource: ResourceChange, at: ClusterImage | None = None) -> tuple[ErrorCode, str | None]:
    records, outcomes = alter(resource, at=at)
    assert not records
    return outcomes[0].code, outcomes[0].message


def test_a_setting_is_set_and_goes_back_to_its_default() -> None:
    assert alter(on_topic(put("retention.ms", "5"))) == ([topic_record("retention.ms", "5")], [OK])
    before = image({(TOPIC_RESOURCE, "tides"): {"retention.ms": "5"}})
    assert alter(on_topic(Change("retention.ms", Operation.DELETE, None)), at=before) == (
        [topic_record("retention.ms", None)],
        [OK],
    )
    assert alter(on_topic(put("retention.ms", "5")), at=before) == ([], [OK]), "nothing changes, nothing is written"


def test_a_resource_has_a_bound_on_its_settings() -> None:
    full = image({(BROKER_RESOURCE, "1"): {f"made.up.{number}": "x" for number in range(10_000)}})
    assert outcome(on_broker(put("one.more", "x")), full) == (
        ErrorCode.POLICY_VIOLATION,
        "1 would have 10001 settings; 10000 are allowed",
    )
    assert alter(on_broker(put("made.up.7", "y")), at=full)[1] == [OK]


def test_lists_grow_and_shrink_from_their_default() -> None:
    grown = on_topic(Change("cleanup.policy", Operation.APPEND, "compact,delete"))
    assert alter(grown)[0] == [topic_record("cleanup.policy", "delete,compact")]
    before = image({(TOPIC_RESOURCE, "tides"): {"cleanup.policy": "delete,compact"}})
    shrunk = on_topic(Change("cleanup.policy", Operation.SUBTRACT, "delete"))
    assert alter(shrunk, at=before)[0] == [topic_record("cleanup.policy", "compact")]
    assert outcome(on_topic(Change("retention.ms", Operation.APPEND, "5"))) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )


def test_replacing_puts_back_what_is_not_named() -> None:
    before = image({(TOPIC_RESOURCE, "tides"): {"retention.ms": "5", "segment.ms": "7"}})
    assert alter(on_topic(put("segment.ms", "8"), replaces=True), at=before)[0] == [
        topic_record("segment.ms", "8"),
        topic_record("retention.ms", None),
    ]


def test_validate_only_checks_and_writes_nothing() -> None:
    assert alter(on_topic(put("retention.ms", "5")), validate_only=True) == ([], [OK])
    _, outcomes = alter(on_topic(put("retention.ms", "x")), validate_only=True)
    assert outcomes[0].code is ErrorCode.INVALID_CONFIG


def test_each_resource_fares_on_its_own() -> None:
    records, outcomes = alter(on_topic(put("retention.ms", "5")), on_topic(put("retention.ms", "5"), name="ebb"))
    assert records == [topic_record("retention.ms", "5")]
    assert outcomes == [OK, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'ebb' does not exist.")]


def test_a_resource_or_a_setting_named_twice_is_refused() -> None:
    records, outcomes = alter(on_topic(put("retention.ms", "5")), on_topic(put("retention.ms", "6")))
    assert not records
    assert outcomes == [Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")] * 2
    assert outcome(on_topic(put("retention.ms", "5"), put("retention.ms", "6"))) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )


def test_what_a_topic_can_not_have_is_refused() -> None:
    assert outcome(on_topic(put("retention.ms", "-9"))) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid value -9 for configuration retention.ms: Value must be at least -1",
    )
    assert outcome(on_topic(put("no.such", "1"))) == (ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such")
    assert outcome(on_topic(put("retention.ms", None))) == (
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms",
    )
    assert outcome(on_topic(put("retention.ms", "5"), name=""))[0] is ErrorCode.INVALID_REQUEST
    assert outcome(on_topic(put("retention.ms", "5"), name="a/b"))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert outcome(on_topic(Change("retention.ms", 9, "5"))) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown operations type 9",
    )
    long = on_topic(put("leader.replication.throttled.replicas", "1:1," * 9000))
    assert outcome(long)[0] is ErrorCode.INVALID_CONFIG


def test_a_topic_stays_where_it_is_kept() -> None:
    memory = image({(TOPIC_RESOURCE, "tides"): {"tidelog.storage": "memory", "retention.ms": "5"}})
    sentence = (
        "tidelog.storage is decided when a topic is made: 'tides' is kept in memory and stays there. Make another "
        "topic with tidelog.storage=disk and copy the records; where all settings are given at once, name "
        "tidelog.storage=memory among them."
    )
    for change in (
        on_topic(put("tidelog.storage", "disk")),
        on_topic(Change("tidelog.storage", Operation.DELETE, None)),
        on_topic(put("retention.ms", "7"), replaces=True),
    ):
        assert outcome(change, at=memory) == (ErrorCode.INVALID_CONFIG, sentence)
    code, message = outcome(on_topic(put("tidelog.storage", "memory")))
    assert (code, "kept on disk" in (message or "")) == (ErrorCode.INVALID_CONFIG, True)
    assert alter(on_topic(put("retention.ms", "7")), at=memory) == ([topic_record("retention.ms", "7")], [OK])
    named = on_topic(put("tidelog.storage", "memory"), put("retention.ms", "7"), replaces=True)
    assert alter(named, at=memory) == ([topic_record("retention.ms", "7")], [OK])
    assert alter(on_topic(put("tidelog.storage", "disk"))) == ([topic_record("tidelog.storage", "disk")], [OK])


def test_a_brokers_settings_are_set_for_it_or_for_all() -> None:
    for name in ("1", ""):
        records, outcomes = alter(on_broker(put("log.retention.ms", "5000"), name=name))
        assert outcomes == [OK]
        assert records == [
            ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name="log.retention.ms", value="5000")
        ]


def test_a_brokers_record_is_written_even_where_nothing_changes_so_that_it_looks_again() -> None:
    before = image({(BROKER_RESOURCE, "1"): {"log.retention.ms": "5000"}})
    assert len(alter(on_broker(put("log.retention.ms", "5000")), at=before)[0]) == 1


def test_what_a_broker_can_not_change_while_it_runs_is_refused() -> None:
    assert outcome(on_broker(put("num.partitions", "5"), put("node.id", "7"))) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [node.id, num.partitions]",
    )
    assert outcome(on_broker(put("log.retention.ms", "x"))) == (
        ErrorCode.INVALID_REQUEST,
        "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
    )
    assert outcome(on_broker(put("log.retention.ms", "0")))[0] is ErrorCode.INVALID_REQUEST
    assert outcome(on_broker(put("log.retention.ms", "5"), name="one"))[0] is ErrorCode.INVALID_REQUEST
    assert outcome(ResourceChange(5, "x", ())) == (ErrorCode.INVALID_REQUEST, "Unknown resource type 5")


def test_controller_changes_any_brokers_settings_and_a_broker_its_own() -> None:
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="2", name="log.retention.ms", value="5")
    assert alter(on_broker(put("log.retention.ms", "5"), name="2")) == ([record], [OK])
    check_own_id("2", 2)
    for name in ("1", "two"):
        with pytest.raises(KafkaError) as raised:
            check_own_id(name, 2)
        assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_broker_that_nobody_knows_has_no_settings() -> None:
    for replaces in (False, True):
        unknown = on_broker(put("log.retention.ms", "5"), name="77", replaces=replaces)
        assert outcome(unknown)[0] is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_name_that_no_broker_knows_is_kept() -> None:
    records, outcomes = alter(on_broker(put("plugin.secret", "s")))
    assert len(records) == 1
    assert outcomes == [OK]


def test_with_eligible_leader_replicas_min_insync_replicas_is_one_for_all_brokers() -> None:
    at = image(elr=1)
    assert outcome(on_broker(put("min.insync.replicas", "2")), at)[0] is ErrorCode.INVALID_CONFIG
    removed = on_broker(Change("min.insync.replicas", Operation.DELETE, None), name="")
    assert outcome(removed, at)[0] is ErrorCode.INVALID_CONFIG
    records, _ = alter(on_broker(put("min.insync.replicas", "2"), name=""), at=at)
    assert records[1:] == [ClearElrRecord(topic_name="")]
    records, _ = alter(on_topic(put("min.insync.replicas", "2")), at=at)
    assert records == [topic_record("min.insync.replicas", "2"), ClearElrRecord(topic_name="tides")]
