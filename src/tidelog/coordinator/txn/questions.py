"""Questions to the shard of a transactional id: a decision, with what it may need before it can be taken.

- A new producer id: it comes from the controller, so the decision is taken again when there is one.
- The end of the transaction before: while its markers are being written nothing new may begin. Most ends take a
  millisecond, so whoever asks is kept waiting for a moment instead of being sent away with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from tidelog.coordinator.txn.decide import ProducerIdNeeded
from tidelog.coordinator.txn.live import LastEpoch, TransactionsLive
from tidelog.coordinator.txn.replay import in_version
from tidelog.coordinator.txn.state import NO_PRODUCER_ID, TransactionsState
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.entry import Entry
    from tidelog.coordinator.shard import Shard
    from tidelog.coordinator.shards import Shards
    from tidelog.env.loop import Timer
    from tidelog.machine.decision import Decision

log = logging.getLogger("tidelog.transactions")

T = TypeVar("T")

TransactionShard: TypeAlias = "Shard[TransactionsState, TransactionsLive]"
TransactionShards: TypeAlias = "Shards[TransactionsState, TransactionsLive]"
Decide: TypeAlias = "Callable[[TransactionShard, TransactionsState, int, int], Decision[Entry, Noted[T]]]"
"""`(shard, newest state, now, new producer id or -1) -> (records, answer with what is to be remembered of it)`."""

PATIENCE_S = 1.0
"""How long a request waits for the end of the transaction before it; then the client is told to ask again."""


class Noted(NamedTuple, Generic[T]):
    """An answer, and what its shard remembers beside the log once the records are appended."""

    answer: T
    epoch: LastEpoch | None = None
    heard_ms: int | None = None
    """When somebody counted on the transaction: its lease begins anew."""
    begins: bool = False
    """Its time begins to run."""


class Questions:
    """`noted` is told what is to be remembered of each decision, as soon as its records are appended; `settled` when
    its answer is about to leave, with None where nothing was appended."""

    def __init__(
        self,
        shards: TransactionShards,
        next_producer_id: Callable[[], Promise[int]],
        version: Callable[[], int],
        noted: Callable[[TransactionShard, str, Noted[Any]], None],
        settled: Callable[[TransactionShard, str, Noted[Any] | None], None],
    ) -> None:
        self._shards = shards
        self._next_producer_id = next_producer_id
        self._version = version
        self._noted = noted
        self._settled = settled
        shards.on_unload.append(_send_away)

    def ask(self, transactional_id: str, decide: Decide[T], *, patience_s: float = PATIENCE_S) -> Promise[T]:
        """The answer, once what was decided is committed. Fails with a KafkaError in the terms of clients."""
        question = _Question(self, transactional_id, decide, patience_s)
        self.decide(question)
        return question.answer

    def decide(self, question: _Question[Any]) -> None:
        transactional_id = question.transactional_id
        try:
            shard = self._shards.of(transactional_id)
        except KafkaError as error:
            question.answer.fail(error)
            return
        level = self._version()
        promise, noted = shard.hand_in(
            lambda state, now_ms: in_version(question.decide(shard, state, now_ms, question.new_id), level)
        )
        if noted is not None:
            self._noted(shard, transactional_id, noted)
        error = promise.error
        if isinstance(error, ProducerIdNeeded):
            self._next_producer_id().on_done(question.got_id)
        elif (
            isinstance(error, KafkaError)
            and error.code == ErrorCode.CONCURRENT_TRANSACTIONS
            and question.patience_s > 0
            and shard.leads
        ):
            question.wait(shard)
        else:
            promise.on_done(lambda settled: self._settle(shard, question, noted, settled))

    def _settle(
        self,
        shard: TransactionShard,
        question: _Question[Any],
        noted: Noted[Any] | None,
        promise: Promise[Noted[Any]],
    ) -> None:
        # Also where the answer is an error: what wasn't committed in time may be yet.
        self._settled(shard, question.transactional_id, noted)
        if promise.error is not None:
            question.answer.fail(promise.error)
        else:
            question.answer.resolve(promise.result().answer)


class _Question(Generic[T]):
    """One decision that is to be taken, and has to wait for something perhaps; for an end at most once."""

    __slots__ = ("_questions", "_timer", "answer", "decide", "new_id", "patience_s", "transactional_id")

    def __init__(self, questions: Questions, transactional_id: str, decide: Decide[T], patience_s: float) -> None:
        self._questions = questions
        self._timer: Timer | None = None
        self.transactional_id = transactional_id
        self.decide = decide
        self.patience_s = patience_s
        self.new_id = NO_PRODUCER_ID
        self.answer: Promise[T] = Promise()

    def got_id(self, promise: Promise[int]) -> None:
        if promise.error is not None:
            log.warning("no producer id for %s: %s; it is told to ask again", self.transactional_id, promise.error)
            self.answer.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there is no producer id right now"))
            return
        self.new_id = promise.result()
        self._questions.decide(self)

    def wait(self, shard: TransactionShard) -> None:
        waiting = shard.live.waiting.setdefault(self.transactional_id, {})
        waiting[self] = None
        self._timer = shard.schedule(self.patience_s, lambda: self._give_up(shard))

    def go_on(self) -> None:
        """The end that it waited for is there, or nobody will see it here."""
        assert self._timer is not None
        self._timer.cancel()
        self.patience_s = 0.0
        self._questions.decide(self)

    def _give_up(self, shard: TransactionShard) -> None:
        shard.live.give_up(self.transactional_id, self)
        self.go_on()


def _send_away(shard: TransactionShard) -> None:
    """Leadership is over: whoever waits here hears so."""
    for transactional_id in list(shard.live.waiting):
        shard.live.ended(transactional_id)
