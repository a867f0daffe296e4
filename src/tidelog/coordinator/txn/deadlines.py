"""Transactions whose time is over are aborted, so that nobody waits for a dead producer longer than it said.

Of a two-phase transaction with a lease the time is over when nobody has renewed it for so long.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.txn.decide import Times, deadline
from tidelog.coordinator.txn.state import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinator.txn.questions import TransactionShard
    from tidelog.coordinator.txn.state import Transaction
    from tidelog.env.promise import Promise

log = logging.getLogger("tidelog.transactions")

RETRY_MS = 1000
ABORTED_TOGETHER = 50
"""In one turn of the loop: thousands may be due at once, of a job that died."""


class Deadlines:
    """One timer a shard, at its first deadline."""

    def __init__(self, abort: Callable[[str], Promise[bool]], lease_ms: Callable[[], int]) -> None:
        self._abort = abort
        self._lease_ms = lease_ms

    def times(self, shard: TransactionShard, transactional_id: str, now_ms: int) -> Times:
        """What the lease of an open transaction is counted by."""
        return Times(shard.live.last_heard_ms(transactional_id, now_ms), self._lease_ms())

    def watch(self, shard: TransactionShard, transactional_id: str) -> None:
        """Abort the open transaction of this id when its time is over."""
        transaction = shard.machine.newest.transactions.get(transactional_id)
        if transaction is None or transaction.status != Status.ONGOING or not shard.leads:
            return
        deadline_ms = self._deadline(shard, transaction, shard.clock.now_ms())
        if deadline_ms is not None and shard.live.watch(transactional_id, deadline_ms):
            self._set_timer(shard)

    def _deadline(self, shard: TransactionShard, transaction: Transaction, now_ms: int) -> int | None:
        if not transaction.leased:
            return deadline(transaction, Times(0, 0))
        return deadline(transaction, self.times(shard, transaction.transactional_id, now_ms))

    def _set_timer(self, shard: TransactionShard) -> None:
        live = shard.live
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None
        first_ms = live.first_deadline_ms
        if first_ms is not None:
            delay_ms = max(first_ms + 1 - shard.clock.now_ms(), 1)
            live.timer = shard.schedule(delay_ms / 1000, partial(self._look, shard))

    def _look(self, shard: TransactionShard) -> None:
        shard.live.timer = None
        now_ms = shard.clock.now_ms()
        for transactional_id in shard.live.due(now_ms, ABORTED_TOGETHER):
            transaction = shard.machine.newest.transactions.get(transactional_id)
            if transaction is None or transaction.status != Status.ONGOING:
                continue
            deadline_ms = self._deadline(shard, transaction, now_ms)
            if deadline_ms is None:  # it was prepared meanwhile
                continue
            if deadline_ms < now_ms:
                self._abort(transactional_id).on_done(partial(self._aborted, shard, transactional_id))
            else:  # it was renewed, or the id is in another transaction by now
                shard.live.watch(transactional_id, deadline_ms)
        self._set_timer(shard)

    def _aborted(self, shard: TransactionShard, transactional_id: str, promise: Promise[bool]) -> None:
        if promise.error is None:
            if promise.result():
                log.info("the transaction of %s was aborted: its time, or its lease, was over", transactional_id)
            else:  # it was renewed, or is another one, meanwhile
                self.watch(shard, transactional_id)
        elif shard.leads:
            log.warning("the overdue transaction of %s can't be aborted: %s", transactional_id, promise.error)
            shard.live.watch(transactional_id, shard.clock.now_ms() + RETRY_MS)
            self._set_timer(shard)
