"""Settings of groups through the configuration APIs: resource type 32."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

GROUP_RESOURCE = 32
SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def sim_broker() -> SimBroker:
    return SimBroker()


def alter(sim_broker: SimBroker, group: str, operation: int = 0, **values: str | None) -> Any:
    changes = [
        {"name": name.replace("_", "."), "config_operation": operation, "value": value}
        for name, value in values.items()
    ]
    resources = [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": changes}]
    asked = {"resources": resources, "validate_only": False}
    return sim_broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses[0]


def describe(sim_broker: SimBroker, group: str) -> Any:
    resources = [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}]
    asked = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    return sim_broker.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results[0]


def listed(sim_broker: SimBroker) -> list[str]:
    found = sim_broker.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [GROUP_RESOURCE]}).config_resources
    return [one.resource_name for one in found]


def test_a_setting_is_described_with_where_it_comes_from(sim_broker: SimBroker) -> None:
    before = {one.name: one for one in describe(sim_broker, "scenario_run").configs}
    assert before[SESSION].value == "45000"
    assert (before[SESSION].config_source, before[SESSION].read_only) == (5, False)
    assert [one.name for one in before[SESSION].synonyms] == ["group.consumer.session.timeout.ms"]
    assert alter(sim_broker, "scenario_run", consumer_session_timeout_ms="50000").error_code == 0
    after = {one.name: one for one in describe(sim_broker, "scenario_run").configs}[SESSION]
    assert (after.value, after.config_source, after.documentation is None) == ("50000", 8, False)
    assert [(one.name, one.value) for one in after.synonyms] == [
        (SESSION, "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]


def test_groups_with_settings_of_their_own_are_listed(sim_broker: SimBroker) -> None:
    assert listed(sim_broker) == []
    alter(sim_broker, "scenario_run", consumer_session_timeout_ms="50000")
    assert listed(sim_broker) == ["scenario_run"]
    alter(sim_broker, "scenario_run", operation=1, consumer_session_timeout_ms=None)
    assert listed(sim_broker) == []


@pytest.mark.parametrize(
    ("group", "values", "code"),
    [
        ("scenario_run", {"consumer_session_timeout_ms": "1"}, ErrorCode.INVALID_CONFIG),
        ("scenario_run", {"consumer_naps": "1"}, ErrorCode.INVALID_CONFIG),
        ("scenario_run", {"consumer_session_timeout_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("", {"consumer_session_timeout_ms": "50000"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(sim_broker: SimBroker, group: str, values: dict[str, str], code: ErrorCode) -> None:
    answer = alter(sim_broker, group, **values)
    assert ErrorCode(answer.error_code) is code
    assert listed(sim_broker) == []


def test_a_group_without_a_name_has_no_settings(sim_broker: SimBroker) -> None:
    assert ErrorCode(describe(sim_broker, "").error_code) is ErrorCode.INVALID_REQUEST


def test_settings_survive_a_restart(sim_broker: SimBroker) -> None:
    alter(sim_broker, "scenario_run", consumer_heartbeat_interval_ms="6000")
    again = SimBroker(disk=sim_broker.kill())
    values = {one.name: one.value for one in describe(again, "scenario_run").configs}
    assert values["consumer.heartbeat.interval.ms"] == "6000"
