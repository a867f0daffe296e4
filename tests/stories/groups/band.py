"""A band: the members of one group, each in a process of its own, started, told what to do, killed and waited for."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any

from confluent_kafka import Producer

from tests.stories.groups.diary import Options
from tests.stories.groups.history import History
from tidelog.client import Admin
from tidelog.wire.topic_partition import TopicPartition

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "5",
}
"""Settings of a broker that notices soon who is gone; in production seconds would be milliseconds here."""

DEADLINE_S = 25.0
_numbers = itertools.count(1)


def command_of(options: Options) -> list[str]:
    return [sys.executable, "-m", "tests.stories.groups", json.dumps(asdict(options))]


class Member:
    """One process, and a thread that copies its diary into the band's history."""

    def __init__(self, name: str, options: Options, history: History, command: list[str]) -> None:
        self.name = name
        self.options = options
        self.history = history
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.history.add(self.name, json.loads(line))

    def note(self, event: str) -> None:
        self.history.add(self.name, {"at": time.monotonic(), "event": event})

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def leave(self) -> None:
        """Ask it to say goodbye, and wait for its end."""
        self.tell("leave")
        code = self.process.wait(DEADLINE_S)
        self._reading.join(DEADLINE_S)
        assert code == 0, f"{self.name} ended with code {code}"

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self._reading.join(DEADLINE_S)
        self.note("killed")

    def stop(self) -> None:
        """SIGSTOP: its connections stay open, and nothing comes from it."""
        self.process.send_signal(signal.SIGSTOP)
        self.note("stopped")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def saw(self, *kinds: str) -> list[dict[str, Any]]:
        return self.history.of(self.name, *kinds)

    @property
    def holds(self) -> set[TopicPartition]:
        return self.history.holding(self.name)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


class Band:
    """A group of one topic (or of what a pattern matches), and the records that were written to it."""

    def __init__(
        self,
        bootstrap: str,
        client: str,
        *,
        partitions: int = 4,
        topic: str | None = None,
        command: Callable[[Options], list[str]] = command_of,
        **options: Any,
    ) -> None:
        tag = f"{os.getpid()}-{time.monotonic_ns() % 10**9}-{next(_numbers)}"
        self.bootstrap = bootstrap
        self.topic = topic or f"story-{tag}"
        self.partitions = partitions
        self.history = History()
        self.members: list[Member] = []
        self.written: list[tuple[str, int, int]] = []
        self._command = command
        self._producers: dict[tuple[str, int], Producer] = {}
        self._options = Options(client, bootstrap, f"group-{tag}", self.topic)
        self._options = replace(self._options, **options)
        if topic is None:
            Admin(bootstrap).create_topic(self.topic, partitions)

    def __enter__(self) -> "Band":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.end()
        if error is not None:
            shown = [f"{e['at']:.3f} {e['member']} {e}" for e in self.history.ordered() if e["event"] != "record"]
            print(*shown[-60:], sep="\n")

    @property
    def group(self) -> str:
        return self._options.group

    def join(self, name: str, **more: Any) -> Member:
        options = replace(self._options, **more)
        member = Member(name, options, self.history, self._command(options))
        self.members.append(member)
        return member

    def write(self, count: int, *, topic: str | None = None, partitions: int | None = None) -> None:
        """`count` records to each partition in turn; waits for their acknowledgements."""
        topic, partitions = topic or self.topic, partitions or self.partitions

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.written.append((message.topic(), message.partition(), message.offset()))

        if (topic, partitions) not in self._producers:
            settings = {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
            self._producers[topic, partitions] = Producer(settings)
        producer = self._producers[topic, partitions]
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=number % partitions, on_delivery=delivered)
        assert producer.flush(DEADLINE_S) == 0

    @contextmanager
    def writing(self, every_s: float = 0.01) -> Iterator[None]:
        """Records go on being written, one to each partition in turn, while the block runs."""
        over = threading.Event()

        def write() -> None:
            while not over.wait(every_s):
                self.write(self.partitions)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(DEADLINE_S)

    def wait(self, what: Callable[[], object], why: str, timeout_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not what():
            assert time.monotonic() < deadline, f"{why}: not within {timeout_s:.0f} s"
            for member in self.members:
                ended = member.process.poll() not in (None, 0, -signal.SIGKILL)
                assert not ended, f"{member.name} ended with code {member.process.returncode}"
            time.sleep(0.01)

    def settle(self, *members: Member, each: int | None = None) -> None:
        """Until these members own all partitions among them, each its share (`each`: so many)."""

        def settled() -> bool:
            names = {member.name for member in members}
            owners = self.history.owners()
            whole = [place for place, who in owners.items() if len(who) == 1 and who[0] in names]
            fair = all(len(member.holds) >= (1 if each is None else each) for member in members)
            return len(whole) == self.partitions and fair

        self.wait(settled, f"{', '.join(m.name for m in members)} share {self.partitions} partitions")

    def processed(self) -> None:
        """Until everything that was written has been processed and committed."""
        wanted = set(self.written)
        ends: dict[TopicPartition, int] = {}
        for topic, partition, offset in wanted:
            ends[topic, partition] = max(ends.get((topic, partition), 0), offset + 1)

        def done() -> bool:
            return wanted <= self.history.records().keys() and self.history.last_committed().items() >= ends.items()

        self.wait(done, "everything is processed and committed")

    def check(self, *, once: bool) -> None:
        self.history.check(self.written, once=once)
