"""Consume-transform-produce in the simulated world: a partition copied to two others, offsets in the transaction.

A copier is what a careful program does: after anything that it doesn't understand it begins anew, with InitProducerId
under its transactional id and at the offset that is committed. It sends its batches without waiting for each other, and
again where that helps, also over another connection. Sometimes it aborts, sometimes it sleeps past its timeout, and
sometimes a second one is started while the first still lives, which must be fenced then.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.committed import committed_fetch, committed_values
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.in_flight import InFlight, Part, request_of
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.fetch import FetchResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.wire.messages.produce import ProduceResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.wire.record import Record
from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

SOURCE, TARGET, AUDIT = "source", "target", "audit"
TIMEOUT_MS = 1500
ROUNDS_MAX = 8
"""So often the batches of a transaction are sent; then it begins anew."""


class Versions(NamedTuple):
    """Of a client of the first or second kind."""

    produce: int
    commit: int
    end: int


FIRST, SECOND = Versions(9, 3, 3), Versions(12, 5, 5)


class Copier(Client):
    """Copies one partition of `source`. `copied`: how far it knows its work to be committed."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, partition: int, life: int) -> None:
        self.partition = partition
        self.copied = 0
        self.fenced = False
        self.stopped = False
        self._label = f"{name}.{life}"
        self._id = f"copier-{partition}"
        self._group = f"copiers-{partition}"
        self._versions = random.choose((FIRST, SECOND))
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._position = 0
        self._attempt = 0
        self._in_flight: InFlight | None = None
        self._then = 0  # where it is when what is in flight is committed
        super().__init__(world, self._label, random)

    # -- the steps, each the next one's reason

    def connected(self, connection: ClientConnection) -> None:
        if self.stopped:
            return
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None and self.random.chance(0.7):  # the connection was lost: it goes on where it was
            self._in_flight = in_flight
            self._send_in_flight()
            return
        if self.fenced:
            return
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id])
        connection.ask(request, FindCoordinatorResponse, 10, 4, self._coordinator_known)

    def _coordinator_known(self, response: FindCoordinatorResponse) -> None:
        if self._failed(response.coordinators[0].error_code):
            return
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        self._ask(request, FindCoordinatorResponse, 10, 4, self._found_group)

    def _found_group(self, response: FindCoordinatorResponse) -> None:
        if self._failed(response.coordinators[0].error_code):
            return
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
        self._ask(request, InitProducerIdResponse, 22, 4, self._initialised)

    def _initialised(self, response: InitProducerIdResponse) -> None:
        if self._failed(response.error_code):
            return
        self._producer = (response.producer_id, response.producer_epoch)
        self._sequences.clear()
        self.world.note(f"{self._label} is producer {self._producer}")
        self._fetch_offset()

    def _fetch_offset(self) -> None:
        topic = OffsetFetchRequestTopics(name=SOURCE, partition_indexes=[self.partition])
        groups = [OffsetFetchRequestGroup(group_id=self._group, topics=[topic])]
        self._ask(OffsetFetchRequest(groups=groups, require_stable=True), OffsetFetchResponse, 9, 8, self._got_offset)

    def _got_offset(self, response: OffsetFetchResponse) -> None:
        group = response.groups[0]
        committed = None if group.error_code else group.topics[0].partitions[0]
        code = group.error_code if committed is None else committed.error_code
        if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            self.later(lambda _: self._fetch_offset(), RETRY_S)
            return
        if committed is None or self._failed(code):
            self._again()
            return
        if committed.committed_offset < self.copied and committed.committed_offset >= 0:
            raise Violation(f"{self._label}: {self.copied} was committed, now it is {committed.committed_offset}")
        self._position = self.copied = max(committed.committed_offset, 0)
        self._look()

    def _look(self) -> None:
        if self.stopped:
            return
        request = committed_fetch(SOURCE, self.partition, self._position, 200)
        self._ask(request, FetchResponse, 1, 12, self._got_records)

    def _got_records(self, response: FetchResponse) -> None:
        data = response.responses[0].partitions[0]
        if self._failed(data.error_code):
            return
        values_read, position = committed_values(data, self._position)
        if not values_read:
            self._position = position
            self.later(lambda _: self._look(), RETRY_S)
            return
        count = self.random.random_int(1, min(10, len(values_read)))
        values = [value for _, value in values_read[:count]]
        self._attempt += 1
        self._join(values, values_read[count - 1][0] + 1)

    def _join(self, values: list[bytes], position: int) -> None:
        """The first kind says what it will write to; the second joins by writing."""
        if self._versions is SECOND:
            self._produce(values, position)
            return
        topics = [
            AddPartitionsToTxnTopic(name=TARGET, partitions=[self.partition]),
            AddPartitionsToTxnTopic(name=AUDIT, partitions=[0]),
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=topics,
        )

        def added(response: AddPartitionsToTxnResponse) -> None:
            results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
            if not self._failed(*(each.partition_error_code for each in results)):
                request = AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._producer[0],
                    producer_epoch=self._producer[1],
                    group_id=self._group,
                )
                self._ask(request, AddOffsetsToTxnResponse, 25, 3, added_offsets)

        def added_offsets(response: AddOffsetsToTxnResponse) -> None:
            if not self._failed(response.error_code):
                self._produce(values, position)

        self._ask(request, AddPartitionsToTxnResponse, 24, 3, added)

    def _produce(self, values: list[bytes], position: int) -> None:
        """In one request, or in several that name both partitions or one, none waiting for the one before it."""
        mark = f"{self._label}.{self._attempt}".encode()
        marked = [b"%s|%s" % (value.rstrip(b"x").rstrip(b":"), mark) for value in values]
        requests: list[list[Part]] = []
        while marked:
            count = len(marked) if self.random.chance(0.4) else self.random.random_int(1, len(marked))
            parts = [
                self._batch(topic, index, marked[:count]) for topic, index in ((TARGET, self.partition), (AUDIT, 0))
            ]
            requests += [parts] if self.random.chance(0.6) else [[part] for part in parts]
            del marked[:count]
        self._in_flight = InFlight(self._label, requests)
        self._then = position
        self._send_in_flight()

    def _batch(self, topic: str, index: int, values: list[bytes]) -> Part:
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + len(values)
        encoded = build(
            [Record(timestamp=self.world.timeline.now_ms(), value=value) for value in values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        return Part(topic, index, sequence, bytes(encoded))

    def _send_in_flight(self) -> None:
        in_flight = self._in_flight
        assert in_flight is not None
        requests = in_flight.next_round()
        left = len(requests)

        def answered(parts: list[Part], response: ProduceResponse) -> None:
            nonlocal left
            left -= 1
            in_flight.answer(
                parts, [each.error_code for topic in response.responses for each in topic.partition_responses]
            )
            if not left:
                self._produced(in_flight)

        for parts in requests:
            request = request_of(self._id, parts)
            self._ask(request, ProduceResponse, 0, self._versions.produce, partial(answered, parts))

    def _produced(self, in_flight: InFlight) -> None:
        """All requests of a round were answered."""
        if not in_flight.taken and in_flight.may_go_on and in_flight.rounds < ROUNDS_MAX:
            self.world.note(f"{self._label} sends again: {', '.join(sorted(code.name for code in in_flight.codes))}")
            self.later(lambda _: self._send_in_flight(), self.random.between(0.5, 3.0) * RETRY_S)
            return
        self._in_flight = None
        if self._failed(*in_flight.codes):
            return
        if self.random.chance(0.05):  # past the timeout: it is aborted meanwhile
            self.later(lambda _: self._commit_offset(self._then), self.random.between(1.0, 3.0))
        else:
            self._commit_offset(self._then)

    def _commit_offset(self, position: int) -> None:
        offset = TxnOffsetCommitRequestPartition(partition_index=self.partition, committed_offset=position)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=SOURCE, partitions=[offset])],
        )

        def committed(response: TxnOffsetCommitResponse) -> None:
            if not self._failed(response.topics[0].partitions[0].error_code):
                self._end(position, commit=not self.random.chance(0.15))

        self._ask(request, TxnOffsetCommitResponse, 28, self._versions.commit, committed)

    def _end(self, position: int, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )

        def ended(response: EndTxnResponse) -> None:
            code = ErrorCode(response.error_code)
            self.world.note(f"{self._label} {'commits' if commit else 'aborts'} {position}: {code.name}")
            if self._failed(code):
                return
            if commit:
                self._position = self.copied = position
            if self._versions is SECOND:
                self._producer = (response.producer_id, response.producer_epoch)
                self._sequences.clear()
            self.later(lambda _: self._look(), self.random.between(0.0, 0.05))

        self._ask(request, EndTxnResponse, 26, self._versions.end, ended)

    # -- what may come in between

    def _ask(self, request: Any, response: type[T], key: int, version: int, answered: Callable[[T], None]) -> None:
        if self.connection is not None:
            self.connection.ask(request, response, key, version, answered)

    def _failed(self, *codes: int) -> bool:
        """Whether it went wrong: then it begins anew, or has been replaced."""
        wrong = {ErrorCode(code) for code in codes if code}
        if not wrong:
            return False
        if ErrorCode.UNKNOWN_SERVER_ERROR in wrong:
            raise Violation(f"{self._label} got UNKNOWN_SERVER_ERROR")
        self.world.note(f"{self._label}: {', '.join(sorted(code.name for code in wrong))}")
        self._again()
        return True

    def _again(self) -> None:
        connection = self.connection
        if connection is not None:
            self.later(self.connected, self.random.between(0.5, 3.0) * RETRY_S)
