"""What clients and brokers ask of three nodes that are brokers and controllers, of which node 1 leads.

Broker 9 has registered and never said that it lives: it stays fenced. Broker 8 registers here.
"""

import struct
from random import Random
from typing import Any

from tests.kafka.same_answers.side import Side
from tests.raw import ClosedError, build, request_class
from tidelog.metadata.versions import SUPPORTED
from tidelog.wire.codec import encoder
from tidelog.wire.keys import RANGES, ApiKey

FENCED = 9
UNKNOWN = 77
NO_TOPIC = bytes([7] * 16)
METADATA_ID = bytes(15) + b"\x01"
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER = 2, 4
THREE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


class Nodes:
    """The listeners of one cluster, in one transcript: a broker's and a controller's of node 2, and the active's."""

    def __init__(self, name: str, broker: str, active: str, other: str, cluster_id: str) -> None:
        self.broker = Side(name, broker)
        self.active = Side(name, active)
        self.other = Side(name, other)
        self.cluster_id = cluster_id
        for side in self.all[1:]:
            side.normaliser = self.broker.normaliser
            side.transcript = self.broker.transcript
            side.settle = self.broker.settle
        self.epochs: dict[int, int] = {}

    @property
    def all(self) -> tuple[Side, Side, Side]:
        return self.broker, self.active, self.other

    def close(self) -> None:
        for side in self.all:
            side.close()

    def register(self, side: Side, id: int, incarnation: int, note: str = "", **other: Any) -> Any:
        fields = {
            "broker_id": id,
            "cluster_id": self.cluster_id,
            "incarnation_id": incarnation.to_bytes(16),
            "listeners": [{"name": "PLAINTEXT", "host": "localhost", "port": 9000 + (id & 255)}],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in SUPPORTED.items()
            ],
            "rack": None,
            "log_dirs": [bytes([3] * 15 + [id & 255])],
            "previous_broker_epoch": -1,
            **other,
        }
        answer = side.ask(ApiKey.BROKER_REGISTRATION, 4, fields, f"broker {id} {note}")
        if answer is not None and not answer.error_code:
            self.epochs[id] = answer.broker_epoch
        self.broker.settle()
        return answer

    def beat(self, side: Side, id: int, epoch: int, note: str, version: int = 1, **other: Any) -> Any:
        fields = {"broker_id": id, "broker_epoch": epoch, "current_metadata_offset": 0, **other}
        return side.ask(ApiKey.BROKER_HEARTBEAT, version, fields, f"broker {id} {note}")


def create(
    side: Side, name: str, assignments: list[list[int]], note: str = "", first: int = 0, step: int = 1, **other: Any
) -> Any:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": first + step * i, "broker_ids": ids} for i, ids in enumerate(assignments)],
        **other,
    }
    return side.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000}, f"{name} {note}")


def setting(side: Side, kind: int, resource: str, name: str, value: str | None, op: int = SET, **other: Any) -> Any:
    config = {"name": name, "config_operation": op, "value": value}
    resources = [{"resource_type": kind, "resource_name": resource, "configs": [config]}]
    note = f"{kind} {resource!r} {name}={value} ({op})"
    return side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, **other}, note)


def look(nodes: Nodes, *names: str) -> None:
    topics = [{"name": name} for name in names]
    nodes.broker.ask(ApiKey.METADATA, 12, {"topics": topics, "allow_auto_topic_creation": False}, f"of {names}")
    nodes.broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": topics}, f"of {names}")


