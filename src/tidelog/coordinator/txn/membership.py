"""Whether partitions are part of a producer's transaction: its coordinator's word, wherever that is (KIP-890).

Whoever is about to append the first records of a transaction asks here: `verify` looks, `join` adds the partitions. The
coordinator is this broker, by a plain call, or another one, by AddPartitionsToTxn as brokers send it: many producers in
one request. Nothing is asked again but a join that comes while the transaction before is being ended, and for a moment
only; any other trouble is for the client, which sends its records again.

What is said may be out of date when it arrives: the guard (guard.py) stands between that and the append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.coordinator.bounds import CHECKED_TOGETHER
from tidelog.coordinator.placement import TRANSACTION_STATE, partition_of
from tidelog.coordinator.txn.state import EPOCH_BUMPS_FROM
from tidelog.env.promise import Promise
from tidelog.metadata.image import NO_LEADER
from tidelog.rpc.errors import Lost
from tidelog.wire.errors import ErrorCode, KafkaError, error_code
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.txn.broker_queues import BrokerQueues
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.coordinator.txn.decide import Producer
    from tidelog.env import Environment
    from tidelog.metadata.follow import Follower

Codes: TypeAlias = dict[TopicPartition, ErrorCode]
"""What the coordinator says of each partition; NONE: it is part of the transaction."""

TIMEOUT_MS = 10_000
"""How long a coordinator may take: less than clients wait for their records."""


class Check(NamedTuple):
    """A producer's partitions, and what its coordinator is to do with them."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    verify_only: bool
    codes: Promise[Codes]

    def settle(self, code: ErrorCode) -> None:
        """The same of each partition."""
        self.codes.resolve(dict.fromkeys(self.partitions, code))


class Membership:
    """`here` is this broker's own coordinator."""

    def __init__(
        self,
        node_id: int,
        env: Environment,
        metadata: Follower,
        config: Callable[[], BrokerConfig],
        here: TransactionCoordinator,
        elsewhere: BrokerQueues[Check],
    ) -> None:
        self._node_id = node_id
        self._env = env
        self._metadata = metadata
        self._config = config
        self._here = here
        self._elsewhere = elsewhere

    def close(self) -> None:
        self._elsewhere.close()

    def verify(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Promise[Codes]:
        """What the coordinator knows of these partitions; settled at once where it is this broker."""
        coordinator_id = self._coordinator_of(transactional_id)
        if coordinator_id != self._node_id:
            return self._ask(coordinator_id, transactional_id, producer, partitions, verify_only=True)
        try:
            return Promise[Codes].resolved(self._here.verify(transactional_id, producer, partitions))
        except KafkaError as error:
            return Promise[Codes].resolved(dict.fromkeys(partitions, error.code))

    def join(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Promise[Codes]:
        """Have the partitions join the transaction, which begins with its first. Fails with a bug only."""
        codes: Promise[Codes] = Promise()
        patience_s = self._config().add_partitions_to_txn_retry_backoff_max_ms / 1000
        self._join(codes, self._env.clock.monotonic() + patience_s, transactional_id, producer, partitions)
        return codes

    def _join(
        self,
        codes: Promise[Codes],
        until: float,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
    ) -> None:
        coordinator_id = self._coordinator_of(transactional_id)
        left_s = until - self._env.clock.monotonic()
        if coordinator_id == self._node_id:
            self._here.add_partitions(
                transactional_id, producer, partitions, EPOCH_BUMPS_FROM, patience_s=max(left_s, 0.0)
            ).then(partial(_told, partitions)).on_done(partial(_pass_on, codes))
            return
        retry_s = self._config().add_partitions_to_txn_retry_backoff_ms / 1000

        def told(promise: Promise[Codes]) -> None:
            if ErrorCode.CONCURRENT_TRANSACTIONS in promise.result().values() and retry_s <= left_s:
                again = partial(self._join, codes, until, transactional_id, producer, partitions)
                self._env.loop.call_later(retry_s, again)
            else:
                codes.resolve(promise.result())

        self._ask(coordinator_id, transactional_id, producer, partitions, verify_only=False).on_done(told)

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that leads the id's partition; NO_LEADER where none does now."""
        image = self._metadata.image
        topic = image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader

    def _ask(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Promise[Codes]:
        check = Check(transactional_id, producer, partitions, verify_only, Promise())
        if not transactional_id:
            check.settle(ErrorCode.INVALID_REQUEST)
        elif coordinator_id == NO_LEADER:
            check.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._elsewhere.ask(coordinator_id, check)
        return check.codes


def _told(partitions: Sequence[TopicPartition], joined: Promise[None]) -> Codes:
    error = joined.error
    if error is not None and not isinstance(error, KafkaError):
        raise error
    return dict.fromkeys(partitions, ErrorCode.NONE if error is None else error.code)


def _pass_on(codes: Promise[Codes], told: Promise[Codes]) -> None:
    if told.error is not None:
        codes.fail(told.error)
    else:
        codes.resolve(told.result())


class MembershipDialogue:
    """AddPartitionsToTxn v4 and later: the answer names transactional ids, so that a request has each of them once."""

    def request(self, waiting: deque[Check]) -> tuple[AddPartitionsToTxnRequest, list[Check]]:
        checks: list[Check] = []
        later: list[Check] = []
        names: set[str] = set()
        count = 0
        while waiting and count < CHECKED_TOGETHER:
            check = waiting.popleft()
            if check.transactional_id in names:
                later.append(check)
                continue
            names.add(check.transactional_id)
            checks.append(check)
            count += len(check.partitions)
        waiting.extendleft(reversed(later))
        return AddPartitionsToTxnRequest(transactions=list(map(_transaction, checks))), checks

    def answered(self, asked: list[Check], response: AddPartitionsToTxnResponse) -> None:
        if response.error_code:
            code = error_code(response.error_code)
            # The client may have every right: what failed is between brokers.
            refused = ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
            for check in asked:
                check.settle(refused)
            return
        told = {result.transactional_id: result for result in response.results_by_transaction}
        for check in asked:
            result = told.get(check.transactional_id)
            codes = {
                (topic.name, place.partition_index): error_code(place.partition_error_code)
                for topic in (() if result is None else result.topic_results)
                for place in topic.results_by_partition
            }
            untold = ErrorCode.COORDINATOR_NOT_AVAILABLE
            check.codes.resolve({place: codes.get(place, untold) for place in check.partitions})

    def failed(self, asked: list[Check], error: Exception) -> None:
        """What passes is told as such; else the coordinator is too old for the question."""
        passes = isinstance(error, KafkaError | Lost)
        for check in asked:
            check.settle(ErrorCode.NETWORK_EXCEPTION if passes else _from_too_old(check))


def _from_too_old(check: Check) -> ErrorCode:
    """As in Kafka: a coordinator of before KIP-890 can't verify, so it isn't asked to; nor can brokers join one."""
    return ErrorCode.NONE if check.verify_only else ErrorCode.UNSUPPORTED_VERSION


def _transaction(check: Check) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in check.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=check.transactional_id,
        producer_id=check.producer.id,
        producer_epoch=check.producer.epoch,
        verify_only=check.verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=topics[name]) for name in topics],
    )
