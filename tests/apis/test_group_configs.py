"""Settings of groups through the configuration APIs: resource type 32."""

from typing import Any

import pytest

from tests.apis.harbour import Harbour
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

GROUP_RESOURCE = 32
SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def harbour() -> Harbour:
    return Harbour()


def alter(harbour: Harbour, group: str, operation: int = 0, **values: str | None) -> Any:
    changes = [
        {"name": name.replace("_", "."), "config_operation": operation, "value": value}
        for name, value in values.items()
    ]
    resources = [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": changes}]
    asked = {"resources": resources, "validate_only": False}
    return harbour.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses[0]


def describe(harbour: Harbour, group: str) -> Any:
    resources = [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}]
    asked = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    return harbour.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results[0]


def listed(harbour: Harbour) -> list[str]:
    found = harbour.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [GROUP_RESOURCE]}).config_resources
    return [one.resource_name for one in found]


def test_a_setting_is_described_with_where_it_comes_from(harbour: Harbour) -> None:
    before = {one.name: one for one in describe(harbour, "voyage").configs}
    assert before[SESSION].value == "45000"
    assert (before[SESSION].config_source, before[SESSION].read_only) == (5, False)
    assert [one.name for one in before[SESSION].synonyms] == ["group.consumer.session.timeout.ms"]
    assert alter(harbour, "voyage", consumer_session_timeout_ms="50000").error_code == 0
    after = {one.name: one for one in describe(harbour, "voyage").configs}[SESSION]
    assert (after.value, after.config_source, after.documentation is None) == ("50000", 8, False)
    assert [(one.name, one.value) for one in after.synonyms] == [
        (SESSION, "50000"),
        ("group.consumer.session.timeout.ms", "45000"),
    ]


def test_groups_with_settings_of_their_own_are_listed(harbour: Harbour) -> None:
    assert listed(harbour) == []
    alter(harbour, "voyage", consumer_session_timeout_ms="50000")
    assert listed(harbour) == ["voyage"]
    alter(harbour, "voyage", operation=1, consumer_session_timeout_ms=None)
    assert listed(harbour) == []


@pytest.mark.parametrize(
    ("group", "values", "code"),
    [
        ("voyage", {"consumer_session_timeout_ms": "1"}, ErrorCode.INVALID_CONFIG),
        ("voyage", {"consumer_naps": "1"}, ErrorCode.INVALID_CONFIG),
        ("voyage", {"consumer_session_timeout_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("", {"consumer_session_timeout_ms": "50000"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(harbour: Harbour, group: str, values: dict[str, str], code: ErrorCode) -> None:
    answer = alter(harbour, group, **values)
    assert ErrorCode(answer.error_code) is code
    assert listed(harbour) == []


def test_a_group_without_a_name_has_no_settings(harbour: Harbour) -> None:
    assert ErrorCode(describe(harbour, "").error_code) is ErrorCode.INVALID_REQUEST


def test_settings_survive_a_restart(harbour: Harbour) -> None:
    alter(harbour, "voyage", consumer_heartbeat_interval_ms="6000")
    again = Harbour(disk=harbour.kill())
    values = {one.name: one.value for one in describe(again, "voyage").configs}
    assert values["consumer.heartbeat.interval.ms"] == "6000"
