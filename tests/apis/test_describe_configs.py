"""DescribeConfigs: values, where they come from, what they fall back to, and what isn't told."""

import logging
from typing import Any

import pytest

from tests.apis.described import context, image, topic
from tidelog.apis import describe_configs
from tidelog.apis.bounds import DESCRIBED_RESOURCES_MAX
from tidelog.env.slices import whole
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)

CONFIGS = {
    (2, "tides"): {"retention.ms": "5", "of.a.newer.version": "x"},
    (4, "1"): {"log.retention.ms": "2", "plugin.secret": "hush"},
    (4, ""): {"log.retention.ms": "3", "log.index.interval.bytes": "5000", "plugin.other": "hush"},
}
CLUSTER = image(topic("tides"), configs=CONFIGS)


def ask(kind: int, name: str, keys: list[str] | None = None, **flags: bool) -> DescribeConfigsResult:
    asked = context(CLUSTER, 4, settings={"log.retention.hours": "9", "log.segment.bytes": "2000000"})
    services = asked.services
    services.config = services.config.with_dynamic(CONFIGS[4, ""], CONFIGS[4, "1"])
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (result,) = whole(describe_configs.handle(asked, DescribeConfigsRequest(resources=[resource], **flags))).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entries(kind: int, name: str, **flags: bool) -> dict[str, DescribeConfigsResourceResult]:
    return {entry.name: entry for entry in ask(kind, name, **flags).configs}


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


def test_a_topics_setting_is_told_with_everything_it_falls_back_to() -> None:
    found = entries(2, "tides", include_synonyms=True)
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("5", 1, 5)
    assert synonyms(retention) == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
        ("log.retention.hours", "9", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert (found["index.interval.bytes"].value, found["index.interval.bytes"].config_source) == ("5000", 3)
    assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == ("2000000", 4)
    assert (found["flush.ms"].config_source, found["flush.ms"].synonyms) == (5, [])
    assert "internal.segment.bytes" not in found


def test_a_brokers_settings_are_told_with_what_may_change() -> None:
    found = entries(4, "1", include_synonyms=True)
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == ("2", False)
    assert found["node.id"].read_only
    assert found["log.roll.ms"].value is None
    assert synonyms(found["log.retention.hours"]) == [
        ("log.retention.hours", "9", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_the_dynamic_defaults_of_all_brokers_are_told_alone() -> None:
    found = entries(4, "", include_synonyms=True)
    assert set(found) == {"log.retention.ms", "log.index.interval.bytes", "plugin.other"}
    assert synonyms(found["log.retention.ms"]) == [("log.retention.ms", "3", 3)]


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [(2, "tides", "of.a.newer.version"), (4, "1", "plugin.secret"), (4, "", "plugin.other")],
)
def test_a_name_that_is_not_known_may_hold_a_secret(kind: int, name: str, setting: str) -> None:
    entry = entries(kind, name, include_synonyms=True)[setting]
    assert (entry.value, entry.is_sensitive, entry.config_type) == (None, True, 0)
    assert "hush" not in repr(ask(kind, name, include_synonyms=True))


def test_synonyms_documentation_and_other_names_only_where_asked_for() -> None:
    plain = ask(2, "tides", ["segment.bytes", "no.such"])
    assert [(one.name, one.synonyms, one.documentation) for one in plain.configs] == [("segment.bytes", [], None)]
    told = ask(2, "tides", [], include_documentation=True).configs
    assert len(told) > 30
    assert all(one.documentation for one in told if not one.is_sensitive)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "ebb", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "no/topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (4, "one", ErrorCode.INVALID_REQUEST),
        (5, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_can_not_be_described_is_an_error_of_its_own(kind: int, name: str, code: ErrorCode) -> None:
    result = ask(kind, name)
    assert (result.error_code, result.configs) == (code, [])


def test_loggers_are_told_with_their_levels() -> None:
    logging.getLogger("tidelog.test.described").setLevel(logging.ERROR)
    entry = entries(8, "1")["tidelog.test.described"]
    assert (entry.value, entry.config_source, entry.read_only) == ("ERROR", 6, False)
    assert ask(8, "").error_code == ask(8, "2").error_code == ErrorCode.INVALID_REQUEST


def test_an_answer_does_not_grow_out_of_bounds() -> None:
    resources: list[Any] = [
        DescribeConfigsResource(resource_type=32, resource_name=f"group-{number}")
        for number in range(DESCRIBED_RESOURCES_MAX + 1)
    ]
    answer = whole(describe_configs.handle(context(CLUSTER, 4), DescribeConfigsRequest(resources=resources)))
    assert len(answer.results) == DESCRIBED_RESOURCES_MAX + 1
    assert [result.error_code for result in answer.results[-2:]] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_what_is_named_a_few_times_is_told_each_time_and_without_end_once() -> None:
    broker: Any = DescribeConfigsResource(resource_type=4, resource_name="1")
    one_key: Any = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["log.retention.ms"])
    for count, told in ((11, 11), (12, 1), (10_000, 1)):
        request = DescribeConfigsRequest(resources=[broker] * count + [one_key])
        results = whole(describe_configs.handle(context(CLUSTER, 4), request)).results
        assert len(results) == told + 1
        assert [entry.name for entry in results[-1].configs] == ["log.retention.ms"]
        assert len(results[0].configs) > 100


def test_what_many_resources_have_in_common_is_made_once() -> None:
    names = [f"tide-{number}" for number in range(500)]
    cluster = image(*map(topic, names), configs={(2, "tide-7"): {"retention.ms": "5"}})
    resources: list[Any] = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    results = whole(describe_configs.handle(context(cluster, 4), request)).results
    assert len({id(entry) for result in results for entry in result.configs}) == 2 * len(results[0].configs)
    values = [entry.value for result in results for entry in result.configs if entry.name == "retention.ms"]
    assert values.count("5") == 1
