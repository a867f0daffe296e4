"""Offsets of a subscription: which partitions it has now, where they begin and end, and where to start."""

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.rpc import EARLIEST, LATEST, Cluster, Topic, list_offsets
from tidelog.rpc.offsets import READ_UNCOMMITTED
from tidelog.spark.identity import short_id
from tidelog.spark.source.options import OptionError, SourceOptions, Spot, compiled
from tidelog.spark.source.plan import Offsets
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.topic_partition import TopicPartition


class Lookup:
    """Asks the cluster on behalf of one query, on the driver."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self.ids: dict[str, int] = {}
        """The topics that were seen, and which they were when they were last: `short_id` of their ids."""
        self._pattern: Any = None
        if options.pattern is not None:
            self._pattern = compiled(options.pattern)

    def subscribed(self, place: TopicPartition) -> bool:
        """Whether the subscription means this partition, whether or not it is there."""
        if self._pattern is not None:
            return self._pattern.search(place[0]) is not None
        return place[0] in self._options.topics or place in self._options.assigned

    def subscribed_topic(self, topic: str) -> bool:
        """Whether the subscription means any partition of this topic."""
        return self.subscribed((topic, 0)) or any(topic == name for name, _ in self._options.assigned)

    def places_of_old(self) -> list[TopicPartition]:
        """`places` of a subscription whose topics were there: brokers may differ about them for a moment."""
        return self._cluster.patiently("find the topics", self.places)

    def places(self) -> list[TopicPartition]:
        """The partitions of the subscription; a topic that was named but isn't there is an error."""
        if self._pattern is not None:
            topics = self._cluster.topics()
            names = [name for name, topic in topics.items() if not topic.internal and self._pattern.search(name)]
            self._seen({name: topics[name] for name in names})
            return sorted((name, partition) for name in names for partition in topics[name].partitions)
        wanted = self._options.topics or tuple(dict.fromkeys(topic for topic, _ in self._options.assigned))
        topics = self._cluster.topics(wanted)
        for name in wanted:
            if name not in topics:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic {name} at {self._options.bootstrap}; `tidelog topic create {name}` makes it",
                )
        self._seen(topics)
        if self._options.topics:
            return sorted((name, partition) for name in wanted for partition in topics[name].partitions)
        for topic, partition in self._options.assigned:
            if partition not in topics[topic].partitions:
                raise OptionError(f"option assign: {topic} has no partition {partition}")
        return sorted(self._options.assigned)

    def present(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those partitions that are there; one that isn't is looked for again, as brokers may differ for a moment."""
        wanted = list(places)

        def there() -> list[TopicPartition]:
            topics = self._cluster.topics({topic for topic, _ in wanted})
            self._seen(topics)
            return [place for place in wanted if place[0] in topics and place[1] in topics[place[0]].partitions]

        def all_there() -> list[TopicPartition]:
            if len(there()) < len(wanted):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a partition that was read is not there")
            return wanted

        try:
            return self._cluster.patiently("find the topics", all_there)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return there()

    def _seen(self, topics: Mapping[str, Topic]) -> None:
        ids = {name: short_id(topic.id) for name, topic in topics.items()}
        self.ids |= {name: each for name, each in ids.items() if each is not None}

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        return self._at(dict.fromkeys(places, EARLIEST), READ_UNCOMMITTED)

    def latest(self, places: Iterable[TopicPartition]) -> Offsets:
        """The ends that a reader of this isolation level gets to."""
        return self._at(dict.fromkeys(places, LATEST), self._options.isolation)

    def start(self, spot: Spot, places: list[TopicPartition]) -> Offsets:
        """Where to start each of the subscription's partitions."""
        if spot.kind in ("time", "times"):
            offsets = self._by_time(spot, places, "starting")
            missing = [place for place, offset in offsets.items() if offset < 0]
            if missing and self._options.unmatched_start == "error":
                topic, partition = missing[0]
                raise OptionError(
                    f"no record of {topic}-{partition} is as new as the time to start from; choose an earlier one, or "
                    "set startingOffsetsByTimestampStrategy=latest to wait for new ones"
                )
            return offsets | self.latest(missing)
        return self._resolved(spot, places, "startingOffsets")

    def end(self, spot: Spot, places: list[TopicPartition]) -> Offsets:
        """Where to end each of the subscription's partitions."""
        if spot.kind in ("time", "times"):
            offsets = self._by_time(spot, places, "ending")
            return offsets | self.latest([place for place, offset in offsets.items() if offset < 0])
        return self._resolved(spot, places, "endingOffsets")

    def first_since(self, places: Iterable[TopicPartition], time_ms: int) -> Offsets:
        """The first offset as new as a time; the end where none is. Before 1970 it is the beginning: to ListOffsets
        such numbers are no times."""
        if time_ms < 0:
            return self.earliest(places)
        offsets = self._at(dict.fromkeys(places, time_ms), self._options.isolation)
        return offsets | self.latest([place for place, offset in offsets.items() if offset < 0])

    def _resolved(self, spot: Spot, places: list[TopicPartition], name: str) -> Offsets:
        if spot.kind == "earliest":
            return self.earliest(places)
        if spot.kind == "latest":
            return self.latest(places)
        named = _named(spot, places, name)
        special = {place: offset for place, offset in named.items() if offset < 0}
        earliest = self.earliest([place for place, offset in special.items() if offset == EARLIEST])
        return named | earliest | self.latest([place for place, offset in special.items() if offset == LATEST])

    def _by_time(self, spot: Spot, places: list[TopicPartition], side: str) -> Offsets:
        if spot.kind == "time":
            return self._at(dict.fromkeys(places, spot.time_ms), self._options.isolation)
        return self._at(_named(spot, places, f"{side}OffsetsByTimestamp"), self._options.isolation)

    def _at(self, asked: Mapping[TopicPartition, int], isolation: int) -> Offsets:
        if not asked:
            return {}
        return {place: each.offset for place, each in list_offsets(self._cluster, asked, isolation).items()}


def _named(spot: Spot, places: list[TopicPartition], name: str) -> Offsets:
    """The offsets that the option names: exactly those of the subscription's partitions."""
    named = {(topic, partition): offset for topic, at in spot.places.items() for partition, offset in at.items()}
    missing = [f"{topic}-{partition}" for topic, partition in places if (topic, partition) not in named]
    unknown = [f"{topic}-{partition}" for topic, partition in named if (topic, partition) not in places]
    if missing or unknown:
        problems = [f"{', '.join(missing[:10])} has none"] if missing else []
        problems += [f"{', '.join(unknown[:10])} is not subscribed to"] if unknown else []
        raise OptionError(
            f"option {name} must name every partition of the subscription, with -1 for latest and -2 for earliest: "
            + "; ".join(problems)
        )
    return named
