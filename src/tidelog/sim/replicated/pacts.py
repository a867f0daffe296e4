"""Transactions over several partitions, of clients of both versions: what was committed is there whole, the rest not.

A producer writes a transaction, sends what isn't acknowledged again in its place, and ends it; it asks for the end
until it knows what came of that. After anything that it doesn't understand it begins anew, which aborts what was open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from tidelog.sim.clients.in_flight import NEVER
from tidelog.sim.replicated.roaming import Address, RoamingClient
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

TIMEOUT_MS = 4000
GOES_AWAY = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""After these the same is asked again."""
NOT_DONE = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Answers to EndTxn that say that nothing was begun."""
TAKEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class Fate(Enum):
    """What is known of a transaction."""

    OPEN = "open"
    ASKED = "its commit was asked for"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "committed or aborted, nobody knows"


@dataclass(slots=True, eq=False)
class Pact:
    """A transaction: its records, by partition, in order."""

    producer: str
    number: int
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict["TopicPartition", list[bytes]])
    fate: Fate = Fate.OPEN


class PactProducer(RoamingClient):
    """`second`: its partitions join by being written to (KIP-890). `may_show` gets what was asked to be committed."""

    def __init__(
        self,
        world: ClusterWorld,
        name: str,
        random: SimRandom,
        places: Sequence[TopicPartition],
        may_show: set[bytes],
        *,
        second: bool,
    ) -> None:
        self.pacts: list[Pact] = []
        self.done = False
        self.places = places
        self._may_show = may_show
        self._second = second
        self._coordinator: Address | None = None
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._joined: set[TopicPartition] = set()
        self._pact = Pact(name, -1)
        super().__init__(world, name, random)

    def begin(self) -> None:
        """As when it is started anew; what was open is aborted by that."""
        if self._pact.fate is Fate.OPEN:
            self._pact.fate = Fate.ABORTED

        def found(at: Address | None) -> None:
            self._coordinator = at
            if at is None:
                self.later(self.begin)
                return
            request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
            self.ask(at, request, InitProducerIdResponse, 22, 4, self._initialised)

        self.find(self.name, 1, found)

    def _initialised(self, response: InitProducerIdResponse | None) -> None:
        code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode(response.error_code)
        self.world.note(f"{self.name} begins: {code.name}")
        if response is None or code:
            self._check_known(code)
            self.later(self.begin)
            return
        self._go_on_as(response.producer_id, response.producer_epoch)

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = (producer_id, epoch)
            self._sequences.clear()
        self._joined.clear()
        if self.stopped:
            self.done = True
            return
        self._pact = Pact(self.name, len(self.pacts))
        self.pacts.append(self._pact)
        count = self.random.random_int(1, 4)
        self.later(lambda: self._write(count), (0.0, 0.3))

    def _write(self, batches: int) -> None:
        """So many batches, then the end."""
        if not batches:
            self.later(self._end, (0.0, 0.1) if self.random.chance(0.8) else (0.5, 2.0))
            return
        place = self.random.choose(self.places)
        values = self._pact.values.setdefault(place, [])
        first, count = len(values), self.random.random_int(1, 3)
        values += [
            b"%s:%d.%d.%d" % (self.name.encode(), self._pact.number, place[1], first + number)
            for number in range(count)
        ]
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + count
        encoded = build(
            [Record(timestamp=self.world.timeline.now_ms(), value=value) for value in values[first:]],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        self._join(place, lambda: self._send(place, bytes(encoded), sequence, lambda: self._write(batches - 1)))

    def _join(self, place: TopicPartition, then: Callable[[], None]) -> None:
        if self._second or place in self._joined:
            then()
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )

        def answered(response: AddPartitionsToTxnResponse | None) -> None:
            code = ErrorCode.NETWORK_EXCEPTION
            if response is not None:
                [result] = response.results_by_topic_v3_and_below[0].results_by_partition
                code = ErrorCode(result.partition_error_code)
            if code is ErrorCode.NONE:
                self._joined.add(place)
                then()
            elif self._goes_away(f"joins {place[0]}-{place[1]}", code):
                self._find_again(lambda: self._join(place, then))
            else:
                self.later(self.begin)

        self._ask_coordinator(request, AddPartitionsToTxnResponse, 24, 3, answered)

    def _send(self, place: TopicPartition, encoded: bytes, sequence: int, then: Callable[[], None]) -> None:
        led, producer = self.led(place), self._producer
        if led is None:
            self.look(place, lambda: self.later(lambda: self._send(place, encoded, sequence, then)))
            return
        data = PartitionProduceData(index=place[1], records=memoryview(encoded))
        topics = [TopicProduceData(name=place[0], partition_data=[data])]
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=3000, topic_data=topics)

        def answered(response: ProduceResponse | None) -> None:
            answer = None if response is None else response.responses[0].partition_responses[0]
            code = ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode(answer.error_code)
            self.world.note(
                f"{self.name} {producer} {place[0]}-{place[1]} sequence {sequence} to {led.broker_id}: {code.name}"
            )
            if code in TAKEN:
                then()
                return
            if code in NEVER:
                raise Violation(
                    f"{self.name}, producer {producer}, sent sequence {sequence} to {place[0]}-{place[1]}, all "
                    f"before it was acknowledged, and got {code.name}"
                )
            if self._goes_away(f"writes to {place[0]}-{place[1]}", code):
                self.look(place, lambda: self.later(lambda: self._send(place, encoded, sequence, then)))
            else:
                self.later(self.begin)

        self.ask(led.at, request, ProduceResponse, 0, 12 if self._second else 11, answered)

    def _end(self) -> None:
        commit = self.random.chance(0.7)
        if commit:
            self._pact.fate = Fate.ASKED
            for values in self._pact.values.values():
                self._may_show.update(values)
        self._ask_end(commit=commit, tries=1)

    def _ask_end(self, *, commit: bool, tries: int) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )

        def answered(response: EndTxnResponse | None) -> None:
            code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode(response.error_code)
            what = f"{'commits' if commit else 'aborts'} {self._pact.number}"
            if response is not None and code is ErrorCode.NONE:
                self.world.note(f"{self.name} {what}")
                self._pact.fate = Fate.COMMITTED if commit else Fate.ABORTED
                known = response.producer_id >= 0
                self._go_on_as(*((response.producer_id, response.producer_epoch) if known else self._producer))
            elif self._goes_away(what, code):
                again = tries if code in NOT_DONE else tries + 1
                self._find_again(lambda: self._ask_end(commit=commit, tries=again))
            else:
                if commit:
                    self._pact.fate = Fate.ABORTED if tries == 1 else Fate.UNKNOWN
                self.later(self.begin)

        self._ask_coordinator(request, EndTxnResponse, 26, 5 if self._second else 4, answered)

    # -- the coordinator

    def _ask_coordinator(
        self, request: object, response: type[T], key: int, version: int, answered: Callable[[T | None], None]
    ) -> None:
        if self._coordinator is None:
            answered(None)
        else:
            self.ask(self._coordinator, request, response, key, version, answered)

    def _find_again(self, then: Callable[[], None]) -> None:
        def found(at: Address | None) -> None:
            self._coordinator = at
            then()

        self.later(lambda: self.find(self.name, 1, found))

    def _goes_away(self, what: str, code: ErrorCode) -> bool:
        self.world.note(f"{self.name} {what}: {code.name}")
        self._check_known(code)
        return code in GOES_AWAY

    def _check_known(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"{self.name} got UNKNOWN_SERVER_ERROR")


def check_pacts(pacts: Sequence[Pact], seen: dict[TopicPartition, list[bytes]]) -> None:
    """`seen`: all committed records of each partition. Committed transactions are there whole, once, in order; aborted
    ones not at all; of those nobody knows of, all or nothing."""
    numbers = {place: {value: number for number, value in enumerate(values)} for place, values in seen.items()}
    for place, values in seen.items():
        if len(numbers[place]) != len(values):
            twice = next(value for number, value in enumerate(values) if numbers[place][value] != number)
            raise Violation(f"{place[0]}-{place[1]} has {twice!r} twice")
    last: dict[tuple[str, TopicPartition], int] = {}
    for pact in pacts:
        wanted = [(place, value) for place, values in pact.values.items() for value in values]
        found = [(place, value) for place, value in wanted if value in numbers[place]]
        whole = len(found) == len(wanted)
        who = f"transaction {pact.number} of {pact.producer}"
        if pact.fate is Fate.COMMITTED and not whole:
            place, value = next(one for one in wanted if one not in found)
            raise Violation(f"{who} was committed, and {place[0]}-{place[1]} hasn't {value!r}")
        if pact.fate in (Fate.OPEN, Fate.ABORTED) and found:
            place, value = found[0]
            raise Violation(f"{who} was never committed, and {place[0]}-{place[1]} has {value!r}")
        if found and not whole:
            raise Violation(f"{who} is torn: {len(found)} of its {len(wanted)} records are there")
        for place, value in found:
            number = numbers[place][value]
            if number <= last.get((pact.producer, place), -1):
                raise Violation(
                    f"{place[0]}-{place[1]} has {value!r} of {who} before what {pact.producer} wrote earlier"
                )
            last[pact.producer, place] = number