def registrations(nodes: Nodes, rng: Random) -> None:
    """Brokers that register, with what is wrong about it."""
    for side in (nodes.other, nodes.broker):
        nodes.register(side, FENCED, 1, "elsewhere")
    nodes.register(nodes.active, FENCED, 1, "of another cluster", cluster_id="b3RoZXJvdGhlcm90aGVyMQ")
    nodes.register(nodes.active, FENCED, 1, "without features", features=[])
    old = [{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 7}]
    nodes.register(nodes.active, FENCED, 1, "with old features", features=old)
    nodes.register(nodes.active, FENCED, 1, "without directories", log_dirs=[])
    nodes.register(nodes.active, FENCED, 1, "with a directory twice", log_dirs=[bytes([5] * 16)] * 2)
    nodes.register(nodes.active, FENCED, 1, "with a reserved directory", log_dirs=[bytes(16)])
    nodes.register(nodes.active, FENCED, 1, "with a directory of another's", log_dirs=[bytes([9] * 15 + [1])])
    nodes.register(nodes.active, FENCED, 1, "without listeners", listeners=[])
    nodes.register(
        nodes.active, FENCED, 1, "with a listener twice", listeners=[{"name": "A", "host": "h", "port": 1}] * 2
    )
    nodes.register(nodes.active, FENCED, 1, "migrating", is_migrating_zk_broker=True)
    nodes.register(nodes.active, FENCED, 0, "without an incarnation")
    nodes.register(nodes.active, -1, 1, "below zero")
    nodes.register(nodes.active, FENCED, 1, "well")
    nodes.register(nodes.active, FENCED, 1, "again")
    nodes.register(nodes.active, FENCED, 2, "another incarnation")
    nodes.register(nodes.active, 2, 2, "who lives, another incarnation")
    nodes.register(nodes.active, 3, 2, "who lives, another cluster", cluster_id="b3RoZXJvdGhlcm90aGVyMQ")


def heartbeats(nodes: Nodes, rng: Random) -> None:
    nodes.register(nodes.active, 8, 1, "well")
    epoch = nodes.epochs[8]
    nodes.beat(nodes.other, 8, epoch, "elsewhere")
    nodes.beat(nodes.broker, 8, epoch, "at a broker's listener")
    nodes.beat(nodes.active, UNKNOWN, epoch, "unknown")
    nodes.beat(nodes.active, 8, epoch - 1, "before")
    nodes.beat(nodes.active, 8, epoch + 1, "after")
    nodes.beat(nodes.active, 8, -1, "no epoch")
    nodes.beat(nodes.active, 2, epoch, "who lives, with another's epoch")
    nodes.beat(nodes.active, 8, epoch, "far behind")
    nodes.beat(nodes.active, 8, epoch, "caught up, wants to be fenced", current_metadata_offset=2**40, want_fence=True)
    nodes.beat(nodes.active, 8, epoch, "negative", current_metadata_offset=-1, want_fence=True)
    nodes.beat(nodes.active, 8, epoch, "without a directory", offline_log_dirs=[bytes([3] * 15 + [8])], want_fence=True)
    nodes.beat(nodes.active, 8, epoch, "an unknown directory", offline_log_dirs=[bytes([6] * 16)], want_fence=True)
    nodes.beat(nodes.active, 8, epoch, "v2, cordoned", 2, cordoned_log_dirs=[bytes([3] * 15 + [8])], want_fence=True)
    nodes.beat(nodes.active, 8, epoch, "v2, cordoned unknown", 2, cordoned_log_dirs=[bytes([6] * 16)], want_fence=True)
    nodes.beat(nodes.active, 8, epoch, "shuts down", want_shut_down=True)
    nodes.beat(nodes.active, 8, epoch, "after that", want_fence=True)
    for side, id in (
        (nodes.broker, 8),
        (nodes.active, UNKNOWN),
        (nodes.other, 8),
        (nodes.broker, UNKNOWN),
        (nodes.broker, -1),
    ):
        side.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": id}, str(id))
        nodes.broker.settle()
    nodes.beat(nodes.active, 8, epoch, "unregistered")


