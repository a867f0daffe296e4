"""What a client can ask about the cluster: features, quorum, folders, coordinators, what nothing is configured of."""

import time
from random import Random
from typing import Any

from tests.batches import Batch, Sent
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey
from tidelog.wire.uuids import uuid_text

COORDINATOR_NOT_AVAILABLE = 15
CLIENT = bytes(range(16))


def cluster(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        for operations in (False, True):
            for endpoint in (1, 2, 0, 9) if version >= 1 else (1,):
                fields: dict[str, Any] = {"include_cluster_authorized_operations": operations}
                if version >= 1:
                    fields["endpoint_type"] = endpoint
                if version >= 2:
                    fields["include_fenced_brokers"] = operations
                side.ask(ApiKey.DESCRIBE_CLUSTER, version, fields, f"operations {operations}, endpoint {endpoint}")


def versions_and_features(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.API_VERSIONS):
        fields = {"client_software_name": "judge", "client_software_version": "1"} if version >= 3 else {}
        side.ask(ApiKey.API_VERSIONS, version, fields)
    for name, software in (("", "1"), ("judge", ""), ("j u d g e", "1"), ("-judge", "1"), ("judge", "1 0")):
        fields = {"client_software_name": name, "client_software_version": software}
        side.ask(ApiKey.API_VERSIONS, 3, fields, f"software {name!r} {software!r}")
    for version in versions(ApiKey.UPDATE_FEATURES):

        def update(note: str, *updates: tuple[str, int, int], version: int = version) -> None:
            changes: list[dict[str, Any]] = []
            for feature, level, upgrade in updates:
                change: dict[str, Any] = {"feature": feature, "max_version_level": level}
                if version >= 1:
                    change["upgrade_type"] = upgrade
                changes.append(change)
            fields: dict[str, Any] = {"timeout_ms": 10_000, "feature_updates": changes}
            if version >= 1:
                fields["validate_only"] = True
            elif note == "nothing":
                pass
            side.ask(ApiKey.UPDATE_FEATURES, version, fields, note)

        update("nothing")
        update("unknown", ("no.such.feature", 1, 1))
        update("unknown, at 0", ("no.such.feature", 0, 1))
        update("far too new", ("metadata.version", 999, 1))
        update("below 0", ("group.version", -1, 1))
        if version >= 1:
            update("one good, one bad", ("group.version", 1, 1), ("no.such.feature", 1, 1))
            update("as it is", ("group.version", 1, 1))
            update("a downgrade called an upgrade", ("group.version", 0, 1))
            update("twice", ("group.version", 1, 1), ("group.version", 1, 1))
            update("upgrade type 9", ("group.version", 1, 9))


def quorum(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.DESCRIBE_QUORUM):
        for name, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("other", 0)):
            fields = {"topics": [{"topic_name": name, "partitions": [{"partition_index": index}]}]}
            side.ask(ApiKey.DESCRIBE_QUORUM, version, fields, f"{name}-{index}")
        side.ask(ApiKey.DESCRIBE_QUORUM, version, {"topics": []}, "nothing")


def folders(side: Side, rng: Random) -> None:
    tag = f"{rng.getrandbits(32):08x}"
    full = side.create(f"full-{tag}", 2)
    side.create(f"empty-{tag}")
    for _ in range(3):
        side.produce(full, Batch([Sent(b"x" * 100)]).encode())
    for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
        topics = [{"topic": full, "partitions": [0, 1]}, {"topic": "missing", "partitions": [0]}]
        side.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics}, "one full, one missing")
        side.ask(
            ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": [{"topic": full, "partitions": [7]}]}, "no such partition"
        )
        side.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": []}, "nothing")


def coordinators(side: Side, rng: Random) -> None:
    for kind, key in ((0, "group"), (1, "transaction"), (2, f"group:{uuid_text(CLIENT)}:0")):
        wait_for_coordinator(side, kind, key)
    for version in versions(ApiKey.FIND_COORDINATOR):
        for kind in (0, 1, 2, 9) if version >= 1 else (0,):
            fields: dict[str, Any] = {"key": "group"} if version < 4 else {"coordinator_keys": ["group", "other"]}
            if version >= 1:
                fields["key_type"] = kind
            side.ask(ApiKey.FIND_COORDINATOR, version, fields, f"kind {kind}")
        if version >= 4:
            side.ask(ApiKey.FIND_COORDINATOR, version, {"key_type": 0, "coordinator_keys": []}, "nobody's")
        else:
            side.ask(ApiKey.FIND_COORDINATOR, version, {"key": ""}, "of an empty name")


