"""How long a group that was empty waits for members: briefly where one comes alone, while they keep coming otherwise.

On virtual time. Members behave as clients do: a heartbeat each three seconds is how they hear of a rebalance.
"""

import random
from heapq import heapify, heappop, heappush

import pytest

from tests.coordinator.classic.harness import GroupHarness
from tidelog.config import BrokerConfig
from tidelog.coordinator.group.classic.phases import Phase
from tidelog.coordinator.group.classic.rebalance import Limits
from tidelog.coordinator.group.classic.shell import limits_of
from tidelog.wire.errors import ErrorCode

BEAT_MS = 3000.0
ROUND_TRIP_MS = 5.0
WITHIN_MS = 60_000.0
DEFAULTS = limits_of(BrokerConfig.parse({"log.dirs": "/data"}))


class Crowd:
    """Members that arrive at given times, each asking again as soon as it is answered."""

    def __init__(self, limits: Limits, arrivals_ms: list[float]) -> None:
        self.harness = GroupHarness(limits)
        self.count = len(arrivals_ms)
        self._begin_ms = self.harness.steady_ms
        self._events = [(self._begin_ms + at, number, "arrive") for number, at in enumerate(arrivals_ms)]
        heapify(self._events)
        self._ids: dict[int, str] = {}
        self._joining: dict[int, int] = {}

    def run(self) -> tuple[int, float]:
        """Until all are in one generation and have its assignment: how many there were, and after how many ms."""
        harness = self.harness
        while not (harness.group.phase is Phase.STABLE and len(harness.group.members) == self.count):
            at = min([harness.group.wake_ms, *(one[0] for one in self._events[:1])])
            assert at < self._begin_ms + WITHIN_MS, "they never come together"
            harness.wait(max(at - harness.steady_ms, 0.0))
            if self._events and self._events[0][0] <= at:
                self._act(*heappop(self._events)[1:])
            self._go_on()
        return harness.group.generation, harness.steady_ms - self._begin_ms

    def _act(self, number: int, what: str) -> None:
        harness = self.harness
        if what == "arrive":
            required = harness.answers.pop(harness.join(str(number)))
            assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self._ids[number] = required.member_id
            self._later(ROUND_TRIP_MS, number, "join")
        elif what == "join":
            self._joining[number] = harness.join(str(number), self._ids[number])
        elif what == "sync":
            self._sync(number)
        elif harness.beat(self._ids[number]) == ErrorCode.REBALANCE_IN_PROGRESS:
            self._later(ROUND_TRIP_MS, number, "join")
        else:
            self._later(BEAT_MS, number, "beat")

    def _sync(self, number: int) -> None:
        harness, member_id = self.harness, self._ids[number]
        parts = dict.fromkeys(harness.group.members, b"part") if harness.group.leader == member_id else None
        answer = harness.answers.pop(harness.sync(member_id, assignments=parts), None)
        again = answer is not None and answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        self._later(ROUND_TRIP_MS if again else BEAT_MS, number, "join" if again else "beat")

    def _go_on(self) -> None:
        """Who was answered asks for its assignment."""
        for number, ticket in list(self._joining.items()):
            answer = self.harness.answers.pop(ticket, None)
            if answer is not None:
                assert answer.error_code == 0, answer
                del self._joining[number]
                self._later(ROUND_TRIP_MS, number, "sync")

    def _later(self, after_ms: float, number: int, what: str) -> None:
        heappush(self._events, (self.harness.steady_ms + after_ms, number, what))


def spread(members: int, over_ms: float, seed: int = 1) -> list[float]:
    choose = random.Random(seed)
    return [choose.uniform(0.0, over_ms) for _ in range(members)]


def test_a_member_that_comes_alone_waits_for_a_tenth_of_a_second() -> None:
    assert Crowd(DEFAULTS, [0.0]).run() == (1, 100.0 + 2 * ROUND_TRIP_MS)


@pytest.mark.parametrize("over_ms", [0.0, 1000.0, 2000.0])
def test_hundreds_that_come_within_two_seconds_meet_in_one_generation(over_ms: float) -> None:
    """Not long after the last one came: with Kafka's three seconds they would wait for six."""
    generations, settled_ms = Crowd(DEFAULTS, spread(500, over_ms)).run()
    assert generations == 1
    assert settled_ms <= over_ms + 250


@pytest.mark.parametrize("members", [2, 5, 20])
@pytest.mark.parametrize("seed", range(3))
def test_few_that_come_far_apart_need_a_round_for_each_heartbeat_at_most(members: int, seed: int) -> None:
    """Whoever comes after the first generation is gathered until its members ask."""
    generations, settled_ms = Crowd(DEFAULTS, spread(members, 2000.0, seed)).run()
    assert generations <= 3
    assert settled_ms <= 2000.0 + BEAT_MS + 250


def test_an_id_that_was_handed_out_is_waited_for_once_more() -> None:
    """Its client is on the way back with it; one that isn't holds nobody up for longer."""
    harness = GroupHarness(Limits(initial_delay_ms=100))
    harness.member("a")
    harness.wait(60)
    far = harness.answers[harness.join("far")].member_id
    harness.wait(60)
    assert harness.group.phase is Phase.PREPARING
    harness.join("far", far)
    harness.join("gone")
    harness.wait(200)
    assert (harness.group.phase, harness.group.generation, len(harness.group.members)) == (Phase.COMPLETING, 1, 2)


def test_an_id_that_was_handed_out_before_the_first_one_joins_counts_too() -> None:
    harness = GroupHarness(Limits(initial_delay_ms=100))
    far = harness.answers[harness.join("far")].member_id
    harness.member("a")
    harness.wait(150)
    assert harness.group.phase is Phase.PREPARING
    harness.join("far", far)
    harness.wait(200)
    assert (harness.group.phase, harness.group.generation, len(harness.group.members)) == (Phase.COMPLETING, 1, 2)


def test_limits_are_by_themselves_what_a_broker_sets_by_default() -> None:
    assert Limits() == DEFAULTS


@pytest.mark.parametrize(("rebalance_ms", "first_ms"), [(50, 100), (130, 130), (1000, 200)])
def test_the_first_delay_is_prolonged_for_no_longer_than_members_wait_for_a_rebalance(
    rebalance_ms: int, first_ms: float
) -> None:
    harness = GroupHarness(Limits(initial_delay_ms=100))
    harness.member("a", rebalance_ms=rebalance_ms)
    harness.member("b", rebalance_ms=rebalance_ms)
    harness.wait(first_ms - 0.5)
    assert harness.group.phase is Phase.PREPARING
    harness.wait(0.5)
    assert (harness.group.phase, len(harness.group.members)) == (Phase.COMPLETING, 2)


def test_members_of_old_versions_that_keep_coming_are_waited_for_too() -> None:
    """They need no id first: their join itself tells that somebody came."""
    harness = GroupHarness(Limits(initial_delay_ms=100))
    harness.join("a", version=3)
    harness.wait(60)
    harness.join("b", version=3)
    harness.wait(60)
    assert harness.group.phase is Phase.PREPARING
    harness.wait(100)
    assert (harness.group.phase, len(harness.group.members)) == (Phase.COMPLETING, 2)