def described(nodes: Nodes, rng: Random) -> None:
    for version in range(3):
        for kind in (0, 1, 2, 3, -1) if version else (1,):
            for fenced in (False, True) if version == 2 else (False,):
                for operations in (False, True):
                    fields: dict[str, Any] = {"include_cluster_authorized_operations": operations}
                    fields |= {"endpoint_type": kind} if version else {}
                    fields |= {"include_fenced_brokers": fenced} if version == 2 else {}
                    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
                        side.ask(ApiKey.DESCRIBE_CLUSTER, version, fields, f"{name} {kind} {fenced} {operations}")
    for version in range(1, RANGES[ApiKey.METADATA].max + 1):
        nodes.broker.ask(ApiKey.METADATA, version, {"topics": []}, "none")
    for version in range(5):
        for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
            side.ask(
                ApiKey.API_VERSIONS,
                version,
                {"client_software_name": "raw", "client_software_version": "1"} if version > 2 else {},
                name,
            )
    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
        for topic, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("x", 0)):
            topics = [{"topic_name": topic, "partitions": [{"partition_index": partition}]}]
            side.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics}, f"{name} {topic} {partition}")


def topics(nodes: Nodes, rng: Random) -> None:
    create(nodes.broker, "spread", THREE)
    look(nodes, "spread")
    create(nodes.broker, "fenced-one", [[FENCED, 1], [2, FENCED]])
    create(nodes.broker, "only-fenced", [[FENCED]])
    create(nodes.broker, "fenced-in-part", [[1], [FENCED]])
    look(nodes, "fenced-one", "only-fenced", "fenced-in-part")
    create(nodes.broker, "unknown", [[1, UNKNOWN]])
    create(nodes.broker, "twice", [[1, 1]])
    create(nodes.broker, "unequal", [[1, 2], [3]])
    create(nodes.broker, "negative", [[-1, 2]])
    create(nodes.broker, "empty", [[]])
    create(nodes.broker, "both", [[1]], num_partitions=1, replication_factor=1)
    create(nodes.broker, "gap", [[1]], first=1)
    create(nodes.broker, "starts-below", [[1]], first=-1)
    create(nodes.broker, "same-index", [[1], [2]], step=0)
    for factor in (0, -2, 3, 4, 5, 32767):
        create(nodes.broker, f"factor-{factor}", [], num_partitions=1, replication_factor=factor)
    for count in (0, -2):
        create(nodes.broker, f"count-{count}", [], num_partitions=count, replication_factor=1)
    create(nodes.active, "at-the-controller", [[1, 2]])
    create(nodes.other, "at-another", [[1, 2]])
    create(nodes.broker, "settings", [[1, 2]], configs=[{"name": "min.insync.replicas", "value": "2"}])
    create(nodes.broker, "odd-settings", [[1, 2]], configs=[{"name": "min.insync.replicas", "value": "0"}])


def partitions(nodes: Nodes, rng: Random) -> None:
    create(nodes.broker, "grows", [[1, 2]])

    def grow(
        note: str, count: int, assignments: list[list[int]] | None, side: Side | None = None, **other: Any
    ) -> None:
        given = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
        fields = {"topics": [{"name": "grows", "count": count, "assignments": given}], "timeout_ms": 10_000, **other}
        (side or nodes.broker).ask(ApiKey.CREATE_PARTITIONS, 3, fields, note)

    grow("to a fenced broker", 2, [[FENCED, 1]])
    grow("to only fenced brokers", 3, [[FENCED]])
    grow("to fewer replicas", 3, [[1]])
    grow("to an unknown broker", 3, [[1, UNKNOWN]])
    grow("twice the same", 3, [[1, 1]])
    grow("too many assignments", 3, [[1, 2], [2, 3]])
    grow("too few assignments", 4, [[1, 2]])
    grow("no replicas", 3, [[]])
    grow("no assignments", 3, [])
    grow("at the controller", 3, [[2, 3]], nodes.active)
    grow("at another controller", 4, [[2, 3]], nodes.other)
    grow("same count", 3, None)
    grow("only checked", 5, [[1, 3], [3, 1]], validate_only=True)
    look(nodes, "grows")


