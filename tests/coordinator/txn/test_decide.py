"""The coordinator's decisions alone: pure, so that every state meets every request."""

from typing import Any

import pytest

from tidelog.coordinator.txn import decide
from tidelog.coordinator.txn.decide import (
    NO_PRODUCER,
    EndAsked,
    InitAsked,
    Initialised,
    Producer,
    ProducerIdNeeded,
    Times,
    abort_overdue,
    add_partitions,
    complete,
    end,
    forget_idle,
    hold,
    init_producer_id,
    verify,
)
from tidelog.coordinator.txn.replay import fold, in_version, record, tombstone
from tidelog.coordinator.txn.state import (
    TRANSITIONS,
    Status,
    Transaction,
    TransactionsState,
    check_invariants,
)
from tidelog.machine.machine import Position
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import LEASED_MS, NO_TIMEOUT_MS, PREPARED_MS
from tidelog.wire.records.coordinator import TRANSACTIONS_TOPIC, RecordTypes

NOW = 1_000_000
PLACE = ("accounts", 0)
WHERE = Position(0, 0, NOW)
NO_LEASE = Times(0, 0)


def at(status: Status, *, epoch: int = 5, **more: Any) -> TransactionsState:
    """A state with the transactional id `bank` of producer 7 in this status."""
    partitions = frozenset() if status not in (Status.ONGOING, *PREPARED) else frozenset((PLACE,))
    start = -1 if status == Status.EMPTY else NOW - 1000
    known = Transaction(
        "bank", 7, epoch, 7, -1, 60_000, status, partitions, start, NOW - 1000, more.pop("version", 0)
    )._replace(**more)
    return fold(TransactionsState(), [record(known)], WHERE)


PREPARED = (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)


def after(state: TransactionsState, decided: tuple[Any, Any]) -> Transaction:
    made = fold(state, decided[0], WHERE)
    check_invariants(made)
    return made.transactions["bank"]


def code(call: Any, *args: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*args)
    return caught.value.code


def ended(state: TransactionsState, epoch: int, version: int, *, commit: bool, new_id: int = -1) -> Any:
    asked = EndAsked("bank", Producer(7, epoch), commit, version, new_id)
    try:
        decided = end(state, asked, NOW)
    except KafkaError as error:
        return error.code.name
    if not decided[0]:
        return "same"
    return after(state, decided).status.name


FENCED, WRONG, WAIT = "PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"


@pytest.mark.parametrize(
    ("status", "commits", "aborts"),
    [
        (Status.EMPTY, WRONG, WRONG),
        (Status.ONGOING, "PREPARE_COMMIT", "PREPARE_ABORT"),
        (Status.PREPARE_COMMIT, "same", WRONG),
        (Status.PREPARE_ABORT, WRONG, "same"),
        (Status.COMPLETE_COMMIT, "same", WRONG),
        (Status.COMPLETE_ABORT, WRONG, "same"),
    ],
)
def test_ending_in_the_first_version(status: Status, commits: str, aborts: str) -> None:
    state = at(status)
    assert ended(state, 5, 0, commit=True) == commits
    assert ended(state, 5, 0, commit=False) == aborts
    for stale in (4, 6):
        assert ended(state, stale, 0, commit=True) == FENCED


@pytest.mark.parametrize(
    ("status", "commit_again", "commit_now", "abort_again", "abort_now"),
    [
        (Status.EMPTY, FENCED, WRONG, FENCED, "PREPARE_ABORT"),
        (Status.ONGOING, FENCED, "PREPARE_COMMIT", FENCED, "PREPARE_ABORT"),
        (Status.PREPARE_COMMIT, "same", WAIT, WRONG, WAIT),
        (Status.PREPARE_ABORT, WRONG, WAIT, "same", WAIT),
        (Status.COMPLETE_COMMIT, "same", WRONG, WRONG, "PREPARE_ABORT"),
        (Status.COMPLETE_ABORT, WRONG, WRONG, "same", "PREPARE_ABORT"),
    ],
)
def test_ending_in_the_second_version(
    status: Status, commit_again: str, commit_now: str, abort_again: str, abort_now: str
) -> None:
    state = at(status, version=2)
    assert ended(state, 4, 2, commit=True) == commit_again
    assert ended(state, 5, 2, commit=True) == commit_now
    assert ended(state, 4, 2, commit=False) == abort_again
    assert ended(state, 5, 2, commit=False) == abort_now
    assert ended(state, 6, 2, commit=True) == FENCED
    assert ended(state, 3, 2, commit=True) == FENCED


