"""Work in slices: each has its turn, what comes of it is told, and nothing else waits for it."""

import pytest

from tidelog.env.bounds import DRIVEN_S_A_TURN, SLICE_S, WOKEN_S
from tidelog.env.promise import Promise
from tidelog.env.real_loop import RealLoop
from tidelog.env.slices import LIGHT, NEW, distinct, mapped, ordered, settled, whole


@pytest.fixture
def loop():
    made = RealLoop()
    yield made
    made.close()


def counting(steps, seen, name):
    for number in range(steps):
        seen.append((name, number))
        busy(SLICE_S)
        yield
    return name


def busy(seconds):
    from time import monotonic

    until = monotonic() + seconds
    while monotonic() < until:
        pass


def test_what_is_spread_takes_turns_and_tells_what_came_of_it(loop):
    seen = []
    first, second = loop.spread(counting(3, seen, "a")), loop.spread(counting(2, seen, "b"))
    while not (first.done and second.done):
        loop.run_once(wait=False)
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert (first.result(), second.result()) == ("a", "b")


def test_an_error_is_what_comes_of_it(loop):
    def failing():
        yield
        raise ValueError("no")

    promise = loop.spread(failing())
    while not promise.done:
        loop.run_once(wait=False)
    assert isinstance(promise.error, ValueError)


def test_callbacks_and_timers_come_between_two_slices(loop):
    seen = []
    promise = loop.spread(counting(20, seen, "long"))
    loop.call_later(0, seen.append, "timer")
    loop.run_once(wait=False)
    loop.call_soon(seen.append, "callback")
    loop.run_once(wait=False)
    assert seen[:4] == ["timer", ("long", 0), "callback", ("long", 1)]
    assert not promise.done


def test_many_callbacks_in_turn_share_one_slice_a_turn(loop):
    ran = []
    for number in range(10):
        loop.call_in_turn(lambda number=number: (ran.append(number), busy(SLICE_S)))
    loop.run_once(wait=False)
    assert ran == [0]
    while len(ran) < 10:
        before = len(ran)
        loop.run_once(wait=False)
        assert len(ran) == before + 1


def test_the_loop_does_not_wait_while_something_is_spread(loop):
    promise = loop.spread(counting(3, [], "a"))
    turns = loop.turns
    while not promise.done:
        loop.run_once()  # would wait for ever
    assert loop.turns - turns <= 5


def short():
    yield
    return 7


def test_what_ends_within_a_slice_needs_no_turn(loop):
    assert loop.begin(short()) == (True, 7)
    long = counting(3, [], "a")
    assert loop.begin(long) == (False, None)


def test_a_turn_has_so_much_time_for_beginnings_and_no_more(loop):
    begun = []
    for number in range(50):
        loop.drive(counting(3, begun, number))
    assert len(begun) <= DRIVEN_S_A_TURN / SLICE_S + 1
    assert loop.begin(short()) == (False, None)
    loop.run_once(wait=False)
    assert loop.begin(short()) == (True, 7), "the next turn has its own"


def test_what_is_light_comes_before_what_is_not(loop):
    ran = []
    for number in range(10):
        loop.call_in_turn(lambda number=number: (ran.append(number), busy(SLICE_S)))
    loop.call_in_turn(lambda: ran.append("light"), weight=LIGHT)
    loop.run_once(wait=False)
    assert ran == ["light", 0]


def test_what_is_light_does_not_wait_behind_beginnings_of_what_may_not_be(loop):
    begun = []
    for number in range(50):
        loop.drive(counting(3, begun, number), NEW)
    light = loop.drive(short())
    loop.run_once(wait=False)
    assert light.done
    assert len(begun) < 50, "the others have their time, a little of each turn"
    while len({number for number, _ in begun}) < 50:
        before = len(begun)
        loop.run_once(wait=False)
        assert len(begun) > before


def test_a_newcomer_does_not_wait_behind_a_crowd_of_what_is_heavy(loop):
    seen = []
    for number in range(200):
        loop.call_in_turn(lambda number=number: (seen.append(number), busy(SLICE_S)))
    loop.run_once(wait=False)
    loop.call_in_turn(lambda: seen.append("new"), NEW)
    loop.run_once(wait=False)
    assert "new" in seen
    assert len(seen) < 10


def test_beginnings_begin_in_the_order_in_which_they_came(loop):
    begun = []
    for number in range(30):
        loop.drive(counting(1, begun, number), NEW)
        if not number % 7:
            loop.run_once(wait=False)  # a turn that has time again
    while len(begun) < 30:
        loop.run_once(wait=False)
    assert [number for number, _ in begun] == list(range(30))


# -- waiting


def waiting(promise, seen, work_s=0.0):
    seen.append("waits")
    value = yield from settled(promise)
    seen.append(value)
    busy(work_s)
    yield
    return value


@pytest.mark.parametrize("how", ["spread", "drive"])
def test_work_that_waits_goes_on_when_what_it_waits_for_is_there(loop, how):
    seen, awaited = [], Promise()
    promise = getattr(loop, how)(waiting(awaited, seen))
    turns = loop.turns
    loop.call_later(0.01, awaited.resolve, 7)
    while not promise.done:
        loop.run_once()
    assert promise.result() == 7
    assert seen == ["waits", 7]
    assert loop.turns - turns <= 4, "it isn't asked again and again"


@pytest.mark.parametrize("how", ["spread", "drive"])
def test_an_error_of_what_it_waits_for_is_its_own(loop, how):
    awaited = Promise()
    promise = getattr(loop, how)(waiting(awaited, []))
    loop.call_soon(awaited.fail, ValueError("no"))
    while not promise.done:
        loop.run_once(wait=False)
    assert isinstance(promise.error, ValueError)


def test_what_is_driven_begins_at_once_and_ends_at_once_where_it_is_short(loop):
    assert loop.drive(mapped(str, [1, 2, 3])).result() == ["1", "2", "3"]
    assert loop.drive(waiting(Promise.resolved(7), [])).result() == 7
    long = loop.drive(counting(3, [], "a"))
    assert not long.done
    while not long.done:
        loop.run_once(wait=False)


def test_what_has_little_to_do_after_a_wait_comes_before_all_that_is_long(loop):
    seen, awaited = [], Promise()
    short, long = loop.drive(waiting(awaited, seen)), loop.drive(waiting(awaited, [], 2 * WOKEN_S))
    others = [loop.spread(counting(5, [], number)) for number in range(4)]
    awaited.resolve(7)
    loop.run_once(wait=False)
    assert short.done
    assert not long.done, "it is one of the long ones"
    while not long.done:
        loop.run_once(wait=False)
    assert not any(other.done for other in others)


def test_what_must_not_wait_says_so():
    with pytest.raises(AssertionError):
        whole(settled(Promise()))
    assert whole(settled(Promise.resolved(7))) == 7


def test_items_are_made_a_few_in_a_step():
    items = list(range(100))
    assert whole(mapped(str, items, 30)) == [str(number) for number in items]
    assert len(list(mapped(str, items, 30))) == 4
    assert len(list(mapped(str, []))) == 1, "others have their turn even so"


@pytest.mark.parametrize("count", [0, 1, 5, 1024, 1025, 10_000])
def test_long_lists_are_ordered_and_made_distinct_in_steps(count):
    items = [str(number * 7919 % 10_007) for number in range(count)] * 2
    assert whole(ordered(items)) == sorted(items)
    assert whole(distinct(items)) == list(dict.fromkeys(items))
    assert len(list(ordered(items))) >= count // 1024
    assert len(list(distinct(items))) >= count // 1024
