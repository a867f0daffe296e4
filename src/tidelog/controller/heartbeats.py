"""Who is alive, as the active controller hears it: soft state beside the image, made anew with each controller.

Two deadlines. Silence: a broker that says nothing for `broker.session.timeout.ms` is fenced. A broken connection: a
process that died resets its connections, so its broker has but a random 0.3-0.7 s left, unless it is heard of on a new
connection before; spread, so that a switch that drops a hundred connections doesn't fence as many brokers at once.
Connections that this side closes, as it does with idle ones, say nothing about their broker. One that the other side
closes in order looks as if its process had died: a broker that stops has no session by then (`forget`), and one that
goes on is heard on a new connection. Fencing early is always safe: leaders are taken from those in sync only.

A new controller has heard nobody yet: brokers that are unfenced in the image and not connected to it count as broken.
One that fetches the metadata from it is connected, and will report in its own time: Apache Kafka's say nothing before
their next heartbeat is due, which may be two seconds from now. Where another incarnation asks to be registered with its
id, it may be the newcomer that fetches: then the one before has a third of a session to report, whoever fetches.

The broker that lives in the controller's own process reports by a call, and no connection of it can break (`LOCAL`): as
long as there is somebody to look at deadlines, it lives, and so it has none.

Nothing here is in the metadata log, and nothing here decides who leads. Time and randomness come in; the owner
(`liveness.py`) asks `expired` when `next_deadline` has come.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from tidelog.metadata.image import ClusterImage

BROKEN_S_MIN = 0.3
BROKEN_S_MAX = 0.7
NOT_KNOWN = -1
CLAIMED_SHARE = 3
"""Of a session: 3 s by default, longer than any broker is silent that lives (`broker.heartbeat.interval.ms`, 2 s)."""
LOCAL = -1
"""The connection of who asks by a call within the process."""


@dataclass(slots=True)
class _Session:
    epoch: int
    deadline: float
    connection: int | None
    metadata_offset: int = NOT_KNOWN
    moved_offset: int | None = None
    claimed: bool = False
    """Another incarnation asked for its id before it reported to this controller."""


class Heartbeats:
    """The sessions of brokers: one each at most, under the epoch that was heard last. A connection is known by its
    number, which no other one of this process ever has."""

    __slots__ = ("_random", "_sessions", "_started", "_timeout_s")

    def __init__(self, session_timeout_s: float, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        self._timeout_s = session_timeout_s
        self._random = random
        self._sessions: dict[int, _Session] = {}
        self._started = 0.0

    def start(self, image: ClusterImage, connected: Iterable[int], now: float) -> None:
        """This node leads from now on. `connected` are brokers that have a connection to it already."""
        self._started = now
        heard = set(connected)
        self._sessions = {
            broker.id: _Session(
                broker.epoch, now + (self._timeout_s if broker.id in heard else self._broken_s()), connection=None
            )
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def fetched(self, broker_ids: Iterable[int]) -> None:
        """These brokers have fetched the metadata from this node since it leads: those of them that haven't reported to
        it yet have a whole session for that, from when it began to lead."""
        for broker_id in broker_ids:
            session = self._sessions.get(broker_id)
            if session is not None and session.connection is None and not session.claimed:
                session.deadline = max(session.deadline, self._started + self._timeout_s)

    def claimed(self, broker_id: int) -> bool:
        """Another incarnation was told to wait for the one that has this id. Whether its deadline may have come nearer:
        it has not reported to this node yet, and perhaps never will."""
        session = self._sessions.get(broker_id)
        if session is None or session.connection is not None:
            return False
        session.claimed = True
        session.deadline = min(session.deadline, self._started + self._timeout_s / CLAIMED_SHARE)
        return True

    def heard(self, broker_id: int, epoch: int, metadata_offset: int, connection: int, now: float) -> None:
        """A heartbeat, whose epoch was found to be the broker's present one."""
        before = self._sessions.get(broker_id)
        moved = before.moved_offset if before is not None and before.epoch == epoch else None
        deadline = inf if connection == LOCAL else now + self._timeout_s
        self._sessions[broker_id] = _Session(epoch, deadline, connection, metadata_offset, moved)

    def broke(self, connection: int, now: float) -> bool:
        """A connection was reset; whether that is the end of a session, unless its broker is heard again. It counts
        only if the broker's last heartbeat came on it."""
        counted = False
        for session in self._sessions.values():
            if session.connection == connection:
                session.deadline = min(session.deadline, now + self._broken_s())
                counted = True
        return counted

    def moved_by(self, broker_id: int, offset: int) -> int:
        """The offset by which a broker that stops has handed over all that it led: the one that was said first. Who has
        come to it sends nobody there any more, whatever is decided since."""
        session = self._sessions.get(broker_id)
        if session is None:
            return offset
        if session.moved_offset is None:
            session.moved_offset = offset
        return session.moved_offset

    def extend(self, now: float) -> None:
        """Nobody could be heard for a while, for a reason of our own: everyone has a whole session from now on."""
        for session in self._sessions.values():
            session.deadline = max(session.deadline, now + self._timeout_s)

    def forget(self, broker_id: int) -> None:
        """The broker is fenced or no longer registered: there is nothing to expire until it is heard again."""
        self._sessions.pop(broker_id, None)

    def forget_before(self, broker_id: int, epoch: int) -> None:
        """The broker was registered under this epoch: an earlier incarnation has no session."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch < epoch:
            del self._sessions[broker_id]

    def forget_all(self) -> None:
        self._sessions.clear()

    def has_session(self, broker_id: int, connection: int, now: float) -> bool:
        """Whether an incarnation of this id is alive: another one, that is heard on this connection, has to wait.

        Not so in the controller's own process: the broker that was in it before, if any, went with that.
        """
        session = self._sessions.get(broker_id)
        if session is None or (connection == LOCAL and session.connection in (LOCAL, None)):
            return False
        return now < session.deadline

    def is_alive(self, broker_id: int, epoch: int, now: float) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and now < session.deadline

    def is_expired(self, broker_id: int, epoch: int, now: float) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and session.deadline <= now

    def expired(self, now: float) -> list[tuple[int, int]]:
        """Brokers to be fenced, as (id, epoch), the longest overdue first.

        They stay until `forget`: where fencing fails, it is tried again. A broker is fenced under the epoch that fell
        silent, never under a newer one.
        """
        due = [(one.deadline, id, one.epoch) for id, one in self._sessions.items() if one.deadline <= now]
        return [(id, epoch) for _, id, epoch in sorted(due)]

    def next_deadline(self) -> float | None:
        deadline = min((session.deadline for session in self._sessions.values()), default=inf)
        return None if deadline == inf else deadline

    def lowest_metadata_offset(self, active: Iterable[int]) -> int:
        """How far every one of these brokers has come in the metadata; NOT_KNOWN where one hasn't said."""
        sessions = [self._sessions.get(broker_id) for broker_id in active]
        return min((NOT_KNOWN if one is None else one.metadata_offset for one in sessions), default=NOT_KNOWN)

    def _broken_s(self) -> float:
        return BROKEN_S_MIN + (BROKEN_S_MAX - BROKEN_S_MIN) * self._random()
