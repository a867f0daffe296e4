"""What the replication of a cluster can bear: which disks may be lost without anything that was promised.

A replica of the ISR, or one that is eligible to lead (KIP-966), has all that is committed. So a disk may come back
empty as long as each partition has another such replica whose own disk was not lost since its broker registered last:
with the next registration the controller takes one that lost its disk out of both. That is no more than Kafka promises,
and as little is excused: of a topic that counts on the page cache (`tidelog.durability=os`) a partition is excused
where all such replicas lost their power, or a sync, since then.

Who ends before it could note that nothing is lost by that (`broker/past.py`), or whose disk failed, can claim nothing
afterwards, though it has everything: while another one's disk is empty, those that are needed end only when they can.
A broker with a topic on the page cache never can: in a run that has one no disk comes back empty.

Where one replica in sync is enough, those in the ISR keep their disks. The leader may have asked for an ISR of its own,
which is granted when the disk is gone; or who has everything may be fenced before it is noticed that the other one
died, and is neither in the ISR nor eligible then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.past import NOTE, Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.metadata.image import ClusterImage
    from tidelog.sim.cluster.node import Machine
    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.replicated.promises import Promises
    from tidelog.sim.replicated.topics import Topic


class Bearing:
    """Remembers of each broker in which registration it lost its disk, or its page cache."""

    def __init__(self, world: ClusterWorld, promises: Promises, topics: Sequence[Topic]) -> None:
        self._world = world
        self._promises = promises
        self._powerless = {topic.name for topic in topics if topic.powerless}
        self._loose = [place for topic in topics if topic.min_isr == 1 for place in topic.places]
        self._emptied: dict[int, int] = {}
        self._forgot: dict[int, int] = {}

    def image(self) -> ClusterImage | None:
        """The newest metadata that any node knows to be committed."""
        images = [
            machine.running.broker.services.metadata.image
            for machine in self._world.machines.values()
            if machine.up and hasattr(machine.running.broker, "services")
        ]
        return max(images, key=lambda image: image.offset, default=None)

    def may_be_emptied(self, machine: Machine) -> bool:
        image = self.image()
        if image is None or self._world.leader() is None:
            return False
        if any(machine.id in image.topics[name].partitions[index].isr for name, index in self._loose):
            return False
        return self._can_spare(machine, image)

    def may_end(self, machine: Machine) -> bool:
        """Whether nobody would miss it that can't claim afterwards that it has everything."""
        image = self.image()
        if image is None or not machine.shape.is_broker or not self._still(self._emptied, image):
            return True
        return _can_claim(machine, _registration(image, machine.id)) or self._can_spare(machine, image)

    def _can_spare(self, machine: Machine, image: ClusterImage) -> bool:
        hollow = {machine.id, *self._still(self._emptied, image)}
        return all(bool(able - hollow) or not able & {machine.id} for _, able in _able_to_lead(image))

    def emptied(self, machine: Machine) -> None:
        """Its disks came back empty."""
        image = self.image()
        if image is not None:
            self._emptied[machine.id] = _registration(image, machine.id)
            self._excuse(image)

    def forgot(self, machine: Machine) -> None:
        """Its page cache is lost."""
        image = self.image()
        if image is not None:
            self._forgot[machine.id] = _registration(image, machine.id)
            self._excuse(image)

    def _excuse(self, image: ClusterImage) -> None:
        hollow = {*self._still(self._emptied, image), *self._still(self._forgot, image)}
        for place, able in _able_to_lead(image):
            if place[0] in self._powerless and not able - hollow:
                self._world.note(f"{place[0]}-{place[1]} is excused: {sorted(able)} lost their page cache")
                self._promises.excuse(place)

    def _still(self, lost: dict[int, int], image: ClusterImage) -> set[int]:
        """Those that haven't registered again since."""
        return {id for id, epoch in lost.items() if _registration(image, id) <= epoch}


def _can_claim(machine: Machine, broker_epoch: int) -> bool:
    """Whether it has noted in all its data folders that nothing of this registration is lost by a crash."""
    notes = [f"{folder}/{NOTE}" for folder in machine.config.folders]
    return all(
        machine.disk.exists(path) and Note.decode(machine.disk.read_whole(path)).epoch == broker_epoch for path in notes
    )


def _registration(image: ClusterImage, broker_id: int) -> int:
    broker = image.brokers.get(broker_id)
    return -1 if broker is None else broker.epoch


def _able_to_lead(image: ClusterImage) -> list[tuple[tuple[str, int], set[int]]]:
    return [
        ((topic.name, index), {*partition.isr, *partition.elr})
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
    ]
