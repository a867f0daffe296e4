"""Partitions whose leader was elected uncleanly, for whoever reads the log of the active controller: by their names.

Such a leader may lack what was committed: records that nobody else will have again. Whether a topic's setting allowed
it, an operator asked for it, or the last leader that is known came back, it is said once, when it is committed.
"""

import logging
from collections.abc import Callable

from tidelog.controller.partition_change import RECOVERING
from tidelog.env.slices import Steps
from tidelog.metadata.follow import ChangedTopics
from tidelog.metadata.image import NO_LEADER, ClusterImage, PartitionImage

_logger = logging.getLogger(__name__)

PARTITIONS_A_STEP = 256
NAMED_MAX = 20


class ElectionLines:
    """A subscriber of the metadata."""

    def __init__(self, is_active: Callable[[], bool]) -> None:
        self._is_active = is_active

    def look(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> Steps[None]:
        if not self._is_active():
            return
        found, looks = list[str](), 0
        for topic_id, indexes in changed_topics.items():
            before, after = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
            if before is None or after is None:
                continue
            for index in sorted(indexes):
                looks += 1
                if not looks % PARTITIONS_A_STEP:
                    yield
                if index < len(before.partitions) and _is_unclean(before.partitions[index], after.partitions[index]):
                    found.append(f"{after.name}-{index} (broker {after.partitions[index].leader})")
        if found:
            more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
            _logger.warning(
                "leaders were elected uncleanly, and may lack records that were acknowledged: %s%s",
                ", ".join(found[:NAMED_MAX]),
                more,
            )


def _is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether this leader is another one than before, and has yet to recover from that."""
    elected = after.leader != NO_LEADER and after.leader_epoch != before.leader_epoch
    return elected and after.leader_recovery_state == RECOVERING and after.leader != before.leader
