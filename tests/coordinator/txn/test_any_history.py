"""Any number of producers under one transactional id, asking anything at any time: what must hold then."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tidelog.coordinator.txn.decide import (
    EndAsked,
    InitAsked,
    Producer,
    ProducerIdNeeded,
    Times,
    abort_overdue,
    add_partitions,
    complete,
    end,
    hold,
    init_producer_id,
)
from tidelog.coordinator.txn.replay import fold
from tidelog.coordinator.txn.state import ENDING, TRANSITIONS, Status, TransactionsState, check_invariants
from tidelog.machine.machine import Position
from tidelog.wire.errors import KafkaError
from tidelog.wire.leases import LEASED_MS

PLACES = [("accounts", 0), ("accounts", 1), ("ledger", 0)]


class History(RuleBasedStateMachine):
    """The coordinator's state under requests of old and new producers, delayed and repeated ones among them."""

    producers = Bundle("producers")

    @initialize(
        level=st.sampled_from([0, 1, 2]),
        epoch=st.sampled_from([0, 32_760, 32_765]),
        timeout_ms=st.sampled_from([100, LEASED_MS]),
    )
    def begin(self, level: int, epoch: int, timeout_ms: int) -> None:
        self.level = level
        self.timeout_ms = timeout_ms
        self.prepared = False
        """Whether the open transaction was prepared: somebody may have recorded its commit."""
        self.now = 1000
        self.next_id = 0
        self.state = TransactionsState()
        self.told: set[Producer] = set()
        self._decide(
            lambda new_id: init_producer_id(self.state, InitAsked("x", self.timeout_ms, new_id=new_id), 0, level)
        )
        known = self.state.transactions["x"]
        self.state = TransactionsState(self.state.transactions.set("x", known._replace(producer_epoch=epoch)))

    def _decide(self, decide):
        """Decide as the shell does; the answer, or None where it was refused. Transitions are checked."""
        self.now += 1
        before = self.state.transactions.get("x")
        try:
            try:
                entries, answer = decide(-1)
            except ProducerIdNeeded:
                self.next_id += 1
                entries, answer = decide(self.next_id)
        except KafkaError:
            return None
        self.state = fold(self.state, entries, Position(0, 0, self.now))
        after = self.state.transactions["x"]
        if before is not None and entries:
            assert after.status in TRANSITIONS[before.status]
            if before.producer_id == after.producer_id:
                assert after.producer_epoch >= before.producer_epoch, "an epoch never falls"
        return answer

    @rule(target=producers)
    def initialise(self) -> Producer | None:
        made = self._decide(
            lambda new_id: init_producer_id(
                self.state, InitAsked("x", self.timeout_ms, new_id=new_id), self.now, self.level
            )
        )
        if made is None or made.aborts:
            return None
        assert made.producer not in self.told, "nobody else ever had it"
        assert made.producer.epoch < 32_767, "the last epoch is for fencing"
        self.told.add(made.producer)
        return made.producer

    @rule(producer=producers, place=st.sampled_from(PLACES), version=st.sampled_from([0, 2]))
    def add(self, producer: Producer | None, place: tuple[str, int], version: int) -> None:
        if producer is not None:
            self._decide(lambda _: add_partitions(self.state, "x", producer, [place], version, self.now))

    @rule(target=producers, producer=producers, commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, producer: Producer | None, commit: bool, version: int) -> Producer | None:
        if producer is None:
            return None
        before = self.state.transactions["x"]
        asked = EndAsked("x", producer, commit, version)
        told = self._decide(lambda new_id: end(self.state, asked._replace(new_id=new_id), self.now))
        if told is None:
            return producer
        after = self.state.transactions["x"]
        if before.status == Status.ONGOING and after.status in ENDING:
            assert producer == (before.producer_id, before.producer_epoch), "only the present producer ends it"
        if version < 2:
            return producer
        assert told.epoch < 32_767
        self.told.add(told)
        return told

    @rule(producer=producers, prepare=st.booleans())
    def hold(self, producer: Producer | None, prepare: bool) -> None:
        if producer is None:
            return
        before = self.state.transactions["x"]
        try:
            hold(self.state, "x", producer, prepare=prepare, now_ms=self.now)
        except KafkaError:
            return
        self._decide(lambda _: hold(self.state, "x", producer, prepare=prepare, now_ms=self.now))
        assert before.status == Status.ONGOING, "only what is open is held"
        assert producer == (before.producer_id, before.producer_epoch)
        assert self.state.transactions["x"].status == Status.ONGOING
        self.prepared = self.prepared or prepare

    @rule()
    def finish(self) -> None:
        known = self.state.transactions["x"]
        self._decide(lambda _: complete(self.state, "x", Producer(known.producer_id, known.producer_epoch), self.now))
        assert self.state.transactions["x"].status not in ENDING

    @rule()
    def time_out(self) -> None:
        heard_ms = self.now
        self.now += 1000
        times = Times(heard_ms, 100)
        self._decide(lambda new_id: abort_overdue(self.state, "x", times, self.now, self.level, new_id))
        status = self.state.transactions["x"].status
        assert (status == Status.ONGOING) == self.prepared, "what is prepared stays, what isn't goes"

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "state"):
            check_invariants(self.state)
            self.prepared = self.prepared and self.state.transactions["x"].status == Status.ONGOING


TestAnyHistory = History.TestCase
