"""Topics made, changed, looked at and removed."""

from collections.abc import Iterable
from random import Random
from typing import Any

from tests.batches import Batch, Sent
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

ILLEGAL = ("", ".", "..", "a b", "a/b", "ü", "x" * 250, "a\0b", "a:b", "a,b", '"')
UNKNOWN_ID = bytes(range(16))


def topic(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": [],
        "configs": [],
        **more,
    }


def placed(*brokers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": list(ids)} for index, ids in enumerate(brokers)]


def topics_created(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.CREATE_TOPICS):
        tag = f"{version}-{rng.getrandbits(32):08x}"

        def create(note: str, *topics: dict[str, Any], only: bool = False, version: int = version) -> None:
            fields = {"topics": list(topics), "timeout_ms": 10_000, "validate_only": only}
            side.ask(ApiKey.CREATE_TOPICS, version, fields, note)

        create("one", topic(f"one-{tag}", 3))
        create("that is there", topic(f"one-{tag}"))
        create("two, one of them there", topic(f"one-{tag}"), topic(f"two-{tag}"))
        create("only to validate", topic(f"never-{tag}", 2), only=True)
        create("only to validate, there", topic(f"one-{tag}", 2), only=True)
        create("twice in one request", topic(f"twice-{tag}"), topic(f"twice-{tag}"))
        create("nothing")
        if version >= 4:
            create("defaults", topic(f"default-{tag}", -1, -1))
        for partitions, replication in ((0, 1), (-2, 1), (1, 0), (1, 2), (1, -2), (1, 3), (-1, 1), (1, -1)):
            create(
                f"{partitions} x {replication}", topic(f"p{partitions}r{replication}-{tag}", partitions, replication)
            )
        for name in ILLEGAL:
            create(f"named {name[:9]!a}", topic(name))
        create("two alike", topic(f"a.b-{tag}"), topic(f"a_b-{tag}"))
        create("like one that is there", topic(f"a_b-{tag}"))
        for note, assignments in {
            "placed": placed([1], [1]),
            "placed on an unknown broker": placed([9]),
            "placed twice": placed([1, 1]),
            "placed nowhere": placed([]),
            "placed unevenly": placed([1], [1, 2]),
            "placed at -1": placed([-1]),
            "placed with a hole": [
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 2, "broker_ids": [1]},
            ],
            "placed with one twice": [
                {"partition_index": 0, "broker_ids": [1]},
                {"partition_index": 0, "broker_ids": [1]},
            ],
        }.items():
            create(note, topic(f"{note.replace(' ', '-')}-{tag}", -1, -1, assignments=assignments))
        create("placed and counted", topic(f"pc-{tag}", 1, 1, assignments=placed([1])))
        for note, configs in {
            "configured": {"retention.ms": "1000", "cleanup.policy": "compact,delete"},
            "an unknown config": {"no.such.config": "1"},
            "a bad number": {"retention.ms": "soon"},
            "out of bounds": {"retention.ms": "-2"},
            "a bad policy": {"cleanup.policy": "shred"},
            "a null config": {"retention.ms": None},
            "an empty config": {"compression.type": ""},
            "a tiny segment": {"segment.bytes": "1"},
            "a bad compression": {"compression.type": "middle-out"},
            "a bad boolean": {"unclean.leader.election.enable": "perhaps"},
            "a boolean in capitals": {"unclean.leader.election.enable": "TRUE"},
            "spaces around": {"retention.ms": " 5000 "},
            "a double": {"min.cleanable.dirty.ratio": "0.25"},
            "a double out of bounds": {"min.cleanable.dirty.ratio": "1.25"},
            "local retention above": {"local.retention.ms": "99", "retention.ms": "50"},
        }.items():
            pairs = [{"name": name, "value": value} for name, value in configs.items()]
            create(note, topic(f"{note.replace(' ', '-')}-{tag}", configs=pairs))
        pairs = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
        create("a config twice", topic(f"config-twice-{tag}", configs=pairs))


def topics_looked_up(side: Side, rng: Random) -> None:
    tag = f"{rng.getrandbits(32):08x}"
    one = side.create(f"one-{tag}", 3)
    two = side.create(f"two-{tag}")
    for version in versions(ApiKey.METADATA):

        def look(note: str, topics: list[dict[str, Any]] | None, create: bool = False, version: int = version) -> Any:
            fields: dict[str, Any] = {"topics": topics}
            if version >= 4:
                fields["allow_auto_topic_creation"] = create
            if 8 <= version <= 10:
                fields["include_cluster_authorized_operations"] = note == "two with operations"
            if version >= 8:
                fields["include_topic_authorized_operations"] = note == "two with operations"
            return side.ask(ApiKey.METADATA, version, fields, note)

        look("two", [{"name": one}, {"name": two}])
        look("two with operations", [{"name": one}, {"name": two}])
        look("one twice", [{"name": one}, {"name": one}])
        if version >= 1:
            look("none", [])
        if version >= 4:
            look("missing", [{"name": f"missing-{tag}"}, {"name": one}])
            for name in ILLEGAL:
                look(f"named {name[:9]!a}", [{"name": name}])
                look(f"to be made, named {name[:9]!a}", [{"name": name}], True)
            look("to be made", [{"name": f"auto-{version}-{tag}"}], True)
        if version >= 10:
            look("by id", [{"name": None, "topic_id": side.topic_id(one)}])
            look("by a name and an id", [{"name": two, "topic_id": side.topic_id(one)}])
            look("by an unknown id", [{"name": None, "topic_id": UNKNOWN_ID}])
            look("by no id", [{"name": None, "topic_id": bytes(16)}])
            look("by id and by name", [{"name": None, "topic_id": side.topic_id(one)}, {"name": two}])


