"""Names as long as a string can be, in every request that has them: answered with an error that fits into one, too."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.wire.bounds import MESSAGE_CHARACTERS_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

LONG = "x" * 32_767
WIDE = "\N{EURO SIGN}" * 10_922
"""Fewer characters in as many bytes."""
STRANGE = "\0\n\"'" * 8_191

REQUESTS: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "create": (
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": [{"name": "NAME", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000},
    ),
    "create twice": (
        ApiKey.CREATE_TOPICS,
        7,
        {"topics": [{"name": "NAME", "num_partitions": 1, "replication_factor": 1}] * 2, "timeout_ms": 1000},
    ),
    "create with a setting": (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": "n",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [{"name": "NAME", "value": "NAME"}, {"name": "NAME", "value": None}],
                }
            ],
            "timeout_ms": 1000,
        },
    ),
    "create plainly": (
        ApiKey.CREATE_TOPICS,
        2,
        {"topics": [{"name": "NAME", "num_partitions": 1, "replication_factor": 1}] * 2, "timeout_ms": 1000},
    ),
    "delete": (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "NAME"}], "timeout_ms": 1000}),
    "delete twice": (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "NAME"}] * 2, "timeout_ms": 1000}),
    "delete plainly": (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["NAME"], "timeout_ms": 1000}),
    "more partitions": (
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [{"name": "NAME", "count": 2, "assignments": None}], "timeout_ms": 1000},
    ),
    "elect": (
        ApiKey.ELECT_LEADERS,
        2,
        {"topic_partitions": [{"topic": "NAME", "partitions": [0]}], "timeout_ms": 1000},
    ),
    "scram": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "NAME"}]}),
    "scram twice": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "NAME"}] * 2}),
    "features": (
        ApiKey.UPDATE_FEATURES,
        2,
        {"feature_updates": [{"feature": "NAME", "max_version_level": 1, "upgrade_type": 1}]},
    ),
    "coordinator": (ApiKey.FIND_COORDINATOR, 6, {"key_type": 1, "coordinator_keys": ["NAME"]}),
    "groups": (ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["NAME"]}),
    "heartbeat": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {
            "group_id": "NAME",
            "member_id": "NAME",
            "member_epoch": 5,
            "instance_id": "NAME",
            "server_assignor": "NAME",
            "subscribed_topic_names": ["NAME"],
            "subscribed_topic_regex": "NAME",
        },
    ),
    "join": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {
            "group_id": "g",
            "member_id": "NAME",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "server_assignor": "NAME",
            "subscribed_topic_names": ["NAME"],
            "subscribed_topic_regex": "(NAME",
            "topic_partitions": [],
        },
    ),
    "describe members": (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["NAME"]}),
    "quotas": (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [{"entity_type": "NAME", "match_type": 0, "match": "NAME"}] * 2, "strict": False},
    ),
    "acls": (
        ApiKey.DESCRIBE_ACLS,
        3,
        {"resource_type_filter": 2, "resource_name_filter": "NAME", "pattern_type_filter": 3},
    ),
    "producers": (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "NAME", "partition_indexes": [0, -1]}]}),
    "transactions": (ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "(NAME"}),
    "transaction": (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["NAME"]}),
    "topics": (ApiKey.METADATA, 12, {"topics": [{"name": "NAME"}], "allow_auto_topic_creation": True}),
}
for kind in (2, 4, 8, 16, 32, 99):
    resource = {"resource_type": kind, "resource_name": "NAME"}
    configs = [{"name": "NAME", "config_operation": 0, "value": "NAME"}]
    REQUESTS[f"describe {kind}"] = (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
    REQUESTS[f"alter {kind}"] = (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": [{**resource, "configs": configs}]},
    )
    REQUESTS[f"append to {kind}"] = (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": [{**resource, "configs": [{**configs[0], "config_operation": 2}]}]},
    )
    REQUESTS[f"replace {kind}"] = (
        ApiKey.ALTER_CONFIGS,
        2,
        {"resources": [{**resource, "configs": [{"name": "NAME", "value": None}] * 2}]},
    )
for name in ("1", "tide"):
    for key, value in (("NAME", "NAME"), ("retention.ms", "NAME"), ("log.retention.ms", "NAME")):
        REQUESTS[f"set {key} of {name}"] = (
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            {
                "resources": [
                    {
                        "resource_type": 2 if name == "tide" else 4,
                        "resource_name": name,
                        "configs": [{"name": key, "config_operation": 0, "value": value}],
                    }
                ]
            },
        )


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    broker = SimBroker()
    broker.make_topic("tide")
    return broker


@pytest.mark.parametrize("name", [LONG, WIDE, STRANGE], ids=["long", "wide", "strange"])
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_long_name_is_answered(broker: SimBroker, request_name: str, name: str) -> None:
    key, version, fields = REQUESTS[request_name]
    asked = broker.send(key, version, filled(fields, name))
    broker.timeline.run_until(lambda: asked.done, broker.timeline.now + 30)
    assert asked.closed is None
    found = list(said(asked.response))
    assert found, "nothing is answered"
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in [value for field, value in found if field == "error_code"]
    for field, value in found:
        if field.endswith("error_message") and value:
            assert len(value) <= MESSAGE_CHARACTERS_MAX + 10, "it is for people to read"


def filled(fields: Any, name: str) -> Any:
    """The request with the name in its places; as much of it as there is room for."""
    if isinstance(fields, dict):
        return {key: filled(value, name) for key, value in fields.items()}
    if isinstance(fields, list):
        return [filled(value, name) for value in fields]
    if isinstance(fields, str) and "NAME" in fields:
        whole = fields.replace("NAME", name)
        return whole.encode()[:32_767].decode(errors="ignore")
    return fields


def said(message: Any) -> Any:
    """(field, value) of all that a response says, nested ones included."""
    for field in message.__slots__:
        value = getattr(message, field)
        yield field, value
        for nested in value if isinstance(value, list) else []:
            if hasattr(nested, "__wire__"):
                yield from said(nested)
