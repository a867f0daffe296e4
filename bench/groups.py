"""Cases of consumer groups: how soon they settle, what a rebalance costs the others, memory, commits, first messages.

A raw driver plays the members where there are many; librdkafka where its own work is part of what is measured.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, Producer
from tests.group_requests import commit_fields, find_coordinator
from tests.raw import Connection

from bench.brokers import KAFKA, Broker, Topic
from bench.case import BOTH, Bench, Case, Metrics
from bench.group_members import ClassicGroup, ConsumerGroup
from bench.group_players import Stage
from bench.process import cpu_s, memory_bytes
from bench.programs import BenchError
from bench.requests import batch_of
from tidelog.wire.keys import ApiKey

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "45000",
    "socket.listen.backlog.size": "1000",
}
"""On both: nobody waits for members that may come, those of the server-side protocol ask each second, and hundreds of
connections in a moment don't run into the kernel's second of waiting behind a full backlog."""

MEMBERS, PARTITIONS = 500, 1000
COME_WITHIN_S = 2.0
GROUPS = 2000
WITHIN_S = 120.0
COMMITS = 4000
COMMIT_EVERY_S = 0.002
FIRST_TIMES = 7
MB = 1e6


@contextmanager
def broker_for_groups(bench: Bench, name: str, *, waits: bool = False) -> Iterator[Broker]:
    """`waits`: Tidelog's own delay for members to come; Kafka's is 0, as in the configuration that it ships."""
    broker = bench.make(name)
    own = waits and name != KAFKA
    broker.settings = {name: value for name, value in SETTINGS.items() if not (own and "delay" in name)}
    broker.start()
    try:
        with Connection(broker.at) as connection:
            find_coordinator(connection, "any")
        yield broker
    finally:
        broker.remove()


def settle(bench: Bench, name: str, *, kind: type[ClassicGroup] | type[ConsumerGroup]) -> Metrics:
    """Seconds from the first member's connection until all have their share; then one more joins."""
    members = bench.count(MEMBERS)
    with broker_for_groups(bench, name) as broker, broker.topic(PARTITIONS) as topic, Stage(broker.port) as stage:
        spent, began = cpu_s(broker.pid), time.monotonic()
        group = kind(stage, "settling", topic.name, PARTITIONS, members)
        stage.run(lambda: group.settled, WITHIN_S, f"{name}: {members} members")
        settled_s = time.monotonic() - began
        spent = cpu_s(broker.pid) - spent
        return {"settle_s": settled_s, "cpu_s": spent, "memory_mb": memory_bytes(broker.pid) / MB}


def crowd(bench: Bench, name: str) -> Metrics:
    """Classic members that come within two seconds, as a deployment's do: until all have their share."""
    members = bench.count(MEMBERS)
    with (
        broker_for_groups(bench, name, waits=True) as broker,
        broker.topic(PARTITIONS) as topic,
        Stage(broker.port) as stage,
    ):
        began = time.monotonic()
        group = ClassicGroup(stage, "crowd", topic.name, PARTITIONS, members, over_s=COME_WITHIN_S)
        stage.run(lambda: group.settled, WITHIN_S, f"{name}: {members} members")
        return {"settle_s": time.monotonic() - began, "generations": float(group.generation)}


def many(bench: Bench, name: str) -> Metrics:
    """2,000 groups of two, half of them in each protocol, each member with its connection; each group commits."""
    groups = bench.count(GROUPS)
    with broker_for_groups(bench, name) as broker, broker.topic(2) as topic, Stage(broker.port) as stage:
        before, began = memory_bytes(broker.pid), time.monotonic()
        made = [
            (ClassicGroup if number % 2 else ConsumerGroup)(stage, f"group-{number:05}", topic.name, 2, 2)
            for number in range(groups)
        ]
        stage.run(lambda: all(group.settled for group in made), WITHIN_S, f"{name}: {groups} groups of two")
        settled_s = time.monotonic() - began
        left = len(made)

        def answered(_: object) -> None:
            nonlocal left
            left -= 1

        for group in made:
            member = group.members[0]
            epoch = member.generation if isinstance(group, ClassicGroup) else member.epoch
            fields = commit_fields(group.group, {(topic.name, 0): 1}, epoch, member.id)
            member.player.ask(ApiKey.OFFSET_COMMIT, 9, fields, answered)
        stage.run(lambda: left == 0, WITHIN_S, f"{name}: a commit of each group")
        used = memory_bytes(broker.pid)
        return {"memory_mb": used / MB, "memory_for_groups_mb": (used - before) / MB, "settle_s": settled_s}


