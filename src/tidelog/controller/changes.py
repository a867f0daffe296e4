"""Changes of partitions that one request asks for, each decided on what those before it made of the partition."""

from tidelog.controller.brokers import active_in
from tidelog.controller.leaders import Defaults, electors_of, usual_election
from tidelog.controller.partition_change import Election, Electors, Target, as_it_is, change
from tidelog.metadata.apply import changed_partition
from tidelog.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tidelog.wire.records.metadata import PartitionChangeRecord


class Changes:
    """Collects the records."""

    __slots__ = ("_acceptable", "_defaults", "_electors", "_image", "_now", "records")

    def __init__(self, image: ClusterImage, defaults: Defaults) -> None:
        self._image = image
        self._defaults = defaults
        self._acceptable = active_in(image)
        self._now: dict[tuple[bytes, int], PartitionImage] = {}
        self._electors: dict[tuple[bytes, Election | None, int], Electors] = {}
        self.records: list[PartitionChangeRecord] = []

    def partition(self, topic: TopicImage, index: int) -> PartitionImage | None:
        """As it is by now; None where there is none."""
        if not 0 <= index < len(topic.partitions):
            return None
        return self._now.get((topic.id, index)) or topic.partitions[index]

    def change(
        self,
        topic: TopicImage,
        index: int,
        target: Target | None = None,
        *,
        election: Election | None = None,
        leaving: int = NO_LEADER,
    ) -> PartitionImage | None:
        """The partition afterwards; None where nothing changes. Without `election`, the one that the topic says.
        `leaving` is a broker that may not lead."""
        before = self.partition(topic, index)
        assert before is not None, "a partition that there is"
        electors = self._of(topic, election, leaving)
        fields = change(before, electors, as_it_is(before) if target is None else target)
        if not fields:
            return None
        record = PartitionChangeRecord(partition_id=index, topic_id=topic.id, **fields)
        self.records.append(record)
        after = self._now[topic.id, index] = changed_partition(before, record)
        return after

    def _of(self, topic: TopicImage, election: Election | None, leaving: int) -> Electors:
        electors = self._electors.get((topic.id, election, leaving))
        if electors is None:
            chosen = election or usual_election(self._image, topic.name, self._defaults)
            electors = self._electors[topic.id, election, leaving] = electors_of(
                self._image, topic, self._defaults, chosen, self._acceptable, leaving=leaving
            )
        return electors
