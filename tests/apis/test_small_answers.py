"""APIs of which Tidelog has nothing yet, and ApiVersions: the answers of a Kafka where nothing is configured."""

from types import SimpleNamespace

import pytest

from tests.apis.described import context, image, topic
from tidelog.apis import (
    api_versions,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
    get_telemetry_subscriptions,
    list_config_resources,
    push_telemetry,
)
from tidelog.apis.listeners import ListenerKind, served_on
from tidelog.apis.shared.context import Context
from tidelog.env.slices import whole
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tidelog.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest

CLUSTER = image(topic("tides"), features={"metadata.version": 30, "group.version": 1})
CLIENT = bytes(range(16))


def versions(version: int, software: str = "librdkafka", of: str = "2.16.0") -> ApiVersionsResponse:
    asked: Context = context(CLUSTER, version)
    asked.services.quorum = SimpleNamespace(kraft_version=1)  # type: ignore[assignment]
    return api_versions.handle(asked, ApiVersionsRequest(client_software_name=software, client_software_version=of))


def test_every_api_that_is_served_is_told_and_produce_from_version_0() -> None:
    told = {one.api_key: (one.min_version, one.max_version) for one in versions(0).api_keys}
    assert set(told) == served_on(ListenerKind.BROKER) - {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert told[0] == (0, 13)
    assert told[18] == (0, 4)


def test_features_have_an_epoch_and_those_from_level_0_are_told_from_version_4_on() -> None:
    answer = versions(4)
    assert answer.finalized_features_epoch == 42
    finalized = {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features}
    assert finalized == {"metadata.version": (30, 30), "group.version": (1, 1), "kraft.version": (1, 1)}
    assert {one.name for one in answer.supported_features} >= {"metadata.version", "kraft.version"}
    assert [one.name for one in versions(3).supported_features] == ["metadata.version"]


@pytest.mark.parametrize(("software", "of"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a\n", "1")])
def test_software_must_have_a_name(software: str, of: str) -> None:
    assert versions(3, software, of).error_code == ErrorCode.INVALID_REQUEST
    assert versions(2, software, of).error_code == ErrorCode.NONE


def test_a_version_that_is_too_new_is_told_which_there_are() -> None:
    answer = api_versions.unsupported_version()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(18, 0, 4)]


def test_a_client_gets_an_id_and_an_empty_subscription() -> None:
    answer = get_telemetry_subscriptions.handle(context(CLUSTER, 0), GetTelemetrySubscriptionsRequest())
    assert answer.client_instance_id != bytes(16)
    assert answer.requested_metrics == []
    assert answer.push_interval_ms == 300_000
    again = GetTelemetrySubscriptionsRequest(client_instance_id=answer.client_instance_id)
    assert get_telemetry_subscriptions.handle(context(CLUSTER, 0), again) == answer


def test_the_subscriptions_number_is_kafkas() -> None:
    client = bytes.fromhex("9bc8531c53a94e48859deec7eaefda43")
    assert get_telemetry_subscriptions.subscription_id(client) == 1943302670


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"client_instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(1_048_577)}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_push_is_checked(fields: dict[str, object], code: ErrorCode) -> None:
    number = get_telemetry_subscriptions.subscription_id(CLIENT)
    request = PushTelemetryRequest(**{"client_instance_id": CLIENT, "subscription_id": number, **fields})  # type: ignore[arg-type]
    assert push_telemetry.handle(context(CLUSTER, 0), request).error_code == code


def test_there_is_no_authorizer() -> None:
    assert describe_acls.handle(context(CLUSTER, 3), DescribeAclsRequest()).error_code == ErrorCode.SECURITY_DISABLED


def test_quotas_that_another_wrote_are_told_by_filter() -> None:
    quotas = {
        (("user", "ann"),): {"producer_byte_rate": 1.0},
        (("user", None),): {"producer_byte_rate": 2.0},
        (("user", "ann"), ("client-id", "x")): {"producer_byte_rate": 3.0},
    }
    asked = context(image(quotas=quotas), 1)

    def rates(*components: ComponentData, strict: bool = False) -> list[float]:
        answer = describe_client_quotas.handle(
            asked, DescribeClientQuotasRequest(components=list(components), strict=strict)
        )
        return sorted(value.value for entry in answer.entries or () for value in entry.values)

    assert rates() == [1.0, 2.0, 3.0]
    assert rates(ComponentData(entity_type="user", match_type=0, match="ann")) == [1.0, 3.0]
    assert rates(ComponentData(entity_type="user", match_type=0, match="ann"), strict=True) == [1.0]
    assert rates(ComponentData(entity_type="user", match_type=1, match=None)) == [2.0]
    assert rates(ComponentData(entity_type="client-id", match_type=2, match=None)) == [3.0]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData(entity_type="")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="tide")], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData(entity_type="user", match_type=0, match=None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=1, match="x")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=9)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match="a"), ComponentData(entity_type="user")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match="a"), ComponentData(entity_type="ip")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_for_quotas_is_checked(components: list[ComponentData], code: ErrorCode) -> None:
    answer = describe_client_quotas.handle(context(CLUSTER, 1), DescribeClientQuotasRequest(components=components))
    assert (answer.error_code, answer.entries) == (code, None)


def test_scram_users_are_told_without_their_secrets() -> None:
    asked = context(image(scram={("ann", 1): SimpleNamespace(iterations=4096)}), 0)

    def ask(*users: str) -> list[tuple[str, int]]:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])
        return [
            (one.user, one.error_code) for one in whole(describe_user_scram_credentials.handle(asked, request)).results
        ]

    assert ask() == [("ann", 0)]
    assert ask("ann", "bob") == [("ann", 0), ("bob", ErrorCode.RESOURCE_NOT_FOUND)]
    assert ask("ann", "ann") == [("ann", ErrorCode.DUPLICATE_RESOURCE)]


def test_everything_that_can_have_settings_is_listed() -> None:
    def ask(version: int, *types: int) -> list[tuple[int, str]] | int:
        answer = list_config_resources.handle(
            context(CLUSTER, version), ListConfigResourcesRequest(resource_types=list(types))
        )
        return answer.error_code or [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert ask(1) == [(8, "1"), (8, "2"), (4, "1"), (4, "2"), (2, "tides")]
    assert ask(1, 2) == [(2, "tides")]
    assert ask(0) == []
    assert ask(1, 5) == ErrorCode.UNSUPPORTED_VERSION
