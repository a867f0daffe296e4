"""AddOffsetsToTxn (key 25): the offsets that a group commits join a transaction: its partition of the offsets topic.

v2 may answer PRODUCER_FENCED; v3 is flexible; v4 answers TRANSACTION_ABORTABLE. Clients of the second version don't
send it: their TxnOffsetCommit joins by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.transactional import answered, as_known_to
from tidelog.coordinator.placement import CONSUMER_OFFSETS, partition_of
from tidelog.coordinator.txn.decide import Producer
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise

FENCED_FROM = 2


def handle(context: Context, request: AddOffsetsToTxnRequest) -> Promise[AddOffsetsToTxnResponse]:
    services = context.services
    # Where nobody asked for the group's coordinator yet, which makes the topic, it will have so many partitions.
    count = services.groups.shards.partitions or services.config.offsets_topic_num_partitions
    promise = services.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        [(CONSUMER_OFFSETS, partition_of(request.group_id, count))],
        0,
    )
    return answered(
        promise,
        lambda _: AddOffsetsToTxnResponse(),
        lambda code: AddOffsetsToTxnResponse(error_code=as_known_to(code, knows_fenced=context.version >= FENCED_FROM)),
    )