def deletions(nodes: Nodes, rng: Random) -> None:
    create(nodes.broker, "goes", [[1]])
    goes = nodes.broker.topic_id("goes")

    def delete(note: str, *states: dict[str, Any], side: Side | None = None) -> None:
        (side or nodes.broker).ask(ApiKey.DELETE_TOPICS, 6, {"topics": list(states), "timeout_ms": 10_000}, note)

    by_id, by_name = {"name": None, "topic_id": goes}, {"name": "goes"}
    delete("at another controller", by_id, side=nodes.other)
    delete("unknown id", {"name": None, "topic_id": NO_TOPIC})
    delete("unknown id, twice", {"name": None, "topic_id": NO_TOPIC}, {"name": None, "topic_id": NO_TOPIC})
    delete("neither", {"name": None})
    delete("both", {"name": "goes", "topic_id": goes})
    delete("id and name", by_id, by_name)
    delete("id twice", by_id, by_id)
    delete("unknown name", {"name": "never"})
    delete("by id", by_id)
    delete("by id again", by_id)
    look(nodes, "goes")


def configs(nodes: Nodes, rng: Random) -> None:
    create(nodes.broker, "set", [[1]])
    other = "3"
    setting(nodes.broker, BROKER, other, "log.cleaner.threads", "2")
    setting(nodes.broker, BROKER, other, "message.max.bytes", "123456")
    setting(nodes.broker, BROKER, other, "message.max.bytes", "no number")
    setting(nodes.broker, BROKER, other, "min.insync.replicas", "2")
    setting(nodes.broker, BROKER, other, "node.id", "4")
    setting(nodes.broker, BROKER, other, "no.such.setting", "4")
    setting(nodes.broker, BROKER, other, "log.retention.ms", "1000000")
    setting(nodes.broker, BROKER, "", "log.retention.ms", "2000000")
    setting(nodes.broker, BROKER, "", "min.insync.replicas", "2")
    setting(nodes.broker, BROKER, "", "unclean.leader.election.enable", "true")
    setting(nodes.broker, BROKER, "", "unclean.leader.election.enable", None, DELETE)
    setting(nodes.broker, BROKER, "", "min.insync.replicas", None, DELETE)
    setting(nodes.broker, BROKER, str(UNKNOWN), "log.retention.ms", "1000000")
    setting(nodes.broker, BROKER, str(FENCED), "log.retention.ms", "1000000")
    setting(nodes.broker, BROKER, "x", "log.retention.ms", "1000000")
    setting(nodes.broker, BROKER, "-1", "log.retention.ms", "1000000")
    setting(nodes.active, BROKER, other, "log.retention.ms", "1000001")
    setting(nodes.active, BROKER, "2", "log.retention.ms", "1000001")
    setting(nodes.active, BROKER, str(UNKNOWN), "log.retention.ms", "1000001")
    setting(nodes.active, BROKER, str(FENCED), "log.retention.ms", "1000001")
    setting(nodes.active, TOPIC, "set", "retention.ms", "1000001")
    setting(nodes.other, TOPIC, "set", "retention.ms", "1000002")
    setting(nodes.active, TOPIC, "never", "retention.ms", "1000002")
    setting(nodes.active, 8, other, "x", "INFO")
    setting(nodes.active, 8, "1", "x", "INFO")
    setting(nodes.broker, 8, other, "kafka.server", "INFO")
    names = ["log.retention.ms", "message.max.bytes", "min.insync.replicas", "node.id"]
    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
        for resource in ("1", "2", other, str(UNKNOWN), str(FENCED), "", "x", "-1"):
            resources = [{"resource_type": BROKER, "resource_name": resource, "configuration_keys": names}]
            fields = {"resources": resources, "include_synonyms": True}
            side.ask(ApiKey.DESCRIBE_CONFIGS, 4, fields, f"{name} {resource!r}")
        for topic in ("set", "never"):
            resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["retention.ms"]}]
            side.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": True}, f"{name} {topic}")
    for op, value in ((DELETE, None), (SET, "5")):
        setting(nodes.broker, BROKER, other, "log.retention.ms", value, op)
    for resource in (other, ""):
        for name in ("log.retention.ms", "message.max.bytes"):
            setting(nodes.broker, BROKER, resource, name, None, DELETE)


