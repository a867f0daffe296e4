"""Questions asked of a child process: it is kept, replaced where it ended, and lets go of."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.env import real_worker
from tidelog.env.child_processes import BesideTheLoop, ChildProcessesError
from tidelog.env.promise import Promise
from tidelog.env.real_child_processes import RealChildProcesses
from tidelog.env.real_disk import RealDisk
from tidelog.env.real_loop import RealLoop

ECHO = "tests.env.echo"


@pytest.fixture
def loop() -> Iterator[RealLoop]:
    made = RealLoop()
    yield made
    made.close()


@pytest.fixture
def child_processes(loop: RealLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealChildProcesses]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # where a child finds ECHO
    made = RealChildProcesses(loop)
    yield made
    asked = list(made.questions.values())
    made.close()
    for each in asked:
        loop.run_until(gone(loop, each.pid))


def gone(loop: RealLoop, pid: int) -> Promise[None]:
    """Until a child that was let go of is no more."""
    promise: Promise[None] = Promise()

    def look() -> None:
        if pid < 0 or not os.path.exists(f"/proc/{pid}"):
            promise.resolve(None)
        else:
            loop.call_later(0.01, look)

    look()
    return promise


def test_it_answers_one_after_the_other(loop: RealLoop, child_processes: RealChildProcesses) -> None:
    asked = [child_processes.ask(ECHO, bytearray(b"%d" % number)) for number in range(5)]
    assert [bytes(loop.run_until(promise)) for promise in asked] == [b"%d!" % number for number in range(5)]


def test_the_child_stays_and_is_another_process(loop: RealLoop, child_processes: RealChildProcesses) -> None:
    first = bytes(loop.run_until(child_processes.ask(ECHO, bytearray(b"who"))))
    assert bytes(loop.run_until(child_processes.ask(ECHO, bytearray(b"who")))) == first
    assert int(first) == child_processes.questions[ECHO].pid != os.getpid()


def test_what_is_asked_may_be_large(loop: RealLoop, child_processes: RealChildProcesses) -> None:
    question = bytearray(os.urandom(20 << 20))
    assert loop.run_until(child_processes.ask(ECHO, question)) == question + b"!"


def test_a_child_that_was_killed_is_replaced(loop: RealLoop, child_processes: RealChildProcesses) -> None:
    first = bytes(loop.run_until(child_processes.ask(ECHO, bytearray(b"who"))))
    os.kill(int(first), signal.SIGKILL)
    second = bytes(loop.run_until(child_processes.ask(ECHO, bytearray(b"who"))))
    assert second != first
    loop.run_until(gone(loop, int(first)))


def test_a_question_that_ends_the_child_is_asked_twice_and_harms_no_other(
    loop: RealLoop, child_processes: RealChildProcesses
) -> None:
    deadly, other = child_processes.ask(ECHO, bytearray(b"die")), child_processes.ask(ECHO, bytearray(b"a"))
    with pytest.raises(ChildProcessesError):
        loop.run_until(deadly)
    assert loop.run_until(other) == b"a!"


def test_where_no_process_can_be_started_it_is_told(
    loop: RealLoop, child_processes: RealChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError("no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", refuse)
        asked = [child_processes.ask(ECHO, bytearray(b"a")) for _ in range(2)]
        for each in asked:
            with pytest.raises(ChildProcessesError, match="no more processes"):
                loop.run_until(each)
    assert loop.run_until(child_processes.ask(ECHO, bytearray(b"a"))) == b"a!"


def test_who_is_refused_and_asks_on_has_the_answer_to_its_own_question(
    loop: RealLoop, child_processes: RealChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child ended, and the next could not be started at the first try: others wait, and one asks again."""
    spawn, calls = os.posix_spawn, iter(range(100))

    def refuse_once(*args: Any, **more: Any) -> int:
        if next(calls) == 2:
            raise BlockingIOError("no more processes")
        return spawn(*args, **more)

    monkeypatch.setattr(os, "posix_spawn", refuse_once)
    again: Promise[bytearray] = Promise()
    deadly = child_processes.ask(ECHO, bytearray(b"die"))
    refused, behind = child_processes.ask(ECHO, bytearray(b"a")), child_processes.ask(ECHO, bytearray(b"b"))
    refused.on_done(
        lambda _: child_processes.ask(ECHO, bytearray(b"c")).on_done(lambda done: again.resolve(done.result()))
    )
    for each in (deadly, refused):
        with pytest.raises(ChildProcessesError):
            loop.run_until(each)
    assert (loop.run_until(behind), loop.run_until(again)) == (b"b!", b"c!")


def test_who_answers_may_ask_on(loop: RealLoop, child_processes: RealChildProcesses) -> None:
    last: Promise[bytearray] = Promise()
    child_processes.ask(ECHO, bytearray(b"a")).on_done(
        lambda done: child_processes.ask(ECHO, done.result()).on_done(lambda again: last.resolve(again.result()))
    )
    assert loop.run_until(last) == b"a!!"


def test_a_child_that_nobody_asks_ends(
    loop: RealLoop, child_processes: RealChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_worker, "IDLE_S", 0.01)
    pid = int(loop.run_until(child_processes.ask(ECHO, bytearray(b"who"))))
    loop.run_until(gone(loop, pid))
    assert int(loop.run_until(child_processes.ask(ECHO, bytearray(b"who")))) != pid


def test_closing_amid_an_answer_fails_it_and_those_behind_it(
    loop: RealLoop, child_processes: RealChildProcesses
) -> None:
    asked = [child_processes.ask(ECHO, bytearray(question)) for question in (b"a", b"sleep", b"b")]
    loop.run_until(asked[0])
    child_processes.close()
    for each in asked[1:]:
        with pytest.raises(ChildProcessesError):
            loop.run_until(each)
    assert loop.run_until(child_processes.ask(ECHO, bytearray(b"c"))) == b"c!", "it may be used again"


def test_beside_the_loop_the_same_function_answers(loop: RealLoop) -> None:
    assert loop.run_until(BesideTheLoop(loop, RealDisk()).ask(ECHO, bytearray(b"a"))) == b"a!"