def commits(bench: Bench, name: str) -> Metrics:
    """Commits and produce requests in turn, one each 2 ms; Tidelog syncs both before it answers, Kafka neither."""
    with (
        broker_for_groups(bench, name) as broker,
        broker.topic(1, fsync=name != KAFKA) as topic,
        Connection(broker.at) as connection,
    ):
        batch = batch_of(500, 1)
        produced: list[float] = []
        committed: list[float] = []
        turns = bench.count(COMMITS) // 2
        due = time.monotonic()
        for number in range(turns):
            for times, key, version, fields in (
                (produced, ApiKey.PRODUCE, 9, _produce_fields(topic, batch)),
                (committed, ApiKey.OFFSET_COMMIT, 9, commit_fields(f"group-{number % 10}", {(topic.name, 0): number})),
            ):
                due = max(due + COMMIT_EVERY_S, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
                began = time.monotonic()
                connection.ask(key, version, fields)
                times.append((time.monotonic() - began) * 1e6)
        skipped = turns // 10
        produce_p99, commit_p99 = (_percentile(times[skipped:], 0.99) for times in (produced, committed))
        return {
            "ack_p99_us": produce_p99,
            "commit_p50_us": _percentile(committed[skipped:], 0.5),
            "commit_p99_us": commit_p99,
            "commit_to_ack": commit_p99 / produce_p99,
        }


def first_message(bench: Bench, name: str, *, protocol: str) -> Metrics:
    """From subscribe() of a new group's only consumer to its first message."""
    with broker_for_groups(bench, name, waits=True) as broker, broker.topic(1) as topic:
        producer = Producer({"bootstrap.servers": broker.at})
        producer.produce(topic.name, b"first")
        if producer.flush(10):
            raise BenchError(f"{name} did not take a message")
        times = [_first_s(broker, topic, f"first-{number}", protocol) for number in range(FIRST_TIMES)]
        return {"first_ms": statistics.median(times[1:]) * 1e3, "first_max_ms": max(times[1:]) * 1e3}


def _first_s(broker: Broker, topic: Topic, group: str, protocol: str) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.at,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    began = time.monotonic()
    consumer.subscribe([topic.name])
    while (message := consumer.poll(0.5)) is None or message.error() is not None:
        if time.monotonic() - began > WITHIN_S:
            raise BenchError(f"{broker.name} gives {group} no message")
    seconds = time.monotonic() - began
    consumer.close()
    return seconds


def others(bench: Bench, name: str, *, protocol: str) -> Metrics:
    """What the others of a group get done while one joins and leaves it, again and again, of what they got done before.

    Four members read 20,000 messages a second. The share is of the partitions that stay with their owners.
    """
    with broker_for_groups(bench, name) as broker, broker.topic(12) as topic:
        command = [sys.executable, "-m", "bench.group_others", broker.at, topic.name, protocol, str(bench.scale)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
        if done.returncode:
            raise BenchError(f"{name}: {done.stderr.strip()[-500:]}")
        share, pause_ms, rate = map(float, done.stdout.split())
        return {"others_share": share, "others_pause_ms": pause_ms, "messages_per_s": rate}


def _produce_fields(topic: Topic, batch: bytes) -> dict[str, object]:
    parts = [{"index": 0, "records": batch}]
    return {"acks": -1, "timeout_ms": 10_000, "topic_data": [{"name": topic.name, "partition_data": parts}]}


def _percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


CASES = (
    Case(
        "groups-settle-classic",
        f"{MEMBERS} members, {PARTITIONS:,} partitions, classic",
        partial(settle, kind=ClassicGroup),
        BOTH,
        rounds=1,
        warm=False,
    ),
    Case(
        "groups-settle-consumer",
        f"{MEMBERS} members, {PARTITIONS:,} partitions, KIP-848",
        partial(settle, kind=ConsumerGroup),
        BOTH,
        rounds=1,
        warm=False,
    ),
    Case("groups-crowd", f"{MEMBERS} members within two seconds, classic", crowd, BOTH, rounds=1, warm=False),
    Case("groups-many", f"{GROUPS:,} groups of two", many, BOTH, rounds=1, warm=False),
    Case("groups-commit", "commits beside produce requests", commits, BOTH, rounds=1, warm=False),
    *(
        Case(
            f"groups-first-{protocol}",
            f"first message of a new group, {protocol}",
            partial(first_message, protocol=protocol),
            BOTH,
            rounds=1,
            warm=False,
        )
        for protocol in ("classic", "consumer")
    ),
    *(
        Case(
            f"groups-others-{protocol}",
            f"the others during a rebalance, {words}",
            partial(others, protocol=protocol),
            BOTH,
            rounds=1,
            warm=False,
        )
        for protocol, words in (("classic", "cooperative"), ("consumer", "KIP-848"))
    ),
)
