"""The broker ends in the middle of commits, cleanly or by kill -9: no committed offset goes back, and groups go on."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.group_requests import commit, committed, find_coordinator
from tests.raw import ClosedError, Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tests.stories.groups.band import QUICK_GROUPS, Band

PARTITIONS = 8
GROUPS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data", QUICK_GROUPS) as tidelog:
        yield tidelog


class Committer:
    """Commits ever higher offsets of one group in a thread, and remembers what was acknowledged and what asked for."""

    def __init__(self, broker: Tidelog, group: str) -> None:
        self.group = group
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.asked: dict[tuple[str, int], int] = {}
        self.count = 0
        self._broker = broker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            with contextlib.suppress(OSError, ClosedError), Connection(self._broker.bootstrap) as connection:
                while not self._over.is_set():
                    number += 1
                    places = [("numbers", (number + step) % PARTITIONS) for step in range(3)]
                    offsets = dict.fromkeys(places, number)
                    self.asked.update(offsets)
                    answered = commit(connection, self.group, offsets)
                    self.acknowledged.update({place: number for place, error in answered.items() if not error})
                    self.count += not any(answered.values())

    def account_for(self, connection: Connection) -> None:
        """Everything acknowledged is there; what was only asked for may be."""
        found = committed(connection, self.group)
        for place, offset in dict(self.acknowledged).items():
            assert offset <= found.get(place, -1) <= self.asked[place], (
                f"{self.group} {place}: {offset} was acknowledged, {found.get(place)} is there"
            )


@pytest.mark.parametrize(
    ("end", "times"),
    [
        ("kill", 6),
        ("stop", 3),
        pytest.param("kill", 30, marks=pytest.mark.long),
    ],
)
def test_no_committed_offset_goes_back(broker: Tidelog, end: str, times: int) -> None:
    create_topic(broker.bootstrap, "numbers", PARTITIONS)
    with Connection(broker.bootstrap) as connection:
        find_coordinator(connection, "any")
    committers = [Committer(broker, f"group-{number}") for number in range(GROUPS)]
    for _ in range(times):
        goals = [committer.count + 30 for committer in committers]
        deadline = time.monotonic() + 30
        while any(committer.count < goal for committer, goal in zip(committers, goals, strict=True)):
            assert time.monotonic() < deadline, "commits are not acknowledged"
            time.sleep(0.002)
        getattr(broker, end)()
        broker.start()
        with Connection(broker.bootstrap) as connection:
            for committer in committers:
                acknowledged = dict(committer.acknowledged)
                find_coordinator(connection, committer.group)
                found = committed(connection, committer.group)
                assert {place: found.get(place, -1) >= offset for place, offset in acknowledged.items()} == (
                    dict.fromkeys(acknowledged, True)
                )
    for committer in committers:
        committer.finish()
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        for committer in committers:
            find_coordinator(connection, committer.group)
            committer.account_for(connection)


@pytest.mark.parametrize("client", ["confluent-classic", "confluent-consumer"])
def test_members_go_on_after_their_broker_was_killed(broker: Tidelog, client: str) -> None:
    with Band(broker.bootstrap, client, session_ms=6000) as band:
        first, second = band.join("first"), band.join("second")
        band.settle(first, second, each=2)
        with band.writing(0.02):
            for _ in range(3):
                goal = len(band.history.of("first", "committed")) + 5
                band.wait(lambda goal=goal: len(band.history.of("first", "committed")) >= goal, "five more commits")
                broker.kill()
                broker.start()
        band.processed()
        with Connection(broker.bootstrap) as connection:
            assert committed(connection, band.group) == band.history.last_committed()
        first.leave()
        second.leave()
        band.check(once=False)
