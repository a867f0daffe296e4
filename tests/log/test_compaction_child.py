"""Compaction in a child process: the broker goes on, whatever becomes of the child."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.log.harness import TOPIC_ID
from tests.log.keyed import COMPACT, pairs, put

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.env.real import real_environment
from tidelog.env.real_child_processes import Child
from tidelog.env.real_loop import RealLoop
from tidelog.log.log import Log
from tidelog.log.store import Store

TIMEOUT_S = 20.0


@dataclass
class Harbour:
    """A store on the real loop and disk."""

    root: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        defaults = {"process.roles": "broker,controller", "node.id": "1", "log.cleaner.backoff.ms": "50"}
        self.config = BrokerConfig.parse({**defaults, **self.settings})
        self.loop = RealLoop()
        self.store = Store(real_environment(self.loop), [str(self.root)], self.config)
        self.store.start()

    def log(self, **settings: str) -> Log:
        given = {name.replace("_", "."): value for name, value in {**COMPACT, **settings}.items()}
        return self.store.log("tide", 0, TOPIC_ID, resolve_topic(given, self.config))

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not until():
            assert time.monotonic() < deadline, "it never came"
            self.loop.call_later(0.01, lambda: None)
            self.loop.run_once()

    def child(self) -> int:
        """The process id of the child that is at work."""
        self.wait(lambda: bool(self.store.upkeep.cleaner.runs()))
        [run] = self.store.upkeep.cleaner.runs()
        assert isinstance(run.job, Child)
        return run.job.pid

    def stop(self) -> None:
        self.loop.run_until(self.store.stop())

    def fill(self, log: Log, records: int = 2000) -> None:
        for n in range(records):
            put(log, (b"k%d" % (n % 10), b"v%d" % n), now_ms=int(time.time() * 1000))
        log.roll(int(time.time() * 1000))
        self.store.flush_soon(log)
        self.wait(lambda: log.recovery_point == log.log_end)


@pytest.fixture
def harbour(tmp_path: Path) -> Iterator[Harbour]:
    made = Harbour(tmp_path / "data")
    yield made
    made.stop()
    made.loop.close()


SLOW = {"log.cleaner.io.max.bytes.per.second": "1000"}
"""So slow that the child is still at it when it is looked for."""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Harbour]:
    made = Harbour(tmp_path / "data", SLOW)
    yield made
    made.loop.close()


def test_a_child_compacts_and_says_how_much(harbour: Harbour, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.log.compaction")
    log = harbour.log()
    harbour.fill(log)
    harbour.wait(lambda: harbour.store.clean_end(log) == 2000)
    assert pairs(log) == [(n, b"k%d" % (n % 10), b"v%d" % n) for n in range(1990, 2000)]
    assert "tide-0: compacted up to offset 2000" in caplog.text
    assert "10 of 2000 records stayed" in caplog.text


def test_a_broker_that_is_not_told_of_its_children_compacts_too(harbour: Harbour) -> None:
    """Who starts it may have ignored SIGCHLD, which is inherited: the system takes ended children away by itself."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        log = harbour.log()
        harbour.fill(log)
        harbour.wait(lambda: harbour.store.clean_end(log) == 2000)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_child_yields_to_the_broker(slow: Harbour) -> None:
    slow.fill(slow.log())
    pid = slow.child()
    slow.wait(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 19)
    slow.stop()


def test_a_killed_child_is_told_of_and_tried_again(slow: Harbour, caplog: pytest.LogCaptureFixture) -> None:
    log = slow.log()
    slow.fill(log)
    first = slow.child()
    os.kill(first, signal.SIGKILL)
    slow.wait(lambda: "compacting tide-0 failed: it was ended by SIGKILL; it is tried again" in caplog.text)
    slow.wait(lambda: slow.child() != first)
    assert log.offline is None
    assert len(pairs(log)) == 2000
    slow.stop()
    assert not list((slow.root / "tide-0").glob("*.cleaned"))


def test_a_stop_ends_the_child(slow: Harbour) -> None:
    log = slow.log()
    slow.fill(log)
    pid = slow.child()
    slow.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not list((slow.root / "tide-0").glob("*.cleaned"))


def test_a_deleted_topic_ends_the_child(slow: Harbour) -> None:
    slow.fill(slow.log())
    slow.child()
    slow.store.delete("tide", 0, TOPIC_ID)
    slow.wait(lambda: slow.store.upkeep.cleaner.idle)
    slow.stop()


def test_a_child_does_not_outlive_its_broker(tmp_path: Path) -> None:
    """The broker is killed with -9: nobody is left to tell the child."""
    reads, writes = os.pipe()
    broker = os.fork()
    if not broker:
        try:
            made = Harbour(tmp_path / "data", SLOW)
            made.fill(made.log())
            os.write(writes, b"%d\n" % made.child())
            made.wait(lambda: False)
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as told:
        child = int(told.readline())
    os.kill(broker, signal.SIGKILL)
    os.waitpid(broker, 0)
    deadline = time.monotonic() + TIMEOUT_S
    while _lives(child):
        assert time.monotonic() < deadline, "the child lives on"


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
