"""The real loop: order, timers, sockets, blocking work that comes back to the loop's thread, signals."""

import gc
import os
import signal
import socket
import threading
import time

import pytest

from tidelog.env.bounds import LONG_TURN_S, TURN_S
from tidelog.env.promise import Promise
from tidelog.env.real import RealRandom
from tidelog.env.real_loop import CANCELLED_MAX, RealLoop, RealTimer


@pytest.fixture
def loop():
    made = RealLoop()
    yield made
    made.close()


def test_callbacks_run_in_order_and_those_they_add_in_the_next_turn(loop):
    seen = []
    loop.call_soon(lambda: (seen.append(1), loop.call_soon(seen.append, 3)))
    loop.call_soon(seen.append, 2)
    loop.run_once(wait=False)
    assert seen == [1, 2]
    loop.run_once(wait=False)
    assert seen == [1, 2, 3]


def test_timers_run_when_due_in_their_order_and_not_when_cancelled(loop):
    seen = []
    last: Promise[None] = Promise()
    loop.call_later(0.02, lambda: (seen.append("late"), last.resolve(None)))
    loop.call_later(0.0, seen.append, "first")
    loop.call_later(0.0, seen.append, "second")
    loop.call_later(0.001, seen.append, "never").cancel()
    loop.run_until(last)
    assert seen == ["first", "second", "late"]


def timers_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, RealTimer) for each in gc.get_objects())


def test_cancelled_timers_do_not_pile_up(loop):
    before = timers_in_memory()
    for _ in range(10 * CANCELLED_MAX):
        loop.call_later(3600, print).cancel()
    assert timers_in_memory() - before <= 2 * CANCELLED_MAX


def test_a_callback_that_fails_is_logged_and_the_loop_goes_on(loop, caplog):
    seen = []
    loop.call_soon(lambda: 1 // 0)
    loop.call_soon(seen.append, "after")
    loop.run_once(wait=False)
    assert seen == ["after"]
    assert "ZeroDivisionError" in caplog.text


def test_sockets_tell_when_they_can_be_read_and_written(loop):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        seen = []
        loop.add_reader(ours, lambda: seen.append(ours.recv(10)))
        loop.run_once(wait=False)
        assert seen == []
        theirs.send(b"hello")
        loop.run_once(wait=False)
        assert seen == [b"hello"]
        loop.add_writer(ours, lambda: (seen.append("writable"), loop.remove_writer(ours)))
        loop.run_once(wait=False)
        loop.run_once(wait=False)
        assert seen == [b"hello", "writable"]
        theirs.close()
        loop.run_once(wait=False)
        assert seen == [b"hello", "writable", b""]
        loop.remove_reader(ours)
        loop.run_once(wait=False)
        assert seen == [b"hello", "writable", b""]


def test_blocking_work_comes_back_on_the_loops_thread(loop):
    settled_in = []
    working = loop.run_blocking(threading.get_ident)
    working.on_done(lambda _: settled_in.append(threading.get_ident()))
    assert loop.run_until(working) != threading.get_ident()
    assert settled_in == [threading.get_ident()]


def test_an_error_of_blocking_work_comes_back_too(loop):
    with pytest.raises(ZeroDivisionError):
        loop.run_until(loop.run_blocking(lambda: 1 // 0))


def test_what_takes_too_long_is_told(loop):
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        loop.run_until(Promise(), timeout_s=0.01)


def test_a_signal_comes_as_a_callback():
    seen = []
    child = os.fork()
    if not child:  # in a process of its own: signal handlers are for the main thread and for good
        loop = RealLoop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: (seen.append(1), loop.stop()))
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.run_forever()
        os._exit(7 if seen == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_uuids_are_of_version_four_and_never_look_like_an_option():
    random = RealRandom()
    for _ in range(2000):
        drawn = random.uuid()
        assert (len(drawn), drawn[6] >> 4, drawn[8] >> 6) == (16, 4, 2)
        assert drawn[0] >> 2 != 62


def work(seconds):
    """Use the CPU for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_turn_ends_after_some_time_and_nobody_is_forgotten(loop):
    seen = []
    for number in range(8):
        loop.call_soon(lambda number=number: (seen.append(number), work(TURN_S)))
    turns = loop.turns
    while len(seen) < 8:
        loop.run_once(wait=False)
    assert seen == list(range(8))
    assert loop.turns - turns >= 4

    pairs = [socket.socketpair() for _ in range(6)]
    ready = []
    for number, (ours, theirs) in enumerate(pairs):

        def read(number=number, ours=ours):
            ours.recv(10)
            ready.append(number)
            work(TURN_S)

        loop.add_reader(ours, read)
        theirs.send(b"x")
    turns = loop.turns
    while len(ready) < 6:
        loop.run_once(wait=False)
    assert sorted(ready) == list(range(6))
    assert loop.turns - turns >= 3
    for ours, theirs in pairs:
        loop.remove_reader(ours)
        ours.close()
        theirs.close()


def test_a_long_turn_is_counted_and_it_is_said_what_held_it(loop, caplog):
    def hold():
        loop.watch.work = ("DESCRIBE_CONFIGS v4", "of", "tool")
        work(LONG_TURN_S + 0.02)

    loop.call_soon(work, 0.001)
    loop.run_once(wait=False)
    assert loop.watch.long == 0
    loop.call_soon(hold)
    loop.run_once(wait=False)
    assert loop.watch.long == 1
    assert loop.watch.longest_cpu_s > LONG_TURN_S
    assert "hold" in caplog.text
    assert "DESCRIBE_CONFIGS v4 of tool" in caplog.text


def test_a_turn_that_only_lasts_long_is_not_a_long_one(loop):
    loop.call_soon(time.sleep, LONG_TURN_S + 0.02)
    loop.run_once(wait=False)
    assert loop.watch.long == 0
    assert loop.watch.longest_cpu_s < LONG_TURN_S
