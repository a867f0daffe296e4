"""What the transaction coordinator knows of each transactional id, and the ways in which that may change.

A transactional id goes round: it is given a producer id and epoch (Empty), its transaction takes in partitions
(Ongoing), somebody decides how it ends (PrepareCommit, PrepareAbort), markers are written to every partition, and the
round is over (CompleteCommit, CompleteAbort).

Why that is safe:

- **The decision is one record.** A transaction is committed when its PrepareCommit record is, and at no other moment.
  Nothing leads from PrepareCommit to an abort, nor from PrepareAbort to a commit: whoever comes later, another process,
  a timeout, the next leader after a crash, can only finish what was decided.
- **Markers come after the decision and before its completion.** A marker is written only when the Prepare record can't
  be lost any more, and the Complete record only when every marker can't. A coordinator that dies in between finds
  Prepare when it loads and writes all markers again; a marker that is there twice ends nothing twice.
- **A partition is in the record before its first batch is in the log.** So no transaction ends without a marker where
  it wrote: classic clients say so in AddPartitionsToTxn and are checked before the append, newer ones join by the
  append.
- **Whoever is fenced stays fenced.** Only the present producer id and epoch change anything, an epoch never falls under
  one producer id, and the last one is the coordinator's own: a producer never gets it, so there is always one left to
  fence with. When the epochs of an id are used up there is a new producer id.
- **A lease ends with the decision's first step.** A two-phase transaction with a lease is aborted when nobody renewed
  it for long enough: whoever is to decide is gone. It is *prepared* before its commit is recorded anywhere, by a record
  here, and from then on nothing but EndTxn ends it. So an abort by time comes before that, and whoever is to decide
  hears of it when preparing; or it doesn't come. That somebody may have prepared and died before deciding can't be
  told from here: that one stays, until its owner comes back or an operator ends it.
- **No two transactions share an epoch** with clients of the second version (KIP-890): ending raises it, and a marker
  carries the raised one, so what is delayed is told from what is new.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from immutables import Map

from tidelog.coordinator.bounds import CLIENT_EPOCH_MAX
from tidelog.log.bounds import EPOCH_MAX
from tidelog.wire.leases import LEASED_MS, PREPARED_MS
from tidelog.wire.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_BUMPS_FROM = 2
"""The transaction version from which each transaction has an epoch of its own."""


class Status(IntEnum):
    """Kafka's numbers, as they stand in `__transaction_state`. It has two more, which never reach the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


NAMES: Mapping[Status, str] = {
    Status.EMPTY: "Empty",
    Status.ONGOING: "Ongoing",
    Status.PREPARE_COMMIT: "PrepareCommit",
    Status.PREPARE_ABORT: "PrepareAbort",
    Status.COMPLETE_COMMIT: "CompleteCommit",
    Status.COMPLETE_ABORT: "CompleteAbort",
}
"""As ListTransactions and DescribeTransactions tell them."""

ENDED = frozenset((Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT))
AT_REST = ENDED | {Status.EMPTY}
ENDING = frozenset((Status.PREPARE_COMMIT, Status.PREPARE_ABORT))

TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    Status.EMPTY: frozenset((Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT)),
    Status.ONGOING: frozenset((Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT)),
    Status.PREPARE_COMMIT: frozenset((Status.COMPLETE_COMMIT,)),
    Status.PREPARE_ABORT: frozenset((Status.COMPLETE_ABORT,)),
    Status.COMPLETE_COMMIT: frozenset((Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT)),
    Status.COMPLETE_ABORT: frozenset((Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT)),
}
"""From each status to which. An id at rest (`AT_REST`) may also go away. PrepareAbort from rest is an abort of nothing:
clients of the second version ask for it, to have the next epoch."""


class Transaction(NamedTuple):
    """A transactional id and its present or last transaction: what a record of `__transaction_state` holds."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change: whoever asks again after a new id was given is recognised by it."""
    next_producer_id: int = NO_PRODUCER_ID
    """While ending with the last epoch: the producer id to go on with."""
    timeout_ms: int = 0
    status: Status = Status.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    version: int = 0
    """The transaction version that the client spoke at the last change."""

    @property
    def exhausted(self) -> bool:
        """Whether no epoch is left that a producer could get."""
        return self.producer_epoch >= CLIENT_EPOCH_MAX

    @property
    def two_phase(self) -> bool:
        """Whether another process ends it: it has no timeout, at most a lease."""
        return self.timeout_ms >= PREPARED_MS

    @property
    def leased(self) -> bool:
        """Whether it is aborted when nobody renews it; not where it is prepared."""
        return self.timeout_ms == LEASED_MS

    def to(self, status: Status, now_ms: int, **changes: Any) -> "Transaction":
        """The next state; asserts that the table allows it."""
        assert status in TRANSITIONS[self.status], f"{self.transactional_id}: {self.status.name} to {status.name}"
        changes.setdefault("previous_producer_id", self.producer_id)
        changed = self._replace(status=status, updated_ms=now_ms, **changes)
        check_transaction(changed)
        return changed


class TransactionsState(NamedTuple):
    """All transactional ids of one partition of `__transaction_state`."""

    transactions: Map[str, Transaction] = Map()


def check_transaction(transaction: Transaction) -> None:
    """What holds for every state of a transactional id."""
    assert transaction.producer_id >= 0, f"{transaction.transactional_id} has no producer id"
    assert 0 <= transaction.producer_epoch <= EPOCH_MAX, f"{transaction.transactional_id}: {transaction.producer_epoch}"
    assert not transaction.partitions or transaction.status not in AT_REST, transaction.transactional_id
    assert transaction.status == Status.EMPTY or transaction.start_ms >= 0, transaction.transactional_id


def check_invariants(state: TransactionsState) -> None:
    for transactional_id, transaction in state.transactions.items():
        assert transaction.transactional_id == transactional_id
        check_transaction(transaction)
