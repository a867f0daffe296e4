"""What a leader makes of what its followers tell: the high watermark, and the ISR that it asks for."""

from dataclasses import dataclass, field
from random import Random

import pytest

from tidelog.replica.leading import Leading
from tidelog.wire.errors import ErrorCode, KafkaError

LAG_MS = 100


@dataclass
class Brokers:
    """As the leader's image has them."""

    epochs: dict[int, int] = field(default_factory=lambda: {1: 10, 2: 20, 3: 30})
    lag_ms: int = LAG_MS
    now: int = 1000

    def now_ms(self) -> int:
        return self.now

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        return self.epochs.get(broker_id) == broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.epochs


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def leading(*isr: int, replicas: tuple[int, ...] = (1, 2, 3)) -> Leading:
    return Leading(1, replicas, isr or replicas, 5, 1000)


def test_the_committed_end_is_the_least_of_the_isr(brokers: Brokers) -> None:
    state = leading()
    assert state.committed_end(9, 10, brokers) == -1, "nothing is known of them"
    assert state.fetched(2, 20, 7, 0, 10, 1000) == (True, True)
    assert state.fetched(3, 30, 8, 0, 10, 1000) == (True, True)
    assert state.committed_end(9, 10, brokers) == 7
    assert state.fetched(2, 20, 10, 0, 10, 1000) == (True, False)
    assert state.committed_end(9, 10, brokers) == 8
    state.fetched(3, 30, 10, 0, 10, 1000)
    assert state.committed_end(9, 10, brokers) == 9, "its own durable end counts, too"
    assert state.fetched(3, 30, 10, 0, 10, 1000) == (False, False)


def test_it_waits_for_who_is_about_to_join(brokers: Brokers) -> None:
    state = leading(1, 2)
    state.fetched(2, 20, 10, 0, 10, 1000)
    state.fetched(3, 30, 5, 0, 10, 1000)
    assert state.committed_end(10, 10, brokers) == 10, "it never was caught up"
    state.fetched(3, 30, 10, 0, 10, 1000)
    state.fetched(2, 20, 15, 0, 15, 1000)
    assert state.committed_end(15, 15, brokers) == 10
    brokers.now += LAG_MS + 1
    assert state.committed_end(15, 15, brokers) == 15, "it lags by now"
    brokers.now -= LAG_MS
    brokers.epochs[3] = 31
    assert state.committed_end(15, 15, brokers) == 15, "its broker came back as another"


def test_who_has_all_that_is_committed_is_asked_in(brokers: Brokers) -> None:
    state = leading(1)
    state.fetched(2, 20, 9, 0, 10, 1000)
    state.fetched(2, 20, 10, 0, 11, 1000)
    assert state.wanted(11, 0, 11, brokers) is None
    assert state.wanted(10, 11, 11, brokers) is None, "not all of the earlier leaders"
    assert state.wanted(10, 10, 11, brokers) == (1, 2)
    assert state.ask((1, 2)) == [(1, -1), (2, 20)]
    assert state.wanted(10, 10, 11, brokers) is None, "it was asked"
    assert (state.isr, state.maximal_isr) == ((1,), {1, 2})
    state.answered((1, 2), 6)
    assert (state.isr, state.maximal_isr, state.partition_epoch) == ((1, 2), {1, 2}, 6)


def test_who_lags_is_asked_out_and_counts_until_that_is_done(brokers: Brokers) -> None:
    state = leading()
    brokers.now += LAG_MS
    state.fetched(2, 20, 4, 0, 4, brokers.now)
    assert state.wanted(0, 0, 4, brokers) is None, "all have as long since it leads"
    brokers.now += 1
    assert state.wanted(0, 0, 4, brokers) == (1, 2)
    state.ask((1, 2))
    assert state.committed_end(4, 4, brokers) == -1
    state.answered((1, 2), 6)
    assert state.committed_end(4, 4, brokers) == 4