def topics_described(side: Side, rng: Random) -> None:
    tag = f"{rng.getrandbits(32):08x}"
    names = [side.create(f"d{place}-{tag}", partitions) for place, partitions in enumerate((3, 1, 4))]

    def describe(note: str, topics: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        fields = {
            "topics": [{"name": name} for name in topics],
            "response_partition_limit": limit,
            "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
        }
        side.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields, note)

    describe("three", names)
    describe("three backwards", names[::-1])
    describe("one twice", [names[0], names[0]])
    describe("with a missing one", [f"d1x-{tag}", *names])
    describe("an illegal name", ["a b"])
    for limit in (1, 2, 3, 4, 5, 8, 0, -1):
        describe(f"limit {limit}", names, limit)
    describe("from a cursor", names, 2, (names[0], 2))
    describe("from a cursor at a topic's end", names, 2, (names[0], 3))
    describe("from a cursor beyond", names, 5, (names[2], 9))
    describe("from a cursor at a topic that isn't asked for", [names[0], names[2]], 5, (names[1], 0))
    describe("from a cursor at a missing topic", names, 5, (f"d1x-{tag}", 0))
    describe("from a cursor below 0", names, 5, (names[0], -1))


def partitions_added(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.CREATE_PARTITIONS):
        name = side.create(f"grows-{version}-{rng.getrandbits(32):08x}", 2)

        def grow(
            note: str, *topics: tuple[str, int, list[list[int]] | None], only: bool = False, version: int = version
        ) -> None:
            fields = {
                "topics": [
                    {
                        "name": of,
                        "count": count,
                        "assignments": None if where is None else [{"broker_ids": ids} for ids in where],
                    }
                    for of, count, where in topics
                ],
                "timeout_ms": 10_000,
                "validate_only": only,
            }
            side.ask(ApiKey.CREATE_PARTITIONS, version, fields, note)

        grow("to 4, only to validate", (name, 4, None), only=True)
        grow("to 3", (name, 3, None))
        grow("to 3 again", (name, 3, None))
        grow("to 1", (name, 1, None))
        grow("to 0", (name, 0, None))
        grow("to -1", (name, -1, None))
        grow("placed", (name, 4, [[1]]))
        grow("placed with too few", (name, 6, [[1]]))
        grow("placed with too many", (name, 5, [[1], [1]]))
        grow("placed on an unknown broker", (name, 5, [[9]]))
        grow("placed twice", (name, 5, [[1, 1]]))
        grow("placed nowhere", (name, 5, [[]]))
        grow("placed by an empty list", (name, 5, []))
        grow("missing", ("missing", 5, None))
        grow("illegal", ("a b", 5, None))
        grow("named twice", (name, 6, None), (name, 7, None))
        grow("nothing")
        side.ask(ApiKey.METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False}, "after growing")
        side.produce(name, Batch([Sent()]).encode(), partition=3, note="to a new partition")


def topics_deleted(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.DELETE_TOPICS):
        tag = f"{version}-{rng.getrandbits(32):08x}"
        names = [side.create(f"doomed{place}-{tag}", 2) for place in range(4)]
        side.produce(names[0], Batch([Sent()]).encode())

        def delete(note: str, *topics: str | bytes, version: int = version) -> None:
            if version >= 6:
                asked = [{"name": t} if isinstance(t, str) else {"name": None, "topic_id": t} for t in topics]
                fields: dict[str, Any] = {"topics": asked, "timeout_ms": 10_000}
            else:
                fields = {"topic_names": list(topics), "timeout_ms": 10_000}
            side.ask(ApiKey.DELETE_TOPICS, version, fields, note)

        delete("one", names[0])
        delete("again", names[0])
        delete("with a missing one", names[1], f"missing-{tag}")
        delete("twice", names[2], names[2])
        delete("illegal", "a b")
        delete("empty", "")
        delete("nothing")
        if version >= 6:
            delete("by id", side.topic_id(names[3]))
            delete("by id again", side.topic_id(names[3]))
            delete("by an unknown id", UNKNOWN_ID)
            delete("by no id", bytes(16))
            both = {"topics": [{"name": names[2], "topic_id": side.topic_id(names[2])}], "timeout_ms": 10_000}
            side.ask(ApiKey.DELETE_TOPICS, version, both, "by name and id")
        for name in names:
            asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            side.ask(ApiKey.METADATA, 12, asked, "after deleting")


SCRIPTS = (topics_created, topics_looked_up, topics_described, partitions_added, topics_deleted)
