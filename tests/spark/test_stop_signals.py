"""A run is stopped between two calls, not in the middle of one; the second signal leaves at once."""

import os
import signal
import threading
import time

import pytest

from tidelog.spark.pipeline.run.stop_signals import Stop

PATIENCE_S = 10.0


def until(condition: threading.Event) -> None:
    assert condition.wait(PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_a_wish_and_the_second_one_leaves(number: signal.Signals) -> None:
    before = signal.signal(number, signal.default_int_handler)  # whoever runs the tests may ignore it
    try:
        stop, notice = Stop(), threading.Event()
        stop.gently = True
        with stop.on_signals(lambda text: notice.set()):
            assert not stop.wait(0)
            os.kill(os.getpid(), number)
            assert stop.wait(PATIENCE_S)
            assert stop.number == number
            until(notice)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_before_there_is_anything_to_end_the_first_signal_leaves() -> None:
    stop = Stop()
    with pytest.raises(KeyboardInterrupt), stop.on_signals(print):
        os.kill(os.getpid(), signal.SIGTERM)
    assert (bool(stop), stop.number) == (True, signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.on_signals(print):
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wait(0.05)
    finally:
        signal.signal(signal.SIGHUP, before)


class Session:
    """What is asked of Spark's."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.cancelled = 0
        self.twice = threading.Event()

    def cancelAllJobs(self) -> None:
        self.cancelled += 1
        if self.cancelled == 2:
            self.twice.set()


def test_what_takes_long_is_cancelled_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.spark.pipeline.run.stop_signals.LOOK_S", 0.01)
    monkeypatch.setattr("tidelog.spark.pipeline.run.stop_signals.AGAIN_S", 0.01)
    stop, spark = Stop(), Session()
    with stop.cancelling(spark):
        time.sleep(0.05)
        assert spark.cancelled == 0
        stop.wish()
        until(spark.twice)
    count = spark.cancelled
    time.sleep(0.05)
    assert spark.cancelled == count
