"""Settings of groups: the broker's bounds, what a group may set, and what holds then."""

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.group import check_group, resolve_group
from tidelog.config.setting import ConfigError

BROKER = BrokerConfig.parse({})


def test_a_group_that_sets_nothing_has_what_the_broker_says() -> None:
    broker = BrokerConfig.parse({"group.consumer.session.timeout.ms": "50000"})
    config = resolve_group(None, broker)
    assert (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) == (50_000, 5000)
    assert config.consumer_assignment_interval_ms == 1000


def test_a_group_has_what_it_sets_within_the_brokers_bounds() -> None:
    assert resolve_group({"consumer.session.timeout.ms": "55000"}, BROKER).consumer_session_timeout_ms == 55_000
    assert resolve_group({"consumer.session.timeout.ms": "1"}, BROKER).consumer_session_timeout_ms == 45_000
    assert resolve_group({"consumer.heartbeat.interval.ms": "99999"}, BROKER).consumer_heartbeat_interval_ms == 15_000


def test_what_another_version_wrote_is_passed_over() -> None:
    config = resolve_group({"share.session.timeout.ms": "1", "consumer.session.timeout.ms": "soon"}, BROKER)
    assert config.consumer_session_timeout_ms == 45_000


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("consumer.naps", "1", "Unknown group config name: consumer.naps"),
        (
            "consumer.session.timeout.ms",
            "44999",
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "consumer.heartbeat.interval.ms",
            "15001",
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            "consumer.assignment.interval.ms",
            "-1",
            "Invalid value -1 for configuration consumer.assignment.interval.ms: Value must be at least 0",
        ),
    ],
)
def test_what_a_client_may_not_set(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_group({name: value}, BROKER)
    assert refused.value.message == message


def test_a_session_outlasts_a_heartbeat() -> None:
    broker = BrokerConfig.parse(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "100",
        }
    )
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        check_group({"consumer.session.timeout.ms": "5000"}, broker)
    check_group({"consumer.session.timeout.ms": "5001"}, broker)


@pytest.mark.parametrize(
    "given",
    [
        {"group.consumer.min.session.timeout.ms": "70000"},
        {"group.consumer.session.timeout.ms": "1"},
        {"group.consumer.heartbeat.interval.ms": "16000"},
        {"group.consumer.max.assignment.interval.ms": "999"},
        {
            "group.consumer.heartbeat.interval.ms": "45000",
            "group.consumer.max.heartbeat.interval.ms": "60000",
        },
        {"group.consumer.migration.policy": "sideways"},
        {"group.consumer.assignors": "sticky"},
        {"group.consumer.assignors": ""},
        {"group.consumer.regex.refresh.interval.ms": "9999"},
    ],
)
def test_a_broker_whose_settings_contradict_each_other_does_not_start(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig.parse(given)


def test_the_policy_is_taken_in_any_case() -> None:
    assert BrokerConfig.parse({"group.consumer.migration.policy": "Upgrade"}).group_consumer_migration_policy
