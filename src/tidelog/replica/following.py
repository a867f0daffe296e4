"""What a follower asks its leaders for, and what it makes of their answers. Pure.

A follower has one incremental fetch session a leader (`LeaderSession`): what was said once stays so until another word,
so that a request names the partitions that changed and no others. A partition that isn't to be fetched now (it is being
cut, its disk is behind, its leader doesn't know of it yet) leaves the session, or else the leader would send the same
records again and again; it is named anew when it comes back.

Where two logs part is said by leader epochs, never by the high watermark (KIP-101, KIP-279, KIP-595): `cut_at`.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.wire.batch import HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from tidelog.log.epochs import LeaderEpochs
    from tidelog.wire.topic_partition import TopicIdPartition

NO_SESSION = 0
FIRST_EPOCH = 0
EPOCH_MAX = 2**31 - 1

_length = Struct(">i").unpack_from


class Place(NamedTuple):
    """From where on a partition is fetched, in which leader epoch, and what the leader is told with it.

    `offset` is the durable end, `last_epoch` that of the last batch before it.
    """

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    high_watermark: int

    def says_as(self, other: Place) -> bool:
        """Whether nobody has to be told of the difference: the leader knows which high watermark it said last."""
        return self[:4] == other[:4]


class Limits(NamedTuple):
    """How much is asked for, and how long the leader may wait for it."""

    wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int


class LeaderSession:
    """What one leader was told of the partitions that are fetched from it, and what it is to be told next."""

    __slots__ = ("_changed", "_epoch", "_id", "_refused", "_spent", "_told", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._refused = False  # the leader opens no session: each request says all
        self._wanted: dict[TopicIdPartition, Place] = {}
        self._told: dict[TopicIdPartition, Place] = {}
        self._spent: set[TopicIdPartition] = set()  # of what was told there, records came
        self._changed: dict[TopicIdPartition, None] = {}

    def __len__(self) -> int:
        """How many partitions are to be fetched."""
        return len(self._wanted)

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    @property
    def changed(self) -> int:
        """How many the next request has to name."""
        return len(self._changed)

    def fetch(self, key: TopicIdPartition, place: Place) -> None:
        """The partition is to be fetched from there on."""
        self._wanted[key] = place
        told = self._told.get(key)
        if told is not None and key not in self._spent and place.says_as(told):
            self._changed.pop(key, None)
        else:
            self._changed[key] = None

    def leave(self, key: TopicIdPartition) -> None:
        """It isn't to be fetched now."""
        self._wanted.pop(key, None)
        if key in self._told:
            self._changed[key] = None
        else:
            self._changed.pop(key, None)

    def sent(self, key: TopicIdPartition) -> None:
        """Records of it came, or an error: taken or not, the leader sends none before it is named again."""
        if key in self._told:
            self._spent.add(key)
            self._changed[key] = None

    def told(self, key: TopicIdPartition) -> Place | None:
        """What the leader was told last: an answer is an answer to that."""
        return self._told.get(key)

    def next_request(self, replica_id: int, replica_epoch: int, limits: Limits, named_max: int) -> FetchRequest:
        """Name what changed, `named_max` partitions at most: the others are named by the requests after this one."""
        whole = self._refused and not self.is_open
        keys = list(self._changed)[: None if whole else named_max]
        topics: dict[bytes, FetchTopic] = {}
        forgotten: dict[bytes, ForgottenTopic] = {}
        for key in keys:
            del self._changed[key]
            self._spent.discard(key)
            topic_id, index = key
            place = self._wanted.get(key)
            if place is None:
                del self._told[key]
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
                continue
            self._told[key] = place
            topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=place.leader_epoch,
                    fetch_offset=place.offset,
                    last_fetched_epoch=place.last_epoch,
                    log_start_offset=place.log_start,
                    partition_max_bytes=limits.partition_bytes,
                    high_watermark=place.high_watermark,
                )
            )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def answered(self, session_id: int) -> None:
        """The request was answered, with this session: 0 where the leader opens none."""
        self._id = session_id
        if session_id == NO_SESSION:
            self._refused = True
            self._say_all()
        else:
            self._refused = False
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lost(self, *, known: bool) -> None:
        """What the leader knows of this session, if anything, isn't what it was told: the next request opens another.
        `known`: the leader may have it still, and drops it then."""
        if not known:
            self._id = NO_SESSION
        self._say_all()

    def _say_all(self) -> None:
        self._epoch = FIRST_EPOCH
        self._told.clear()
        self._spent.clear()
        self._changed = dict.fromkeys(self._wanted)

    def check_invariants(self) -> None:
        for key in self._wanted.keys() | self._told.keys():
            wanted, told = self._wanted.get(key), self._told.get(key)
            same = wanted is not None and told is not None and wanted.says_as(told) and key not in self._spent
            assert (key in self._changed) is not same, f"{key}: wanted {wanted}, told {told}"


class Reaction(Enum):
    """To an error that a leader answers of one partition."""

    SOON = "what it or this broker doesn't know yet comes by the metadata: it is asked again soon"
    LATER = "it is asked again after replica.fetch.backoff.ms"
    FIND = "the offset isn't in its log: it is asked where that begins and ends"


_REACTIONS: dict[int, Reaction] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: Reaction.FIND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.SOON,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.SOON,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction.SOON,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.SOON,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.SOON,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.SOON,
}


def reaction(code: int) -> Reaction:
    return _REACTIONS.get(code, Reaction.LATER)


SESSION_UNKNOWN = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND,)
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Of a whole answer: a new session is opened at once."""


def whole_batches(records: memoryview, start: int, end: int) -> int:
    """Where the last batch ends that is whole: a leader cuts its answer where it is full."""
    at = start
    while end - at >= HEADER_BYTES:
        size = _length(records, at + LENGTH_AT)[0] + LOG_OVERHEAD
        if size < HEADER_BYTES:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record batch claims a length of {size - LOG_OVERHEAD}")
        if size > end - at:
            break
        at += size
    return at


def cut_at(epochs: LeaderEpochs, log_end: int, epoch: int, end_offset: int) -> int:
    """Where to cut a log whose leader says that what it has of `epoch`, or before, ends at `end_offset`.

    What both have of the largest epoch that this log has up to that one is the same as far as the shorter reaches.
    Where that epoch is an older one the leader may have less of it: it says so when it is asked again.
    """
    if end_offset < 0:
        return log_end
    own_epoch, own_end = epochs.end_offset_for(epoch, log_end)
    if own_end < 0:  # nothing is known here of epochs so old
        return min(end_offset, log_end)
    if own_epoch != epoch:
        return min(own_end, log_end)
    return min(own_end, end_offset, log_end)
