"""Records to build images from."""

from tidelog.metadata.apply import fold
from tidelog.metadata.image import EMPTY_IMAGE, ClusterImage
from tidelog.metadata.versions import DEFAULT_LEVELS
from tidelog.wire.records.cluster import FeatureLevelRecord
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.nodes import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from tidelog.wire.records.topics import PartitionRecord, TopicRecord

DIRECTORY = b"directory of one"
TOPIC_ID = b"the topic's id 0"


def features() -> list[Record]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in DEFAULT_LEVELS.items()]


def broker(id: int = 1, *, epoch: int = 6, fenced: bool = False, rack: str | None = None) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=id,
        incarnation_id=b"incarnation %4d" % id,
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)],
        features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=rack,
        fenced=fenced,
        log_dirs=[directory(id)],
    )


def directory(id: int) -> bytes:
    return DIRECTORY if id == 1 else b"directory %6d" % id


def topic(name: str = "t", id: bytes = TOPIC_ID, partitions: int = 1, replicas: tuple[int, ...] = (1,)) -> list[Record]:
    return [
        TopicRecord(name=name, topic_id=id),
        *(partition(index, id, replicas=replicas) for index in range(partitions)),
    ]


def partition(
    index: int,
    topic_id: bytes = TOPIC_ID,
    *,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas if isr is None else isr),
        leader=replicas[0] if leader is None else leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory(replica) for replica in replicas],
    )


def image_of(*records: Record, offset: int | None = None) -> ClusterImage:
    all_records = [*features(), *records]
    image = fold(EMPTY_IMAGE, all_records, len(all_records) - 1 if offset is None else offset, 1, 1000)
    image.check_invariants()
    return image
