"""A topic copied by workers that are killed, through a broker that is killed: what the output must hold."""

import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tidelog.client import Admin

PARTITIONS = 4
KEYS = 40
STALL_S = 90.0
"""How long nothing may be committed, whatever was killed: dead members' sessions, transactions, restarts."""


class Killed(Protocol):
    """A broker, or several of which `kill` picks one; `start` brings back what was killed."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


Command = Callable[..., list[str]]
"""(bootstrap, group, the worker's name, records a transaction, its number, how many there are) -> what to run."""


def python_worker(library: str) -> Command:
    return lambda *arguments: [sys.executable, "-m", f"tests.stories.exactly_once.{library}_worker", *arguments]


def java_worker(jars: Path) -> Command:
    source = Path(__file__).with_name("Worker.java")
    options = ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return lambda *arguments: ["java", *options, "-cp", f"{jars}/*", str(source), *arguments]


class Source:
    """Records `key:number` in the order of their numbers for each key; a key stays in its partition."""

    def __init__(self, bootstrap: str) -> None:
        for topic in ("input", "output"):
            Admin(bootstrap).create_topic(topic, PARTITIONS)
        self.count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )

    def write(self, up_to: int) -> None:
        for number in range(self.count, up_to):
            key = number % KEYS
            self._producer.produce("input", f"{key}:{number // KEYS}", key=str(key), partition=key % PARTITIONS)
            if not number % 10_000:
                self._producer.poll(0)
        assert self._producer.flush(120) == 0
        self.count = up_to


class Copy:
    """The workers of one group, started again whenever they end."""

    def __init__(self, broker: Killed, command: Command, workers: int, batch: int) -> None:
        self.batch = batch
        self.broker = broker
        self.kills = 0
        self.restarts = 0
        self._command = command
        self._count = workers
        self._workers = [self._start(number) for number in range(workers)]

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        path = self.broker.folder.parent / f"worker-{number}.log"
        with open(path, "ab") as output:
            command = self._command(
                self.broker.bootstrap, "copiers", f"worker-{number}", str(self.batch), str(number), str(self._count)
            )
            return subprocess.Popen(command, stdout=output, stderr=output)

    def look_after(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self.restarts += 1
                self._workers[number] = self._start(number)

    def kill(self, number: int) -> None:
        """kill -9 of a worker."""
        self._workers[number].kill()
        self._workers[number].wait()

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def said(self) -> str:
        logs = sorted(self.broker.folder.parent.glob("worker-*.log"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in logs)


def progress(consumer: Consumer) -> int:
    """How many input records are committed as consumed; -1 where nobody can tell right now."""
    places = [TopicPartition("input", index) for index in range(PARTITIONS)]
    try:
        found = consumer.committed(places, timeout=2.0)
    except Exception:
        return -1
    return sum(max(place.offset, 0) for place in found)


def copy_through_chaos(
    broker: Killed, command: Command, count: int, *, seed: int, workers: int, kills: int, batch: int
) -> Copy:
    """The input comes in portions; in the middle of each a worker or the broker is killed. Until all is copied."""
    dice = random.Random(seed)
    source = Source(broker.bootstrap)
    portion = count // (kills + 1)
    source.write(portion)
    copy = Copy(broker, command, workers, batch)
    watcher = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "copiers", "log_level": 0})
    best, moved, killed_at = -1, time.monotonic(), 0
    try:
        while best < count:
            time.sleep(0.02)
            copy.look_after()
            now = time.monotonic()
            done = progress(watcher)
            assert done < 0 or done >= best, f"committed offsets went back from {best} to {done}"
            if done > best:
                best, moved = done, now
            assert now - moved < STALL_S, f"nothing moved for {STALL_S:.0f} s at {best} of {count}\n{copy.said()}"
            if copy.kills < kills and best > killed_at:
                source.write(source.count + portion)
                copy.kills += 1
                killed_at = best
                if dice.random() < 0.5:
                    copy.kill(dice.randrange(workers))
                else:
                    broker.kill()
                    broker.start()
                if copy.kills == kills:
                    source.write(count)
    finally:
        copy.end()
        watcher.close()
    return copy


def check_output(bootstrap: str, count: int) -> None:
    """Each input once, in order for each key, and nothing else."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("output", index, 0) for index in range(PARTITIONS)])
    found: dict[str, list[int]] = defaultdict(list)
    ended = 0
    deadline = time.monotonic() + 120
    while ended < PARTITIONS:
        assert time.monotonic() < deadline, "the output isn't stable: a transaction is open"
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
                continue
            value = (message.value() or b"").decode()
            key, _, number = value[1:-1].partition(":")
            assert value == f"<{key}:{number}>"
            assert message.key() == key.encode()
            found[key].append(int(number))
    consumer.close()
    wrong = {
        key: told for key in range(KEYS) if (told := _wrong(found.pop(str(key), []), len(range(key, count, KEYS))))
    }
    assert not wrong, wrong
    assert not found


def _wrong(numbers: list[int], count: int) -> str:
    """How a key's numbers differ from 0 to `count` in order; nothing where they don't."""
    if numbers == list(range(count)):
        return ""
    missing = sorted(set(range(count)) - set(numbers))
    twice = sorted(number for number, times in Counter(numbers).items() if times > 1)
    return f"{len(missing)} missing {missing[:3]}, {len(twice)} twice {twice[:3]}, of {count}"
