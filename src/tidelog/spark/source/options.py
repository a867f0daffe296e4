"""The options of `format("tidelog")`: the names and rules of Spark's own Kafka source, read and checked at once.

Kafka's own settings carry the prefix `kafka.`, as in `kafka.bootstrap.servers`. Names are told apart without case.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from tidelog.rpc.address import addresses
from tidelog.rpc.bounds import FETCH_BYTES, FETCH_BYTES_MAX
from tidelog.rpc.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from tidelog.rpc.options import Options
from tidelog.spark.client_options import PREFIX, problems, problems_of_values

NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "commitOffsetsTo",
    "initialOffsetsPath",
    "progressPath",
)
CONNECTOR_ONLY = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
"""Options of Spark's source that have no use here; taken without effect, so that moving is one word."""
KNOWN = {name.lower(): name for name in (*NAMES, *CONNECTOR_ONLY)}
REFUSED = {
    "checkpointlocation": "it is the query's: writeStream.option('checkpointLocation', ...)",
    "path": "topics are named by subscribe, subscribePattern or assign",
    "topic": "it is for writing; topics are read by subscribe",
}
DELAY_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
NUMBER_MAX = 2**63 - 1
"""What fits where Kafka has an offset or a time."""

Offsets = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where to start or end: at an end of each partition, at named offsets, or at times (ms)."""

    kind: Literal["earliest", "latest", "offsets", "times", "time"]
    places: Offsets = field(default_factory=dict[str, dict[int, int]])
    time_ms: int = 0

    def names(self, offset: int) -> bool:
        """Whether it is, for any partition, one of the ends: LATEST or EARLIEST."""
        return self.kind == {LATEST: "latest", EARLIEST: "earliest"}[offset] or any(
            offset in at.values() for at in self.places.values()
        )

    def at(self, place: tuple[str, int]) -> int | None:
        """What it names for a partition, if anything."""
        return self.places.get(place[0], {}).get(place[1])


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    rpc: Options
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, int], ...] = ()
    start: Spot = Spot("earliest")
    end: Spot = Spot("latest")
    unmatched_start: Literal["error", "latest"] = "error"
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_loss: bool = True
    headers: bool = False
    isolation: int = READ_COMMITTED
    group: str | None = None
    fetch_bytes: int = FETCH_BYTES
    initial_offsets_path: str | None = None
    progress_path: str | None = None

    @property
    def committed(self) -> bool:
        return self.isolation == READ_COMMITTED

    @property
    def starts_at_an_end(self) -> bool:
        """Whether it starts where some partition ends, which is elsewhere when it is asked for again."""
        by_time = self.start.kind in ("time", "times")
        return self.unmatched_start == "latest" if by_time else self.start.names(LATEST)


class OptionError(ValueError):
    """An option that can't be: which, what it was, and what is expected."""


def split_options(
    given: Mapping[str, str], known: Mapping[str, str], refused: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """All options by their names in lower case, and Kafka's among them by Kafka's names: none is unknown."""
    options = {name.lower(): value for name, value in given.items()}
    for problem in problems(options, known, refused):
        raise OptionError(problem)
    kafka = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    for problem in problems_of_values(kafka):
        raise OptionError(problem)
    try:
        addresses(kafka.get("bootstrap.servers", ""))
    except ValueError as error:
        raise OptionError(f"option kafka.bootstrap.servers: {error}") from None
    return options, kafka


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """All options at once; OptionError names the first that is wrong.

    Records of transactions that were aborted, or are open, are no rows unless it is asked for: the sink writes rows
    that fail and are written again.
    """
    options, kafka = split_options(given, KNOWN, REFUSED)
    topics, pattern, assigned = _subscription(options)
    start, end = _start(options, streaming), _end(options, streaming)
    _check_order(start, end)
    least, most = _count(options, "minOffsetsPerTrigger"), _count(options, "maxOffsetsPerTrigger")
    if least and most and least > most:
        raise OptionError(f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}")
    group = options.get("commitoffsetsto")
    if group == "":
        raise OptionError("option commitOffsetsTo is empty: it is the group that offsets are committed to")
    try:
        rpc = Options.from_kafka({"client.id": "tidelog-spark", **kafka})
        rpc.tls_context()
    except ValueError as error:
        raise OptionError(f"option kafka.{error}") from None
    except OSError as error:
        raise OptionError(
            f"options kafka.ssl.*: no certificates can be read there: {error}. PEM files are what is read; a JKS or "
            "PKCS12 store is converted with keytool and openssl"
        ) from None
    return SourceOptions(
        bootstrap=kafka["bootstrap.servers"],
        rpc=rpc,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=start,
        end=end,
        unmatched_start=_choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest")),
        max_per_trigger=most,
        min_per_trigger=least,
        max_trigger_delay_ms=_delay_ms(options.get("maxtriggerdelay", "15m")),
        min_partitions=_count(options, "minPartitions"),
        max_records=_count(options, "maxRecordsPerPartition"),
        fail_on_loss=_flag(options, "failOnDataLoss", True),
        headers=_flag(options, "includeHeaders", False),
        isolation=_isolation(kafka),
        group=group,
        fetch_bytes=min(_positive(kafka, "max.partition.fetch.bytes", FETCH_BYTES), FETCH_BYTES_MAX),
        initial_offsets_path=options.get("initialoffsetspath"),
        progress_path=options.get("progresspath"),
    )


def _subscription(options: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[tuple[str, int], ...]]:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) != 1:
        hint = f", not {' and '.join(given)} together" if given else ""
        raise OptionError(f"one of the options subscribe, subscribePattern and assign is needed{hint}")
    text = options[given[0].lower()].strip()
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError("option subscribe names no topic: write subscribe=orders, or orders,payments")
        return topics, None, ()
    if given[0] == "subscribePattern":
        if not text:
            raise OptionError("option subscribePattern is empty: it would be every topic; write .* where that is meant")
        compiled(text)
        return (), text, ()
    read = _json("assign", text, '{"orders":[0,1]}')
    places = tuple((topic, partition) for topic, partitions in read.items() for partition in _whole_numbers(partitions))
    if not places:
        raise OptionError('option assign names no partition: write {"orders":[0,1]}')
    return (), None, places


