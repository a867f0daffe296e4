"""A broker's membership from its side: what it asks of the controller, when, and what it says while it waits."""

import logging
from collections import deque
from typing import Any

import pytest

from tidelog.broker import NotRegisteredError
from tidelog.broker.lifecycle import Lifecycle, State
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

EPOCH = 40


class Member:
    """Broker 4 and a controller that answers what the test laid out; where nothing is, it lets the broker be."""

    def __init__(self, *, controlled_shutdown: bool = True) -> None:
        random = SimRandom(1)
        self.timeline = Timeline()
        self.asked: list[Any] = []
        self.answers: deque[Any] = deque()
        self.metadata_offset = EPOCH
        loop = SimLoop(self.timeline, random.fork("loop"))
        view = SimNetwork(self.timeline, random.fork("network")).view("broker")
        self.lifecycle = Lifecycle(
            Environment(self.timeline, loop, SimDisk(random), view, random),
            self._ask,
            lambda: self.metadata_offset,
            heartbeat_interval_ms=2000,
            session_timeout_ms=9000,
            controlled_shutdown=controlled_shutdown,
        )

    def _ask(self, request: Any, timeout_ms: int) -> Promise[Any]:
        self.asked.append(request)
        answer = self.answers.popleft() if self.answers else self._usual(request)
        return Promise[Any].failed(answer) if isinstance(answer, Exception) else Promise[Any].resolved(answer)

    def _usual(self, request: Any) -> Any:
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(broker_epoch=EPOCH)
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=request.want_shut_down)

    def join(self) -> Promise[None]:
        return self.lifecycle.join(BrokerRegistrationRequest(broker_id=4))

    def run(self) -> None:
        self.join().result()
        self.lifecycle.serve().result()

    def pass_time(self, seconds: float) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)

    @property
    def heartbeats(self) -> list[BrokerHeartbeatRequest]:
        return [one for one in self.asked if isinstance(one, BrokerHeartbeatRequest)]


def refused(code: ErrorCode) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=code)


def test_it_is_let_in_only_when_it_knows_its_own_registration() -> None:
    member = Member()
    member.metadata_offset = EPOCH - 1
    joined = member.join()
    assert not joined.done
    assert member.lifecycle.state is State.CATCHING_UP
    member.lifecycle.look()
    assert not joined.done
    member.metadata_offset = EPOCH
    member.lifecycle.look()
    joined.result()
    assert member.heartbeats == [], "it has yet to do what it must with that knowledge"
    member.lifecycle.serve().result()
    assert [(one.broker_epoch, one.current_metadata_offset) for one in member.heartbeats] == [(EPOCH, EPOCH)]
    member.pass_time(10.0)
    assert len(member.heartbeats) == 6


def test_while_its_other_self_lives_it_waits_and_says_so_at_once(caplog: pytest.LogCaptureFixture) -> None:
    member = Member()
    member.answers.extend(refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION) for _ in range(150))
    with caplog.at_level(logging.WARNING):
        joined = member.join()
        assert "another process is broker 4 in this cluster and lives" in caplog.text
        assert "another process" in member.lifecycle.waits_for
        member.pass_time(30.0)
    joined.result()
    assert 2 <= len(caplog.records) <= 3, "and then once in a while"


def test_a_refusal_for_good_fails_the_start_in_a_sentence() -> None:
    member = Member()
    member.answers.append(refused(ErrorCode.INCONSISTENT_CLUSTER_ID))
    with pytest.raises(NotRegisteredError, match="refuses to register broker 4: INCONSISTENT_CLUSTER_ID"):
        member.join().result()


def test_a_controller_whose_disk_is_full_is_tried_again() -> None:
    member = Member()
    member.answers.extend(refused(ErrorCode.KAFKA_STORAGE_ERROR) for _ in range(3))
    joined = member.join()
    member.pass_time(5.0)
    joined.result()


def test_a_controller_that_can_not_be_reached_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    member = Member()
    member.answers.extend([KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")] * 3)
    joined = member.join()
    assert "nobody answers" in member.lifecycle.waits_for
    member.pass_time(1.0)
    joined.result()
    assert caplog.records == [], "that is soon over"


def test_who_is_fenced_asks_to_be_let_in_again() -> None:
    member = Member()
    member.run()
    member.answers.append(BrokerHeartbeatResponse(is_fenced=True))
    member.pass_time(2.0)
    assert member.lifecycle.state is State.FENCED
    member.pass_time(0.1)
    assert member.lifecycle.state is State.RUNNING


def stale() -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


def test_who_was_frozen_and_replaced_serves_no_longer_as_that_broker() -> None:
    """Clients that have a connection to it still would be told that it took what its other self never hears of."""
    member = Member()
    member.run()
    assert not member.lifecycle.ended.done
    member.answers.append(stale())
    member.pass_time(60.0)
    assert member.lifecycle.state is State.STOPPED
    with pytest.raises(NotRegisteredError, match="another process was registered as broker 4"):
        member.lifecycle.ended.result()
    assert len(member.heartbeats) == 2, "it says nothing more under that name"


def test_who_is_replaced_before_it_was_let_in_does_not_start() -> None:
    """Two processes of one id that start at once: the second to register takes the first one's place."""
    member = Member()
    member.join().result()
    member.answers.append(stale())
    with pytest.raises(NotRegisteredError, match="another process was registered as broker 4"):
        member.lifecycle.serve().result()
    member.pass_time(60.0)
    assert len(member.heartbeats) == 1


def test_who_is_replaced_while_it_stops_is_done() -> None:
    member = Member()
    member.run()
    member.answers.append(stale())
    member.lifecycle.leave().result()


def test_another_controller_hears_of_it_at_once() -> None:
    member = Member()
    member.run()
    member.lifecycle.controller_changed()
    assert len(member.heartbeats) == 2


def test_it_stops_when_the_controller_lets_it_go() -> None:
    member = Member()
    member.run()
    busy = BrokerHeartbeatResponse(should_shut_down=False)
    member.answers.extend([busy, busy])
    gone = member.lifecycle.leave()
    assert not gone.done
    member.pass_time(1.0)
    gone.result()
    assert [one.want_shut_down for one in member.heartbeats] == [False, True, True, True]
    member.pass_time(60.0)
    assert len(member.heartbeats) == 4


def test_it_stops_soon_where_no_controller_answers() -> None:
    member = Member()
    member.run()
    member.answers.extend([KafkaError(ErrorCode.REQUEST_TIMED_OUT)] * 1000)
    gone = member.lifecycle.leave()
    member.pass_time(4.0)
    assert not gone.done
    member.pass_time(1.5)
    gone.result()


def test_without_controlled_shutdown_it_just_stops() -> None:
    member = Member(controlled_shutdown=False)
    member.run()
    member.lifecycle.leave().result()
    assert [one.want_shut_down for one in member.heartbeats] == [False]
