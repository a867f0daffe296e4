"""The guard between a coordinator's word and the append: whatever is late, nothing stays open that nobody ends."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.apis.sim_broker import NOW_MS, SimBroker, in_transaction
from tidelog.coordinator.txn.guard import Guard, guard
from tidelog.coordinator.txn.markers import EndMarker
from tidelog.replica.partition import Partition
from tidelog.wire.errors import ErrorCode, KafkaError

LIVES, STEPS = 100, 80
PRODUCER_ID = 7


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", LIVES)
    return made


class Request:
    """Records on their way to the partition: they come, the coordinator is asked, its word arrives."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.guard: Guard | None = None
        self.word: bool | None = None


class Life:
    """A producer of the first version, its coordinator, and a partition of another broker; all that is said between
    them may be late. All its transactions have one epoch: nothing but the guard tells one from the next."""

    def __init__(self, sim_broker: SimBroker, index: int, seed: int) -> None:
        self.appended = self.refused = 0
        self._sim_broker = sim_broker
        self._dice = Random(seed)
        self._partition: Partition = sim_broker.partition("tide", index)
        self._is_open = self._ends = False
        self._sequence = 0
        self._requests: list[Request] = []

    def step(self) -> None:
        steps = [self._begin, self._send, self._send, self._come, self._ask, self._append, self._append]
        self._dice.choice([*steps, self._end, self._mark])()
        if not self._is_open:
            assert self._partition.log.producers.first_unstable == -1, "a transaction that nobody ends"

    def _begin(self) -> None:
        """With this partition in it."""
        if not self._ends:
            self._is_open = True

    def _send(self) -> None:
        """Perhaps when it is too late already."""
        if self._is_open or self._dice.random() < 0.1:
            self._requests.append(Request(self._sequence))

    def _some(self, wanted: str) -> Request | None:
        found = [one for one in self._requests if one.guard is None] if wanted == "sent" else []
        if wanted == "came":
            found = [one for one in self._requests if one.guard is not None and one.word is None]
        if wanted == "told":
            found = [one for one in self._requests if one.word is not None]
        return self._dice.choice(found) if found else None

    def _come(self) -> None:
        request = self._some("sent")
        if request is not None:
            request.guard = guard(self._partition, PRODUCER_ID)
            known = self._partition.log.producers.get(PRODUCER_ID)
            if known is not None and known.txn_first_offset >= 0:
                request.word = True  # open here already: nobody is asked

    def _ask(self) -> None:
        request = self._some("came")
        if request is not None:
            request.word = self._is_open and not self._ends

    def _append(self) -> None:
        request = self._some("told")
        if request is None:
            return
        self._requests.remove(request)
        if not request.word:
            return
        assert request.guard is not None
        records = memoryview(bytearray(in_transaction(b"x", producer_id=PRODUCER_ID, sequence=request.sequence)))
        try:
            request.guard.check()
            _, next_offset, _ = self._partition.append(records, 0, len(records), -1, NOW_MS)
        except KafkaError as error:
            self.refused += error.code == ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            self.appended += 1
            self._sequence = max(self._sequence, request.sequence + 1)
            assert next_offset == self._partition.log.log_end or request.sequence < self._sequence

    def _end(self) -> None:
        self._ends = self._is_open

    def _mark(self) -> None:
        """The marker comes, and its coordinator hears of it: from here on the next transaction may begin."""
        if self._ends:
            markers = self._sim_broker.services.transactions.markers
            marker = EndMarker(PRODUCER_ID, 0, self._dice.random() < 0.5, 0)
            self._sim_broker.wait(markers.write("tide", self._partition.index, marker))
            self._is_open = self._ends = False


def lives(sim_broker: SimBroker) -> Iterator[Life]:
    for number in range(LIVES):
        life = Life(sim_broker, number, number)
        for _ in range(STEPS):
            life.step()
        yield life


def test_whatever_is_late_no_transaction_is_left_open(sim_broker: SimBroker) -> None:
    every = list(lives(sim_broker))
    assert sum(life.appended for life in every) > LIVES
    assert sum(life.refused for life in every) > LIVES // 4


def test_without_the_guard_some_are(sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_away(_: Guard) -> None:
        pass

    monkeypatch.setattr(Guard, "check", look_away)
    with pytest.raises(AssertionError, match="nobody ends"):
        list(lives(sim_broker))


def test_a_guard_of_another_leader_epoch_is_worth_nothing(sim_broker: SimBroker) -> None:
    """The markers that it counted may be others by now: the log was read again."""
    partition = sim_broker.partition("tide")
    before = guard(partition, PRODUCER_ID)
    before.check()
    partition.follow_image(partition.image._replace(leader_epoch=partition.leader_epoch + 1))
    with pytest.raises(KafkaError) as refused:
        before.check()
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    guard(partition, PRODUCER_ID).check()


def test_markers_of_other_producers_are_none_of_its_business(sim_broker: SimBroker) -> None:
    partition = sim_broker.partition("tide")
    mine = guard(partition, PRODUCER_ID)
    markers = sim_broker.services.transactions.markers
    sim_broker.wait(markers.write("tide", 0, EndMarker(PRODUCER_ID + 1, 0, True, 0)))
    mine.check()
    sim_broker.wait(markers.write("tide", 0, EndMarker(PRODUCER_ID, 0, True, 0)))
    with pytest.raises(KafkaError) as refused:
        mine.check()
    assert refused.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