def wait_for_coordinator(side: Side, kind: int, key: str) -> None:
    """Kafka makes the internal topic when it is first asked and names nobody until it is there."""
    deadline = time.monotonic() + 10.0
    while True:
        answer = side.quietly(ApiKey.FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": [key]})
        if answer.coordinators[0].error_code != COORDINATOR_NOT_AVAILABLE:
            return
        assert time.monotonic() < deadline, f"{side.name} names no coordinator of kind {kind}"


def what_is_not_configured(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.DESCRIBE_ACLS):
        fields = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        side.ask(ApiKey.DESCRIBE_ACLS, version, fields)
    for version in versions(ApiKey.DESCRIBE_CLIENT_QUOTAS):
        for strict in (False, True):
            components = [{"entity_type": "user", "match_type": 2, "match": None}]
            fields = {"components": components, "strict": strict}
            side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, fields, f"strict {strict}")
        for note, kind, match_type, match in (
            ("unknown kind", "planet", 2, None),
            ("no kind", "", 2, None),
            ("match type 7", "user", 7, None),
            ("exact without a name", "user", 0, None),
            ("default with a name", "user", 1, "x"),
        ):
            components = [{"entity_type": kind, "match_type": match_type, "match": match}]
            side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": components, "strict": False}, note)
        twice = [{"entity_type": "user", "match_type": 2, "match": None}] * 2
        side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": twice, "strict": False}, "a kind twice")
        side.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": [], "strict": False}, "everything")
    for users in (None, [], [{"name": "alice"}], [{"name": ""}], [{"name": "bob"}, {"name": "bob"}]):
        side.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": users}, f"{users}")
    for topics in (None, [], [{"name": "missing", "partition_indexes": [0]}]):
        fields = {"timeout_ms": 5000, "topics": topics}
        side.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, fields, f"of {topics}")


def telemetry(side: Side, rng: Random) -> None:
    for client in (bytes(16), CLIENT):
        side.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": client}, client.hex()[:4])
    cases: dict[str, dict[str, Any]] = {
        "without an id": {"client_instance_id": bytes(16), "subscription_id": 0, "metrics": b""},
        "a wrong subscription": {"subscription_id": 99, "metrics": b"x"},
        "an unknown codec": {"subscription_id": 0, "compression_type": 9, "metrics": b"x"},
        "ends": {"subscription_id": 0, "terminating": True, "metrics": b""},
    }
    for note, fields in cases.items():
        # Each from a client of its own: Kafka slows down one that comes too often.
        fields.setdefault("client_instance_id", rng.randbytes(16))
        side.ask(ApiKey.PUSH_TELEMETRY, 0, {"terminating": False, "compression_type": 0, **fields}, note)


def elections(side: Side, rng: Random) -> None:
    name = side.create(f"elects-{rng.getrandbits(32):08x}", 2)
    for version in versions(ApiKey.ELECT_LEADERS):
        for kind in (0, 1, 7) if version >= 1 else (0,):
            for note, topics in {
                "there": [{"topic": name, "partitions": [0, 1]}],
                "no such partition": [{"topic": name, "partitions": [5]}],
                "no such topic": [{"topic": "missing", "partitions": [0]}],
                "nothing": [],
            }.items():
                fields: dict[str, Any] = {"topic_partitions": topics, "timeout_ms": 5000}
                if version >= 1:
                    fields["election_type"] = kind
                side.ask(ApiKey.ELECT_LEADERS, version, fields, f"{note}, kind {kind}")


def reassignments(side: Side, rng: Random) -> None:
    name = side.create(f"moves-{rng.getrandbits(32):08x}", 2)
    for version in versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS):
        for note, (topic, index, replicas) in {
            "as it is": (name, 0, [1]),
            "nothing to cancel": (name, 0, None),
            "to a broker that isn't there": (name, 1, [77]),
            "to nobody": (name, 1, []),
            "twice the same": (name, 1, [1, 1]),
            "below zero": (name, 1, [-1]),
            "no such partition": (name, 9, [1]),
            "no such topic": ("missing", 0, [1]),
        }.items():
            topics = [{"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}]
            side.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, {"topics": topics}, note)
        side.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, {"topics": []}, "nothing")


def nodes(side: Side, rng: Random) -> None:
    """Voters and brokers that aren't there: what would change the cluster isn't asked here."""
    for note, broker_id in {"unknown": 77, "below zero": -1}.items():
        side.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": broker_id}, note)
    stranger: dict[str, Any] = {"voter_id": 77, "voter_directory_id": rng.randbytes(16)}
    listeners = [{"name": "CONTROLLER", "host": "localhost", "port": 1}]
    for version in versions(ApiKey.ADD_RAFT_VOTER):
        for note, more in {
            "another cluster": {"cluster_id": "anotherclusteranothe22"},
            "no listener": {"listeners": []},
            "a listener of another name": {"listeners": [{"name": "OTHER", "host": "localhost", "port": 1}]},
            "below zero": {"voter_id": -1},
        }.items():
            fields = {"cluster_id": None, "timeout_ms": 1000, "listeners": listeners, **stranger, **more}
            side.ask(ApiKey.ADD_RAFT_VOTER, version, fields, note)
    for note, more in {"unknown": {}, "another cluster": {"cluster_id": "anotherclusteranothe22"}}.items():
        side.ask(ApiKey.REMOVE_RAFT_VOTER, 0, {"cluster_id": None, **stranger, **more}, note)


def everything_listed(side: Side, rng: Random) -> None:
    """All topics at once: of ours, each is there."""
    tag = f"{rng.getrandbits(32):08x}"
    for place in range(3):
        side.create(f"listed{place}-{tag}", place + 1)
    for version in versions(ApiKey.METADATA):
        everything = side.quietly(ApiKey.METADATA, version, {"topics": [] if version == 0 else None})
        ours = side.normaliser.response(ApiKey.METADATA, everything)["topics"]
        side.note(f"all topics in Metadata v{version}", [topic for topic in ours if topic["name"].endswith(tag)])


SCRIPTS = (
    cluster,
    versions_and_features,
    quorum,
    folders,
    coordinators,
    what_is_not_configured,
    telemetry,
    elections,
    reassignments,
    nodes,
    everything_listed,
)