def test_another_producer_id_ends_nothing() -> None:
    state = at(Status.ONGOING)
    for version in (0, 2):
        asked = EndAsked("bank", Producer(8, 5), True, version)
        assert code(end, state, asked, NOW) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        asked = EndAsked("nobody", Producer(7, 5), True, version)
        assert code(end, state, asked, NOW) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_second_version_raises_the_epoch_and_tells_it() -> None:
    state = at(Status.ONGOING)
    entries, producer = end(state, EndAsked("bank", Producer(7, 5), True, 2), NOW)
    assert producer == Producer(7, 6)
    assert after(state, (entries, None)).producer_epoch == 6
    assert end(state, EndAsked("bank", Producer(7, 5), True, 0), NOW)[1] == NO_PRODUCER


def test_the_last_epoch_ends_with_a_new_producer_id_that_is_there_when_it_is_complete() -> None:
    state = at(Status.ONGOING, epoch=32_766, version=2)
    asked = EndAsked("bank", Producer(7, 32_766), True, 2)
    with pytest.raises(ProducerIdNeeded):
        end(state, asked, NOW)
    entries, producer = end(state, asked._replace(new_id=99), NOW)
    assert producer == Producer(99, 0)
    prepared = fold(state, entries, WHERE)
    assert prepared.transactions["bank"].producer_epoch == 32_767
    done = after(prepared, complete(prepared, "bank", Producer(7, 32_767), NOW))
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (99, 0, 7)


def test_an_end_is_completed_once_and_only_by_whoever_prepared_it() -> None:
    state = at(Status.PREPARE_COMMIT)
    assert complete(state, "bank", Producer(7, 4), NOW)[0] == ()
    assert complete(state, "nobody", Producer(7, 5), NOW)[0] == ()
    done = after(state, complete(state, "bank", Producer(7, 5), NOW))
    assert (done.status, done.partitions) == (Status.COMPLETE_COMMIT, frozenset())
    assert complete(at(Status.COMPLETE_COMMIT), "bank", Producer(7, 5), NOW)[0] == ()


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
def test_a_partition_begins_a_transaction_of_an_id_at_rest(status: Status) -> None:
    state = at(status)
    decided = add_partitions(state, "bank", Producer(7, 5), [PLACE], 0, NOW)
    begun = after(state, decided)
    assert decided[1] == status
    assert (begun.status, begun.partitions, begun.start_ms) == (Status.ONGOING, {PLACE}, NOW)


def test_more_partitions_join_and_those_that_are_in_write_nothing() -> None:
    state = at(Status.ONGOING)
    assert add_partitions(state, "bank", Producer(7, 5), [PLACE], 0, NOW)[0] == ()
    more = after(state, add_partitions(state, "bank", Producer(7, 5), [PLACE, ("b", 1)], 0, NOW))
    assert (more.partitions, more.start_ms) == ({PLACE, ("b", 1)}, NOW - 1000)


