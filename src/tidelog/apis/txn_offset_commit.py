"""TxnOffsetCommit (key 28): a group's progress as part of a transaction: it counts once the transaction is committed.

The producer's first offsets in a transaction need the transaction coordinator's word, as its first records in a
partition do (KIP-890): before v5 it is asked whether the group was added (AddOffsetsToTxn), from v5 on the group joins
by this. v3 lets the member say who it is, and fences it like a plain commit (KIP-447); v4 answers
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.commit import Wanted, commit_in_transaction
from tidelog.coordinator.group.fencing import Member
from tidelog.coordinator.placement import CONSUMER_OFFSETS
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.guard import guard
from tidelog.env.slices import CHEAP_A_STEP, ITEMS_A_STEP, Steps, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.apis.shared.context import Context
    from tidelog.metadata.image import ClusterImage

_LATER = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""The transaction's coordinator couldn't be asked, or doesn't know of the offsets topic yet."""
KNOWS_LOADING_FROM = 2
ABORTABLE_FROM = 4
JOINS_FROM = 5


def handle(context: Context, request: TxnOffsetCommitRequest) -> Steps[TxnOffsetCommitResponse]:
    response, wanted, waiting = yield from _sort_out(context.services.metadata.image, request)
    if not wanted:
        return response
    try:
        guarded = yield from _admitted(context, request)
        codes = yield from commit_in_transaction(
            context.services.groups,
            request.group_id,
            Member(request.generation_id, request.member_id, request.group_instance_id),
            (request.producer_id, request.producer_epoch),
            wanted,
            context.version,
            guarded,
        )
    except KafkaError as error:
        codes = [error.code] * len(waiting)
    for place, (partition, code) in enumerate(zip(waiting, codes, strict=True), 1):
        partition.error_code = _as_known(code, context.version)
        if not place % CHEAP_A_STEP:
            yield
    return response


def _sort_out(
    image: ClusterImage, request: TxnOffsetCommitRequest
) -> Steps[tuple[TxnOffsetCommitResponse, list[Wanted], list[TxnOffsetCommitResponsePartition]]]:
    """The answer as far as it is known, what is left to commit, and where its outcome goes."""
    response = TxnOffsetCommitResponse()
    wanted: list[Wanted] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        answers: list[TxnOffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            index = partition.partition_index
            answer = TxnOffsetCommitResponsePartition(partition_index=index)
            answers.append(answer)
            if known is None or not 0 <= index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                waiting.append(answer)
                offset, epoch = partition.committed_offset, partition.committed_leader_epoch
                wanted.append(Wanted(known.name, known.id, index, offset, epoch, partition.committed_metadata))
            if not len(answers) % ITEMS_A_STEP:
                yield
        yield
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return response, wanted, waiting


def _admitted(context: Context, request: TxnOffsetCommitRequest) -> Steps[Callable[[], None]]:
    """What raises, when offsets are about to be written, where the transaction has ended meanwhile. Raises where the
    group isn't part of it. The coordinator may be another broker, so its word takes time."""
    services = context.services
    partition = services.groups.shard_of(request.group_id).partition
    joins = context.version >= JOINS_FROM
    watch = guard(partition, request.producer_id)
    known = partition.log.producers.get(request.producer_id)
    is_open = known is not None and known.epoch == request.producer_epoch and known.txn_first_offset >= 0
    if not is_open and (joins or services.config.transaction_partition_verification_enable):
        membership = services.transactions.membership
        ask = membership.join if joins else membership.verify
        place = CONSUMER_OFFSETS, partition.index
        producer = Producer(request.producer_id, request.producer_epoch)
        codes = yield from settled(ask(request.transactional_id, producer, [place]))
        if codes[place]:
            raise KafkaError(_as_asked(codes[place]), f"group {request.group_id} isn't part of the transaction")

    def check() -> None:
        try:
            watch.check()
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
            if not joins:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            raise

    return check


def _as_asked(code: ErrorCode) -> ErrorCode:
    """Of the transaction's coordinator; that of the group is the right one, and is asked again."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in _LATER else code


def _as_known(code: ErrorCode, version: int) -> ErrorCode:
    """The error as producers of this version can handle it."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_FROM) or (
        code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING_FROM
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
