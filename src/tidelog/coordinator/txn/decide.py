"""What the coordinator decides: `(state, request, now) -> (records, answer)`. Pure; the shell is coordinator.py.

A request of a producer that has been replaced gets PRODUCER_FENCED, one of another producer id
INVALID_PRODUCER_ID_MAPPING, and one that comes while the last transaction is being ended
CONCURRENT_TRANSACTIONS: that is over soon, and the client asks again.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog.coordinator.bounds import CLIENT_EPOCH_MAX, TRANSACTION_PARTITIONS_MAX
from tidelog.coordinator.entry import Entry
from tidelog.coordinator.txn.replay import record, tombstone
from tidelog.coordinator.txn.state import (
    AT_REST,
    ENDED,
    ENDING,
    EPOCH_BUMPS_FROM,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Status,
    Transaction,
    TransactionsState,
)
from tidelog.log.bounds import EPOCH_MAX
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import LEASED_MS, PREPARED_MS
from tidelog.wire.topic_partition import TopicPartition


class ProducerIdNeeded(Exception):
    """The decision takes a new producer id, and none was given: get one and decide again."""


class Producer(NamedTuple):
    """Who writes: a producer id and its epoch."""

    id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH)


class InitAsked(NamedTuple):
    """InitProducerId. `current` is what the producer says it has (KIP-360).

    `last_epoch` is the epoch before the present one where this coordinator raised it for `current`: asking again then
    gives the same answer. It isn't in the log, so it is -1 after a load, as in Kafka.
    """

    transactional_id: str
    timeout_ms: int
    current: Producer | None = None
    last_epoch: int = NO_EPOCH
    new_id: int = NO_PRODUCER_ID


class Initialised(NamedTuple):
    """`last_epoch` is to be remembered; `aborts`: the open transaction is aborted first, so ask again after that."""

    producer: Producer
    last_epoch: int = NO_EPOCH
    aborts: bool = False


def init_producer_id(
    state: TransactionsState, asked: InitAsked, now_ms: int, server_version: int
) -> Decision[Entry, Initialised]:
    """A producer id and epoch of one's own; whoever had this transactional id before is fenced from here on."""
    transaction = state.transactions.get(asked.transactional_id)
    if transaction is None:
        made = Transaction(
            asked.transactional_id, _new_id(asked.new_id), 0, timeout_ms=asked.timeout_ms, updated_ms=now_ms
        )
        made = made._replace(previous_producer_id=made.producer_id)
        return Decision([record(made)], Initialised(Producer(made.producer_id, 0)))
    if transaction.status in ENDING:
        raise _ending(transaction)
    if asked.current is not None and not _may_go_on(transaction, asked.current):
        raise _fenced(transaction, asked.current)
    if transaction.status == Status.ONGOING:
        return Decision(
            [record(fence(transaction, now_ms, server_version, asked.new_id))], Initialised(NO_PRODUCER, aborts=True)
        )
    return _bump(transaction, asked, now_ms)


def _may_go_on(transaction: Transaction, current: Producer) -> bool:
    return current.id == transaction.producer_id or (
        current.id == transaction.previous_producer_id and current.epoch >= CLIENT_EPOCH_MAX
    )


def _bump(transaction: Transaction, asked: InitAsked, now_ms: int) -> Decision[Entry, Initialised]:
    """The next epoch of an id at rest, or a new producer id where there is none."""
    current = asked.current
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if transaction.exhausted and (current is None or current.epoch == producer.epoch):
        last_epoch = NO_EPOCH if current is None else producer.epoch
        producer = Producer(_new_id(asked.new_id), 0)
    elif transaction.exhausted:
        assert current is not None
        raise _fenced(transaction, current)
    elif current is None or current.epoch == producer.epoch:
        last_epoch = NO_EPOCH if current is None else producer.epoch
        producer = Producer(producer.id, producer.epoch + 1)
    elif current.epoch == asked.last_epoch:  # asked again: the answer got lost
        last_epoch = asked.last_epoch
    else:
        raise _fenced(transaction, current)
    changed = transaction.to(
        Status.EMPTY,
        now_ms,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        timeout_ms=asked.timeout_ms,
        start_ms=-1,
    )
    return Decision([record(changed)], Initialised(producer, last_epoch))


def fence(transaction: Transaction, now_ms: int, server_version: int, new_id: int) -> Transaction:
    """Abort the open transaction in an epoch that its producer doesn't have."""
    if server_version >= EPOCH_BUMPS_FROM:
        return _prepare(transaction, Status.PREPARE_ABORT, now_ms, server_version, new_id)
    epoch = min(transaction.producer_epoch + 1, EPOCH_MAX)
    return transaction.to(Status.PREPARE_ABORT, now_ms, producer_epoch=epoch, version=0)


