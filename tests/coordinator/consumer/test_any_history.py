"""Members that come, go, hang, lose answers and change their minds, in any order: never two owners, and it settles.

What a client believes to have is compared, too: it uses a partition from when it was told to until it says that it
doesn't, or until it was told that it isn't a member any more.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.consumer.harness import TERMS, TYPES, GroupHarness, owned, told
from tidelog.coordinator.group.consumer.state import GroupState
from tidelog.coordinator.group.fold import fold
from tidelog.coordinator.group.state import EMPTY
from tidelog.machine.machine import Position
from tidelog.wire.errors import ErrorCode, KafkaError

TOPICS = {"tides": 4, "winds": 3, "waves": 2}


BEGIN_ANEW = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class Client:
    """What a real client does: it takes over what it is told, and gives up before it says so."""

    def __init__(self, name: str, topics: list[str], regex: str | None, assignor: str | None) -> None:
        self.name = name
        self.topics = topics
        self.regex = regex
        self.assignor = assignor
        self.epoch = 0
        self.uses: dict[str, set[int]] = {}
        self.said_all = False
        self.fenced = False

    def beat(self, harness: GroupHarness, *, lost: bool = False, silent: bool = False) -> None:
        fields: dict[str, object] = {}
        if self.epoch == 0:
            self.uses = {}
        if not silent or not self.said_all or self.epoch == 0:
            fields["topic_partitions"] = owned(**{name: sorted(found) for name, found in self.uses.items() if found})
        if not self.said_all or self.epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": self.topics}
            fields |= {"subscribed_topic_regex": self.regex, "server_assignor": self.assignor}
        try:
            response = harness.beat(self.name, self.epoch, **fields)
        except KafkaError as error:
            if error.code not in BEGIN_ANEW:
                raise
            self.epoch, self.uses, self.said_all = 0, {}, False
            return
        if lost:
            self.said_all = False
            return
        self.epoch, self.said_all = response.member_epoch, True
        assignment = told(response)
        if assignment is not None:
            self.uses = {name: set(found) for name, found in assignment.items()}


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        interval_ms = self.random.choice((0, 1000))
        self.harness = GroupHarness(TOPICS, TERMS._replace(assignment_interval_ms=interval_ms))
        self.clients: list[Client] = []
        self.made = 0

    def step(self) -> None:
        random = self.random
        self.harness.now_ms += random.choice((0, 10, 1500))
        match random.randint(0, 11):
            case 0 | 1 if len(self.clients) < 6:
                self.made += 1
                names = random.sample(sorted(TOPICS), random.randint(0, 3))
                regex = random.choice((None, None, "w.*", "t.*|w.*s"))
                self.clients.append(Client(f"m{self.made}", names, regex, random.choice((None, "range", "uniform"))))
                self.clients[-1].beat(self.harness)
            case 2 if self.clients:
                gone = self.clients.pop(random.randrange(len(self.clients)))
                if gone.name in self._members():
                    self.harness.leave(gone.name) if random.random() < 0.5 else self.harness.fence(gone.name)
            case 3 if self.clients:
                hung = random.choice(self.clients)
                if hung.name in self._members():
                    self.harness.fence(hung.name)
                    hung.uses = {}  # its session ended: it stopped by itself
            case 4 if self.clients:
                changed = random.choice(self.clients)
                changed.topics = random.sample(sorted(TOPICS), random.randint(0, 3))
                changed.said_all = False
                changed.beat(self.harness)
            case 5:
                counts = {name: count + random.randint(0, 2) for name, count in TOPICS.items()}
                if random.random() < 0.3:
                    del counts[random.choice(sorted(counts))]
                self.harness.has(**counts)
                self.harness.refresh_regexes = random.random() < 0.5
            case _ if self.clients:
                beating = random.choice(self.clients)
                beating.beat(self.harness, lost=random.random() < 0.15, silent=random.random() < 0.3)
        self.check()

    def _members(self) -> set[str]:
        return set(self.harness.group.members) if self.harness.state.groups else set()

    def check(self) -> None:
        """What clients believe: no partition twice."""
        users: dict[tuple[str, int], str] = {}
        for client in self.clients:
            for name, found in client.uses.items():
                for partition in found:
                    other = users.setdefault((name, partition), client.name)
                    assert other == client.name, f"{name}-{partition} is used by {other} and {client.name}"

    def settle(self) -> None:
        for _ in range(12):
            self.harness.now_ms += 1500
            for client in self.clients:
                client.beat(self.harness)
                self.check()
        if self._members():
            group = self.harness.group
            assert group.state == GroupState.STABLE, group.state
            for client in self.clients:
                have = self.harness.member(client.name).assigned
                assert {topic: set(epochs) for topic, epochs in have.items()} == {
                    topic: set(indexes) for topic, indexes in group.target.get(client.name, {}).items()
                }


@given(seed=st.integers(0, 2**32))
def test_no_partition_ever_has_two_owners_and_the_group_settles(seed: int) -> None:
    history = History(seed)
    for _ in range(30):
        history.step()
    history.settle()
    history.harness.reread()


@pytest.mark.parametrize("seed", range(5))
def test_a_log_with_only_the_last_record_of_each_key_gives_the_same_group(seed: int) -> None:
    """Compaction: what is left of the log, with and without tombstones, makes the same group."""
    history = History(seed)
    for _ in range(60):
        history.step()
    last = {TYPES.encode_key(entry.key): entry for entry in history.harness.log}
    places = {id(entry): place for place, entry in enumerate(history.harness.log)}
    compacted = sorted(last.values(), key=lambda entry: places[id(entry)])
    for kept in (compacted, [entry for entry in compacted if entry.value is not None]):
        assert fold(EMPTY, kept, Position(len(kept), 0, 0)) == history.harness.state
