"""What stands between the coordinator's word on a partition and the append that it allows (KIP-890).

The word may come from another broker, and in the meantime the transaction may have ended: then a marker has been
written here, or somebody else leads by now. So before the coordinator is asked, it is remembered how many markers of
the producer the partition has seen, and in which leader epoch; and an append goes through only while that is so still.
What comes between is refused, also where a later transaction of the same epoch is open by then: that one's records are
vouched for by their own guards.

It is refused as what may be tried again: a client of the second version goes on as soon as the end of its transaction
is decided, so the marker may be that of the one before, and the records are fine. Asked again, the coordinator knows.

Why that is safe: a transaction that wrote here ends with a marker here, after its end was decided. If the coordinator
said yes and the transaction ended before the append, its marker either came before the append, and the guard is
broken, or comes behind it, and ends what was appended, too. And if the records are of the transaction before the one
that the coordinator spoke of, that one's marker was written before the later one could begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.replica.partition import Partition


class Guard(NamedTuple):
    """Taken before the coordinator is asked. `ended`: how many of the producer's transactions ended here by then."""

    partition: Partition
    leader_epoch: int
    producer_id: int
    ended: int

    def check(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER where this broker led anew since, CONCURRENT_TRANSACTIONS where a marker
        came."""
        partition = self.partition
        if partition.deleted or partition.leader_epoch != self.leader_epoch or not partition.is_served:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the leader of {partition.topic}-{partition.index} changed while the transaction was looked at",
            )
        if partition.log.producers.ended(self.producer_id) != self.ended:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"a transaction of producer {self.producer_id} in {partition.topic}-{partition.index} "
                "has ended meanwhile",
            )


def guard(partition: Partition, producer_id: int) -> Guard:
    """Raises KafkaError where the log can't be read."""
    return Guard(partition, partition.leader_epoch, producer_id, partition.log.producers.ended(producer_id))