@pytest.mark.parametrize("status", PREPARED)
def test_nothing_begins_while_an_end_is_on_its_way(status: Status) -> None:
    state, producer = at(status), Producer(7, 5)
    assert code(add_partitions, state, "bank", producer, [PLACE], 0, NOW) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert code(verify, state, "bank", producer, [PLACE]) == ErrorCode.CONCURRENT_TRANSACTIONS
    asked = InitAsked("bank", 60_000)
    assert code(init_producer_id, state, asked, NOW, 2) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_verifying_tells_partition_by_partition() -> None:
    other = ("b", 1)
    found = verify(at(Status.ONGOING), "bank", Producer(7, 5), [PLACE, other])
    assert found == {PLACE: ErrorCode.NONE, other: ErrorCode.TRANSACTION_ABORTABLE}
    assert code(verify, at(Status.ONGOING), "bank", Producer(7, 4), [PLACE]) == ErrorCode.PRODUCER_FENCED
    assert code(verify, at(Status.ONGOING), "bank", Producer(1, 5), [PLACE]) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("level", [0, 1, 2])
def test_initialising_fences_the_open_transaction(level: int) -> None:
    state = at(Status.ONGOING)
    decided = init_producer_id(state, InitAsked("bank", 60_000), NOW, level)
    fenced = after(state, decided)
    assert decided[1].aborts
    assert (fenced.status, fenced.producer_epoch, fenced.partitions) == (Status.PREPARE_ABORT, 6, {PLACE})


@pytest.mark.parametrize("level", [0, 2])
def test_there_is_always_an_epoch_left_to_fence_with(level: int) -> None:
    state = at(Status.ONGOING, epoch=32_766)
    decided = init_producer_id(state, InitAsked("bank", 60_000, new_id=99), NOW, level)
    prepared = fold(state, decided[0], WHERE)
    assert prepared.transactions["bank"].producer_epoch == 32_767
    rest = fold(prepared, complete(prepared, "bank", Producer(7, 32_767), NOW)[0], WHERE)
    decided = init_producer_id(rest, InitAsked("bank", 60_000, new_id=100), NOW, level)
    assert decided[1].producer == (Producer(99, 1) if level == 2 else Producer(100, 0))


def test_a_new_id_needs_a_producer_id() -> None:
    empty = TransactionsState()
    with pytest.raises(ProducerIdNeeded):
        init_producer_id(empty, InitAsked("bank", 60_000), NOW, 2)
    entries, made = init_producer_id(empty, InitAsked("bank", 60_000, new_id=7), NOW, 2)
    assert made.producer == Producer(7, 0)
    assert fold(empty, entries, WHERE).transactions["bank"].timeout_ms == 60_000


def test_time_is_up_only_for_those_that_have_a_time() -> None:
    assert not abort_overdue(at(Status.ONGOING), "bank", NO_LEASE, NOW, 2, -1)[1]
    late = NOW + 60_001
    entries, aborted = abort_overdue(at(Status.ONGOING), "bank", NO_LEASE, late, 2, -1)
    assert aborted
    assert after(at(Status.ONGOING), (entries, None)).status == Status.PREPARE_ABORT
    assert not abort_overdue(at(Status.ONGOING, timeout_ms=NO_TIMEOUT_MS), "bank", NO_LEASE, late, 2, -1)[1]
    for status in set(Status) - {Status.ONGOING}:
        assert not abort_overdue(at(status), "bank", NO_LEASE, late, 2, -1)[1]
    assert not abort_overdue(at(Status.ONGOING), "nobody", NO_LEASE, late, 2, -1)[1]


@pytest.mark.parametrize("status", Status)
def test_only_ids_at_rest_are_forgotten(status: Status) -> None:
    entries, count = forget_idle(at(status), ["bank", "nobody"], NOW)
    rests = status in (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)
    assert (list(entries), count) == (([tombstone("bank")], 1) if rests else ([], 0))
    assert forget_idle(at(status), ["bank"], NOW - 1001)[1] == 0


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_records_say_all_that_is_known(status: Status, level: int) -> None:
    types = RecordTypes(TRANSACTIONS_TOPIC)
    known = at(status, version=level).transactions["bank"]
    (entry,), _ = in_version(([record(known)], None), level)
    decoded = types.decode(types.encode_key(entry.key), types.encode_value(entry.value, entry.version))
    assert decoded == (entry.key, entry.value)
    again = fold(TransactionsState(), [entry], WHERE).transactions["bank"]
    assert again == (known if level else known._replace(previous_producer_id=-1))


