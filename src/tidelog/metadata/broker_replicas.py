"""Which partitions a broker has replicas of: an index beside the topics, so that fencing it looks at its own only.

For each broker, and for `NO_LEADER` as if that were one, the partitions of each topic as the bits of a number: 10,000
partitions of a topic are 1,250 bytes, and those of a topic of a few take nothing beside their entry. Changes of ISR and
leader leave it alone, but for a partition that loses its leader or gets one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from immutables import Map

from tidelog.metadata.chunks import Chunked
from tidelog.metadata.image import NO_LEADER, ClusterImage, PartitionImage

Bits: TypeAlias = int
BrokerReplicas: TypeAlias = Mapping[int, Map[bytes, Bits]]

_IN_A_BYTE = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


def holders(partition: PartitionImage) -> tuple[int, ...]:
    """Under whom it stands."""
    return (*partition.replicas, NO_LEADER) if partition.leader == NO_LEADER else partition.replicas


def indexes(bits: Bits) -> Iterator[int]:
    """The partitions that a number says, the lowest first."""
    for at, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        if byte:
            for bit in _IN_A_BYTE[byte]:
                yield 8 * at + bit


def bits_of(some: Iterable[int]) -> Bits:
    """As one number; at once, since each bit by itself would copy the others."""
    given = list(some)
    if len(given) < 2:
        return 1 << given[0] if given else 0
    made = bytearray((max(given) >> 3) + 1)
    for index in given:
        made[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(made, "little")


def replicas_of(image: ClusterImage, broker_id: int) -> Iterator[tuple[str, Iterator[int]]]:
    """The topics of which the broker has partitions, by name, and which ones: in the order of their ids."""
    known = image.broker_replicas.get(broker_id)
    for topic_id, bits in () if known is None else sorted(known.items()):
        yield image.topics_by_id[topic_id].name, indexes(bits)


def recomputed(image: ClusterImage) -> BrokerReplicas:
    """The index as it has to be, from the topics alone."""
    change = BrokerReplicasChange({})
    for topic in image.topics.values():
        change.topic(topic.id, Chunked(), {}, topic.partitions)
    return change.result()


class BrokerReplicasChange:
    """An index that is being changed. What nothing touched is shared with the one before."""

    __slots__ = ("_before", "_touched")

    def __init__(self, before: BrokerReplicas) -> None:
        self._before = before
        self._touched: dict[int, Any] = {}  # broker -> a mutation of its topics

    def topic(
        self,
        topic_id: bytes,
        before: Chunked[PartitionImage],
        changes: Mapping[int, PartitionImage],
        added: Iterable[PartitionImage],
    ) -> None:
        """Some of its partitions are others than before, and some are new."""
        come: dict[tuple[int, ...], list[int]] = defaultdict(list)
        gone: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, partition in changes.items():
            old, new = before[index], partition
            if old.replicas != new.replicas or (old.leader == NO_LEADER) != (new.leader == NO_LEADER):
                gone[holders(old)].append(index)
                come[holders(new)].append(index)
        for index, partition in enumerate(added, len(before)):
            come[holders(partition)].append(index)
        for some, sign in ((gone, False), (come, True)):
            for who, which in some.items():
                bits = bits_of(which)
                for broker_id in who:
                    self._put(broker_id, topic_id, bits, present=sign)

    def remove(self, topic_id: bytes, partitions: Iterable[PartitionImage]) -> None:
        """The topic is deleted. `partitions` are those that the index knows."""
        alike = {id(partition): partition for partition in partitions}
        for broker_id in {holder for partition in alike.values() for holder in holders(partition)}:
            self._of(broker_id).pop(topic_id, None)

    def result(self) -> BrokerReplicas:
        if not self._touched:
            return self._before
        made = dict(self._before)
        for broker_id, mutation in self._touched.items():
            topics = mutation.finish()
            if topics:
                made[broker_id] = topics
            else:
                made.pop(broker_id, None)
        return made

    def _of(self, broker_id: int) -> Any:
        mutation = self._touched.get(broker_id)
        if mutation is None:
            known: Map[bytes, Bits] = self._before.get(broker_id) or Map()
            mutation = self._touched[broker_id] = known.mutate()
        return mutation

    def _put(self, broker_id: int, topic_id: bytes, bits: Bits, *, present: bool) -> None:
        topics = self._of(broker_id)
        now = topics.get(topic_id, 0)
        now = now | bits if present else now & ~bits
        if now:
            topics[topic_id] = now
        else:
            topics.pop(topic_id, None)