def moves(nodes: Nodes, rng: Random) -> None:
    create(nodes.broker, "moves", [[1, 2], [2, 3]])

    def move(
        note: str,
        replicas: list[int] | None,
        partition: int = 0,
        name: str = "moves",
        side: Side | None = None,
        **other: Any,
    ) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        (side or nodes.broker).ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, {"topics": topics, **other}, note)
        nodes.broker.settle()

    move("cancel none", None)
    move("to nobody", [])
    move("to the unknown", [1, UNKNOWN])
    move("to one twice", [1, 1])
    move("below zero", [-1, 2])
    move("unknown partition", [1, 2], 7)
    move("negative partition", [1, 2], -1)
    move("unknown topic", [1, 2], 0, "never")
    move("empty name", [1, 2], 0, "")
    move("more than may be", [1, 2, 3], allow_replication_factor_change=False)
    move("the same", [1, 2])
    move("another order", [2, 1])
    look(nodes, "moves")
    move("to a fenced broker", [2, FENCED])
    look(nodes, "moves")
    every = [{"name": "moves", "partition_indexes": [0, 1, 2, -1]}, {"name": "never", "partition_indexes": [0]}]
    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
        for asked in (None, [], every):
            side.ask(
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                0,
                {"topics": asked},
                f"{name} {'all' if asked is None else len(asked)}",
            )
    move("at another controller", None, side=nodes.other)
    move("cancelled", None)
    look(nodes, "moves")
    nodes.broker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": []}, "none")
    nodes.broker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [{"name": "moves"}]}, "no partitions")
    move("only fenced", [FENCED], 1)
    look(nodes, "moves")
    move("cancelled", None, 1)
    look(nodes, "moves")


def elections(nodes: Nodes, rng: Random) -> None:
    create(nodes.broker, "elects", [[1, 2], [FENCED, 2], [2, 3]])

    def elect(
        note: str, kind: int, wanted: dict[str, list[int]] | None, side: Side | None = None, version: int = 2
    ) -> None:
        given = None if wanted is None else [{"topic": name, "partitions": ids} for name, ids in wanted.items()]
        kind_of = {"election_type": kind} if version else {}
        (side or nodes.broker).ask(ApiKey.ELECT_LEADERS, version, {**kind_of, "topic_partitions": given}, note)

    for version in (0, 1, 2):
        elect("preferred", 0, {"elects": [0, 1, 2]}, version=version)
    elect("unclean", 1, {"elects": [0, 1, 2]})
    elect("unknown", 0, {"never": [0], "elects": [7, -1]})
    elect("unknown, unclean", 1, {"never": [0], "elects": [7, -1]})
    elect("no kind", 2, {"elects": [0]})
    elect("twice", 0, {"elects": [0, 0]})
    elect("nothing", 0, {})
    elect("no partitions", 0, {"elects": []})
    elect("all", 0, None)
    elect("all, unclean", 1, None)
    elect("at the controller", 0, {"elects": [0]}, nodes.active)
    elect("at another", 0, {"elects": [0]}, nodes.other)


