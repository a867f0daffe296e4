"""Looks into the nodes every few hundredths of a second: who leads, where the high watermarks are, what is below them.

Nothing is decided here. What one replica has below its high watermark, in whichever life of its node, all others have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.replica.partition import Partition
    from tidelog.sim.cluster.node import Machine, NodeProcess
    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.replicated.promises import Promises

LOOK_S = 0.03
READ_BYTES = 1 << 18


class Seen(NamedTuple):
    """What a node's replica was seen to be. `checked`: up to here its batches were compared."""

    leader_epoch: int
    high_watermark: int
    checked: int


class ReplicaProbe:
    """`powerless`: topics of which a high watermark may fall, since what is below it may go with the power."""

    def __init__(self, world: ClusterWorld, promises: Promises, watched: Sequence[str]) -> None:
        self._world = world
        self._promises = promises
        self._watched = frozenset(watched)
        self._told: dict[tuple[bytes, int], int] = {}
        self._seen: dict[tuple[NodeProcess, bytes, int], Seen] = {}
        world.timeline.plan(LOOK_S, self._again)

    def _again(self) -> None:
        self.look()
        self._world.timeline.plan(LOOK_S, self._again)

    def look(self) -> None:
        for machine in self._world.every:
            if machine.up and not machine.frozen:
                for partition in partitions_of(machine):
                    if partition.topic in self._watched and not partition.deleted:
                        self._look_at(machine, partition)

    def _look_at(self, machine: Machine, partition: Partition) -> None:
        log, place = partition.log, (partition.topic, partition.index)
        self._note_image(partition)
        if log.offline is not None or place in self._promises.excused:
            return
        key = (machine.running, partition.topic_id, partition.index)
        before = self._seen.get(key, Seen(-1, 0, 0))
        epoch, end = partition.leader_epoch, partition.high_watermark
        if before == (epoch, end, end):
            return
        if before.leader_epoch == epoch and end < before.high_watermark:
            raise Violation(
                f"{place[0]}-{place[1]}: the high watermark of node {machine.id} fell from {before.high_watermark} to "
                f"{end} in leader epoch {epoch}"
            )
        if partition.leader == machine.id:
            self._promises.saw_leader(place, epoch, machine.id)
        checked = self._compare(machine, partition, before.checked) if end > before.checked else before.checked
        self._seen[key] = Seen(epoch, end, checked)

    def _note_image(self, partition: Partition) -> None:
        """Whoever hears of it first."""
        image, key = partition.image, (partition.topic_id, partition.index)
        if image.partition_epoch > self._told.get(key, -1):
            self._told[key] = image.partition_epoch
            self._world.note(
                f"{partition.topic}-{partition.index}: leader {image.leader} of epoch {image.leader_epoch}, replicas "
                f"{image.replicas}, ISR {image.isr}, ELR {image.elr}"
            )

    def _compare(self, machine: Machine, partition: Partition, checked: int) -> int:
        log, place, end = partition.log, (partition.topic, partition.index), partition.high_watermark
        position = max(checked, log.log_start)
        while position < end:
            try:
                piece = log.read(position, READ_BYTES, end)
            except KafkaError as error:
                self._world.note(f"{place[0]}-{place[1]} can't be read: {error.message}", machine.id)
                return position
            if piece is None:
                return position
            found = self._promises.saw_batches(place, f"node {machine.id}", bytes(piece.view()), end)
            if not found or found[-1].next_offset <= position:
                return position
            position = found[-1].next_offset
        return position


def partitions_of(machine: Machine) -> Iterator[Partition]:
    """Those that its node has opened."""
    services = getattr(machine.running.broker, "services", None) if machine.up else None
    return iter(()) if services is None else iter(list(services.replicas))
