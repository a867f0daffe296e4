"""The transaction coordinator on this broker: what the APIs ask. The decisions are in decide.py.

A request is decided on the shard of its transactional id; its answer leaves when the record is committed. An end that
was decided is carried out from there (ending.py), and so is one that a load finds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.coordinator.bounds import CHECKS_WAITING_MAX, MARKERS_WAITING_MAX
from tidelog.coordinator.placement import TRANSACTION_STATE
from tidelog.coordinator.shard import Kind
from tidelog.coordinator.shard_log import TOO_LARGE
from tidelog.coordinator.shards import Shards
from tidelog.coordinator.txn import decide
from tidelog.coordinator.txn.broker_queues import BrokerQueues
from tidelog.coordinator.txn.deadlines import Deadlines
from tidelog.coordinator.txn.decide import NO_PRODUCER, EndAsked, InitAsked, Initialised, Producer
from tidelog.coordinator.txn.delivery import Addressed, Delivery, MarkerDialogue
from tidelog.coordinator.txn.ending import Ending
from tidelog.coordinator.txn.live import LastEpoch, TransactionsLive
from tidelog.coordinator.txn.marker_senders import MarkerSenders, sender_name
from tidelog.coordinator.txn.markers import Markers
from tidelog.coordinator.txn.membership import TIMEOUT_MS as CHECK_TIMEOUT_MS
from tidelog.coordinator.txn.membership import Check, Membership, MembershipDialogue
from tidelog.coordinator.txn.questions import PATIENCE_S, Noted, Questions, TransactionShard, TransactionShards
from tidelog.coordinator.txn.replay import fold, in_version
from tidelog.coordinator.txn.state import (
    ENDING,
    EPOCH_BUMPS_FROM,
    NO_PRODUCER_ID,
    Status,
    Transaction,
    TransactionsState,
)
from tidelog.env.promise import Promise
from tidelog.env.slices import CHEAP_A_STEP, Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.versions import TRANSACTION_VERSION
from tidelog.rpc.peer import Peers
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import LEASED_MS, NO_TIMEOUT_MS
from tidelog.wire.records.coordinator import TRANSACTIONS_TOPIC, RecordTypes
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.entry import Entry
    from tidelog.env import Environment
    from tidelog.metadata.follow import Follower
    from tidelog.replica.replicas import Replicas

log = logging.getLogger("tidelog.transactions")

T = TypeVar("T")

RESUMED_TOGETHER = 50
"""Ends that are gone on with in one turn of the loop, after a load."""
FORGOTTEN_TOGETHER = 1000
"""Transactional ids that expire in one batch."""


class TransactionCoordinator:
    """All transactional ids whose partitions of `__transaction_state` this broker leads."""

    def __init__(
        self,
        shards: TransactionShards,
        metadata: Follower,
        config: Callable[[], BrokerConfig],
        next_producer_id: Callable[[], Promise[int]],
        markers: Markers,
        delivery: Delivery,
        make_membership: Callable[[TransactionCoordinator], Membership],
    ) -> None:
        self.shards = shards
        self.markers = markers
        self.senders = MarkerSenders()
        self.membership = make_membership(self)
        """The word of any id's coordinator, for who appends."""
        self._delivery = delivery
        self._metadata = metadata
        self._config = config
        self._ending = Ending(delivery, metadata, self._level)
        self._questions = Questions(shards, next_producer_id, self._level, self._note, self._settled)
        self._deadlines = Deadlines(self._abort_overdue, lambda: config().tidelog_transaction_lease_ms)
        shards.on_load.append(self._loaded)

    def _level(self) -> int:
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    def _note(self, shard: TransactionShard, transactional_id: str, noted: Noted[Any]) -> None:
        if noted.epoch is not None:
            shard.live.remember_epoch(transactional_id, noted.epoch)
        if noted.heard_ms is not None:
            shard.live.heard(transactional_id, noted.heard_ms)

    def _settled(self, shard: TransactionShard, transactional_id: str, noted: Noted[Any] | None) -> None:
        self._ending.begin(shard, transactional_id)
        if noted is not None and noted.begins:
            self._deadlines.watch(shard, transactional_id)

    def close(self) -> None:
        """The broker stops: nothing is decided any more, and nothing asked of others."""
        self.shards.close()
        self._delivery.close()
        self.membership.close()

    # -- what clients ask

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, current: Producer | None, *, two_phase: bool = False
    ) -> Promise[Producer]:
        """A producer id and epoch; whoever had the transactional id before is fenced, and its transaction aborted.

        `two_phase`: transactions under this id have no timeout, another process may end them; with LEASED_MS for a
        timeout they have a lease.
        """
        refusal = self._why_not(transactional_id, timeout_ms, two_phase)
        if refusal is not None:
            return Promise[Producer].failed(refusal)
        if two_phase and not (timeout_ms == LEASED_MS and self._has_leases()):
            timeout_ms = NO_TIMEOUT_MS
        asked = InitAsked(transactional_id, timeout_ms, current)
        decided = partial(self._decide_init, asked)
        answer: Promise[Producer] = Promise()

        def initialised(promise: Promise[Initialised], *, again: bool = False) -> None:
            if promise.error is not None:
                answer.fail(promise.error)
            elif not promise.result().aborts:
                answer.resolve(promise.result().producer)
            elif again:
                answer.fail(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "another transaction was begun meanwhile"))
            else:  # the open transaction is being aborted: the next look waits for that
                self._questions.ask(transactional_id, decided).on_done(partial(initialised, again=True))

        self._questions.ask(transactional_id, decided).on_done(initialised)
        return answer

    def _has_leases(self) -> bool:
        """Not below the second version: there a later transaction may have the epoch of the one that is renewed."""
        return self._config().tidelog_transaction_lease_ms > 0 and self._level() >= EPOCH_BUMPS_FROM

    def _why_not(self, transactional_id: str, timeout_ms: int, two_phase: bool) -> KafkaError | None:
        config = self._config()
        if not transactional_id:
            return KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if two_phase:
            if config.transaction_two_phase_commit_enable:
                return None
            why = "two-phase commit is off: set transaction.two.phase.commit.enable"
            return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
        if not 0 < timeout_ms <= config.transaction_max_timeout_ms:
            why = f"a timeout of {timeout_ms} ms; transaction.max.timeout.ms is {config.transaction_max_timeout_ms}"
            return KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, why)
        return None

    def _decide_init(
        self, asked: InitAsked, shard: TransactionShard, state: TransactionsState, now_ms: int, new_id: int
    ) -> Decision[Entry, Noted[Initialised]]:
        known = state.transactions.get(asked.transactional_id)
        present = NO_PRODUCER if known is None else Producer(known.producer_id, known.producer_epoch)
        last_epoch = shard.live.last_epoch(asked.transactional_id, present)
        asked = asked._replace(last_epoch=last_epoch, new_id=new_id)
        entries, made = decide.init_producer_id(state, asked, now_ms, self._level())
        epoch = _raised(entries) if made.aborts else LastEpoch(made.producer, made.last_epoch)
        return Decision(entries, Noted(made, epoch))

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        version: int,
        *,
        patience_s: float = PATIENCE_S,
    ) -> Promise[None]:
        """Partitions join the transaction; its time begins to run with the first."""
        if not transactional_id:
            return Promise[None].failed(KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty"))

        def decided(
            shard: TransactionShard, state: TransactionsState, now_ms: int, new_id: int
        ) -> Decision[Entry, Noted[None]]:
            entries, before = decide.add_partitions(state, transactional_id, producer, partitions, version, now_ms)
            counts_on_it = bool(entries) and state.transactions[transactional_id].two_phase
            heard_ms = now_ms if counts_on_it else None
            return Decision(entries, Noted(None, heard_ms=heard_ms, begins=before != Status.ONGOING))

        return self._questions.ask(transactional_id, decided, patience_s=patience_s)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is in the open transaction, as committed; raises KafkaError where there is none."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return decide.verify(self.shards.of(transactional_id).state, transactional_id, producer, partitions)

    def hold(self, transactional_id: str, producer: Producer, *, prepare: bool) -> Promise[None]:
        """Renew the lease of an open two-phase transaction, or end it with `prepare`: before its commit is recorded."""

        def decided(
            shard: TransactionShard, state: TransactionsState, now_ms: int, new_id: int
        ) -> Decision[Entry, Noted[None]]:
            entries, _ = decide.hold(state, transactional_id, producer, prepare=prepare, now_ms=now_ms)
            return Decision(entries, Noted(None, heard_ms=now_ms))

        return self._questions.ask(transactional_id, decided)

    def end(self, transactional_id: str, producer: Producer, commit: bool, version: int) -> Promise[Producer]:
        """Commit or abort. The answer leaves when that is decided for good; the markers follow."""
        if not transactional_id:
            return Promise[Producer].failed(KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty"))

        def decided(
            shard: TransactionShard, state: TransactionsState, now_ms: int, new_id: int
        ) -> Decision[Entry, Noted[Producer]]:
            asked = EndAsked(transactional_id, producer, commit, version, new_id)
            entries, after = decide.end(state, asked, now_ms)
            return Decision(entries, Noted(after, _raised(entries)))

        return self._questions.ask(transactional_id, decided)

    # -- what happens by itself

    def _abort_overdue(self, transactional_id: str) -> Promise[bool]:
        def decided(
            shard: TransactionShard, state: TransactionsState, now_ms: int, new_id: int
        ) -> Decision[Entry, Noted[bool]]:
            times = self._deadlines.times(shard, transactional_id, now_ms)
            entries, aborted = decide.abort_overdue(state, transactional_id, times, now_ms, self._level(), new_id)
            return Decision(entries, Noted(aborted, _raised(entries)))

        return self._questions.ask(transactional_id, decided)

    def _loaded(self, shard: TransactionShard) -> None:
        self._resume(shard, iter(shard.state.transactions.items()))
        self._forget_later(shard)

    def _resume(self, shard: TransactionShard, left: Iterator[tuple[str, Transaction]]) -> None:
        """What was open is watched again, what was being ended goes on: some ends a turn, there may be thousands."""
        begun = 0
        for transactional_id, transaction in left:
            if transaction.status == Status.ONGOING:
                self._deadlines.watch(shard, transactional_id)
            elif transaction.status in ENDING:
                self._ending.begin(shard, transactional_id)
                begun += 1
                if begun == RESUMED_TOGETHER:
                    shard.schedule(0, partial(self._resume, shard, left))
                    return

    def _forget_later(self, shard: TransactionShard) -> None:
        interval_ms = self._config().transaction_remove_expired_transaction_cleanup_interval_ms
        shard.schedule(interval_ms / 1000, partial(self._forget_idle, shard))

    def _forget_idle(self, shard: TransactionShard) -> None:
        """Transactional ids that nobody used for `transactional.id.expiration.ms` go away."""

        def forgotten(_: Promise[None]) -> None:
            if shard.leads:
                self._forget_later(shard)

        before_ms = shard.clock.now_ms() - self._config().transactional_id_expiration_ms
        shard.drive(self._forgetting(shard, before_ms)).on_done(forgotten)

    def _forgetting(self, shard: TransactionShard, before_ms: int) -> Steps[None]:
        idle: list[str] = []
        for number, (name, known) in enumerate(shard.state.transactions.items(), 1):
            if decide.is_idle(known, before_ms):
                idle.append(name)
            if len(idle) == FORGOTTEN_TOGETHER:
                yield from self._forget(shard, idle, before_ms)
                idle = []
            elif not number % CHEAP_A_STEP:
                yield
        if idle:
            yield from self._forget(shard, idle, before_ms)

    def _forget(self, shard: TransactionShard, names: Sequence[str], before_ms: int) -> Steps[None]:
        """In one batch or, where that would be too large, in two."""
        if not shard.leads:
            return
        promise = shard.submit(partial(self._decide_forget, names, before_ms))
        error = promise.error
        if error is None:
            promise.on_done(partial(_forgotten, shard, names))
        elif len(names) > 1 and isinstance(error, KafkaError) and error.code is TOO_LARGE:
            half = len(names) // 2
            yield from self._forget(shard, names[:half], before_ms)
            yield from self._forget(shard, names[half:], before_ms)
            return
        else:
            log.warning("transactional ids that expired can't be removed: %s", error)
        yield

    def _decide_forget(
        self, names: Sequence[str], before_ms: int, state: TransactionsState, now_ms: int
    ) -> Decision[Entry, int]:
        return in_version(decide.forget_idle(state, names, before_ms), self._level())


def _forgotten(shard: TransactionShard, names: Sequence[str], _: Promise[int]) -> None:
    """Of an id that is gone nothing is left in memory; whoever uses it again begins anew."""
    known = shard.machine.newest.transactions
    for transactional_id in names:
        if transactional_id not in known:
            shard.live.forget_epoch(transactional_id)


def _raised(entries: Sequence[Entry]) -> LastEpoch | None:
    """Of an end in a raised epoch: who has the one before may go on, until someone else is initialised.

    That is how a producer comes back whose EndTxn was answered into the void, or whose time was over.
    """
    for entry in entries:
        value: Any = entry.value
        if value.transaction_status in ENDING and value.client_transaction_version >= EPOCH_BUMPS_FROM:
            after = Producer(value.producer_id, value.producer_epoch)
            if value.next_producer_id != NO_PRODUCER_ID:
                after = Producer(value.next_producer_id, 0)
            return LastEpoch(after, value.producer_epoch - 1)
    return None


def transaction_coordinator(
    node_id: int,
    env: Environment,
    config: Callable[[], BrokerConfig],
    replicas: Replicas,
    metadata: Follower,
    next_producer_id: Callable[[], Promise[int]],
    groups: Shards[Any, Any],
) -> TransactionCoordinator:
    """The coordinator on its shards; `groups` are those of the group coordinator, where markers end offset commits."""
    kind: Kind[TransactionsState, TransactionsLive] = Kind(
        topic=TRANSACTION_STATE,
        types=RecordTypes(TRANSACTIONS_TOPIC),
        empty=TransactionsState(),
        fold=fold,
        make_live=lambda shard: TransactionsLive(),
    )
    shards = Shards(kind, node_id, env, replicas, metadata)
    markers = Markers(replicas, groups, env.clock)
    others: BrokerQueues[Addressed] = BrokerQueues(
        env,
        metadata,
        Peers(env, "markers", client_id=sender_name(node_id)),
        MarkerDialogue(),
        listener=lambda: config().inter_broker_listener.name,
        timeout_ms=lambda: config().request_timeout_ms,
        waiting_max=MARKERS_WAITING_MAX,
    )
    coordinators: BrokerQueues[Check] = BrokerQueues(
        env,
        metadata,
        Peers(env, "transactions", client_id=f"broker-{node_id}"),
        MembershipDialogue(),
        listener=lambda: config().inter_broker_listener.name,
        timeout_ms=lambda: min(CHECK_TIMEOUT_MS, config().request_timeout_ms),
        waiting_max=CHECKS_WAITING_MAX,
    )
    return TransactionCoordinator(
        shards,
        metadata,
        config,
        next_producer_id,
        markers,
        Delivery(node_id, metadata, markers, others),
        lambda here: Membership(node_id, env, metadata, config, here, coordinators),
    )
