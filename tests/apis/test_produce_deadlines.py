"""Deadlines of produce requests: each is met, none twice, and a client's made-up timeouts cost nothing."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tidelog.apis.shared.deadlines import LOOK_S, QUEUES_MAX, Deadlines
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom


class Request:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.done = False
        self.expired: list[float] = []

    def expire(self) -> None:
        self.done = True
        self.expired.append(self._timeline.now)


class Broken(Request):
    def expire(self) -> None:
        super().expire()
        raise RuntimeError("a bug")


def make() -> tuple[Timeline, Deadlines, SimLoop]:
    timeline = Timeline()
    loop = SimLoop(timeline, SimRandom(1))
    return timeline, Deadlines(cast(Any, SimpleNamespace(clock=timeline, loop=loop))), loop


def pass_time(timeline: Timeline, seconds: float) -> None:
    timeline.run_until(lambda: False, timeline.now + seconds)


@given(st.lists(st.tuples(st.integers(-5, 3000), st.booleans()), max_size=200))
def test_who_is_not_answered_in_time_expires_once_and_soon(requests: list[tuple[int, bool]]) -> None:
    timeline, deadlines, loop = make()
    waiting: list[tuple[float, Request, bool]] = []
    for number, (timeout_ms, answered) in enumerate(requests):
        request = Request(timeline)
        deadlines.add(timeout_ms, request)
        waiting.append((timeline.now + max(timeout_ms, 0) / 1000, request, answered))
        request.done = answered
        if number % 10 == 9:
            pass_time(timeline, 0.03)
    pass_time(timeline, 10)
    for deadline, request, answered in waiting:
        if answered:
            assert request.expired == []
        else:
            # Beyond so many different timeouts they are rounded up to a power of two.
            latest = deadline + LOOK_S + 0.001 + (max(3, deadline) if len(requests) > QUEUES_MAX else 0)
            assert [deadline <= when <= latest for when in request.expired] == [True]
    assert timeline.planned(loop) == 0, "nobody is looked for any more"


def test_made_up_timeouts_need_few_queues() -> None:
    timeline, deadlines, _ = make()
    requests = [Request(timeline) for _ in range(20_000)]
    for number, request in enumerate(requests):
        deadlines.add(100 * number, request)
    pass_time(timeline, 2 * 2_000)
    expired = {when for request in requests for when in request.expired}
    assert all(request.expired for request in requests)
    assert len(expired) <= QUEUES_MAX + 33, "each queue has a deadline of its own"


def test_one_that_can_not_be_answered_keeps_no_other_from_it() -> None:
    timeline, deadlines, _ = make()
    requests = [Request(timeline), Broken(timeline), Request(timeline)]
    for request in requests:
        deadlines.add(100, request)
    pass_time(timeline, 0.3)
    assert [len(request.expired) for request in requests] == [1, 1, 1]
    late = Request(timeline)
    deadlines.add(100, late)
    pass_time(timeline, 0.3)
    assert late.expired


def test_while_nobody_waits_no_timer_runs() -> None:
    timeline, deadlines, _ = make()
    request = Request(timeline)
    deadlines.add(50, request)
    request.done = True
    pass_time(timeline, 1)
    events = timeline.events
    pass_time(timeline, 100)
    assert timeline.events == events