def test_no_end_that_was_decided_can_turn() -> None:
    assert TRANSITIONS[Status.PREPARE_COMMIT] == {Status.COMPLETE_COMMIT}
    assert TRANSITIONS[Status.PREPARE_ABORT] == {Status.COMPLETE_ABORT}
    for status in Status:
        assert (Status.PREPARE_COMMIT in TRANSITIONS[status]) == (status == Status.ONGOING)


@pytest.mark.parametrize("status", [Status.PREPARE_ABORT, Status.COMPLETE_ABORT])
def test_nobody_is_told_the_epoch_that_is_for_fencing(status: Status) -> None:
    """Aborted by a coordinator of version 0 in the last epoch there is; a client of version 2 asks for the abort."""
    state = at(status, epoch=32_767)
    assert code(end, state, EndAsked("bank", Producer(7, 32_766), commit=False, version=2), NOW) == 90
    last = at(status, epoch=32_766, version=2)
    assert end(last, EndAsked("bank", Producer(7, 32_765), False, 2), NOW) == ((), Producer(7, 32_766)), (
        "it may have it"
    )


# -- leases of two-phase transactions

LEASE = Times(heard_ms=NOW, lease_ms=1000)


def test_a_lease_is_over_when_nobody_was_heard_of_for_so_long() -> None:
    leased = at(Status.ONGOING, timeout_ms=LEASED_MS)
    assert not abort_overdue(leased, "bank", LEASE, NOW + 1000, 2, -1)[1]
    entries, aborted = abort_overdue(leased, "bank", LEASE, NOW + 1001, 2, -1)
    assert aborted
    assert after(leased, (entries, None)).status == Status.PREPARE_ABORT
    assert not abort_overdue(leased, "bank", Times(NOW, 0), NOW + 10**9, 2, -1)[1], "leases are off"


@pytest.mark.parametrize("timeout_ms", [PREPARED_MS, NO_TIMEOUT_MS])
def test_what_is_prepared_or_never_had_a_lease_is_not_aborted_by_time(timeout_ms: int) -> None:
    state = at(Status.ONGOING, timeout_ms=timeout_ms)
    assert not abort_overdue(state, "bank", LEASE, NOW + 10**12, 2, -1)[1]


def test_preparing_ends_the_lease_and_the_next_transaction_has_one_again() -> None:
    leased = at(Status.ONGOING, timeout_ms=LEASED_MS, version=2)
    prepared = fold(leased, hold(leased, "bank", Producer(7, 5), prepare=True, now_ms=NOW)[0], WHERE)
    assert prepared.transactions["bank"].timeout_ms == PREPARED_MS
    assert hold(prepared, "bank", Producer(7, 5), prepare=True, now_ms=NOW)[0] == (), "asked again"
    ending = fold(prepared, end(prepared, EndAsked("bank", Producer(7, 5), True, 2), NOW)[0], WHERE)
    done = after(ending, complete(ending, "bank", Producer(7, 6), NOW))
    assert (done.status, done.timeout_ms) == (Status.COMPLETE_COMMIT, LEASED_MS)


def test_renewing_writes_nothing() -> None:
    for timeout_ms in (LEASED_MS, PREPARED_MS, NO_TIMEOUT_MS):
        state = at(Status.ONGOING, timeout_ms=timeout_ms)
        assert hold(state, "bank", Producer(7, 5), prepare=False, now_ms=NOW)[0] == ()