def add_partitions(
    state: TransactionsState,
    transactional_id: str,
    producer: Producer,
    partitions: Collection[TopicPartition],
    version: int,
    now_ms: int,
) -> Decision[Entry, Status]:
    """Partitions join the transaction, which begins with its first. The status before."""
    transaction = _of(state, transactional_id, producer)
    before = transaction.status
    if before in ENDING:
        raise _ending(transaction)
    if len(partitions) > TRANSACTION_PARTITIONS_MAX:
        raise _too_many(transaction)
    joined = transaction.partitions.union(partitions)
    if len(joined) > TRANSACTION_PARTITIONS_MAX:
        raise _too_many(transaction)
    if before == Status.ONGOING and len(joined) == len(transaction.partitions):
        return Decision((), before)
    start_ms = now_ms if before in AT_REST else transaction.start_ms
    changed = transaction.to(Status.ONGOING, now_ms, partitions=joined, start_ms=start_ms, version=version)
    return Decision([record(changed)], before)


def verify(
    state: TransactionsState, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is part of the producer's open transaction; the state to ask is the committed one."""
    transaction = _of(state, transactional_id, producer)
    if transaction.status in ENDING:
        raise _ending(transaction)
    return {
        partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


class EndAsked(NamedTuple):
    """EndTxn. `version`: the transaction version that the client speaks."""

    transactional_id: str
    producer: Producer
    commit: bool
    version: int
    new_id: int = NO_PRODUCER_ID


def end(state: TransactionsState, asked: EndAsked, now_ms: int) -> Decision[Entry, Producer]:
    """Decide how the transaction ends. The producer to go on with, for clients of the second version.

    Asking again gives the same answer, also while the markers are being written; asking for the opposite of what was
    decided gives INVALID_TXN_STATE.
    """
    if asked.version >= EPOCH_BUMPS_FROM:
        return _end_raising_epoch(state, asked, now_ms)
    transaction = _of(state, asked.transactional_id, asked.producer)
    if transaction.status == Status.ONGOING:
        prepared = transaction.to(_prepared(asked.commit), now_ms, version=0, next_producer_id=NO_PRODUCER_ID)
        return Decision([record(prepared)], NO_PRODUCER)
    if transaction.status in (_prepared(asked.commit), _complete(asked.commit)):
        return Decision((), NO_PRODUCER)
    raise _wrong_end(transaction, asked.commit)


def _end_raising_epoch(state: TransactionsState, asked: EndAsked, now_ms: int) -> Decision[Entry, Producer]:
    """With an epoch a transaction: the same epoch is about the next one, the one before about the last one again.

    Who aborts the next one before it wrote anything may come while the last one is still being ended, and waits. At
    rest, by what is asked and in which epoch (the table is KIP-890's):

    |                | abort, again | abort, present | commit, again | commit, present |
    |---|---|---|---|---|
    | Empty          | fenced       | next epoch     | fenced        | wrong           |
    | CompleteAbort  | the same     | next epoch     | wrong         | wrong           |
    | CompleteCommit | wrong        | next epoch     | the same      | wrong           |
    """
    transaction = _known(state, asked.transactional_id)
    if _is_next(transaction, asked.producer):
        raise _ending(transaction)
    status, epoch = transaction.status, asked.producer.epoch
    # The epochs were used up: what was asked for with the last one was answered with a new producer id.
    over_ids = (
        transaction.previous_producer_id == asked.producer.id
        and epoch == CLIENT_EPOCH_MAX
        and transaction.producer_epoch == 0
    )
    if asked.producer.id != transaction.producer_id and not over_ids:
        raise _other_producer(transaction, asked.producer)
    again = (status in ENDED and over_ids) or (
        status not in (Status.EMPTY, Status.ONGOING) and transaction.producer_epoch == epoch + 1
    )
    if over_ids and not again:
        raise _fenced(transaction, asked.producer)
    if not again and (epoch != transaction.producer_epoch or status in ENDING):
        raise _fenced(transaction, asked.producer)
    if again and status in (_prepared(asked.commit), _complete(asked.commit)):
        after = _after(transaction)
        if after.epoch > CLIENT_EPOCH_MAX:  # aborted in the epoch that is for fencing, by a coordinator of version 0
            raise _fenced(transaction, asked.producer)
        return Decision((), after)
    if again or (asked.commit and status != Status.ONGOING):
        raise _wrong_end(transaction, asked.commit)
    prepared = _prepare(transaction, _prepared(asked.commit), now_ms, asked.version, asked.new_id)
    return Decision([record(prepared)], _after(prepared))


def _prepare(transaction: Transaction, status: Status, now_ms: int, version: int, new_id: int) -> Transaction:
    """The end in the next epoch; with a producer id to go on with where that is the last."""
    return transaction.to(
        status,
        now_ms,
        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
        next_producer_id=_new_id(new_id) if transaction.exhausted else NO_PRODUCER_ID,
        start_ms=transaction.start_ms if transaction.status == Status.ONGOING else now_ms,
        version=version,
    )


def _after(prepared: Transaction) -> Producer:
    """Who the producer is when the end that was prepared is complete."""
    if (
        prepared.status in ENDING
        and prepared.version >= EPOCH_BUMPS_FROM
        and prepared.next_producer_id != NO_PRODUCER_ID
    ):
        return Producer(prepared.next_producer_id, 0)
    return Producer(prepared.producer_id, prepared.producer_epoch)


def _is_next(transaction: Transaction, producer: Producer) -> bool:
    """Whether this is who the producer will be when the end that is on its way is complete, and was told so already."""
    return transaction.status in ENDING and producer == _after(transaction)


def complete(state: TransactionsState, transactional_id: str, producer: Producer, now_ms: int) -> Decision[Entry, None]:
    """All markers are written: the transaction is over. Nothing, where it is over already."""
    transaction = state.transactions.get(transactional_id)
    if (
        transaction is None
        or transaction.status not in ENDING
        or (transaction.producer_id, transaction.producer_epoch) != producer
    ):
        return Decision((), None)
    after = _after(transaction)
    changed = transaction.to(
        _complete(transaction.status == Status.PREPARE_COMMIT),
        now_ms,
        producer_id=after.id,
        producer_epoch=after.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        timeout_ms=LEASED_MS if transaction.timeout_ms == PREPARED_MS else transaction.timeout_ms,
    )
    return Decision([record(changed)], None)


def hold(
    state: TransactionsState, transactional_id: str, producer: Producer, *, prepare: bool, now_ms: int
) -> Decision[Entry, None]:
    """Renew an open two-phase transaction's lease, or `prepare` it: then it has none any more.

    INVALID_TXN_STATE, or that the producer was fenced, where that one is not open any more; never is one begun by it.
    """
    transaction = _of(state, transactional_id, producer)
    if transaction.status != Status.ONGOING or not transaction.two_phase:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"transactional id {transactional_id} has no two-phase transaction open"
        )
    if not (prepare and transaction.leased):
        return Decision((), None)
    return Decision([record(transaction.to(Status.ONGOING, now_ms, timeout_ms=PREPARED_MS))], None)


class Times(NamedTuple):
    """What leases are counted by: when somebody was last heard of a transaction, and how long that suffices.

    `lease_ms` is 0 where leases are off. Neither is in the log: a lease begins anew with the shard's leader.
    """

    heard_ms: int
    lease_ms: int


def abort_overdue(
    state: TransactionsState, transactional_id: str, times: Times, now_ms: int, server_version: int, new_id: int
) -> Decision[Entry, bool]:
    """Abort a transaction whose time is over; whether it was."""
    transaction = state.transactions.get(transactional_id)
    if transaction is None or transaction.status != Status.ONGOING:
        return Decision((), False)
    deadline_ms = deadline(transaction, times)
    if deadline_ms is None or deadline_ms >= now_ms:
        return Decision((), False)
    return Decision([record(fence(transaction, now_ms, server_version, new_id))], True)


def deadline(transaction: Transaction, times: Times) -> int | None:
    """When an open transaction is aborted. None: never, another process ends it."""
    if not transaction.two_phase:
        return transaction.start_ms + transaction.timeout_ms
    return times.heard_ms + times.lease_ms if transaction.leased and times.lease_ms else None


def forget_idle(state: TransactionsState, transactional_ids: Iterable[str], before_ms: int) -> Decision[Entry, int]:
    """Transactional ids at rest that were last used at `before_ms` or earlier go away; how many."""
    gone = [
        transactional_id
        for transactional_id in transactional_ids
        if (transaction := state.transactions.get(transactional_id)) is not None and is_idle(transaction, before_ms)
    ]
    return Decision([tombstone(transactional_id) for transactional_id in gone], len(gone))


def is_idle(transaction: Transaction, before_ms: int) -> bool:
    return transaction.status in AT_REST and transaction.updated_ms <= before_ms


def _prepared(commit: bool) -> Status:
    return Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT


def _complete(commit: bool) -> Status:
    return Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT


def _new_id(new_id: int) -> int:
    if new_id == NO_PRODUCER_ID:
        raise ProducerIdNeeded
    return new_id


def _known(state: TransactionsState, transactional_id: str) -> Transaction:
    transaction = state.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id} isn't known: initialise it"
        )
    return transaction


def _of(state: TransactionsState, transactional_id: str, producer: Producer) -> Transaction:
    """The transaction, if it is this producer's."""
    transaction = _known(state, transactional_id)
    if transaction.producer_id != producer.id:
        raise _ending(transaction) if _is_next(transaction, producer) else _other_producer(transaction, producer)
    if transaction.producer_epoch != producer.epoch:
        raise _fenced(transaction, producer)
    return transaction


def _other_producer(transaction: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"transactional id {transaction.transactional_id} has producer id {transaction.producer_id}, not {producer.id}",
    )


def _fenced(transaction: Transaction, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"producer {producer.id} of epoch {producer.epoch} was replaced under transactional id "
        f"{transaction.transactional_id}: {transaction.producer_id} of epoch {transaction.producer_epoch} has it",
    )


def _ending(transaction: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the last transaction of {transaction.transactional_id} is still being ended: try again",
    )


def _too_many(transaction: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"a transaction of {transaction.transactional_id} with more than {TRANSACTION_PARTITIONS_MAX} partitions",
    )


def _wrong_end(transaction: Transaction, commit: bool) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"transactional id {transaction.transactional_id} is at {transaction.status.name}: "
        f"there is nothing to {'commit' if commit else 'abort'}",
    )
