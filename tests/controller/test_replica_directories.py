"""AssignReplicasToDirs: where a broker's replicas are, and what follows where the directory is gone."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.metadata.images import DIRECTORY, TOPIC_ID, broker, directory, image_of, topic
from tidelog.controller.leaders import Defaults
from tidelog.controller.replica_directories import assign_replicas
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    DirectoryResult,
    PartitionData,
    PartitionResult,
    TopicData,
    TopicResult,
)
from tidelog.wire.records.cluster import FeatureLevelRecord
from tidelog.wire.records.topics import PartitionChangeRecord

SECOND = b"second directory"
LOST = bytes(15) + b"\x02"
OTHER_ID = b"another topic 00"


def cluster() -> ClusterImage:
    first = broker(1)
    first.log_dirs = [DIRECTORY, SECOND]
    return image_of(first, broker(2), broker(3), *topic(partitions=2, replicas=(1, 2)))


def ask(
    image: ClusterImage, *directories: tuple[bytes, bytes, Sequence[int]], broker_id: int = 1
) -> tuple[Sequence[Any], list[list[int]]]:
    """The records, and the codes by directory."""
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=6,
        directories=[
            DirectoryData(
                id=id,
                topics=[TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=i) for i in indexes])],
            )
            for id, topic_id, indexes in directories
        ],
    )
    records, response = whole(assign_replicas(image, request, Defaults()))
    codes = [[p.error_code for t in d.topics for p in t.partitions] for d in response.directories]
    assert response == AssignReplicasToDirsResponse(
        directories=[
            DirectoryResult(
                id=id,
                topics=[
                    TopicResult(
                        topic_id=topic_id,
                        partitions=[
                            PartitionResult(partition_index=index, error_code=code)
                            for index, code in zip(indexes, told, strict=True)
                        ],
                    )
                ],
            )
            for (id, topic_id, indexes), told in zip(directories, codes, strict=True)
        ]
    )
    fold(image, records, image.offset + len(records), 1, 0).check_invariants()
    return records, codes


def change(index: int, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, **fields)


def test_directory_is_written_where_it_is_another_one() -> None:
    records, codes = ask(cluster(), (SECOND, TOPIC_ID, [1]), (DIRECTORY, TOPIC_ID, [0]))
    assert records == [change(1, directories=[SECOND, directory(2)])]
    assert codes == [[0], [0]]


@pytest.mark.parametrize("gone", [LOST, b"never registered"])
def test_replica_in_a_directory_that_is_gone_leads_no_more(gone: bytes) -> None:
    records, codes = ask(cluster(), (gone, TOPIC_ID, [0]))
    assert records == [change(0, directories=[gone, directory(2)]), change(0, isr=[2], leader=2)]
    assert codes == [[0]]


def test_follower_in_a_directory_that_is_gone_leaves_the_isr() -> None:
    records, _ = ask(cluster(), (LOST, TOPIC_ID, [0]), broker_id=2)
    assert records == [change(0, directories=[DIRECTORY, LOST]), change(0, isr=[1])]


def test_what_is_not_there_is_told_one_by_one() -> None:
    records, codes = ask(cluster(), (SECOND, TOPIC_ID, [2, 0]), (SECOND, OTHER_ID, [0]))
    assert records == [change(0, directories=[SECOND, directory(2)])]
    assert codes == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], [ErrorCode.UNKNOWN_TOPIC_ID]]
    assert ask(cluster(), (directory(3), TOPIC_ID, [0]), broker_id=3) == ([], [[ErrorCode.NOT_LEADER_OR_FOLLOWER]])


@pytest.mark.parametrize(
    ("image", "epoch", "code"),
    [
        (cluster(), 5, ErrorCode.STALE_BROKER_EPOCH),
        (image_of(), 6, ErrorCode.STALE_BROKER_EPOCH),
        (
            image_of(broker(1), FeatureLevelRecord(name="metadata.version", feature_level=16)),
            6,
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_request_is_refused_as_a_whole(image: ClusterImage, epoch: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        whole(assign_replicas(image, AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch), Defaults()))
    assert raised.value.code is code
