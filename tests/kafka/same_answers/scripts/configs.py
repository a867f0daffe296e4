"""Configs described and altered, of topics and of the broker."""

from random import Random
from typing import Any

from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

UNKNOWN, TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
MESSAGE_BYTES = "max.message.bytes"
"""Its default differs (10 MB): asked for by itself where defaults are compared."""

BROKER_NAMES = [
    "log.retention.ms",
    "log.retention.hours",
    "log.segment.bytes",
    "num.partitions",
    "message.max.bytes",
    "compression.type",
    "auto.create.topics.enable",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "min.insync.replicas",
    "node.id",
    "process.roles",
    "log.message.timestamp.type",
    "num.network.threads",
    "ssl.keystore.password",
]

TOPIC_SETTINGS = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]
TRIED_VALUES = [
    "-3",
    "-2",
    "-1",
    "0",
    "1",
    "9",
    "12",
    "1048576",
    "2147483648",
    "9223372036854775808",
    "0.5",
    "1e2",
    "0x10",
    " 7 ",
    "+5",
    "true",
    "False",
    "",
    "*",
    "none",
    "0:1,1:1",
    "delete",
    "compact,delete",
    "delete,delete",
    "compact,",
    "gzip",
    "LogAppendTime",
]


def described(side: Side, rng: Random) -> None:
    tag = f"{rng.getrandbits(32):08x}"
    set_here = {"retention.ms": "12345", "cleanup.policy": "compact", "max.message.bytes": "4321"}
    name = side.create(f"configured-{tag}", configs=set_here)
    for version in versions(ApiKey.DESCRIBE_CONFIGS):

        def describe(
            note: str,
            kind: int,
            of: str,
            keys: list[str] | None = None,
            synonyms: bool = False,
            docs: bool = False,
            version: int = version,
        ) -> None:
            fields: dict[str, Any] = {
                "resources": [{"resource_type": kind, "resource_name": of, "configuration_keys": keys}],
                "include_synonyms": synonyms,
            }
            if version >= 3:
                fields["include_documentation"] = docs
            side.ask(ApiKey.DESCRIBE_CONFIGS, version, fields, note)

        for synonyms in (False, True):
            describe(f"all of a topic, synonyms {synonyms}", TOPIC, name, synonyms=synonyms)
        describe("with documentation", TOPIC, name, docs=True)
        describe("some", TOPIC, name, ["retention.ms", "segment.bytes", "no.such.config"], True)
        describe("none", TOPIC, name, [])
        describe("a missing topic", TOPIC, "missing")
        describe("an illegal topic", TOPIC, "a b")
        describe("no topic", TOPIC, "")
        describe("the broker", BROKER, "1", BROKER_NAMES)
        describe("the broker with synonyms", BROKER, "1", BROKER_NAMES, True)
        describe("all brokers' default", BROKER, "", None, True)
        describe("an unknown broker", BROKER, "99")
        describe("a broker that isn't a number", BROKER, "one")
        describe("no such kind", UNKNOWN, "x")
        describe("no such kind", 99, "x")


def alter(side: Side, note: str, kind: int, name: str, *changes: tuple[str, int, str | None], **how: Any) -> None:
    """IncrementalAlterConfigs of one resource."""
    pairs = [{"name": n, "config_operation": operation, "value": value} for n, operation, value in changes]
    fields = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": pairs}],
        "validate_only": how.get("only", False),
    }
    side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, how.get("version", 1), fields, note)


def state(side: Side, name: str) -> None:
    """What is set now."""
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "leader.replication.throttled.replicas"]
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
    side.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}, "afterwards")


