"""Exactly-once copies in the simulated world: they hold through every fault, and broken coordinators are found out."""

from typing import Any

import pytest

from tidelog.apis.shared import txn_verification
from tidelog.apis.shared.staged import Staged
from tidelog.coordinator.group import fold as group_fold
from tidelog.coordinator.txn import decide, ending
from tidelog.coordinator.txn.state import Transaction, TransactionsState
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps
from tidelog.log.producers import Producers
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.transactions import TransactionsRun
from tidelog.wire.errors import KafkaError

QUIET = (("drop", 1.0), ("kill", 1.0))


def first_violation(faults: tuple[tuple[str, float], ...] = QUIET, seeds: range = range(40)) -> str:
    for seed in seeds:
        try:
            TransactionsRun(seed, faults).go()
        except Violation as violation:
            return str(violation)
    return f"none in {len(seeds)} seeds"


@pytest.mark.parametrize("seed", range(8))
def test_copies_are_exact(seed: int) -> None:
    outcome = TransactionsRun(seed).go()
    assert outcome.fetched > 0


@pytest.mark.parametrize("seed", range(100, 104))
def test_copies_are_exact_when_the_power_goes_again_and_again(seed: int) -> None:
    assert TransactionsRun(seed, (("power", 1.0),)).go().fetched > 0


def test_the_same_seed_gives_the_same_run() -> None:
    assert TransactionsRun(3).go().trace == TransactionsRun(3).go().trace


def test_an_abort_that_readers_are_not_told_of_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producers, "completed_by", lambda *_: None)
    assert "none" not in first_violation()


def test_a_marker_that_is_forgotten_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = ending.ordered

    def all_but_the_last(partitions: Any) -> Steps[list[Any]]:
        return (yield from ordered(partitions))[:-1]

    monkeypatch.setattr(ending, "ordered", all_but_the_last)
    assert "none" not in first_violation()


def test_a_coordinator_that_fences_nobody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes is taken for the one whose turn it is."""
    add_partitions, verify, end = decide.add_partitions, decide.verify, decide.end

    def present(state: TransactionsState, transactional_id: str, asking: decide.Producer) -> decide.Producer:
        known = state.transactions.get(transactional_id)
        return asking if known is None else decide.Producer(known.producer_id, known.producer_epoch)

    def add_any(state: TransactionsState, name: str, producer: decide.Producer, *more: Any) -> Any:
        return add_partitions(state, name, present(state, name, producer), *more)

    def verify_any(state: TransactionsState, name: str, producer: decide.Producer, *more: Any) -> Any:
        return verify(state, name, present(state, name, producer), *more)

    def end_any(state: TransactionsState, asked: decide.EndAsked, now_ms: int) -> Any:
        producer = present(state, asked.transactional_id, asked.producer)
        return end(state, asked._replace(producer=producer), now_ms)

    monkeypatch.setattr(decide, "add_partitions", add_any)
    monkeypatch.setattr(decide, "verify", verify_any)
    monkeypatch.setattr(decide, "end", end_any)
    assert "none" not in first_violation()


def test_offsets_that_count_before_their_marker_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fold: Any = group_fold.fold

    def at_once(state: Any, entries: Any, position: Any) -> Any:
        plain = [entry._replace(producer_id=-1) if hasattr(entry, "key") else entry for entry in entries]
        return fold(state, plain, position)

    monkeypatch.setattr("tidelog.coordinator.group.running.fold", at_once)
    assert "none" not in first_violation()


def test_a_broker_that_judges_batches_by_what_was_known_when_they_came_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was sent behind a join is handled before it, and told so when its own turn comes."""
    join = txn_verification.join

    def as_it_came(context: Any, request: Any) -> Any:
        outcome = join(context, request)
        early: list[tuple[Any, KafkaError]] = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                try:
                    partition = context.services.replicas.get(topic.name, data.index)
                    txn_verification.Joined(context.version).check_order(partition, memoryview(data.records))
                except KafkaError as error:
                    early.append(((topic.name, data.index), error))

        def refuse(joined: txn_verification.Joined) -> txn_verification.Joined:
            for place, error in early:
                joined.refuse(place, error)
            return joined

        return outcome.map(refuse) if isinstance(outcome, Promise) else refuse(outcome)

    held: Any = Staged.__init__
    monkeypatch.setattr(Staged, "__init__", lambda self, answer, appended=None: held(self, answer))
    monkeypatch.setattr(txn_verification, "join", as_it_came)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in first_violation()


def test_an_abort_of_what_is_prepared_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "leased", Transaction.two_phase)
    assert "is decided, and its commit is answered INVALID_TXN_STATE" in first_violation()


def test_a_lease_that_never_ends_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "leased", property(lambda _: False))
    assert "what is decided to be read, and the rest to be aborted" in first_violation()
