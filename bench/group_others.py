"""`python -m bench.group_others AT TOPIC PROTOCOL SCALE`: members that read at a rate, while another comes and goes.

Prints three numbers: what the others got done of their untouched partitions during rebalances, as a share of what was
written to them; their longest pause in ms; and the rate in all.

Each member is a process; it writes a line for each 50 ms, with how many messages it read of each partition, and one for
each change of what it owns.
"""

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

OTHERS = 4
PARTITIONS = 12
RATE = 20_000
TICK_S = 0.05
QUIET_S = 2.0
TURNS = 3
READY_S = 40.0


def member(at: str, topic: str, protocol: str) -> None:
    """Read and count until standard input ends."""
    strategy = {"partition.assignment.strategy": "cooperative-sticky"} if protocol == "classic" else {}
    consumer = Consumer(
        {
            "bootstrap.servers": at,
            "group.id": f"others-{topic}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 10,
            **strategy,
        }
    )
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()

    def tell(event: str, of: object) -> None:
        print(json.dumps([time.monotonic(), event, of]), flush=True)

    def numbers(partitions: list[TopicPartition]) -> list[int]:
        return [each.partition for each in partitions]

    consumer.subscribe(
        [topic],
        on_assign=lambda _, given: tell("assigned", numbers(given)),
        on_revoke=lambda _, taken: tell("revoked", numbers(taken)),
    )
    while not over.is_set():
        counts: dict[int, int] = defaultdict(int)
        end = time.monotonic() + TICK_S
        while (left := end - time.monotonic()) > 0:
            for message in consumer.consume(500, left):
                counts[message.partition() or 0] += 1
        tell("read", counts)
    consumer.close()


class Other:
    """A member's process and what it told."""

    def __init__(self, at: str, topic: str, protocol: str) -> None:
        command = [sys.executable, "-m", "bench.group_others", "member", at, topic, protocol]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told: list[tuple[float, str, Any]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(tuple(json.loads(line)))

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for _, event, of in list(self.told):
            if event == "assigned":
                owned |= set(of)
            elif event == "revoked":
                owned -= set(of)
        return owned

    def read(self, partition: int, begin: float, end: float) -> list[tuple[float, int]]:
        return [
            (at, of[str(partition)])
            for at, event, of in list(self.told)
            if event == "read" and begin <= at <= end and str(partition) in of
        ]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


class Writer:
    """Writes RATE messages a second, to each partition in turn, until it is told to end."""

    def __init__(self, at: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": at, "linger.ms": 5, "log_level": 0})
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number, began = 0, time.monotonic()
        while not self._over.is_set():
            while number < (time.monotonic() - began) * RATE:
                self._producer.produce(self._topic, b"x" * 100, partition=number % PARTITIONS)
                number += 1
            self._producer.poll(0)
            time.sleep(0.005)
        self._producer.flush(10)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def wait(what: Callable[[], object], why: str) -> None:
    deadline = time.monotonic() + READY_S
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit(f"{why}: not within {READY_S:.0f} s")
        time.sleep(0.01)


def main(at: str, topic: str, protocol: str, scale: float) -> None:
    members = [Other(at, topic, protocol) for _ in range(OTHERS)]
    wait(lambda: sum(len(each.owned) for each in members) == PARTITIONS and all(m.owned for m in members), "four share")
    writer = Writer(at, topic)
    time.sleep(1.0)
    shares: list[float] = []
    pauses: list[float] = []
    total, seconds = 0, 0.0
    for _ in range(max(1, int(TURNS * scale))):
        before = [(each, each.owned) for each in members]
        begin = time.monotonic()
        guest = Other(at, topic, protocol)
        wait(lambda guest=guest: guest.owned, "a fifth joins")
        time.sleep(max(0.0, begin + QUIET_S - time.monotonic()))
        kept = [(each, owned & each.owned) for each, owned in before]
        guest.end()
        wait(lambda: sum(len(each.owned) for each in members) == PARTITIONS, "four share again")
        end = time.monotonic()
        for each, partitions in kept:
            for partition in partitions:
                ticks = each.read(partition, begin, end)
                count = sum(number for _, number in ticks)
                times = [begin, *(moment for moment, _ in ticks), end]
                shares.append(count / (RATE / PARTITIONS * (end - begin)))
                pauses.append(max(later - sooner for sooner, later in pairwise(times)))
                total += count
        seconds += end - begin
    writer.end()
    for each in members:
        each.end()
    print(sum(shares) / len(shares), max(pauses) * 1e3, total / seconds)


if __name__ == "__main__":
    if sys.argv[1] == "member":
        member(*sys.argv[2:5])
    else:
        main(*sys.argv[1:4], float(sys.argv[4]))
