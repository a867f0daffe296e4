"""What tasks read: ranges of offsets, given to Spark as partitions, for tables and streams alike."""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition

from tidelog.spark.source import plan
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.plan import OffsetRange, Offsets
from tidelog.spark.source.progress import task_done
from tidelog.spark.source.reader import DataLost, read_range
from tidelog.wire.topic_partition import TopicPartition

logger = logging.getLogger("tidelog.spark")


@dataclass
class TaskRanges(InputPartition):
    """What one task reads: of the topics that were there when it was planned, by their `ids`."""

    ranges: tuple[OffsetRange, ...]
    ids: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        if not self.ranges:
            return "nothing"
        first, last = self.ranges[0], self.ranges[-1]
        return f"{first.topic}-{first.partition}-{first.start}-{last.topic}-{last.partition}-{last.end}"


class Reading:
    """What batch and stream have in common: the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, TaskRanges)
        rows = size = 0
        for each in partition.ranges:
            for batch in read_range(self._options, each, partition.ids.get(each.topic)):
                rows += batch.num_rows
                size += batch.nbytes
                yield batch
        task_done(self._options.progress_path, partition.name, rows, size)

    def _tasks(
        self, start: Offsets, end: Offsets, ids: Mapping[str, int], floating: Collection[TopicPartition] = ()
    ) -> list[TaskRanges]:
        whole = plan.ranges(start, end, floating)
        parts = plan.split(whole, self._options.min_partitions, self._options.max_records)
        small = 0 if self._options.min_partitions or self._options.max_records else plan.SMALL_RANGE_RECORDS
        return [
            TaskRanges(each, {part.topic: ids[part.topic] for part in each if part.topic in ids})
            for each in plan.shared(parts, small)
        ]


def settle(options: SourceOptions, losses: list[plan.Loss]) -> None:
    """Fail on lost data, or say it and go on."""
    if losses and options.fail_on_loss:
        more = f" (and {len(losses) - 1} more partitions)" if len(losses) > 1 else ""
        raise DataLost(losses[0].what + more, losses[0].why)
    for loss in losses:
        logger.warning("%s; reading goes on with what is left", loss.what)