def compiled(pattern: str) -> Any:
    """The pattern of topics, which never takes long to match, whatever it is. It may be found anywhere in a name."""
    import re2

    library: Any = re2
    quiet = library.Options()
    quiet.log_errors = False
    try:
        return library.compile(pattern, quiet)
    except library.error as error:
        why = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
        raise OptionError(
            f"option subscribePattern: {pattern!r} is no regular expression: {why} (RE2 is what is read here: Java's, "
            "without looking around and without references back)"
        ) from None


def _whole_numbers(value: Any) -> list[int]:
    numbers = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise OptionError(f'option assign: {value!r} is no list of partitions; write {{"orders":[0,1]}}')
    return cast("list[int]", numbers)


def _start(options: Mapping[str, str], streaming: bool) -> Spot:
    spot = _spot(options, "starting", "latest" if streaming else "earliest")
    if not streaming and spot.names(LATEST):
        raise OptionError("option startingOffsets: a batch query can't start at latest; there would be nothing to read")
    return spot


def _end(options: Mapping[str, str], streaming: bool) -> Spot:
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in options:
                raise OptionError(f"option {name} is for batch queries; a stream has no end")
        return Spot("latest")
    spot = _spot(options, "ending", "latest")
    if spot.names(EARLIEST):
        raise OptionError("option endingOffsets: a batch query can't end at earliest; there would be nothing to read")
    return spot


def _check_order(start: Spot, end: Spot) -> None:
    """An end before its start is a mistake, as far as it can be seen without asking anyone."""
    if start.kind == end.kind == "time" and start.time_ms > end.time_ms:
        raise OptionError(f"option startingTimestamp: {start.time_ms} is after endingTimestamp, {end.time_ms}")
    if start.kind != end.kind:
        return
    name = "Offsets" if start.kind == "offsets" else "OffsetsByTimestamp"
    for topic, places in start.places.items():
        for partition, low in places.items():
            high = end.places.get(topic, {}).get(partition, LATEST)
            if 0 <= high < low:
                raise OptionError(f"option starting{name}: {topic}-{partition} starts at {low}, after its end, {high}")


def _spot(options: Mapping[str, str], side: str, default: str) -> Spot:
    """A time for all partitions goes before times by partition, and those before offsets, as in Spark."""
    if f"{side}timestamp" in options:
        text = options[f"{side}timestamp"]
        if not text.strip().isdecimal() or int(text) > NUMBER_MAX:
            raise OptionError(f"option {side}Timestamp: {text!r} is no time in milliseconds since 1970")
        return Spot("time", time_ms=int(text))
    by_time = f"{side}offsetsbytimestamp"
    if by_time in options:
        return Spot("times", places=_offsets(f"{side}OffsetsByTimestamp", options[by_time], least=0))
    name = f"{side}Offsets"
    text = options.get(name.lower(), default).strip()
    if text.lower() == "earliest":
        return Spot("earliest")
    if text.lower() == "latest":
        return Spot("latest")
    return Spot("offsets", places=_offsets(name, text, least=EARLIEST))


def _offsets(name: str, text: str, least: int) -> Offsets:
    example = '{"orders":{"0":23,"1":-1}}'
    offsets: Offsets = {}
    for topic, places in _json(name, text, example).items():
        if not isinstance(places, dict):
            raise OptionError(f"option {name}: {topic} has {places!r} where partitions are expected; write {example}")
        for partition, offset in cast("dict[str, Any]", places).items():
            if not partition.isdecimal() or type(offset) is not int or not least <= offset <= NUMBER_MAX:
                raise OptionError(f"option {name}: {topic}-{partition} has {offset!r}; write {example}")
            offsets.setdefault(topic, {})[int(partition)] = offset
    return offsets


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        words = "earliest, latest or " if name in ("startingOffsets", "endingOffsets") else ""
        raise OptionError(f"option {name}: {text!r} is not known here; write {words}{example}")
    return cast("dict[str, Any]", read)


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> Any:
    text = options.get(name.lower(), allowed[0]).lower()
    if text not in allowed:
        raise OptionError(f"option {name}: {text!r} is not one of {', '.join(allowed)}")
    return text


def _count(options: Mapping[str, str], name: str) -> int | None:
    return _positive(options, name, 0) or None


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"option {name}: {text!r} is no number above 0")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name}: {text!r} is neither true nor false")
    return text == "true"


def _isolation(kafka: Mapping[str, str]) -> int:
    text = kafka.get("isolation.level", "read_committed").lower()
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    if text not in levels:
        raise OptionError(f"option kafka.isolation.level: {text!r} is neither read_committed nor read_uncommitted")
    return levels[text]


def _delay_ms(text: str) -> int:
    """A time as Spark writes it; a bare number is milliseconds."""
    value = text.strip().lower()
    number = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = value[len(number) :].strip() or "ms"
    if not number.isdecimal() or unit not in DELAY_UNITS_US:
        raise OptionError(f"option maxTriggerDelay: {text!r} is no time; write 15m, 30s or 1h")
    return int(number) * DELAY_UNITS_US[unit] // 1000