def test_caught_up_is_who_has_what_the_leader_had_at_the_fetch_before(brokers: Brokers) -> None:
    state = leading()
    state.fetched(3, 30, 4, 0, 4, 1000)
    for step in range(1, 6):  # there is always more by the time it asks again
        state.fetched(2, 20, 10 * step, 0, 10 * step + 10, 1000 + 50 * step)
    brokers.now = 1250
    assert state.followers[2].caught_up_ms == 1200
    assert state.wanted(0, 0, 60, brokers) == (1, 2)
    state.was_caught_up(3, 1240)
    assert state.wanted(0, 0, 60, brokers) is None


@pytest.mark.parametrize("word", ["refused", "unanswered", "answered"])
def test_what_was_asked_for_counts_until_it_is_known_what_came_of_it(brokers: Brokers, word: str) -> None:
    state = leading(1)
    state.fetched(2, 20, 4, 0, 4, 1000)
    state.ask((1, 2))
    brokers.epochs[2] = 21
    if word == "refused":
        state.refused()
        assert (state.maximal_isr, state.wanted(0, 0, 4, brokers)) == ({1}, None)
    elif word == "unanswered":
        state.unanswered()
        assert (state.maximal_isr, state.wanted(0, 0, 4, brokers)) == ({1, 2}, (1,))
        state.ask((1,))
        assert state.maximal_isr == {1, 2}
        state.answered((1,), 5)
        assert state.maximal_isr == {1}
    else:
        state.decided((1, 2, 3), (1, 3), 7)
        state.answered((1, 2), 6)
        assert (state.isr, state.maximal_isr, state.partition_epoch) == ((1, 3), {1, 3}, 7)
    state.check_invariants()


def test_an_older_word_changes_nothing(brokers: Brokers) -> None:
    state = leading(1, 2)
    assert not state.decided((1, 2, 3), (1, 2, 3), 4)
    assert state.isr == (1, 2)


def test_replicas_come_and_go(brokers: Brokers) -> None:
    state = leading(1, 2)
    state.fetched(2, 20, 4, 0, 4, 1000)
    assert state.decided((1, 2, 4), (1, 2), 6)
    assert list(state.followers) == [2, 4]
    assert (state.followers[2].end, state.followers[4].end) == (4, -1)


def test_one_whose_log_failed_does_not_join_again_before_it_fetches(brokers: Brokers) -> None:
    state = leading()
    for id in (2, 3):
        state.fetched(id, 10 * id, 10, 0, 10, 1000)
    assert state.decided((1, 2, 3), (1, 3), 6, lost=(2,))
    assert state.wanted(10, 0, 10, brokers) is None
    state.fetched(2, 20, 10, 0, 10, 1000)
    assert state.wanted(10, 0, 10, brokers) == (1, 3, 2)


def test_one_that_came_back_is_another(brokers: Brokers) -> None:
    state = leading(1, 2)
    state.fetched(3, 30, 4, 0, 4, 1000)
    state.fetched(3, 31, 0, 0, 8, 1001)
    with pytest.raises(KafkaError) as refused:
        state.fetched(3, 30, 8, 0, 8, 1002)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    state.fetched(2, 20, 8, 0, 8, 1002)
    brokers.epochs[3] = 31
    assert state.committed_end(8, 8, brokers) == 8, "it is not caught up any more"


def test_the_low_watermark_is_the_least_start_of_those_that_live(brokers: Brokers) -> None:
    state = leading()
    state.fetched(2, 20, 4, 3, 4, 1000)
    assert state.low_watermark(4, brokers) == -1
    state.fetched(3, 30, 4, 2, 4, 1000)
    assert state.low_watermark(4, brokers) == 2
    del brokers.epochs[3]
    assert state.low_watermark(4, brokers) == 3


# -- lives