def features(nodes: Nodes, rng: Random) -> None:
    def update(
        note: str, *updates: tuple[str, int, int], side: Side | None = None, version: int = 1, **other: Any
    ) -> None:
        given = [{"feature": f, "max_version_level": level, "upgrade_type": kind} for f, level, kind in updates]
        fields = {"feature_updates": given, **({"validate_only": True} if version else {}), **other}
        (side or nodes.broker).ask(ApiKey.UPDATE_FEATURES, version, fields, note)

    for version in (1, 2):
        update("nothing", version=version)
        update("the same", ("group.version", 1, 1), version=version)
        update("too much", ("group.version", 9, 1), version=version)
        update("below zero", ("group.version", -1, 1), version=version)
        update("unknown", ("no.such", 1, 1), version=version)
        update("down without saying so", ("group.version", 0, 1), version=version)
        update("down", ("group.version", 0, 2), version=version)
        update("down unsafely", ("group.version", 0, 3), version=version)
        update("no kind", ("group.version", 1, 0), version=version)
        update("unknown kind", ("group.version", 1, 7), version=version)
        update("two, one bad", ("group.version", 0, 2), ("no.such", 1, 1), version=version)
        update("metadata.version down", ("metadata.version", 25, 2), version=version)
        update("metadata.version down unsafely", ("metadata.version", 25, 3), version=version)
        update("metadata.version far down", ("metadata.version", 1, 3), version=version)
        update("metadata.version up", ("metadata.version", 99, 1), version=version)
        update("kraft.version down", ("kraft.version", 0, 2), version=version)
        update("kraft.version the same", ("kraft.version", 1, 1), version=version)
        update("elr off", ("eligible.leader.replicas.version", 0, 2), version=version)
        update("twice", ("group.version", 0, 2), ("group.version", 1, 1), version=version)
        update("at the controller", ("group.version", 1, 1), side=nodes.active, version=version)
        update("at another", ("group.version", 1, 1), side=nodes.other, version=version)


def brokers_ask(nodes: Nodes, rng: Random) -> None:
    """What brokers ask of the controller, as broker 9."""
    create(nodes.broker, "led", [[2, 3], [FENCED, 2]])
    epoch = nodes.epochs[FENCED]
    led = nodes.broker.topic_id("led")
    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
        for id, asked in ((FENCED, epoch), (FENCED, epoch - 1), (FENCED, -1), (UNKNOWN, epoch), (2, epoch), (-1, -1)):
            answer = side.ask
            found = answer(
                ApiKey.ALLOCATE_PRODUCER_IDS,
                0,
                {"broker_id": id, "broker_epoch": asked},
                f"{name} {id} {asked == epoch}",
            )
            if found is None:
                break
    d9 = bytes([3] * 15 + [FENCED])
    for note, id, asked, directory, topic, partition in (
        ("well", FENCED, epoch, d9, led, 1),
        ("again", FENCED, epoch, d9, led, 1),
        ("not its partition", FENCED, epoch, d9, led, 0),
        ("no such partition", FENCED, epoch, d9, led, 9),
        ("no such topic", FENCED, epoch, d9, NO_TOPIC, 0),
        ("unknown directory", FENCED, epoch, bytes([6] * 16), led, 1),
        ("lost directory", FENCED, epoch, bytes(15) + b"\1", led, 1),
        ("no directory", FENCED, epoch, bytes(16), led, 1),
        ("stale", FENCED, epoch - 1, d9, led, 1),
        ("unknown broker", UNKNOWN, epoch, d9, led, 1),
    ):
        topics = [{"topic_id": topic, "partitions": [{"partition_index": partition}]}]
        fields = {"broker_id": id, "broker_epoch": asked, "directories": [{"id": directory, "topics": topics}]}
        nodes.active.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, fields, note)
    nodes.other.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, {"broker_id": FENCED, "broker_epoch": epoch}, "elsewhere")
    nodes.active.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, {"broker_id": FENCED, "broker_epoch": epoch}, "none")
    for note, id, asked, topic, partition, leader_epoch, partition_epoch, isr, state in (
        ("not the leader", FENCED, epoch, led, 0, 0, 0, [(2, -1)], 0),
        ("no such topic", FENCED, epoch, NO_TOPIC, 0, 0, 0, [(2, -1)], 0),
        ("no such partition", FENCED, epoch, led, 9, 0, 0, [(2, -1)], 0),
        ("stale broker", FENCED, epoch - 1, led, 0, 0, 0, [(2, -1)], 0),
        ("unknown broker", UNKNOWN, epoch, led, 0, 0, 0, [(2, -1)], 0),
        ("new leader epoch", FENCED, epoch, led, 0, 9, 0, [(2, -1)], 0),
        ("new partition epoch", FENCED, epoch, led, 0, 0, 9, [(2, -1)], 0),
        ("nobody in sync", FENCED, epoch, led, 0, 0, 0, [], 0),
        ("no such state", FENCED, epoch, led, 0, 0, 0, [(2, -1)], 7),
    ):
        part = {
            "partition_index": partition,
            "leader_epoch": leader_epoch,
            "partition_epoch": partition_epoch,
            "new_isr_with_epochs": [{"broker_id": one, "broker_epoch": its} for one, its in isr],
            "leader_recovery_state": state,
        }
        fields = {"broker_id": id, "broker_epoch": asked, "topics": [{"topic_id": topic, "partitions": [part]}]}
        nodes.active.ask(ApiKey.ALTER_PARTITION, 3, fields, note)
    nodes.other.ask(ApiKey.ALTER_PARTITION, 3, fields, "elsewhere")
    nodes.active.ask(ApiKey.ALTER_PARTITION, 3, {"broker_id": FENCED, "broker_epoch": epoch}, "none")


