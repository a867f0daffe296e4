"""ListPartitionReassignments: which partitions move between brokers. A read: it sees committed state."""

from tidelog.metadata.image import ClusterImage, TopicImage
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def list_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Of the topics and partitions asked for, or of all. Unknown ones are passed over."""
    topics: list[OngoingTopicReassignment] = []
    if request.topics is None:
        wanted = [(topic, list(range(len(topic.partitions)))) for topic in image.topics.values()]
    else:
        wanted = [(image.topics[t.name], t.partition_indexes) for t in request.topics if t.name in image.topics]
    for topic, indexes in wanted:
        moving = _moving(topic, indexes)
        if moving:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _moving(topic: TopicImage, indexes: list[int]) -> list[OngoingPartitionReassignment]:
    moving: list[OngoingPartitionReassignment] = []
    for index in indexes:
        if 0 <= index < len(topic.partitions):
            partition = topic.partitions[index]
            if partition.adding or partition.removing:
                moving.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
    return moving
