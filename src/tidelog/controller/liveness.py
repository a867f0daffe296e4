"""The shell around `Heartbeats`: it hears brokers while this node is the active controller, and fences who fell silent.

One timer stands at the next deadline. A heartbeat leaves it alone: when it fires too early, it is set again, so that a
broker that is heard every two seconds costs one timer a session. One broker is fenced at a time, the longest overdue
first, as in Kafka: what that changes is seen by the next.

A timer that fires late says nothing about brokers: the loop was held, or the process was frozen, and what was sent to
it meanwhile still waits in its sockets. Then everyone has a whole session from now on.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tidelog.controller import brokers
from tidelog.controller.heartbeats import Heartbeats
from tidelog.controller.leaders import Defaults
from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import Record

_logger = logging.getLogger(__name__)

AGAIN_S = 1.0
"""Until fencing is tried again, where the metadata log could not be written."""


class Submit(Protocol):
    """`Controller.submit_steps`, for decisions that are their own answer."""

    def __call__(self, decide: Callable[[ClusterImage, int], Steps[Decision[Record, None]]], /) -> Promise[None]: ...


class Liveness:
    """Who is alive. It knows nobody while this node doesn't lead."""

    __slots__ = (
        "_clock",
        "_defaults",
        "_due",
        "_epoch",
        "_fencing",
        "_fetching",
        "_heartbeats",
        "_loop",
        "_own_id",
        "_submit",
        "_timeout_s",
        "_timer",
    )

    def __init__(
        self,
        env: Environment,
        submit: Submit,
        own_id: int,
        defaults: Defaults,
        session_timeout_ms: int,
        fetching: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """`fetching` are the nodes that have fetched the metadata from this one since it leads."""
        self._clock = env.clock
        self._loop = env.loop
        self._submit = submit
        self._own_id = own_id
        self._fetching = fetching
        self._defaults = defaults
        self._timeout_s = session_timeout_ms / 1000
        self._heartbeats = Heartbeats(self._timeout_s, lambda: env.random.random_int(0, 999_999) / 1_000_000)
        self._epoch: int | None = None
        """In which this node leads; None while it doesn't."""
        self._timer: Timer | None = None
        self._due = 0.0
        self._fencing = False
        """One broker is being fenced: when that is done, the timer is set again, and not before."""

    # -- leading

    def start(self, epoch: int, image: ClusterImage) -> None:
        """This node leads. The broker of its own process, if it is one, is as near as can be."""
        self._epoch = epoch
        self._heartbeats.start(image, (self._own_id,), self._clock.monotonic())
        self._arm()

    def stop(self) -> None:
        self._epoch = None
        self._fencing = False
        self._heartbeats.forget_all()
        self._disarm()

    # -- what is heard

    def heard(self, broker_id: int, epoch: int, metadata_offset: int, connection: int) -> None:
        """A heartbeat, whose epoch was found to be the broker's present one."""
        if self._epoch is not None:
            self._heartbeats.heard(broker_id, epoch, metadata_offset, connection, self._clock.monotonic())
            if self._timer is None:
                self._arm()

    def is_alive(self, broker_id: int, epoch: int) -> bool:
        """Whether it was heard under this epoch, and not too long ago."""
        return self._heartbeats.is_alive(broker_id, epoch, self._clock.monotonic())

    def connection_broken(self, connection: int) -> None:
        """The other side ended a connection: a process that dies does that."""
        if self._heartbeats.broke(connection, self._clock.monotonic()):
            self._arm()

    def has_session(self, broker_id: int, connection: int) -> bool:
        """Whether another incarnation of this id is alive, so that the one on this connection has to wait."""
        return self._heartbeats.has_session(broker_id, connection, self._clock.monotonic())

    def claimed(self, broker_id: int) -> None:
        """Another incarnation of this id was told to wait."""
        if self._heartbeats.claimed(broker_id):
            self._arm()

    def registered(self, broker_id: int, epoch: int) -> None:
        """A broker has this epoch now: the session of an earlier one is over."""
        self._heartbeats.forget_before(broker_id, epoch)

    def forget(self, broker_id: int) -> None:
        """It may stop, or is no longer registered: nobody waits for its session to end."""
        self._heartbeats.forget(broker_id)

    def lowest_metadata_offset(self, image: ClusterImage) -> int:
        """How far every active broker has come in the metadata, so far as they said."""
        return self._heartbeats.lowest_metadata_offset(one.id for one in image.brokers.values() if one.active)

    def moved_by(self, broker_id: int, offset: int) -> int:
        """The offset by which a broker that stops has handed over all that it led."""
        return self._heartbeats.moved_by(broker_id, offset)

    # -- the timer

    def _arm(self) -> None:
        """The timer stands at the next deadline, or before it."""
        deadline = self._heartbeats.next_deadline()
        if deadline is None or self._fencing or (self._timer is not None and self._due <= deadline):
            return
        self._set(deadline)

    def _set(self, due: float) -> None:
        """A deadline that was set back into the past is due now: nobody was held up for that."""
        self._disarm()
        now = self._clock.monotonic()
        self._due = max(due, now)
        self._timer = self._loop.call_later(self._due - now, self._look)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        if now - self._due > self._timeout_s / 2:
            _logger.warning("this controller was held up for %.1f s: no broker is fenced for that", now - self._due)
            self._heartbeats.extend(now)
        self._heartbeats.fetched(self._fetching())
        expired = self._heartbeats.expired(now)
        if expired:
            self._fence(*expired[0])
        else:
            self._arm()

    def _fence(self, broker_id: int, epoch: int) -> None:
        """The timer is set again when it is done."""
        leading, began = self._epoch, self._clock.monotonic()
        was_silent = False
        self._fencing = True

        def decide(image: ClusterImage, now_ms: int) -> Steps[Decision[Any, None]]:
            nonlocal was_silent
            was_silent = self._heartbeats.is_expired(broker_id, epoch, self._clock.monotonic())
            if not was_silent:
                return Decision([], None)  # it was heard while this waited for its turn
            return (yield from brokers.fence(image, broker_id, epoch, self._defaults))

        def fenced(promise: Promise[None]) -> None:
            if self._epoch != leading:
                return
            self._fencing = False
            error = promise.error
            gone = isinstance(error, KafkaError) and error.code is ErrorCode.STALE_BROKER_EPOCH
            if error is not None and not gone:
                _logger.error("broker %d is silent and could not be fenced yet: %s", broker_id, error)
                self._set(self._clock.monotonic() + AGAIN_S)
                return
            # What was decided counts: one that was heard then, and is silent again now, is not fenced yet.
            if was_silent and self._heartbeats.is_expired(broker_id, epoch, self._clock.monotonic()):
                self._heartbeats.forget(broker_id)
                if not gone:
                    took = self._clock.monotonic() - began
                    _logger.warning(
                        "broker %d of epoch %d fell silent and is fenced; that took %.3f s", broker_id, epoch, took
                    )
            self._arm()

        self._submit(decide).on_done(fenced)
