"""DescribeLogDirs (key 35): the data folders, their free space, and how large each partition in them is.

No topics (null) means all partitions that this broker holds; one that isn't here is passed over. A partition that
nothing was written to has no files yet and counts as 0 bytes in the first folder. v3 has an error for the request, v4
tells the space, v5 whether a folder takes no new partitions, which Tidelog has no setting for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.env.slices import Steps, ordered
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    services = context.services
    by_folder: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {folder: {} for folder in services.config.folders}
    described: set[TopicPartition] = set()
    for topic, indexes in _asked(context, request):
        for index in (yield from ordered(indexes)):
            yield
            if (topic, index) in described:
                continue
            described.add((topic, index))
            held = _held(context, topic, index)
            if held is not None:
                folder, size = held
                by_folder.setdefault(folder, {}).setdefault(topic, []).append(
                    DescribeLogDirsPartition(partition_index=index, partition_size=size)
                )
    return DescribeLogDirsResponse(results=[_result(context, folder, topics) for folder, topics in by_folder.items()])


def _asked(context: Context, request: DescribeLogDirsRequest) -> Iterator[tuple[str, Sequence[int]]]:
    if request.topics is not None:
        yield from ((one.topic, one.partitions) for one in request.topics)
    else:
        for name, topic in context.services.metadata.image.topics.items():
            yield name, range(len(topic.partitions))


def _result(context: Context, folder: str, topics: dict[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsResult:
    disk = context.services.env.disk
    try:
        total, usable = disk.total_bytes(folder), disk.free_bytes(folder)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=folder)
    return DescribeLogDirsResult(
        log_dir=folder,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
    )


def _held(context: Context, topic: str, index: int) -> tuple[str, int] | None:
    """The folder of a partition that is here, and its bytes there."""
    services = context.services
    image = services.metadata.image.partition(topic, index)
    if image is None or services.node_id not in image.replicas:
        return None
    log = services.store.opened(topic, index)
    try:
        if log is not None:
            return log.root, log.size_bytes()
        root = services.store.found_in(topic, index)
        if root is not None:
            return _measured(context, root, topic, index)
    except (KafkaError, OSError):
        return None  # what can't be read isn't told, as in Kafka
    return services.config.folders[0], 0


def _measured(context: Context, root: str, topic: str, index: int) -> tuple[str, int]:
    """A partition that nobody asked for since the start: its log isn't opened for this."""
    disk, folder = context.services.env.disk, f"{root}/{topic}-{index}"
    return root, sum(disk.size(f"{folder}/{name}") for name in disk.list_folder(folder) if name.endswith(".log"))
