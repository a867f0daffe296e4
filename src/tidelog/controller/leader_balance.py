"""The shell around `balance.py` and `internal_topics.py`: what nobody asks for, done by the active controller.

Preferred leaders are brought back every `leader.imbalance.check.interval.seconds`. Partitions without a leader whose
topic allows unclean elections are looked for every five minutes, as by Kafka, and as soon as a topic's setting, or the
default of all, says so. Topics of the coordinators get more replicas as brokers come.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tidelog.controller.balance import ELECTIONS_AT_ONCE, elect_preferred, elect_uncleanly
from tidelog.controller.internal_topics import is_concerned, replicate
from tidelog.controller.leaders import UNCLEAN_ELECTION, Defaults
from tidelog.env.loop import Loop, Timer
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.follow import ChangedTopics
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import Record

_logger = logging.getLogger(__name__)

UNCLEAN_INTERVAL_S = 300.0
REPLICATION_INTERVAL_S = 300.0
SOON_S = 0.01
"""Until the next batch; others have their turn in between."""

Elect = Callable[[ClusterImage, Defaults], Steps[Decision[Any, int]]]


class Submit(Protocol):
    """`Controller.submit_steps`."""

    def __call__(self, decide: Callable[[ClusterImage, int], Steps[Decision[Record, int]]], /) -> Promise[int]: ...


class LeaderBalance:
    """Does nothing while this node doesn't lead. `interval_s` is None where preferred leaders stay where they are."""

    __slots__ = ("_defaults", "_replication", "_tasks", "_unclean")

    def __init__(self, loop: Loop, submit: Submit, defaults: Defaults, interval_s: float | None) -> None:
        self._defaults = defaults
        uncleanly, preferred = "leaders elected uncleanly", "leaders elected from preferred replicas"
        replication = "partitions of internal topics that get more replicas, as there are more brokers"
        self._unclean = _Task(loop, submit, defaults, elect_uncleanly, UNCLEAN_INTERVAL_S, uncleanly)
        self._replication = _Task(loop, submit, defaults, replicate, REPLICATION_INTERVAL_S, replication)
        self._tasks = [self._unclean, self._replication]
        if interval_s is not None:
            self._tasks.append(_Task(loop, submit, defaults, elect_preferred, interval_s, preferred))

    def start(self) -> None:
        for task in self._tasks:
            task.start()

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()

    def look(
        self, old: ClusterImage, image: ClusterImage, topics: ChangedTopics, configs: set[tuple[int, str]]
    ) -> None:
        """The metadata changed: unclean elections may be allowed where they weren't, and brokers may have come."""
        if is_concerned(old, image, self._defaults):
            self._replication.soon()
        for resource in configs:
            if resource[0] == TOPIC_RESOURCE or resource == (BROKER_RESOURCE, ""):
                before, after = old.configs.get(resource, {}), image.configs.get(resource, {})
                if before.get(UNCLEAN_ELECTION) != after.get(UNCLEAN_ELECTION):
                    self._unclean.soon()
                    return


class _Task:
    """One kind of election, again and again: one run at a time, and at once where the last one left something."""

    __slots__ = ("_again", "_defaults", "_elect", "_interval_s", "_loop", "_run", "_submit", "_timer", "_what")

    def __init__(
        self, loop: Loop, submit: Submit, defaults: Defaults, elect: Elect, interval_s: float, what: str
    ) -> None:
        self._loop = loop
        self._submit = submit
        self._defaults = defaults
        self._elect = elect
        self._interval_s = interval_s
        self._what = what
        self._timer: Timer | None = None
        self._run: object | None = None
        """The present leadership; None while this node doesn't lead."""
        self._again = False

    def start(self) -> None:
        self._run = object()
        self._again = False
        self._set(self._interval_s)

    def stop(self) -> None:
        self._run = None
        self._disarm()

    def soon(self) -> None:
        """Don't wait for the interval to end; where a run is under way, the next one follows it."""
        if self._run is None:
            return
        if self._timer is None:
            self._again = True
        else:
            self._set(SOON_S)

    def _set(self, delay_s: float) -> None:
        self._disarm()
        self._timer = self._loop.call_later(delay_s, self._begin)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        self._again = False
        elected = self._submit(lambda image, now_ms: self._elect(image, self._defaults))
        elected.on_done(partial(self._done, self._run))

    def _done(self, run: object, elected: Promise[int]) -> None:
        if run is not self._run:
            return
        count = 0
        if elected.error is None:
            count = elected.result()
        elif not (isinstance(elected.error, KafkaError) and elected.error.code is ErrorCode.NOT_CONTROLLER):
            _logger.error("%s: not yet: %s", self._what, elected.error)
        if count:
            _logger.info("%s: %d", self._what, count)
        self._set(SOON_S if self._again or count >= ELECTIONS_AT_ONCE else self._interval_s)