def test_only_the_open_transaction_of_the_epoch_is_held() -> None:
    leased = at(Status.ONGOING, timeout_ms=LEASED_MS)

    def held(state: TransactionsState, producer: Producer) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            hold(state, "bank", producer, prepare=True, now_ms=NOW)
        return caught.value.code

    assert held(leased, Producer(7, 4)) == ErrorCode.PRODUCER_FENCED
    assert held(leased, Producer(8, 5)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert held(at(Status.ONGOING), Producer(7, 5)) == ErrorCode.INVALID_TXN_STATE, "it has a timeout"
    for status in set(Status) - {Status.ONGOING}:
        assert held(at(status, timeout_ms=LEASED_MS), Producer(7, 5)) == ErrorCode.INVALID_TXN_STATE


# -- the producer that an id has, and whoever asks again for it


def initialised(
    state: TransactionsState, current: Producer | None = None, last_epoch: int = -1, new_id: int = -1
) -> Initialised | str:
    try:
        return init_producer_id(state, InitAsked("bank", 60_000, current, last_epoch, new_id), NOW, 2)[1]
    except KafkaError as error:
        return error.code.name


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT])
def test_an_id_at_rest_gets_the_next_epoch_and_who_asks_again_the_same(status: Status) -> None:
    state, mine = at(status), Producer(7, 5)
    assert initialised(state) == Initialised(Producer(7, 6)), "whoever asks fences all others"
    assert initialised(state, mine) == Initialised(Producer(7, 6), last_epoch=5)
    raised = at(status, epoch=6)
    assert initialised(raised, mine, last_epoch=5) == Initialised(Producer(7, 6), last_epoch=5), "asked again"
    assert initialised(raised, mine) == FENCED, "the coordinator that raised it is gone, and so is what it knew"
    assert initialised(state, Producer(7, 4)) == initialised(state, Producer(8, 5)) == FENCED


def test_what_is_initialised_is_written_down() -> None:
    state = at(Status.COMPLETE_COMMIT, timeout_ms=1, version=2)
    decided = init_producer_id(state, InitAsked("bank", 60_000), NOW, 2)
    assert after(state, decided) == Transaction("bank", 7, 6, 7, -1, 60_000, updated_ms=NOW, version=2)
    none = TransactionsState()
    decided = init_producer_id(none, InitAsked("bank", 60_000, new_id=7), NOW, 2)
    assert after(none, decided) == Transaction("bank", 7, 0, 7, -1, 60_000, updated_ms=NOW)


def test_when_the_epochs_are_used_up_there_is_a_new_producer_id_and_who_asks_again_gets_it_again() -> None:
    last, new = Producer(7, 32_766), Producer(99, 0)
    used_up = at(Status.EMPTY, epoch=32_766)
    with pytest.raises(ProducerIdNeeded):
        initialised(used_up, last)
    assert initialised(used_up, new_id=99) == Initialised(new)
    assert initialised(used_up, last, new_id=99) == Initialised(new, last_epoch=32_766)
    assert initialised(used_up, Producer(7, 32_765), last_epoch=32_765, new_id=99) == FENCED
    given = at(Status.EMPTY, epoch=0, producer_id=99, previous_producer_id=7)
    assert initialised(given, last, last_epoch=32_766) == Initialised(new, last_epoch=32_766)
    assert initialised(given, Producer(7, 0)) == FENCED, "an epoch that was not the last"
    assert initialised(given, Producer(8, 32_766), last_epoch=32_766) == FENCED, "never had it"


