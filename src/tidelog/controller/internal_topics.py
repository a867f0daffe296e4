"""The topics of the coordinators get the replicas of the cluster as it is meant to be, and not of its first second.

They are made when the first group or transaction comes, by then perhaps with one broker of three; and a cluster of one
that grows has them on its first broker. Where nobody set how many replicas they have, the active controller adds some
as brokers come, up to Kafka's default of three: by a reassignment like any other, which ends when the new ones are in
sync. None is ever taken away.

`__transaction_state` asks for two replicas in sync only then, and where there are three: with fewer, one that is down
would end all transactions.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.controller.changes import Changes
from tidelog.controller.leaders import Defaults
from tidelog.controller.partition_change import Election
from tidelog.controller.placement import Placement, hosts_of
from tidelog.controller.reassignments import moved
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import TOPIC_RESOURCE, ClusterImage, PartitionImage, TopicImage
from tidelog.wire.errors import KafkaError
from tidelog.wire.records.cluster import ConfigRecord

MIN_INSYNC_REPLICAS = "min.insync.replicas"
LOOKS_A_STEP = 16


def replicate(image: ClusterImage, defaults: Defaults) -> Steps[Decision[Any, int]]:
    """How many partitions get more replicas."""
    changes = Changes(image, defaults)
    settings: list[Any] = []
    for wish in defaults.internal_topics:
        topic = image.topics.get(wish.topic)
        if topic is None:
            continue
        yield from _add_replicas(image, topic, wish.replicas, changes)
        if wish.min_isr and _is_settled(topic, wish.replicas, wish.min_isr):
            configured = image.topic_config(topic.name).get(MIN_INSYNC_REPLICAS)
            if configured is not None and int(configured) < wish.min_isr:
                record = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name)
                record.name, record.value = MIN_INSYNC_REPLICAS, str(wish.min_isr)
                settings.append(record)
    return Decision([*changes.records, *settings], len(changes.records))


def is_concerned(old: ClusterImage, image: ClusterImage, defaults: Defaults) -> bool:
    """Whether a change of the metadata may be a reason to look again."""
    if len(image.brokers) < 2:
        return False
    topics = [wish.topic for wish in defaults.internal_topics]
    return old.brokers is not image.brokers or any(
        old.topics.get(name) is not image.topics.get(name) for name in topics
    )


def _is_settled(topic: TopicImage, replicas: int, min_isr: int) -> bool:
    return all(
        len(partition.replicas) >= replicas and not partition.adding and len(partition.isr) >= min_isr
        for partition in topic.partitions
    )


def _add_replicas(image: ClusterImage, topic: TopicImage, wanted: int, changes: Changes) -> Steps[None]:
    active = {id: broker for id, broker in image.brokers.items() if broker.active}
    hosts = hosts_of(image)
    count = min(wanted, len(active))
    if all(len(partition.replicas) >= count for partition in topic.partitions):
        return
    try:
        placed = Placement(active, hosts).place(0, len(topic.partitions), count, int.from_bytes(topic.id[:4]))
    except KafkaError:  # their directories are cordoned
        return
    for index, partition in enumerate(topic.partitions):
        if not index % LOOKS_A_STEP:
            yield
        if len(partition.replicas) < count and not partition.adding and not partition.removing:
            replicas = _more(partition, placed[index], hosts, count)
            changes.change(topic, index, moved(image, partition, replicas), election=Election.ONLINE)


def _more(partition: PartitionImage, placed: Sequence[int], hosts: dict[int, str], count: int) -> tuple[int, ...]:
    """Those that there are, and of the others those on another host first."""
    replicas = list(partition.replicas)
    left = [broker for broker in placed if broker not in replicas]
    while len(replicas) < count and left:
        taken = [hosts.get(replica) for replica in replicas]
        chosen = min(left, key=lambda broker: taken.count(hosts.get(broker)))
        left.remove(chosen)
        replicas.append(chosen)
    return tuple(replicas)
