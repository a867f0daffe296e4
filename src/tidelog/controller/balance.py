"""Leaders that the controller looks after by itself: those that should go back to the preferred replica, and partitions
without a leader whose topic allows an unclean election. So many at once, and on until none is left.
"""

from typing import Any

from tidelog.controller.changes import Changes
from tidelog.controller.leaders import Defaults, unclean_allowed
from tidelog.controller.partition_change import Election
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import NO_LEADER, ClusterImage

ELECTIONS_AT_ONCE = 1000
"""As in Kafka: a batch of them is one change, which all brokers follow."""
LOOKS_A_STEP = 1024


def elect_preferred(image: ClusterImage, defaults: Defaults) -> Steps[Decision[Any, int]]:
    """How many leaders change; as many as are elected at once, and there may be more to do."""
    changes = Changes(image, defaults)
    looks = 0
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            looks += 1
            if not looks % LOOKS_A_STEP:
                yield
            if partition.leader != partition.replicas[0]:
                changes.change(topic, index, election=Election.PREFERRED)
                if len(changes.records) >= ELECTIONS_AT_ONCE:
                    return Decision(changes.records, len(changes.records))
    return Decision(changes.records, len(changes.records))


def elect_uncleanly(image: ClusterImage, defaults: Defaults) -> Steps[Decision[Any, int]]:
    """How many partitions have a leader then; as many as are elected at once, and there may be more to do."""
    changes = Changes(image, defaults)
    looks = 0
    for topic in image.topics.values():
        looks += 1
        if not looks % LOOKS_A_STEP:
            yield
        if not unclean_allowed(image, topic.name, defaults):
            continue
        for index, partition in enumerate(topic.partitions):
            looks += 1
            if not looks % LOOKS_A_STEP:
                yield
            if partition.leader == NO_LEADER:
                changes.change(topic, index, election=Election.UNCLEAN)
                if len(changes.records) >= ELECTIONS_AT_ONCE:
                    return Decision(changes.records, len(changes.records))
    return Decision(changes.records, len(changes.records))
