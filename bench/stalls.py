"""Cases of one client that could hold up everybody: what others feel while a large or hostile request is worked on.

Each case has a fresh broker. Two polite clients, each a process of its own, ask all the while: first alone, then beside
the request. Counted are the worst answer to a small request, the rate that a steady producer kept, the longest turn of
the broker's loop (by its own watcher, in CPU time) and the broker's peak memory. What one request does is in
stall_data.py and stall_requests.py; a broker may refuse it, which is fine, as long as nobody else notices.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.raw import ClosedError

from bench import stall_data, stall_requests
from bench.brokers import TIDELOG
from bench.case import Bench, Case, Metrics
from bench.process import memory_bytes, peak_memory_bytes
from bench.stall_clients import Asked, PoliteClient
from bench.stall_target import GIVES_UP_S, Attack, Target

ALONE_S = 1.5
BESIDE_S = 2.0
"""A request that is done sooner is sent again, where it may be."""
BESIDE_LEAST_S = 0.25
SETTLES_S = 0.3
"""Given to what a request leaves behind: a parked fetch, a removal."""
LOOK_EVERY_S = 0.02

_TURN = re.compile(r"a turn of the loop took (\d+(?:\.\d+)?) ms")


@dataclass(frozen=True, slots=True)
class Stall:
    """One thing that a client may do: `attack` prepares the broker and gives what is then done, and measured."""

    name: str
    title: str
    attack: Attack
    repeats: bool = True


STALLS: Sequence[Stall] = (
    Stall("idempotent-restart", "first use of 200,000 idempotent batches", stall_data.idempotent_restart, False),
    Stall("killed-restart", "first use of 1,500 partitions after kill -9", stall_data.killed_restart, False),
    Stall("million-records-compacted", "zstd, 1,000,000 records, compacted", stall_data.million_compacted),
    Stall("million-records-recompressed", "zstd, 1,000,000 records, to gzip", stall_data.million_recompressed),
    Stall("first-writes", "first writes to 8,000 partitions", stall_data.first_writes, False),
    Stall("deleted-topic", "8,000 written partitions deleted", stall_data.deleted_topic, False),
    Stall("commit-of-100000", "a commit of 100,000 offsets", stall_requests.commit_of_100000),
    Stall("group-of-100000", "DeleteGroups of 100,000 offsets", stall_requests.group_of_100000, False),
    Stall("offset-delete-of-100000", "OffsetDelete of 100,000", stall_requests.offset_delete_of_100000, False),
    Stall("transaction-of-100000", "EndTxn with 100,000 offsets", stall_requests.transaction_of_100000, False),
    Stall("assignments", "KIP-848: 200 members, 10,000 partitions", stall_requests.assignments, False),
    Stall("headers-bomb-zstd", "8 million headers in zstd, compacted", stall_data.headers_bomb_zstd),
    Stall("headers-bomb-gzip", "8 million headers in gzip, to zstd", stall_data.headers_bomb_gzip),
    Stall("pipelined-describe-configs", "31 DescribeConfigs in a write", stall_requests.pipelined_describe_configs),
    Stall("pipelined-metadata", "ten connections of pipelined Metadata", stall_requests.pipelined_metadata),
    Stall("never-reading", "200 connections that never read", stall_requests.never_reading, False),
    Stall("parked-missing", "parked fetches of missing partitions", stall_requests.parked_missing, False),
    Stall("parked-many", "fifty parked fetches of 2,000 partitions", stall_requests.parked_many, False),
    Stall("metadata-makes-topics", "Metadata makes 100,000 topics", stall_requests.metadata_makes_topics, False),
    Stall("create-topics", "CreateTopics of 30,000", stall_requests.create_topics, False),
    Stall("fetch-sessions", "nine fetch sessions of 222,222 partitions", stall_requests.fetch_sessions, False),
    Stall("large-describe-configs", "DescribeConfigs of 250,000", stall_requests.large_describe_configs),
    Stall("large-offset-fetch", "OffsetFetch of 250,000", stall_requests.large_offset_fetch),
    Stall("large-offset-commit", "OffsetCommit of 250,000", stall_requests.large_offset_commit),
    Stall("large-write-txn-markers", "WriteTxnMarkers of 250,000", stall_requests.large_write_txn_markers),
    Stall("large-produce", "Produce of 250,000", stall_requests.large_produce),
    Stall("tags", "45,000 topics with 1,000 tags each", stall_requests.tags),
)


def measure(stall: Stall, bench: Bench, name: str) -> Metrics:
    broker = bench.make(name)
    target = Target(broker)
    clients: list[PoliteClient] = []
    try:
        with target:
            broker.settings = target.settings
            broker.start()
            topic = broker.create_topic("polite", 1)
            attack = stall.attack(target)
            ping = PoliteClient("ping", broker.port, topic.name)
            clients.append(ping)
            steady = PoliteClient("steady", broker.port, topic.name)
            clients.append(steady)
            time.sleep(ALONE_S)
            memory = Memory(broker.pid)
            said = broker.output.stat().st_size
            began = time.monotonic()
            _repeat(stall, attack, began)
            ended = max(time.monotonic(), began + BESIDE_LEAST_S)
            time.sleep(SETTLES_S)
            asked, produced = ping.end(), steady.end()
            return {
                **target.extra,
                "turn_ms": longest_turn_ms(broker.output, said),
                "ping_ms": _worst_ms(asked, began),
                "peak_mb": memory.end() / 1e6,
                "kept": _kept(produced, began, ended),
                "attack_s": ended - began,
            }
    finally:
        for client in clients:
            client.kill()
        broker.remove()


def _repeat(stall: Stall, attack: Callable[[], None], began: float) -> None:
    """A request that takes too long, or that the broker closes the connection for, is over."""
    with suppress(TimeoutError, ClosedError):
        attack()
        while stall.repeats and time.monotonic() - began < min(BESIDE_S, GIVES_UP_S):
            attack()


def longest_turn_ms(output: Path, start: int) -> float:
    """The longest turn that the broker told of since its log was `start` bytes long; it tells of those above 50 ms."""
    with open(output, errors="replace") as file:
        file.seek(start)
        return max((float(found[1]) for line in file if (found := _TURN.search(line))), default=math.nan)


def _worst_ms(asked: Sequence[Asked], began: float) -> float:
    return max((1000 * (answered - sent) for sent, answered in asked if answered >= began), default=math.inf)


def _kept(produced: Sequence[Asked], began: float, ended: float) -> float:
    """The rate of answers beside the request, to that of the time before; the first half second is left out."""
    start = produced[0][0] + 0.5 if produced else math.inf
    alone = sum(start <= answered < began for _, answered in produced) / max(began - start, 0.1)
    beside = sum(began <= answered < ended for _, answered in produced) / (ended - began)
    return beside / alone if alone else 0.0


class Memory:
    """The most memory that the broker held at once since this began: its children's too, looked at all the time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._most = max(self._most, memory_bytes(self._pid))

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return max(self._most, peak_memory_bytes(self._pid))


CASES = tuple(
    Case(f"stalls-{stall.name}", stall.title, partial(measure, stall), (TIDELOG,), rounds=1, warm=False)
    for stall in STALLS
)
