"""DescribeLogDirs (key 35): the data folders, their free space, and how large each partition in them is.

No topics (null) means all partitions that this broker holds; one that isn't here is passed over. A partition that
nothing was written to has no files yet and counts as 0 bytes in the first folder. v3 has an error for the request, v4
tells the space, v5 whether a folder takes no new partitions, which Tidelog has no setting for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context


def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    services = context.services
    by_folder: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {folder: {} for folder in services.config.folders}
    for folder, topic, index, size in _held(context, request):
        by_folder.setdefault(folder, {}).setdefault(topic, []).append(
            DescribeLogDirsPartition(partition_index=index, partition_size=size)
        )
    return DescribeLogDirsResponse(results=[_result(context, folder, topics) for folder, topics in by_folder.items()])


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


def _held(context: Context, request: DescribeLogDirsRequest) -> Iterator[tuple[str, str, int, int]]:
    """(folder, topic, partition, bytes) of the partitions asked for that are here."""
    services = context.services
    topics = services.metadata.image.topics
    if request.topics is None:
        asked = [(name, list(range(len(topic.partitions)))) for name, topic in topics.items()]
    else:
        asked = [(one.topic, sorted(set(one.partitions))) for one in request.topics if one.topic in topics]
    open_logs = {(log.topic, log.partition): log for log in services.store.logs()}
    on_disk = set(services.store.found())
    for name, indexes in asked:
        partitions = topics[name].partitions
        for index in indexes:
            if not 0 <= index < len(partitions) or services.node_id not in partitions[index].replicas:
                continue
            log = open_logs.get((name, index))
            try:
                if log is not None:
                    yield log.root, name, index, log.size_bytes()
                elif (name, index) in on_disk:
                    yield _measured(context, name, index)
                else:
                    yield services.config.folders[0], name, index, 0
            except (KafkaError, OSError):
                continue  # what can't be read isn't told, as in Kafka


def _measured(context: Context, topic: str, index: int) -> tuple[str, str, int, int]:
    """A partition that nobody asked for since the start: its log isn't opened for this."""
    disk = context.services.env.disk
    for root in context.services.config.folders:
        folder = f"{root}/{topic}-{index}"
        if disk.exists(folder):
            names = (name for name in disk.list_folder(folder) if name.endswith(".log"))
            return root, topic, index, sum(disk.size(f"{folder}/{name}") for name in names)
    return context.services.config.folders[0], topic, index, 0
