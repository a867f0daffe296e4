"""The producers of this Python worker: transactional ids that nobody else has, taken again for later batches only.

A worker runs one task after the other, and each leaves its transaction open for the driver to end: a batch takes as
many ids as the worker ran tasks of it. Coordinators keep every id for days: new ones for each batch would pile up.
An id is taken again without a new InitProducerId, which would abort what is open: the coordinator is asked whether the
last transaction has ended. Why all this is sound: docs/decisions/0010-the-spark-sink.md.
"""

import hashlib
import os
import re
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.rpc import Cluster
from tidelog.rpc.groups import OF_SPARK_SINKS
from tidelog.rpc.transactions import Producer, describe, init_producer
from tidelog.wire.leases import LEASED_MS, NO_TIMEOUT_MS

SINKS_MAX = 256
HELD_MAX = 1024
EPOCHS_MAX = 32_000
"""From this epoch on an id is used up. There are 32,767, and where transaction.version is 0 the last one stays: rows
would be taken for a repetition of an earlier batch's."""
LOOKS_MAX = 3
"""How many ids are asked for before a new one is made: one whose markers are being written is free a moment later."""


NAME_CHARS = 12
"""Of the random names of writers and workers, in hexadecimal."""


class Attempt(NamedTuple):
    """For whom a task writes: a sink, a run of the query that feeds it, the batch, and the driver's writer."""

    sink: str
    run: str
    batch: int
    writer: str = ""


class Owner(NamedTuple):
    """Whose a task's transactional id is; `writer` is empty where that wasn't told."""

    sink: str
    run: str
    writer: str = ""


_START, _TASK = OF_SPARK_SINKS, "-task-"
_NAME = f"[0-9a-f]{{{NAME_CHARS}}}"
_TASK_ID = re.compile(
    rf"{_START}(?P<sink>.+){_TASK}(?P<run>.+)-(?:(?P<writer>{_NAME})\.)?{_NAME}-[0-9]+", re.DOTALL | re.ASCII
)


def writer_of(*parts: str) -> str:
    """A name for who writes in a driver, which each of its processes finds by itself, and tasks are told.

    Spark gives a stream's driver nothing that tells a query, nor a run of it, when a batch fails of which no task came
    to its end. But its processes are told where the driver keeps its files: one folder for each that is started.
    Empty where they are not.
    """
    driver = os.environ.get("SPARK_LOCAL_DIRS", "")
    whole = "\0".join((driver, *parts)).encode()
    return hashlib.sha256(whole).hexdigest()[:NAME_CHARS] if driver and all(parts) else ""


def driver_id(sink: str) -> str:
    return f"{_START}{sink}-driver"


def task_id(owner: Owner, worker: str, number: int) -> str:
    whose = f"{owner.writer}." if owner.writer else ""
    return f"{_START}{owner.sink}{_TASK}{owner.run}-{whose}{worker}-{number}"


def owner_of(transactional_id: str) -> Owner | None:
    """None where no task made it: others may have ids that begin alike, and are asked about, too.

    A sink's name may hold anything; what follows it holds no such word again.
    """
    match = _TASK_ID.fullmatch(transactional_id)
    return None if match is None else Owner(match["sink"], match["run"], match["writer"] or "")


@dataclass(slots=True)
class _Ids:
    """The ids that this process has for one run of one sink; those at the left were used longest ago."""

    run: str
    held: deque[tuple[str, int]] = field(default_factory=deque[tuple[str, int]])


class Producers:
    """All of a process: a fork begins with none, since two processes must not share an id."""

    def __init__(self) -> None:
        self._process = 0
        self._name = ""
        self._made = 0
        self._ids: OrderedDict[tuple[str, str], _Ids] = OrderedDict()

    def take(self, cluster: Cluster, attempt: Attempt, *, leased: bool = True) -> Producer:
        """A producer for this attempt alone, with nothing open; `leased` where brokers have leases."""
        ids = self._of(cluster.bootstrap, attempt)
        for _ in range(min(LOOKS_MAX, len(ids.held))):
            name, last = ids.held.popleft()
            if last >= attempt.batch:
                ids.held.append((name, last))
                continue
            ids.held.append((name, attempt.batch))
            known = describe(cluster, name)
            if known is None or not known.two_phase or known.producer.epoch >= EPOCHS_MAX:
                ids.held.pop()  # forgotten, an operator's now, or used up: not to be asked for again
            elif known.at_rest:
                return known.producer
        self._made += 1
        name = task_id(Owner(attempt.sink, attempt.run, attempt.writer), self._name, self._made)
        producer = init_producer(cluster, name, two_phase=True, timeout_ms=LEASED_MS if leased else NO_TIMEOUT_MS)
        ids.held.append((name, attempt.batch))
        while len(ids.held) > HELD_MAX:
            ids.held.popleft()
        return producer

    def _of(self, bootstrap: str, attempt: Attempt) -> _Ids:
        if self._process != os.getpid():
            self._process, self._name = os.getpid(), uuid.uuid4().hex[:NAME_CHARS]
            self._ids.clear()
        place = (bootstrap, attempt.sink)
        ids = self._ids.get(place)
        if ids is None or ids.run != attempt.run:
            ids = self._ids[place] = _Ids(attempt.run)
        self._ids.move_to_end(place)
        while len(self._ids) > SINKS_MAX:
            self._ids.popitem(last=False)
        return ids


producers = Producers()
