"""A broker's membership in its cluster, as the active controller has it: registered, let in, kept in, and out again.

    REGISTERING --epoch--> CATCHING_UP --own registration is known--> FENCED --let in--> RUNNING --stops--> LEAVING
                                                                       ^-----fenced------'

A broker registers when it knows the metadata; while another incarnation of its id has a session, it tries again until
that one is fenced. It asks to be let in (`serve`) when it has come to its own registration in the metadata and has done
what it must do with that knowledge: set aside files that belong to no partition, before anybody makes such a partition.
From then on it says that it lives, every `broker.heartbeat.interval.ms`. Where it learns that another process has been
registered in its place it ends: what it told clients would be heard of by nobody else. Before it stops (`leave`) it has
its leaders moved, and goes when there are none left, or when nobody answers.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError, error_name
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.env import Environment
    from tidelog.env.loop import Timer
    from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest

log = logging.getLogger("tidelog.broker")

SOON_S = 0.05
"""Between two requests while the broker waits for the controller to let it in, or out."""
TELL_EVERY_S = 10.0
UNANSWERED_S_MAX = 5.0
"""A broker that stops waits so long for a controller that doesn't answer: all nodes may be stopping at once."""
LEAVE_S_MAX = 60.0
"""And so long for its leaders to move."""

WAITS = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.KAFKA_STORAGE_ERROR,  # of the controller's disk, which may be full for a moment
)
"""Reasons not to register that pass."""


class NotRegisteredError(Exception):
    """The controllers don't take this broker, and why."""


class State(Enum):
    NEW = "not begun"
    REGISTERING = "registering"
    CATCHING_UP = "catching up"
    FENCED = "waits to be let in"
    RUNNING = "running"
    LEAVING = "leaving"
    STOPPED = "stopped"