def controllers_register(nodes: Nodes, rng: Random) -> None:
    listeners = [{"name": "CONTROLLER", "host": "localhost", "port": 9}]
    supported = [
        {"name": name, "min_supported_version": low, "max_supported_version": high}
        for name, (low, high) in SUPPORTED.items()
    ]
    fields: dict[str, Any] = {
        "controller_id": 7,
        "incarnation_id": bytes([4] * 16),
        "listeners": listeners,
        "features": supported,
    }
    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
        side.ask(ApiKey.CONTROLLER_REGISTRATION, 0, fields, f"{name} well")
    nodes.active.ask(ApiKey.CONTROLLER_REGISTRATION, 0, fields, "again")
    nodes.active.ask(ApiKey.CONTROLLER_REGISTRATION, 0, fields | {"features": []}, "without features")
    nodes.active.ask(ApiKey.CONTROLLER_REGISTRATION, 0, fields | {"listeners": []}, "without listeners")
    nodes.active.ask(ApiKey.CONTROLLER_REGISTRATION, 0, fields | {"controller_id": -1}, "below zero")
    nodes.active.ask(ApiKey.CONTROLLER_REGISTRATION, 0, fields | {"zk_migration_ready": True}, "ready to migrate")
    nodes.broker.settle()
    nodes.active.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2}, "with it")


def envelopes(nodes: Nodes, rng: Random) -> None:
    def inner(key: ApiKey, version: int, fields: dict[str, Any]) -> bytes:
        return nodes.active.connection.header(key, version, 5) + encoder(request_class(key), version)(
            build(request_class(key), fields)
        )

    # A principal as Kafka's DefaultPrincipalBuilder writes it: version 0, type, name, not by a token, no tags.
    principal = b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
    host = bytes([127, 0, 0, 1])
    elect = inner(ApiKey.ELECT_LEADERS, 2, {"topic_partitions": []})
    for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
        for note, data, who, where in (
            ("well", elect, principal, host),
            ("v6", elect, principal, bytes(15) + b"\1"),
            ("odd address", elect, principal, b"\1\2\3"),
            ("no address", elect, principal, b""),
            ("no principal", elect, None, host),
            ("empty principal", elect, b"", host),
            ("odd principal", elect, b"\0\7abc", host),
            ("no data", b"", principal, host),
            ("odd data", b"\0\1", principal, host),
            ("cut", elect[:-2], principal, host),
            ("not to be forwarded", inner(ApiKey.METADATA, 9, {"topics": []}), principal, host),
            ("ApiVersions", inner(ApiKey.API_VERSIONS, 2, {}), principal, host),
            ("an unknown API", struct.pack(">hhih", 999, 0, 5, -1), principal, host),
            ("a version too new", struct.pack(">hhihb", 43, 99, 5, -1, 0), principal, host),
            (
                "an envelope",
                inner(
                    ApiKey.ENVELOPE,
                    0,
                    {"request_data": elect, "request_principal": principal, "client_host_address": host},
                ),
                principal,
                host,
            ),
        ):
            fields = {"request_data": data, "request_principal": who, "client_host_address": where}
            try:
                side.ask(ApiKey.ENVELOPE, 0, fields, f"{name} {note}")
            except ClosedError:
                side.note(f"{name} {note}", "closed")


