"""What a broker knows of itself beside its settings, as read-only settings that any client can ask for.

Kafka's protocol has no place for a broker's version or what its last start came to; DescribeConfigs carries names and
values, and clients show what they don't know. A fact that isn't known yet is an empty text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.log.store import Store
    from tidelog.raft.driver import RaftDriver

FACTS = {
    "tidelog.version": "The version of the broker.",
    "tidelog.start.time.ms": "When the broker was started, in milliseconds since 1970.",
    "tidelog.recovery.clean": "Whether the last stop was a clean one, so that nothing had to be checked.",
    "tidelog.recovery.done": "Whether all partitions that were on disk at the start have been opened.",
    "tidelog.recovery.partitions": "How many partitions were checked after a crash so far.",
    "tidelog.recovery.time.ms": "How long that took.",
    "tidelog.recovery.cut.partitions": "How many of them lost an end that was torn or never made durable.",
    "tidelog.recovery.cut.bytes": "How many bytes that was in all.",
    "tidelog.recovery.cut.worst": "Those that lost most, in words.",
    "tidelog.recovery.journal.partitions": "How many partitions got records back from the journal.",
    "tidelog.recovery.journal.records": "How many records that was in all.",
    "tidelog.disk.taken.bytes.per.day": "By how much the free space of each of log.dirs shrinks in a day, at the rate "
    "of the last hours; empty where that isn't known yet.",
    "tidelog.quorum.leader.id": "Which node leads the metadata log, as far as this one hears: the active controller; "
    "empty where none does.",
    "tidelog.quorum.epoch": "The newest epoch of the metadata log that it has heard of.",
    "tidelog.quorum.voters": "The ids of the controllers that elect, more than half of which have to be there.",
}


def facts(store: Store, quorum: RaftDriver, started_ms: int, folders: Sequence[str]) -> dict[str, str]:
    """Each of FACTS, in that order."""
    recoveries = store.recoveries
    rates = [store.space.taken_per_day(folder) for folder in folders]
    values = (
        __version__,
        str(started_ms),
        _word(recoveries.clean),
        _word(recoveries.done),
        str(recoveries.checked),
        str(int(recoveries.seconds * 1000)),
        str(len(recoveries.cuts)),
        str(recoveries.cut_bytes),
        "; ".join(map(str, recoveries.worst())),
        str(len(recoveries.restored)),
        str(recoveries.restored_records),
        ",".join("" if rate is None else str(rate) for rate in rates),
        str(quorum.leader_id) if quorum.quorum.hears_leader else "",
        str(quorum.epoch),
        ",".join(map(str, sorted(quorum.voters.ids))),
    )
    return dict(zip(FACTS, values, strict=True))


def _word(value: bool) -> str:
    return "true" if value else "false"