class Life:
    """A leader, its followers, and a controller, which hear of each other late, or by another way than they asked."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.brokers = Brokers()
        self.epochs = dict(self.brokers.epochs)  # as the controller knows them
        self.isr: tuple[int, ...] = self.random.choice([(1,), (1, 2), (1, 2, 3)])
        self.partition_epoch = 5
        self.ends = dict.fromkeys((1, 2, 3), 0)  # what each of them has
        self.log_end = 0
        self.high_watermark = 0
        self.leading = Leading(1, (1, 2, 3), self.isr, 5, self.brokers.now)
        self.words: list[tuple[tuple[int, ...], int, dict[int, int]]] = []  # metadata on their way, in order
        self.asked: list[tuple[list[tuple[int, int]], int]] = []  # requests on their way, in any order

    def change_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.partition_epoch += 1
        self.words.append((isr, self.partition_epoch, dict(self.epochs)))

    def append(self) -> None:
        self.log_end += self.random.randint(1, 5)

    def sync(self) -> None:
        self.ends[1] = self.random.randint(self.ends[1], self.log_end)

    def fetch(self) -> None:
        id = self.random.choice((2, 3))
        self.ends[id] = self.random.randint(self.ends[id], self.log_end)
        epoch = self.epochs[id]
        self.leading.fetched(id, epoch, self.ends[id], 0, self.log_end, self.brokers.now)

    def come_back(self) -> None:
        """A follower's broker, without some of its records: the controller has taken it out of the ISR."""
        id = self.random.choice((2, 3))
        self.epochs[id] += 1
        self.ends[id] = self.random.randint(0, self.ends[id])
        self.change_isr(tuple(one for one in self.isr if one != id))

    def hear(self) -> None:
        if self.words:
            isr, epoch, epochs = self.words.pop(0)
            self.brokers.epochs = epochs
            self.leading.decided((1, 2, 3), isr, epoch)

    def ask(self) -> None:
        isr = self.leading.wanted(self.high_watermark, 0, self.log_end, self.brokers)
        if isr is not None:
            epoch = self.leading.partition_epoch
            request = self.leading.ask(isr), epoch
            self.asked.append(request)
            answer = self.random.random()
            if answer < 0.5:  # the request, or its answer, is lost for now
                self.leading.unanswered()
                if answer < 0.1:
                    self.asked.clear()
            else:
                self.decide(self.asked.pop(), told=True)

    def decide(self, request: tuple[list[tuple[int, int]], int], *, told: bool) -> None:
        isr, epoch = request
        is_eligible = all(known in (-1, self.epochs[id]) for id, known in isr)
        members = tuple(id for id, _ in isr)
        if epoch == self.partition_epoch and is_eligible:
            if set(members) != set(self.isr):
                self.change_isr(members)
            if told:
                self.leading.answered(self.isr, self.partition_epoch)
        elif told and epoch == self.partition_epoch:
            self.asked.clear()  # it was the last on its connection
            self.leading.refused()
        elif told:
            self.leading.unanswered()

    def late(self) -> None:
        """A request whose answer isn't waited for any more arrives."""
        if self.asked:
            self.decide(self.asked.pop(0), told=False)

    def pass_time(self) -> None:
        self.brokers.now += self.random.randint(1, 3 * LAG_MS)

    def step(self) -> None:
        often = [self.append, self.sync, self.fetch, self.ask, self.hear]
        rare = [self.come_back, self.late, self.pass_time]
        self.random.choice([*often, *often, *rare])()
        end = self.leading.committed_end(self.ends[1], self.log_end, self.brokers)
        self.high_watermark = max(self.high_watermark, end)
        self.leading.check_invariants()
        for id in self.isr:
            assert self.ends[id] >= self.high_watermark, (
                f"{id} is in the ISR {self.isr} with {self.ends[id]} of {self.high_watermark}"
            )


@pytest.mark.parametrize("seed", range(60))
def test_whoever_the_controller_may_elect_has_what_was_committed(seed: int) -> None:
    life = Life(seed)
    for _ in range(400):
        life.step()
    for _ in range(20):  # all is well again
        while life.words:
            life.hear()
        life.asked.clear()
        for id in (1, 2, 3):
            life.ends[id] = life.log_end
        for id in (2, 3):
            life.leading.fetched(id, life.epochs[id], life.log_end, 0, life.log_end, life.brokers.now)
        life.leading.unanswered()
        isr = life.leading.wanted(life.high_watermark, 0, life.log_end, life.brokers)
        if isr is not None:
            life.decide((life.leading.ask(isr), life.leading.partition_epoch), told=True)
    assert life.leading.committed_end(life.ends[1], life.log_end, life.brokers) == life.log_end
    assert set(life.isr) == {1, 2, 3}
