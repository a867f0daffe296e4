"""Producer ids, handed to brokers in blocks: a broker that goes down wastes at most the rest of its block."""

from typing import Any, NamedTuple

from tidelog.controller.brokers import check_epoch
from tidelog.machine.decision import Decision
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import ProducerIdsRecord

BLOCK_IDS = 1000
PRODUCER_ID_MAX = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """`length` ids from `first` on, for one broker and nobody else ever again."""

    first: int
    length: int


def allocate(image: ClusterImage, broker_id: int, broker_epoch: int) -> Decision[Any, ProducerIdBlock]:
    check_epoch(image, broker_id, broker_epoch)
    first = max(image.next_producer_id, 0)
    if first > PRODUCER_ID_MAX - BLOCK_IDS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids were handed out")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_IDS)
    return Decision([record], ProducerIdBlock(first, BLOCK_IDS))
