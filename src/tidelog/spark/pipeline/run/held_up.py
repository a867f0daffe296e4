"""Records of a pipeline's topics that it can't have yet: behind a transaction that is open.

A reader of committed records stops at the oldest open transaction of a partition. Usually that is over in a moment; one
that a killed process left is not, and nothing would tell: there is nothing more to read, so all is done.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from tidelog.rpc import Cluster
from tidelog.rpc.open_transactions import Behind, behind_open
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.file.spec import TopicSource
from tidelog.wire.topic_partition import TopicPartition

PATIENCE_S = 10.0


class HeldUp(RuntimeError):
    """All that could be read is done, and some records could not."""


@dataclass(frozen=True, slots=True)
class Held:
    """Records of one partition, and the transaction that they wait for; `id` is None where no coordinator knows it."""

    topic: str
    partition: int
    records: int
    id: str | None
    producer_id: int
    first_offset: int
    since_ms: int
    ended_by: str

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What tells one transaction from the next."""
        return self.topic, self.partition, self.producer_id, self.first_offset

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def held(behind: Behind) -> Held:
    transaction = behind.transaction
    return Held(
        topic=transaction.topic,
        partition=transaction.partition,
        records=behind.records,
        id=transaction.name,
        producer_id=transaction.producer_id,
        first_offset=transaction.first_offset,
        since_ms=transaction.since_ms,
        ended_by=transaction.ended_by,
    )


def held_up(pipeline: Pipeline) -> list[Held]:
    """What is behind open transactions now, in the topics that are read committed."""
    with pipeline.reach(PATIENCE_S) as cluster:
        return [held(each) for each in behind_open(cluster, _places(pipeline, cluster))]


def reads_committed(pipeline: Pipeline, topic: str) -> bool:
    """Whether open transactions keep records of a topic from the pipeline."""
    return any(source.reads(topic) for source in _committed(pipeline))


def check_done(pipeline: Pipeline, before: Collection[Held]) -> None:
    """HeldUp where a transaction that was open before a run is so after it, and keeps records from it.

    One that was begun meanwhile is somebody at work: what it writes was not there when the run began.
    """
    if not before:
        return
    known = {each.key for each in before}
    if still := [each for each in held_up(pipeline) if each.key in known]:
        raise HeldUp(f"{pipeline.name} is done with all that it can read, but for {words(still)}")


def words(waiting: Iterable[Held]) -> str:
    """How many records wait for whom, since when."""
    by_owner: dict[tuple[str | None, int], list[Held]] = {}
    for each in waiting:
        by_owner.setdefault((each.id, each.producer_id), []).append(each)
    return "; ".join(_words(each) for each in by_owner.values())


def _words(waiting: list[Held]) -> str:
    first = waiting[0]
    records = sum(each.records for each in waiting)
    since = datetime.fromtimestamp(min(each.since_ms for each in waiting) / 1000).isoformat(" ", "seconds")
    whose = first.id or f"producer {first.producer_id}, which no coordinator knows"
    where = ", ".join(f"{each.topic}-{each.partition}" for each in waiting[:3]) + (", ..." if len(waiting) > 3 else "")
    counted = f"{records:,} {'record' if records == 1 else 'records'}"
    return f"{counted} behind an open transaction of {whose} since {since} ({where})"


def _committed(pipeline: Pipeline) -> list[TopicSource]:
    return [each for each in pipeline.sources.values() if isinstance(each, TopicSource) and each.committed]


def _places(pipeline: Pipeline, cluster: Cluster) -> list[TopicPartition]:
    there = {name: topic for name, topic in cluster.topics().items() if not topic.internal}
    names = {name for source in _committed(pipeline) for name in there if source.reads(name)}
    return [(name, partition) for name in sorted(names) for partition in sorted(there[name].partitions)]
