"""Virtual time: events in order, work that blocks done at some moment, and nothing of a process that was killed."""

import pytest

from tidelog.sim.world.loop import EPOCH_MS, SimLoop, Timeline
from tidelog.sim.world.random import SimRandom


@pytest.fixture
def timeline() -> Timeline:
    return Timeline()


@pytest.fixture
def loop(timeline: Timeline) -> SimLoop:
    return SimLoop(timeline, SimRandom(1))


def never() -> bool:
    return False


def test_time_jumps_to_the_next_event_and_ties_keep_their_order(timeline: Timeline, loop: SimLoop) -> None:
    seen: list[tuple[float, str]] = []

    def see(name: str) -> None:
        seen.append((timeline.now, name))

    loop.call_later(2.0, see, "late")
    loop.call_later(1.0, see, "first")
    loop.call_later(1.0, see, "second")
    loop.call_soon(see, "now")
    cancelled = loop.call_later(0.5, see, "never")
    cancelled.cancel()
    assert not timeline.run_until(never, 10.0)
    assert seen == [(0.0, "now"), (1.0, "first"), (1.0, "second"), (2.0, "late")]
    assert timeline.now == timeline.monotonic() == 10.0
    assert timeline.now_ms() == EPOCH_MS + 10_000


def test_it_stops_as_soon_as_it_is_done(timeline: Timeline, loop: SimLoop) -> None:
    seen: list[int] = []
    loop.call_later(1.0, seen.append, 1)
    loop.call_later(2.0, seen.append, 2)
    assert timeline.run_until(lambda: bool(seen), 10.0)
    assert (seen, timeline.now) == ([1], 1.0)


def test_blocking_work_is_done_later_and_told_later_still(timeline: Timeline, loop: SimLoop) -> None:
    done: list[float] = []
    promise = loop.run_blocking(lambda: done.append(timeline.now))
    told: list[float] = []
    promise.on_done(lambda _: told.append(timeline.now))
    assert not done
    timeline.run_until(never, 1.0)
    assert 0.0 <= done[0] <= told[0] < 0.2


def test_an_error_of_blocking_work_fails_its_promise(timeline: Timeline, loop: SimLoop) -> None:
    def fail() -> None:
        raise OSError("no")

    promise = loop.run_blocking(fail)
    timeline.run_until(never, 1.0)
    assert isinstance(promise.error, OSError)


def test_a_killed_process_does_nothing_more(timeline: Timeline, loop: SimLoop) -> None:
    seen: list[str] = []
    loop.call_later(1.0, seen.append, "dead")
    loop.run_blocking(lambda: seen.append("dead"))
    other = SimLoop(timeline, SimRandom(2))
    other.call_later(1.0, seen.append, "alive")
    loop.kill()
    timeline.run_until(never, 2.0)
    assert seen == ["alive"]


def test_a_process_that_keeps_itself_busy_is_found(timeline: Timeline, loop: SimLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    spin()
    with pytest.raises(AssertionError, match="keeps itself busy"):
        timeline.run_until(never, 1.0, events_max=1000)


def test_forks_of_the_dice_are_independent_and_repeat() -> None:
    assert SimRandom(1).fork("a").random_bytes(8) == SimRandom(1).fork("a").random_bytes(8)
    assert SimRandom(1).fork("a").random_bytes(8) != SimRandom(1).fork("b").random_bytes(8)
    uuid = SimRandom(3).uuid()
    assert (len(uuid), uuid[6] >> 4, uuid[8] >> 6) == (16, 4, 2)