def metadata_fetched(nodes: Nodes, rng: Random) -> None:
    """The metadata log, asked for where topics are read."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "last_fetched_epoch": 0}
    for version, named in ((12, {"topic": "__cluster_metadata"}), (17, {"topic_id": METADATA_ID})):
        nodes.broker.ask(ApiKey.FETCH, version, {"topics": [{**named, "partitions": [part]}]}, "by a consumer")
    look(nodes, "__cluster_metadata")
    create(nodes.broker, "__cluster_metadata", [[1]])
    nodes.broker.ask(
        ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": METADATA_ID}], "timeout_ms": 5000}, "metadata"
    )
    nodes.broker.ask(
        ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "__cluster_metadata"}], "timeout_ms": 5000}, "metadata"
    )
    setting(nodes.broker, TOPIC, "__cluster_metadata", "retention.ms", "1000")
    topics = [{"name": "__cluster_metadata", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    nodes.broker.ask(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": topics}, "metadata")


def unregistered(nodes: Nodes, rng: Random) -> None:
    """A broker that lives, whom somebody takes off the list."""
    create(nodes.broker, "stays", [[FENCED, 2], [2, FENCED]])
    nodes.broker.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": FENCED}, "fenced, with replicas")
    nodes.broker.settle()
    look(nodes, "stays")
    nodes.beat(nodes.active, FENCED, nodes.epochs[FENCED], "unregistered")
    nodes.register(nodes.active, FENCED, 3, "once more")


def replaced(nodes: Nodes, rng: Random) -> None:
    """All settings of a resource at once, where somebody else holds it."""
    create(nodes.broker, "replaced", [[1]])
    for kind, resource, name, value in (
        (TOPIC, "replaced", "retention.ms", "1000"),
        (TOPIC, "replaced", "retention.ms", "odd"),
        (TOPIC, "never", "retention.ms", "1000"),
        (BROKER, "3", "log.retention.ms", "1000"),
        (BROKER, str(UNKNOWN), "log.retention.ms", "1000"),
        (BROKER, "x", "log.retention.ms", "1000"),
        (BROKER, "", "log.retention.ms", "1000"),
        (8, "3", "kafka.server", "INFO"),
    ):
        resources = [{"resource_type": kind, "resource_name": resource, "configs": [{"name": name, "value": value}]}]
        for side, where in zip(nodes.all, ("broker", "active", "other"), strict=True):
            side.ask(ApiKey.ALTER_CONFIGS, 2, {"resources": resources}, f"{where} {kind} {resource!r} {value}")
    for resource in ("3", "", str(UNKNOWN)):
        nothing: list[dict[str, Any]] = [{"resource_type": BROKER, "resource_name": resource, "configs": []}]
        nodes.broker.ask(ApiKey.ALTER_CONFIGS, 2, {"resources": nothing}, f"none of {resource!r}")


def levels(nodes: Nodes, rng: Random) -> None:
    """Features that really change, and what each kind of listener tells of them."""
    for level, kind in ((0, 2), (0, 1), (1, 1)):
        updates = [{"feature": "streams.version", "max_version_level": level, "upgrade_type": kind}]
        nodes.broker.ask(ApiKey.UPDATE_FEATURES, 2, {"feature_updates": updates}, f"{level} {kind}")
        nodes.broker.settle()
        for side, name in zip(nodes.all, ("broker", "active", "other"), strict=True):
            software = {"client_software_name": "raw", "client_software_version": "1"}
            side.ask(ApiKey.API_VERSIONS, 4, software, f"{name} {level}")


SCRIPTS = (
    replaced,
    levels,
    registrations,
    heartbeats,
    described,
    topics,
    partitions,
    deletions,
    configs,
    moves,
    elections,
    features,
    brokers_ask,
    controllers_register,
    envelopes,
    metadata_fetched,
    unregistered,
)
