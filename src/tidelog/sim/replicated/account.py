"""The account of replicated partitions, when nothing goes wrong any more.

All replicas come back into the ISR; everything is read, and each acknowledged record found, once and in order where the
producer was idempotent; transactions are there whole or not at all, and none hangs; and from the highest log start to
the lowest high watermark the replicas have the same batches, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.sim.replicated.pacts import check_pacts
from tidelog.sim.replicated.probe import partitions_of
from tidelog.sim.replicated.readers import COMMITTED, UNCOMMITTED, WholeReader
from tidelog.sim.scenarios.checkers import Violation, check_numbered
from tidelog.wire.batch import iterate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.replica.partition import Partition
    from tidelog.sim.cluster.node import Machine
    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.replicated.bearing import Bearing
    from tidelog.sim.replicated.pacts import PactProducer
    from tidelog.sim.replicated.producers import PlainProducer, SureProducer
    from tidelog.sim.replicated.promises import Promises
    from tidelog.sim.replicated.topics import Topic
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition

READ_BYTES = 1 << 20


class ReplicaAccount:
    """Of one run; `wait` waits as long as anything may take when nothing goes wrong."""

    def __init__(
        self,
        world: ClusterWorld,
        wait: Callable[[Callable[[], bool], str | Callable[[], str]], None],
        promises: Promises,
        bearing: Bearing,
        topics: Sequence[Topic],
    ) -> None:
        self._world = world
        self._wait = wait
        self._promises = promises
        self._bearing = bearing
        self._topics = topics

    def wait_until_whole(self) -> None:
        """Every partition has a leader, and all its replicas in the ISR."""
        self._wait(lambda: not self._not_whole(), lambda: f"all replicas to be in sync: {'; '.join(self._not_whole())}")

    def _not_whole(self) -> list[str]:
        image = self._bearing.image()
        if image is None:
            return ["nobody knows"]
        return [
            f"{topic.name}-{index}: leader {one.leader}, replicas {one.replicas}, ISR {one.isr}, ELR {one.elr}, adding "
            f"{one.adding}, removing {one.removing}"
            for topic in image.topics.values()
            for index, one in enumerate(topic.partitions)
            if one.leader < 0 or set(one.isr) != set(one.replicas) or one.adding or one.removing
        ]

    def take(
        self,
        random: SimRandom,
        sure: Sequence[SureProducer],
        plain: Sequence[PlainProducer],
        pacts: Sequence[PactProducer],
    ) -> None:
        self.wait_until_whole()
        committed: dict[TopicPartition, list[bytes]] = {}
        for topic in self._topics:
            for place in topic.places:
                if place in self._promises.excused:
                    continue
                reader = self._read(random, place, UNCOMMITTED)
                self._promises.check_whole(place, reader.start, reader.end)
                self._check_numbers(place, reader, sure, plain)
                if any(place in producer.places for producer in pacts):
                    stable = self._read(random, place, COMMITTED)
                    committed[place] = [value for _, value in stable.values]
                self._check_equal(place)
        check_pacts([pact for producer in pacts for pact in producer.pacts], committed)

    def _read(self, random: SimRandom, place: TopicPartition, isolation: int) -> WholeReader:
        """Those of committed records come to the end only if no transaction hangs."""
        name = f"reads {'committed ' if isolation == COMMITTED else ''}{place[0]}-{place[1]}"
        reader = WholeReader(self._world, name, random.fork(name), self._promises, place, isolation)
        self._wait(lambda: reader.done, f"{place[0]}-{place[1]} to be read ({name})")
        reader.loop.kill()
        return reader

    def _check_numbers(
        self, place: TopicPartition, reader: WholeReader, sure: Sequence[SureProducer], plain: Sequence[PlainProducer]
    ) -> None:
        where, values = f"{place[0]}-{place[1]}", [value for _, value in reader.values]
        for producer in sure:
            if producer.place == place:
                check_numbered(where, values, producer.name, once=True, whole=not reader.start)
                self._check_last(where, values, producer, reader.start)
        for producer in plain:
            if producer.place == place:
                check_numbered(where, values, producer.name, once=False, connections=producer.connections)

    def _check_last(self, where: str, values: list[bytes], producer: SureProducer, start: int) -> None:
        prefix = f"{producer.name}:".encode()
        own = [value for value in values if value.startswith(prefix)]
        last = int(own[-1].split(b":", 2)[1]) + 1 if own else 0
        if last != producer.made and not (start and not own):
            raise Violation(
                f"{where} holds {last} records of {producer.name}, of {producer.made} that were acknowledged"
            )

    # -- the replicas

    def _check_equal(self, place: TopicPartition) -> None:
        replicas = self._replicas(place)
        start = max(partition.log.log_start for _, partition in replicas)
        end = min(partition.high_watermark for _, partition in replicas)
        first: tuple[int, list[bytes]] | None = None
        for machine, partition in replicas:
            batches = self._batches(partition, start, end)
            if first is None:
                first = machine.id, batches
            elif batches != first[1]:
                number = next(
                    (n for n, pair in enumerate(zip(batches, first[1], strict=False)) if pair[0] != pair[1]), -1
                )
                raise Violation(
                    f"{place[0]}-{place[1]}: nodes {first[0]} and {machine.id} differ between {start} and {end}, in "
                    f"batch {number} of {len(first[1])} and {len(batches)}"
                )

    def _replicas(self, place: TopicPartition) -> list[tuple[Machine, Partition]]:
        """All are open, with what the leader has shown."""
        image = self._bearing.image()
        assert image is not None
        ids = set(image.topics[place[0]].partitions[place[1]].replicas)

        def found() -> list[tuple[Machine, Partition]]:
            return [
                (machine, partition)
                for machine in self._world.brokers
                if machine.id in ids
                for partition in partitions_of(machine)
                if (partition.topic, partition.index) == place
            ]

        end = self._promises.of(place).end
        self._wait(
            lambda: len(found()) == len(ids) and all(one.high_watermark >= end for _, one in found()),
            lambda: (
                f"all replicas of {place[0]}-{place[1]} to know that {end} is committed: "
                + ", ".join(f"node {machine.id} knows {one.high_watermark}" for machine, one in found())
            ),
        )
        return found()

    def _batches(self, partition: Partition, start: int, end: int) -> list[bytes]:
        batches: list[bytes] = []
        while start < end:
            piece = partition.log.read(start, READ_BYTES, end)
            data = b"" if piece is None else bytes(piece.view())
            before = start
            for header in iterate(data):
                if header.next_offset <= end:
                    batches.append(data[header.pos : header.end])
                    start = header.next_offset
            if start == before:
                break
        return batches