def altered_by_increments(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        name = side.create(f"changes-{version}-{rng.getrandbits(32):08x}")
        cases: list[tuple[str, tuple[tuple[str, int, str | None], ...]]] = [
            ("set", (("retention.ms", SET, "1000"),)),
            ("set two", (("retention.ms", SET, "2000"), ("segment.bytes", SET, "2000000"))),
            ("one good, one bad", (("retention.ms", SET, "3000"), ("segment.bytes", SET, "many"))),
            ("delete", (("retention.ms", DELETE, None),)),
            ("delete what isn't set", (("flush.ms", DELETE, None),)),
            ("delete with a value", (("segment.bytes", DELETE, "7"),)),
            ("append", (("cleanup.policy", APPEND, "compact"),)),
            ("append again", (("cleanup.policy", APPEND, "compact"),)),
            ("subtract", (("cleanup.policy", SUBTRACT, "delete"),)),
            ("subtract what isn't there", (("cleanup.policy", SUBTRACT, "delete"),)),
            ("append to a number", (("retention.ms", APPEND, "1"),)),
            ("subtract from a number", (("retention.ms", SUBTRACT, "1"),)),
            ("append a bad value", (("cleanup.policy", APPEND, "shred"),)),
            ("append a list", (("leader.replication.throttled.replicas", APPEND, "0:1,1:1"),)),
            ("set null", (("retention.ms", SET, None),)),
            ("set empty", (("retention.ms", SET, ""),)),
            ("unknown", (("no.such.config", SET, "1"),)),
            ("delete unknown", (("no.such.config", DELETE, None),)),
            ("out of bounds", (("segment.bytes", SET, "1"),)),
            ("twice", (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
            ("twice, otherwise", (("retention.ms", SET, "1"), ("retention.ms", DELETE, None))),
            ("no such operation", (("retention.ms", 9, "1"),)),
            ("nothing", ()),
        ]
        for note, changes in cases:
            alter(side, f"{note}, only to validate", TOPIC, name, *changes, version=version, only=True)
            alter(side, note, TOPIC, name, *changes, version=version)
            state(side, name)
        alter(side, "a missing topic", TOPIC, "missing", ("retention.ms", SET, "1"), version=version)
        alter(side, "an illegal topic", TOPIC, "a b", ("retention.ms", SET, "1"), version=version)
        alter(side, "no topic", TOPIC, "", ("retention.ms", SET, "1"), version=version)
        alter(side, "an unknown kind", 99, "x", ("retention.ms", SET, "1"), version=version)
        alter(side, "an unknown broker", BROKER, "99", ("log.retention.ms", SET, "1"), version=version)
        alter(side, "a broker that isn't a number", BROKER, "x", ("log.retention.ms", SET, "1"), version=version)
        twice = {
            "resources": [
                {
                    "resource_type": TOPIC,
                    "resource_name": name,
                    "configs": [{"name": "flush.ms", "config_operation": SET, "value": str(value)}],
                }
                for value in (1, 2)
            ],
            "validate_only": False,
        }
        side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, twice, "a resource named twice")
        state(side, name)


def altered_as_a_whole(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.ALTER_CONFIGS):
        name = side.create(f"replaced-{version}-{rng.getrandbits(32):08x}")

        def replace(note: str, kind: int, of: str, pairs: list[tuple[str, str | None]], version: int = version) -> None:
            configs = [{"name": n, "value": value} for n, value in pairs]
            resource = {"resource_type": kind, "resource_name": of, "configs": configs}
            for only in (True, False):
                fields = {"resources": [resource], "validate_only": only}
                side.ask(ApiKey.ALTER_CONFIGS, version, fields, f"{note}, only to validate {only}")

        replace("two", TOPIC, name, [("retention.ms", "1000"), ("segment.bytes", "2000000")])
        state(side, name)
        replace("one of them", TOPIC, name, [("retention.ms", "500")])
        state(side, name)
        replace("bad", TOPIC, name, [("retention.ms", "x")])
        replace("unknown", TOPIC, name, [("no.such.config", "x")])
        replace("null", TOPIC, name, [("retention.ms", None)])
        replace("twice", TOPIC, name, [("retention.ms", "1"), ("retention.ms", "2")])
        replace("nothing", TOPIC, name, [])
        state(side, name)
        replace("a missing topic", TOPIC, "missing", [("retention.ms", "1")])
        replace("no topic", TOPIC, "", [("retention.ms", "1")])
        replace("an unknown kind", 99, "x", [("retention.ms", "1")])
        replace("an unknown broker", BROKER, "99", [("log.retention.ms", "1")])


def of_the_broker(side: Side, rng: Random) -> None:
    """Broker-wide settings that topics inherit; taken back at the end."""
    name = side.create(f"inherits-{rng.getrandbits(32):08x}")
    for of in ("", "1"):
        alter(side, f"retention of {of!r}", BROKER, of, ("log.retention.ms", SET, "7777"))
        alter(side, f"read-only of {of!r}", BROKER, of, ("node.id", SET, "5"))
        alter(side, f"bad number of {of!r}", BROKER, of, ("log.retention.ms", SET, "never"))
        alter(side, f"unknown of {of!r}", BROKER, of, ("no.such.config", SET, "5"))
        resource = {"resource_type": BROKER, "resource_name": of, "configuration_keys": ["log.retention.ms"]}
        side.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}, f"of {of!r}")
        state(side, name)
        alter(side, f"taken back of {of!r}", BROKER, of, ("log.retention.ms", DELETE, None))
        alter(side, f"unknown of {of!r}, taken back", BROKER, of, ("no.such.config", DELETE, None))
    state(side, name)


def resources_listed(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.LIST_CONFIG_RESOURCES):
        for kinds in ([], [BROKER], [CLIENT_METRICS], [GROUP], [BROKER, BROKER], [UNKNOWN], [99]):
            if version >= 1 or not kinds:
                fields: dict[str, Any] = {"resource_types": kinds} if version >= 1 else {}
                if version >= 1 and not kinds:
                    continue
                side.ask(ApiKey.LIST_CONFIG_RESOURCES, version, fields, f"of {kinds}")


def values_allowed(side: Side, rng: Random) -> None:
    """What every setting of a topic takes: tried, but not set."""
    name = side.create(f"tried-{rng.getrandbits(32):08x}")
    for setting in TOPIC_SETTINGS:
        for value in TRIED_VALUES:
            alter(side, f"{setting}={value!r}", TOPIC, name, (setting, SET, value), only=True)
    for value in TRIED_VALUES:
        for setting in ("cleanup.policy", "leader.replication.throttled.replicas", "retention.ms"):
            alter(side, f"{setting} with {value!r}", TOPIC, name, (setting, APPEND, value), only=True)
            alter(side, f"{setting} without {value!r}", TOPIC, name, (setting, SUBTRACT, value), only=True)


SCRIPTS = (values_allowed, described, altered_by_increments, altered_as_a_whole, of_the_broker, resources_listed)