def test_an_end_that_used_up_the_epochs_is_asked_for_again_under_the_old_producer_id() -> None:
    last = Producer(7, 32_766)
    given: dict[str, Any] = {"producer_id": 99, "previous_producer_id": 7, "version": 2}
    done = at(Status.COMPLETE_COMMIT, epoch=0, **given)
    assert end(done, EndAsked("bank", last, True, 2), NOW) == ((), Producer(99, 0))
    assert ended(done, 32_766, 2, commit=False) == WRONG
    assert ended(at(Status.EMPTY, epoch=0, **given), 32_766, 2, commit=True) == FENCED, "that was no end"
    for state, producer in (
        (done, Producer(7, 32_765)),
        (done, Producer(8, 32_766)),
        (at(Status.COMPLETE_COMMIT, epoch=1, **given), last),
    ):
        assert code(end, state, EndAsked("bank", producer, True, 2), NOW) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_who_has_a_new_producer_id_waits_until_the_end_that_gave_it_is_complete() -> None:
    prepared = at(Status.PREPARE_COMMIT, epoch=32_767, next_producer_id=99, version=2)
    new = Producer(99, 0)
    assert end(prepared, EndAsked("bank", Producer(7, 32_766), True, 2), NOW) == ((), new)
    for asked in (EndAsked("bank", new, commit, version) for commit in (True, False) for version in (0, 2)):
        assert code(end, prepared, asked, NOW) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert code(add_partitions, prepared, "bank", new, [PLACE], 2, NOW) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert code(verify, prepared, "bank", new, [PLACE]) == ErrorCode.CONCURRENT_TRANSACTIONS
    asked_init = InitAsked("bank", 60_000, new)
    assert code(init_producer_id, prepared, asked_init, NOW, 2) == ErrorCode.CONCURRENT_TRANSACTIONS
    for other in (Producer(99, 1), Producer(8, 0)):
        assert code(add_partitions, prepared, "bank", other, [PLACE], 2, NOW) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_version_of_an_end_is_its_clients_and_that_of_an_abort_the_servers() -> None:
    for level in (0, 1, 2):
        state = at(Status.ONGOING, version=2 - level)
        decided = end(state, EndAsked("bank", Producer(7, 5), True, level), NOW)
        assert after(state, decided).version == (2 if level == 2 else 0)
        decided = init_producer_id(state, InitAsked("bank", 60_000), NOW, level)
        assert after(state, decided).version == (2 if level == 2 else 0)
        assert decided[1] == Initialised(NO_PRODUCER, aborts=True)


def test_an_abort_of_nothing_begins_when_it_is_asked_for_and_one_of_something_with_it() -> None:
    for status, begun in ((Status.EMPTY, NOW), (Status.COMPLETE_COMMIT, NOW), (Status.ONGOING, NOW - 1000)):
        state = at(status, version=2)
        decided = end(state, EndAsked("bank", Producer(7, 5), False, 2), NOW)
        assert after(state, decided).start_ms == begun


def test_a_transaction_has_as_many_partitions_as_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "TRANSACTION_PARTITIONS_MAX", 3)
    state, producer = at(Status.ONGOING), Producer(7, 5)
    more = [("b", 0), ("b", 1), ("b", 2)]
    full = after(state, add_partitions(state, "bank", producer, more[:2], 2, NOW))
    assert (full.partitions, full.version) == ({PLACE, *more[:2]}, 2)
    assert code(add_partitions, state, "bank", producer, more, 2, NOW) == ErrorCode.INVALID_REQUEST
    assert code(add_partitions, state, "bank", producer, [*more, *more], 2, NOW) == ErrorCode.INVALID_REQUEST
    assert after(at(Status.EMPTY), add_partitions(at(Status.EMPTY), "bank", producer, more, 2, NOW)).partitions == {
        *more
    }


def test_a_transaction_is_overdue_after_its_timeout_and_idle_when_it_was_used_last_then() -> None:
    deadline_ms = NOW - 1000 + 60_000
    assert not abort_overdue(at(Status.ONGOING), "bank", NO_LEASE, deadline_ms, 2, -1)[1]
    assert abort_overdue(at(Status.ONGOING), "bank", NO_LEASE, deadline_ms + 1, 2, -1)[1]
    assert forget_idle(at(Status.EMPTY), ["bank"], NOW - 1000)[1] == 1


def test_what_is_complete_is_written_down() -> None:
    state = at(Status.PREPARE_ABORT, version=2, next_producer_id=99)
    assert after(state, complete(state, "bank", Producer(7, 5), NOW)) == Transaction(
        "bank", 99, 0, 7, -1, 60_000, Status.COMPLETE_ABORT, start_ms=NOW - 1000, updated_ms=NOW, version=2
    )
    first_version = at(Status.PREPARE_COMMIT, version=0, next_producer_id=99)
    done = after(first_version, complete(first_version, "bank", Producer(7, 5), NOW))
    assert (done.producer_id, done.producer_epoch) == (7, 5), "clients of the first version go on as who they are"