class Lifecycle:
    """`ask` asks the active controller; `metadata_offset` says how far this node knows the metadata."""

    def __init__(
        self,
        env: Environment,
        ask: Callable[[Any, int], Promise[Any]],
        metadata_offset: Callable[[], int],
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        controlled_shutdown: bool = True,
    ) -> None:
        self.state = State.NEW
        self.epoch = -1
        self.waits_for = "no majority of the controllers could be reached"
        """While it isn't registered: what for."""
        self._env = env
        self._ask = ask
        self._metadata_offset = metadata_offset
        self._interval_s = heartbeat_interval_ms / 1000
        self._timeout_ms = max(1, session_timeout_ms // 2)
        self._controlled_shutdown = controlled_shutdown
        self.ended: Promise[None] = Promise()
        """Fails when this broker, which was let in already, was replaced by another process of its id."""
        self._node_id = -1
        self._registered: Promise[None] = Promise()
        self._let_in: Promise[None] = Promise()
        self._gone: Promise[None] = Promise()
        self._timer: Timer | None = None
        self._beating = False
        self._told_at = 0.0
        self._leave_by = self._answer_by = 0.0

    # -- in

    def join(self, registration: BrokerRegistrationRequest) -> Promise[None]:
        """Register; resolved when this node knows the metadata up to its registration. It is fenced still."""
        assert self.state is State.NEW
        self.state = State.REGISTERING
        self._node_id = registration.broker_id
        self._told_at = self._env.clock.monotonic()
        self._register(registration)
        return self._registered

    @property
    def is_registered(self) -> bool:
        return self.epoch >= 0

    def _register(self, registration: BrokerRegistrationRequest) -> None:
        if self.state is not State.REGISTERING:
            return

        def answered(promise: Promise[Any]) -> None:
            if self.state is not State.REGISTERING:
                return
            try:
                code = promise.result().error_code
            except KafkaError as error:
                code, why = error.code, str(error)
            except Exception as error:
                self._registered.fail(error)
                return
            else:
                why = error_name(code)
            if not code:
                self.epoch = promise.result().broker_epoch
                self.state = State.CATCHING_UP
                self.look()
            elif code in WAITS:
                self._tell_of_wait(code, why)
                self._env.loop.call_later(SOON_S * 2, self._register, registration)
            else:
                self._registered.fail(
                    NotRegisteredError(f"the controller refuses to register broker {self._node_id}: {why}")
                )

        self._ask(registration, self._timeout_ms).on_done(answered)

    def _tell_of_wait(self, code: int, why: str) -> None:
        """Once in a while; that there is another one of this id is said at once, too."""
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            why = (
                f"another process is broker {self._node_id} in this cluster and lives. One that was killed is fenced "
                "within seconds; where both are meant to run, each needs a node.id of its own"
            )
            if self.waits_for != why:
                self._told_at = -TELL_EVERY_S
        self.waits_for = why
        self._tell(f"broker {self._node_id} waits to be registered: {why}")

    def look(self) -> None:
        """The metadata moved: perhaps as far as the registration."""
        if self.state is State.CATCHING_UP and self.knows_registration():
            self.state = State.FENCED
            self._registered.resolve(None)

    def knows_registration(self) -> bool:
        """Whether this node knows all that was decided before it was registered: who has it registered does."""
        return self._metadata_offset() >= self.epoch

    def serve(self) -> Promise[None]:
        """Ask to be let in, and say from then on that this broker lives; resolved when it is unfenced."""
        assert self.state is State.FENCED
        self._beat()
        return self._let_in

    # -- heartbeats

    def controller_changed(self) -> None:
        """Another node leads: it takes brokers that it doesn't hear from for dead."""
        if self.state is State.RUNNING:
            self._beat()

    def _beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._beating or self.state not in (State.FENCED, State.RUNNING, State.LEAVING):
            return
        self._beating = True
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_shut_down=self.state is State.LEAVING,
            cordoned_log_dirs=[],
        )
        timeout_ms = self._timeout_ms
        if self.state is State.LEAVING:
            timeout_ms = max(1, int((self._answer_by - self._env.clock.monotonic()) * 1000))
        self._ask(request, timeout_ms).on_done(self._answered)

    def _answered(self, promise: Promise[Any]) -> None:
        self._beating = False
        if self.state is State.STOPPED:
            return
        if promise.error is not None:
            self._tell(f"broker {self._node_id} can't reach the controller: {promise.error}")
            self._next(SOON_S * 2)
            return
        answer = promise.result()
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._replaced()
            return
        if answer.error_code:
            self._tell(f"the controller refuses a heartbeat of broker {self._node_id}: {error_name(answer.error_code)}")
            self._next(self._interval_s if self.state is State.RUNNING else SOON_S)
            return
        now = self._env.clock.monotonic()
        self._told_at = now
        self._answer_by = now + UNANSWERED_S_MAX
        if self.state is State.LEAVING:
            if answer.should_shut_down:
                self._leave()
            else:
                self._next(SOON_S)
        elif answer.is_fenced:
            if self.state is State.RUNNING:
                log.warning(
                    "broker %d was fenced by the controller: it leads nothing until it is let in", self._node_id
                )
                self.state = State.FENCED
            self._next(SOON_S)
        else:
            if self.state is State.FENCED and self._let_in.done:
                log.info("broker %d is let in again", self._node_id)
            self.state = State.RUNNING
            self._next(self._interval_s)
            if not self._let_in.done:
                self._let_in.resolve(None)

    def _replaced(self) -> None:
        """Another process is registered under the id: this one has no place any more, and never gets it back."""
        if self.state is State.LEAVING:
            self._leave()
            return
        self.stop()
        error = NotRegisteredError(
            f"another process was registered as broker {self._node_id} while this one, of epoch {self.epoch}, was not "
            "heard, or the broker was unregistered: where both are meant to run, each needs a node.id of its own"
        )
        if self._let_in.done:
            log.critical("%s. This node ends: nobody would hear of what clients write to it", error)
            self.ended.fail(error)
        else:
            self._let_in.fail(error)

    def _next(self, delay_s: float) -> None:
        if self.state is State.LEAVING:
            now = self._env.clock.monotonic()
            if now >= min(self._leave_by, self._answer_by):
                log.warning(
                    "broker %d stops though the controller has not let it go: leaders may not have moved", self._node_id
                )
                self._leave()
                return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._env.loop.call_later(delay_s, self._beat)

    def _tell(self, text: str) -> None:
        """Once in a while: it is tried again until it works."""
        now = self._env.clock.monotonic()
        if now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            log.warning("%s", text)

    # -- out

    def leave(self) -> Promise[None]:
        """Have the leaders moved; resolved when the broker may stop, however that ended."""
        if self.state in (State.FENCED, State.RUNNING) and self._controlled_shutdown:
            now = self._env.clock.monotonic()
            self.state = State.LEAVING
            self._leave_by, self._answer_by = now + LEAVE_S_MAX, now + UNANSWERED_S_MAX
            self._beat()  # or, where one is under way, when that is answered
        else:
            self._leave()
        return self._gone

    def _leave(self) -> None:
        self.stop()
        self._gone.resolve(None)

    def stop(self) -> None:
        """Say nothing any more."""
        self.state = State.STOPPED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
