"""How far a sink is: what stands in its group's offset, and in the topic of decisions.

The offset is the last decided batch; its note says where the decision's record stands, in which term it was made, and
which run of the query made it. Brokers forget offsets of groups that nobody uses, but not what is in the topic.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tidelog.rpc import Cluster
from tidelog.rpc.fetch import PartitionReader
from tidelog.rpc.groups import committed_offset
from tidelog.rpc.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.rpc.transactions import Producer
from tidelog.spark.sink.fingerprint import UNKNOWN, Fingerprint, fingerprint
from tidelog.spark.sink.sink_name import group_of, older_name
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError

EMPTY_FETCHES_MAX = 180
"""Half a second each: longer than the transaction of a driver that was killed stays open."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sink is: its last decided batch, the term that it was decided in, whose that is, and the record.

    `older` is the name that the record stands under, where that is the one of an earlier version.
    """

    batch: int = -1
    term: int = 0
    run: str = ""
    at: int = -1
    older: str | None = None


NOTHING = Standing()


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision says: whose transactions are the batch, and what that was made of.

    `heir` is the sink that goes on from here under a name of its own: nothing is decided under this one any more.
    """

    transactions: tuple[Producer, ...] = ()
    made: Fingerprint = UNKNOWN
    heir: str | None = None
    decided_ms: int | None = None


def standing(cluster: Cluster, sink: str, topic: str, *, stable: bool = False) -> Standing:
    """How far the sink is; with `stable` what a decision that is being written makes of it is waited for.

    Where an earlier version had another name for it, and nobody has gone on from there yet, that counts.
    """
    own = _standing(cluster, sink, topic, stable)
    older = older_name(sink)
    if own != NOTHING or older is None:
        return own
    before = _standing(cluster, older, topic, stable)
    if before == NOTHING or decided(cluster, older, topic, before).heir is not None:
        return NOTHING
    return replace(before, older=older)


def _standing(cluster: Cluster, sink: str, topic: str, stable: bool) -> Standing:
    offset_and_note = committed_offset(cluster, group_of(sink), (topic, 0), stable=stable)
    if offset_and_note is None:
        return NOTHING
    batch, note = offset_and_note
    at, term, run, none = [*note.split(" "), "", "", ""][:4]
    if not at.isdecimal():
        raise KafkaError(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            f"the offset of group {group_of(sink)} in {topic}-0 is not one that a sink wrote: was it set by hand? "
            "Delete the group, and what stands in the topic holds",
        )
    return Standing(-1 if none else batch, int(term or 0), run, int(at))


def note(decision: Standing) -> str:
    """What stands beside the offset; an offset can't say that no batch was decided yet, so this does."""
    return f"{decision.at} {decision.term} {decision.run}{' none' if decision.batch < 0 else ''}"


def decided(cluster: Cluster, sink: str, topic: str, last: Standing) -> Decided:
    """What the last decision says; its record is committed, since the offset that tells of it is."""
    if last.at < 0:
        return Decided()
    name = last.older or sink
    for _, record, _ in _records(cluster, (name,), topic, (last.at, last.at + 1), READ_UNCOMMITTED):
        return _decided(record)
    raise KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the decision on batch {last.batch} of {name} is not at offset {last.at} of {topic}-0: is it another topic, "
        "or one that isn't compacted?",
    )


def _decided(record: dict[str, Any]) -> Decided:
    named = (Producer(name, id, epoch) for name, id, epoch in record["transactions"])
    return Decided(tuple(named), fingerprint(record), record.get("heir"), record.get("decided_ms"))


def recorded(cluster: Cluster, sink: str, topic: str) -> Standing:
    """How far the sink is by its last record: all of the topic is read.

    What stands under the name that an earlier version gave it counts, unless another goes on from there.
    """
    own, place, older = NOTHING, (topic, 0), older_name(sink)
    before = NOTHING
    begin = list_offsets(cluster, {place: EARLIEST})[place].offset
    end = list_offsets(cluster, {place: LATEST})[place].offset
    names = (sink,) if older is None else (sink, older)
    for name, record, at in _records(cluster, names, topic, (begin, end), READ_COMMITTED):
        progress = Standing(record["batch"], record.get("term", 0), record.get("run", ""), at)
        if name == sink:
            own = progress
        else:
            before = replace(progress, older=older) if record.get("heir") in (None, sink) else NOTHING
    return before if own == NOTHING else own


def _records(
    cluster: Cluster, sinks: Collection[str], topic: str, within: tuple[int, int], isolation: int
) -> Iterator[tuple[str, dict[str, Any], int]]:
    """The decisions of some sinks in a range of the topic: whose, what, and where they stand."""
    begin, end = within
    tries = EMPTY_FETCHES_MAX
    keys = {sink.encode(): sink for sink in sinks}
    for part in PartitionReader(cluster, topic, 0, begin, end, isolation=isolation):
        for header in iterate(part.records):
            if (header.producer_id, header.base_offset) in part.aborted:  # one record is all that a transaction has
                continue
            for record in records(part.records, header):
                if begin <= record.offset < end and record.key in keys and record.value is not None:
                    yield keys[record.key], json.loads(record.value), record.offset
        tries = tries - 1 if not len(part.records) else EMPTY_FETCHES_MAX
        if not tries:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"a transaction that is open in {topic}-0 hides the decisions of {' and '.join(sinks)}: "
                f"`tidelog txn hanging --open {topic}` shows it",
            )
