"""Before records of a transaction are appended: is the partition part of it (KIP-890)?

The first records of a transaction in a partition need the coordinator's word. Clients of the second version (Produce
v12 and later) join the partition by sending them; the others joined it before with AddPartitionsToTxn, and here that is
verified. Later records need no word: the log knows that the transaction is open, and its marker closes it.

The coordinator may be another broker: then its word comes later, and may be out of date when the records are appended.
So each partition of the request has a guard (coordinator/txn/guard.py), taken before anybody is asked, also where its
transaction is open already: it may end while the word on another partition is waited for. What the log knows of the
producer may be another thing by then, too: whether a batch is next in order is decided when it is appended, by the log
and by `Joined.check_order`, and never by what was known when its request came.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.apis.shared.record_validation import IDS_FROM
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.guard import guard
from tidelog.replica.resends import read_sent
from tidelog.wire.batch import PRODUCER_AT, is_transactional
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.topic_partition import AnyTopicPartition, TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.coordinator.txn.guard import Guard
    from tidelog.coordinator.txn.membership import Codes
    from tidelog.env.promise import Promise
    from tidelog.replica.partition import Partition
    from tidelog.wire.messages.produce import ProduceRequest

JOINS_FROM = 12
ABORTABLE_FROM = 11

_read_producer = Struct(">qh").unpack_from  # producer id, epoch


_LATER = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,  # another partition of the request isn't known to the coordinator yet
    )
)


class Joined:
    """What the coordinator said of a request's partitions; asked for each of them when it is appended."""

    __slots__ = ("_begins_at_zero", "_guards", "_refused")

    def __init__(self, version: int) -> None:
        self._begins_at_zero = version >= JOINS_FROM  # its epoch is new with each transaction
        self._refused: dict[AnyTopicPartition, KafkaError] = {}
        self._guards: dict[AnyTopicPartition, Guard] = {}

    def refuse(self, place: AnyTopicPartition, error: KafkaError) -> None:
        self._refused[place] = error

    def watch(self, place: AnyTopicPartition, guard: Guard) -> None:
        self._guards[place] = guard

    def check_member(self, place: AnyTopicPartition) -> None:
        """Raises where the partition isn't part of the transaction, or that can't be known now."""
        refused = self._refused.get(place)
        if refused is not None:
            raise refused

    def check_guard(self, place: AnyTopicPartition, partition: Partition, records: memoryview) -> None:
        """Raises where what was said of the partition no longer counts. To be called in the turn of the append."""
        if not is_transactional(records) or not partition.is_served or read_sent(records, 0, len(records)) is None:
            return  # the append refuses what has no producer
        guard = self._guards.get(place)
        if guard is None or guard.partition is not partition:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{partition.topic}-{partition.index} came to be led here while its transaction was looked at",
            )
        try:
            guard.check()
        except KafkaError as error:
            if error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not self._begins_at_zero:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from error
            raise

    def check_order(self, partition: Partition, records: memoryview) -> None:
        """Raises where a client of the second version doesn't begin at sequence 0 in a log that doesn't know it."""
        if not self._begins_at_zero or not is_transactional(records) or not partition.is_served:
            return
        sent = read_sent(records, 0, len(records))
        if sent is not None and sent.sequence and partition.log.producers.get(sent.producer_id) is None:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {sent.producer_id} isn't known in {partition.topic}-{partition.index}, "
                f"but sent sequence {sent.sequence}",
            )


class _First(NamedTuple):
    """A partition where the transaction has nothing yet."""

    place: AnyTopicPartition
    partition: Partition


def join(context: Context, request: ProduceRequest) -> Joined | Promise[Joined]:
    """What of a transactional request may be appended. Raises KafkaError where nothing of it may."""
    producer: Producer | None = None
    outcome = Joined(context.version)
    first: list[_First] = []
    by_id = context.version >= IDS_FROM
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is None or not is_transactional(data.records):
                continue
            producer_id, epoch = _read_producer(data.records, PRODUCER_AT)
            if producer_id < 0:
                continue
            if producer is not None and producer != (producer_id, epoch):
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            producer = Producer(producer_id, epoch)
            place: AnyTopicPartition = (topic.topic_id if by_id else topic.name, data.index)
            try:
                partition = _led(context, place)
                if partition is None:
                    continue
                outcome.watch(place, guard(partition, producer.id))
                if _begins(partition, producer):
                    first.append(_First(place, partition))
            except KafkaError as error:
                outcome.refuse(place, error)
    if not first:
        return outcome
    assert producer is not None
    return _ask(context, request.transactional_id or "", producer, first, outcome)


def _led(context: Context, place: AnyTopicPartition) -> Partition | None:
    """The partition, if it is served here. None where the append itself will be refused."""
    topic, index = place
    replicas = context.services.replicas
    try:
        partition = replicas.at((topic, index))
    except KafkaError:
        return None
    return partition if partition.is_served else None


def _begins(partition: Partition, producer: Producer) -> bool:
    """Whether the transaction has nothing in the partition yet."""
    known = partition.log.producers.get(producer.id)
    if known is None:
        return True
    if producer.epoch < known.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer.id} sent epoch {producer.epoch}, but its epoch {known.epoch} was seen already",
        )
    return known.epoch != producer.epoch or known.txn_first_offset < 0


def _ask(
    context: Context, transactional_id: str, producer: Producer, first: list[_First], outcome: Joined
) -> Joined | Promise[Joined]:
    membership, config = context.services.transactions.membership, context.services.config
    partitions: list[TopicPartition] = [(one.partition.topic, one.partition.index) for one in first]
    if context.version >= JOINS_FROM:
        said = membership.join(transactional_id, producer, partitions)
    elif config.transaction_partition_verification_enable:
        said = membership.verify(transactional_id, producer, partitions)
    else:
        return outcome

    def told(codes: Codes) -> Joined:
        _refuse(context, first, codes, outcome)
        return outcome

    return told(said.result()) if said.done else said.map(told)


def _refuse(context: Context, first: list[_First], codes: dict[TopicPartition, ErrorCode], outcome: Joined) -> None:
    for place, partition in first:
        code = codes[partition.topic, partition.index]
        if code:
            outcome.refuse(place, _as_produce_says(code, context.version))


def _as_produce_says(code: ErrorCode, version: int) -> KafkaError:
    """A coordinator's error, as producers of this version can handle it."""
    if code == ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "the producer was replaced by a newer one")
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    if code in _LATER or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_FROM):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"whether the partition is part of the transaction isn't known: {code.name}"
        )
    return KafkaError(code)
