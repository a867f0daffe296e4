"""What stands between the coordinator's word on a partition and the append that it allows (KIP-890).

The word may come from another broker, and in the meantime the transaction may have ended: then a marker has been
written here, or somebody else leads by now. So before the coordinator is asked, it is remembered how many markers of
the producer the partition has seen, and in which leader epoch; and an append goes through only while that is so still.
What comes between is refused, also where a later transaction of the same epoch is open by then: that one's records are
vouched for by their own guards.

Why that is safe: a transaction that wrote here ends with a marker here, after its end was decided. If the coordinator
said yes and the transaction ended before the append, its marker either came before the append, and the guard is
broken, or comes behind it, and ends what was appended, too. And if the records are of the transaction before the one
that the coordinator spoke of, that one's marker was written before the later one could begin.

Clients of the second version begin a transaction while the one before is still being ended, so a marker may come in
between that is none of theirs. Each of their transactions has an epoch of its own, which its marker takes away: the
log refuses what comes behind it, and markers needn't be counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.replica.partition import Partition


class Guard(NamedTuple):
    """Taken before the coordinator is asked. `ended`: how many markers of the producer came by then; None: its epoch
    tells one transaction from the next."""

    partition: Partition
    leader_epoch: int
    producer_id: int
    ended: int | None

    def check(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER where this broker led anew since, INVALID_TXN_STATE where a marker came."""
        partition = self.partition
        if partition.deleted or partition.leader_epoch != self.leader_epoch or not partition.is_served:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the leader of {partition.topic}-{partition.index} changed while the transaction was looked at",
            )
        if self.ended is not None and self.ended != partition.log.producers.ended(self.producer_id):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {self.producer_id} in {partition.topic}-{partition.index} "
                "has ended meanwhile",
            )


def guard(partition: Partition, producer_id: int, *, own_epoch: bool) -> Guard:
    """`own_epoch`: each transaction of the producer has one. Raises KafkaError where the log can't be read."""
    ended = None if own_epoch else partition.log.producers.ended(producer_id)
    return Guard(partition, partition.leader_epoch, producer_id, ended)
