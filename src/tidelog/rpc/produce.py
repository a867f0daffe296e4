"""Writing record batches to a partition, as they are: built by the caller, acknowledged by all replicas."""

from tidelog.rpc.cluster import Cluster
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TIMEOUT_MS = 30_000
ALL = -1
_VERSION_MAX = 13
TRANSACTION_V1_VERSION_MAX = 11  # later versions join a transaction by themselves


def produce(
    cluster: Cluster,
    topic: str,
    partition: int,
    batch: bytes | bytearray,
    *,
    transactional_id: str | None = None,
    version_max: int = _VERSION_MAX,
) -> int:
    """Append one record batch; the offset of its first record.

    Repeated after what may pass, so that a batch may come twice unless it carries a producer id and a sequence, by
    which the broker knows it again.
    """

    def once() -> int:
        connection, _ = cluster.leader(topic, partition)
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        known = cluster.topic(topic)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, topic_id=known.id, partition_data=[data])],
        )
        response = connection.ask(request, ProduceResponse, version_max, TIMEOUT_MS / 1000)
        [answer] = response.responses[0].partition_responses
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return answer.base_offset
        if code != ErrorCode.NONE:
            raise KafkaError(code, answer.error_message or f"a batch to {topic}-{partition}")
        return answer.base_offset

    return cluster.patiently(f"write to {topic}-{partition}", once)
