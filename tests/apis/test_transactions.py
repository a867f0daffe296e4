"""Transactions through raw requests, on virtual time: what commits, what aborts, and who is told what."""

import pytest

from tests.apis.sim_broker import NOW_MS, SimBroker, in_transaction
from tests.apis.txn import CLASSIC, SECOND, Txn, fetch, read_all, read_committed
from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("accounts", 3)
    return made


def begun(sim_broker: SimBroker, versions: dict[str, int] = CLASSIC, name: str = "bank") -> Txn:
    """A producer with a record in an open transaction."""
    txn = Txn(sim_broker, name, versions=versions)
    assert txn.init() == 0
    if versions is CLASSIC:
        assert txn.add("accounts", 0) == 0
    assert txn.send("accounts", b"one") == 0
    return txn


both = pytest.mark.parametrize("versions", [CLASSIC, SECOND], ids=["classic", "second"])


@both
def test_what_was_committed_is_read_and_what_was_aborted_is_not(
    sim_broker: SimBroker, versions: dict[str, int]
) -> None:
    txn = begun(sim_broker, versions)
    assert read_committed(sim_broker, "accounts") == []
    assert txn.commit() == 0
    sim_broker.settle()
    assert read_committed(sim_broker, "accounts") == [b"one"]
    if versions is CLASSIC:
        assert txn.add("accounts", 0) == 0
    assert txn.send("accounts", b"two") == 0
    assert txn.abort() == 0
    sim_broker.settle()
    assert read_committed(sim_broker, "accounts") == [b"one"]
    assert read_all(sim_broker, "accounts") == [b"one", b"two"]
    assert txn.state == "CompleteAbort"


def test_an_epoch_is_raised_with_each_transaction_of_the_second_version(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker, SECOND)
    producer, epoch = txn.id, txn.epoch
    assert txn.commit() == 0
    assert (txn.id, txn.epoch) == (producer, epoch + 1)


def test_the_old_producer_is_fenced_everywhere(sim_broker: SimBroker) -> None:
    old = begun(sim_broker)
    new = Txn(sim_broker)
    assert new.init() == 0
    assert new.id == old.id
    assert new.epoch == old.epoch + 2  # one to fence with, one to use
    assert old.add("accounts", 1) == ErrorCode.PRODUCER_FENCED
    assert old.add("accounts", 1, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.send("accounts", b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.commit() == ErrorCode.PRODUCER_FENCED
    assert old.init(resume=True) == ErrorCode.PRODUCER_FENCED
    assert old.init(resume=True, version=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_committed(sim_broker, "accounts") == []
    assert fetch(sim_broker, "accounts").last_stable_offset == 2


def test_a_partition_that_did_not_join_takes_nothing(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert txn.send("accounts", b"stray", partition=1) == ErrorCode.INVALID_TXN_STATE
    assert read_all(sim_broker, "accounts", 1) == []
    txn.versions = {"produce": 11, "end": 3}
    assert txn.send("accounts", b"stray", partition=1) == ErrorCode.TRANSACTION_ABORTABLE


def by_id(txn: Txn, *records: tuple[bytes, int, bytes]) -> list[int]:
    """Produce v13, which names topics by their ids; the error of each partition."""
    data = [
        {"topic_id": topic, "partition_data": [{"index": index, "records": batch}]} for topic, index, batch in records
    ]
    fields = {"transactional_id": txn.name, "acks": -1, "timeout_ms": 5000, "topic_data": data}
    answer = txn.sim_broker.ask(ApiKey.PRODUCE, 13, fields)
    return [one.error_code for topic in answer.responses for one in topic.partition_responses]


def test_a_partition_named_by_its_id_joins_as_any_other(sim_broker: SimBroker) -> None:
    topic_id = sim_broker.make_topic("ledger", 2)
    txn = Txn(sim_broker, versions=SECOND)
    txn.init()
    assert by_id(txn, (topic_id, 1, txn.batch(b"one", sequence=0))) == [0]
    assert [(topic.topic, topic.partitions) for topic in txn.describe().topics] == [("ledger", [1])]
    assert txn.commit() == 0
    assert read_committed(sim_broker, "ledger", 1) == [b"one"]


def test_who_was_replaced_is_fenced_where_it_names_topics_by_their_ids_too(sim_broker: SimBroker) -> None:
    topic_id = sim_broker.make_topic("ledger")
    old = Txn(sim_broker, versions=SECOND)
    old.init()
    assert Txn(sim_broker, versions=SECOND).init() == 0
    assert by_id(old, (topic_id, 0, old.batch(b"late", sequence=0))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert read_all(sim_broker, "ledger") == []


@both
@pytest.mark.parametrize("other", ["id", "epoch"])
def test_records_of_two_producers_in_one_request_are_refused(
    sim_broker: SimBroker, versions: dict[str, int], other: str
) -> None:
    txn = Txn(sim_broker, versions=versions)
    txn.init()
    stranger = Txn(sim_broker, "stranger", versions=versions)
    if other == "id":
        stranger.init()
    else:
        stranger.id, stranger.epoch = txn.id, txn.epoch + 1
    fields = txn.produce_fields("accounts", txn.batch(b"one", sequence=0))
    fields["topic_data"][0]["partition_data"].append({"index": 1, "records": stranger.batch(b"two", sequence=0)})
    answer = sim_broker.ask(ApiKey.PRODUCE, versions["produce"], fields)
    assert [one.error_code for one in answer.responses[0].partition_responses] == (
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    )
    assert [read_all(sim_broker, "accounts", index) for index in (0, 1)] == [[], []]


def test_without_verification_such_a_record_is_taken() -> None:
    sim_broker = SimBroker({"transaction.partition.verification.enable": "false"})
    sim_broker.make_topic("accounts", 2)
    txn = begun(sim_broker)
    assert txn.send("accounts", b"stray", partition=1) == 0


def test_a_delayed_record_of_an_ended_transaction_is_refused(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert txn.commit() == 0
    sim_broker.settle()
    assert txn.send("accounts", b"late") == ErrorCode.INVALID_TXN_STATE
    assert fetch(sim_broker, "accounts").last_stable_offset == 2


def test_a_delayed_record_of_an_ended_transaction_is_fenced_in_the_second_version(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker, SECOND)
    epoch = txn.epoch
    assert txn.commit() == 0
    sim_broker.settle()
    fields = txn.produce_fields("accounts", txn.batch(b"late", sequence=1, epoch=epoch))
    answer = sim_broker.ask(ApiKey.PRODUCE, 12, fields).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_ending_again_gives_the_same_answer_and_the_opposite_is_refused(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert txn.commit() == 0
    assert txn.commit() == 0
    assert txn.abort() == ErrorCode.INVALID_TXN_STATE
    assert read_committed(sim_broker, "accounts") == [b"one"]


def test_ending_again_in_the_second_version(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker, SECOND)
    before = txn.epoch
    assert txn.commit() == 0
    after, txn.epoch = txn.epoch, before
    assert txn.commit() == 0
    assert txn.epoch == after
    txn.epoch = before
    assert txn.abort() == ErrorCode.INVALID_TXN_STATE
    txn.epoch = after
    assert txn.commit() == ErrorCode.INVALID_TXN_STATE  # nothing was begun in this epoch
    assert txn.abort() == 0
    assert txn.epoch == after + 1


def test_an_empty_transaction_has_nothing_to_end(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    assert txn.commit() == ErrorCode.INVALID_TXN_STATE
    assert txn.abort() == ErrorCode.INVALID_TXN_STATE
    txn.versions = SECOND
    assert txn.commit() == ErrorCode.INVALID_TXN_STATE
    assert txn.abort() == 0
    assert txn.epoch == 1


def test_a_delayed_end_does_not_touch_the_next_transaction(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker, SECOND)
    late = txn.end_fields(commit=False)
    assert txn.commit() == 0
    assert txn.send("accounts", b"two") == 0
    assert sim_broker.ask(ApiKey.END_TXN, 5, late).error_code == ErrorCode.PRODUCER_FENCED
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"one", b"two"]


def test_a_timeout_aborts_so_that_readers_go_on(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init(timeout_ms=5000)
    txn.add("accounts", 0)
    txn.send("accounts", b"dead")
    sim_broker.append("accounts", b"after")
    assert read_committed(sim_broker, "accounts") == []
    sim_broker.pass_time(5.1)
    assert read_committed(sim_broker, "accounts") == [b"after"]
    assert txn.state == "CompleteAbort"
    assert txn.commit() == ErrorCode.PRODUCER_FENCED


def test_each_transaction_has_its_own_time(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init(timeout_ms=5000)
    for _ in range(4):
        txn.add("accounts", 0)
        txn.send("accounts", b"x")
        sim_broker.pass_time(3.0)
        assert txn.commit() == 0
        sim_broker.settle()
    assert read_committed(sim_broker, "accounts") == [b"x"] * 4


def test_the_timeout_is_bounded(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    assert txn.init(timeout_ms=900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert txn.init(timeout_ms=0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert txn.init(timeout_ms=900_000) == 0


def test_unknown_and_empty_ids_are_refused(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.find()
    txn.id, txn.epoch = 7, 0
    assert txn.add("accounts") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txn.commit() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert txn.send("accounts", b"x") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nameless = Txn(sim_broker, "")
    assert nameless.init() == ErrorCode.INVALID_REQUEST
    assert nameless.add("accounts") == ErrorCode.INVALID_REQUEST
    assert nameless.commit() == ErrorCode.INVALID_REQUEST


def test_all_partitions_join_or_none(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    answer = sim_broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, txn.add_fields("accounts", 0, 9))
    codes = [one.partition_error_code for one in answer.results_by_topic_v3_and_below[0].results_by_partition]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert txn.state == "Empty"
    for internal in ("__transaction_state", "__consumer_offsets", "__share_group_state"):
        assert txn.add(internal) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_brokers_may_verify(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    assert txn.verify("accounts", 0) == 0
    assert txn.verify("accounts", 1) == ErrorCode.TRANSACTION_ABORTABLE
    txn.epoch += 1
    assert txn.verify("accounts", 0) == ErrorCode.PRODUCER_FENCED


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch_also_when_it_asks_again(
    sim_broker: SimBroker,
) -> None:
    txn = Txn(sim_broker)
    txn.init()
    first = txn.id, txn.epoch
    assert txn.init(resume=True) == 0
    second = txn.id, txn.epoch
    assert second == (first[0], first[1] + 1)
    txn.id, txn.epoch = first
    assert txn.init(resume=True) == 0
    assert (txn.id, txn.epoch) == second
    Txn(sim_broker).init()
    txn.id, txn.epoch = second
    assert txn.init(resume=True) == ErrorCode.PRODUCER_FENCED


def test_what_comes_behind_a_batch_that_was_refused_is_refused_until_that_one_is_taken(sim_broker: SimBroker) -> None:
    """Two batches are under way, and the partition joins the transaction between them."""
    txn = Txn(sim_broker)
    txn.init()
    assert txn.send("accounts", b"a", sequence=0) == ErrorCode.INVALID_TXN_STATE
    assert txn.add("accounts", 0) == 0
    assert txn.send("accounts", b"b", sequence=1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert txn.send("accounts", b"a", sequence=0) == 0
    assert txn.send("accounts", b"b", sequence=1) == 0
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"a", b"b"]
    assert txn.add("accounts", 0) == 0
    assert txn.send("accounts", b"c", sequence=2) == 0, "of its last transaction nothing is left to wait for"


@pytest.mark.parametrize("versions", [CLASSIC, SECOND])
def test_a_producer_that_goes_on_with_a_transaction_open_has_it_aborted_and_the_next_epoch(
    sim_broker: SimBroker, versions: dict[str, int]
) -> None:
    txn = Txn(sim_broker, versions=versions)
    txn.init()
    if versions is CLASSIC:
        assert txn.add("accounts", 0) == 0
    assert txn.send("accounts", b"a") == 0
    before = txn.id, txn.epoch
    assert txn.init(resume=True) == 0
    assert (txn.id, txn.epoch) == (before[0], before[1] + 1)
    other = Txn(sim_broker, versions=versions)
    other.init()
    assert txn.init(resume=True) == ErrorCode.PRODUCER_FENCED
    assert read_committed(sim_broker, "accounts") == []


def test_when_the_epochs_are_used_up_there_is_a_new_producer_id(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker, versions=SECOND)
    txn.init()
    _jump_to_epoch(sim_broker, txn, 32_765)
    first_id = txn.id
    assert txn.send("accounts", b"a") == 0
    assert txn.commit() == 0
    assert (txn.id, txn.epoch) == (first_id, 32_766)
    assert txn.send("accounts", b"b") == 0
    last = txn.end_fields(commit=True)
    assert txn.commit() == 0
    assert txn.id != first_id
    assert txn.epoch == 0
    again = sim_broker.ask(ApiKey.END_TXN, 5, last)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, txn.id, 0)
    assert txn.send("accounts", b"c") == 0
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"a", b"b", b"c"]


def test_initialising_in_the_last_epoch_gives_a_new_producer_id(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    _jump_to_epoch(sim_broker, txn, 32_766)
    before = txn.id
    assert txn.init(resume=True) == 0
    after = txn.id, txn.epoch
    assert after[0] != before
    assert after[1] == 0
    txn.id, txn.epoch = before, 32_766
    assert txn.init(resume=True) == 0
    assert (txn.id, txn.epoch) == after


@pytest.mark.parametrize("epoch", [0, 32_766])
@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_that_missed_the_answer_to_its_end_goes_on_with_the_epoch_it_has(
    sim_broker: SimBroker, commit: bool, epoch: int
) -> None:
    txn = Txn(sim_broker, versions=SECOND)
    txn.init()
    if epoch:
        _jump_to_epoch(sim_broker, txn, epoch)
    assert txn.send("accounts", b"a") == 0
    before = txn.id, txn.epoch
    assert txn.end(commit=commit) == 0
    after = txn.id, txn.epoch
    assert after != before
    for _ in range(2 if after[0] == before[0] else 1):  # an id of before is known until the next change
        txn.id, txn.epoch = before
        assert txn.init(resume=True) == 0
        assert (txn.id, txn.epoch) == after
    assert Txn(sim_broker).init() == 0  # another one, of the same name
    txn.id, txn.epoch = before
    assert txn.init(resume=True) == ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_time_was_over_goes_on_with_the_epoch_it_has(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker, versions=SECOND)
    txn.init(timeout_ms=5000)
    txn.send("accounts", b"dead")
    sim_broker.pass_time(5.1)
    assert txn.state == "CompleteAbort"
    epoch = txn.epoch
    assert txn.init(resume=True) == 0
    assert txn.epoch == epoch + 1
    assert txn.send("accounts", b"alive") == 0
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"alive"]


def _jump_to_epoch(sim_broker: SimBroker, txn: Txn, epoch: int) -> None:
    """As if it had been used for long."""
    from tidelog.coordinator.txn.replay import record

    shard = sim_broker.services.transactions.shards.of(txn.name)
    known = shard.state.transactions[txn.name]
    sim_broker.wait(shard.submit(lambda state, now_ms: ([record(known._replace(producer_epoch=epoch))], None)))
    txn.epoch = epoch


def test_what_is_open_waits_for_a_parked_reader(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = {
        "max_wait_ms": 10_000,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "isolation_level": 1,
        "topics": [{"topic": "accounts", "partitions": [asked]}],
    }
    parked = sim_broker.send(ApiKey.FETCH, 12, fields)
    sim_broker.pass_time(1.0)
    assert not parked.done
    assert txn.abort() == 0
    sim_broker.settle()
    data = parked.response.responses[0].partitions[0]
    assert data.last_stable_offset == 2
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(txn.id, 0)]


def test_two_phase_transactions_have_no_timeout() -> None:
    sim_broker = SimBroker({"transaction.two.phase.commit.enable": "true"})
    sim_broker.make_topic("accounts")
    txn = Txn(sim_broker, versions=SECOND)
    assert txn.init(version=6, enable2_pc=True) == 0
    assert txn.send("accounts", b"slow") == 0
    sim_broker.pass_time(3600.0)
    assert txn.state == "Ongoing"
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"slow"]


def test_two_phase_transactions_are_off_unless_enabled(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    assert txn.init(version=6, enable2_pc=True) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert txn.init(version=6, keep_prepared_txn=True) == ErrorCode.UNSUPPORTED_VERSION


# -- before records of a transaction are appended


def produce(txn: Txn, *records: bytes | None, version: int | None = None) -> list[int]:
    """One batch to each partition from the first on, in one request; the errors."""
    fields = txn.produce_fields("accounts", b"")
    fields["topic_data"][0]["partition_data"] = [
        {"index": index, "records": data} for index, data in enumerate(records)
    ]
    answer = txn.sim_broker.ask(ApiKey.PRODUCE, version or txn.versions["produce"], fields)
    return [one.error_code for one in answer.responses[0].partition_responses]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_who_did_not_join_is_told_what_its_version_understands(sim_broker: SimBroker, version: int, code: int) -> None:
    txn = Txn(sim_broker)
    txn.init()
    assert produce(txn, txn.batch(b"x", sequence=0), version=version) == [code]
    assert read_all(sim_broker, "accounts") == []


def test_in_a_log_that_does_not_know_it_a_producer_of_the_second_version_begins_at_zero(sim_broker: SimBroker) -> None:
    """Of the first version, what came before may have been deleted."""
    first, second = Txn(sim_broker, "first"), Txn(sim_broker, "second", versions=SECOND)
    for txn in (first, second):
        txn.init()
    first.add("accounts", 0)
    assert produce(first, first.batch(b"x", sequence=5)) == [0]
    assert produce(second, second.batch(b"y", sequence=5)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    plain = Batch([Sent(b"z")], base_timestamp=NOW_MS, producer=Producer(99, 0, 5)).encode()
    assert produce(second, plain) == [0], "it is in no transaction"
    assert read_all(sim_broker, "accounts") == [b"x", b"z"]


@both
def test_what_is_in_no_transaction_needs_no_word_of_its_coordinator(
    sim_broker: SimBroker, versions: dict[str, int]
) -> None:
    txn = begun(sim_broker, versions)
    mine = txn.batch(b"two", sequence=1)
    other = Batch([Sent(b"plain")], base_timestamp=NOW_MS, producer=Producer(99, 0, 0)).encode()
    assert produce(txn, mine, other) == [0, 0]
    assert read_all(sim_broker, "accounts", 1) == [b"plain"]


@both
def test_batches_that_are_none_spoil_no_others(sim_broker: SimBroker, versions: dict[str, int]) -> None:
    txn = begun(sim_broker, versions)
    anonymous = Batch([Sent(b"x")], base_timestamp=NOW_MS, attributes=TRANSACTIONAL).encode()
    codes = produce(txn, txn.batch(b"two", sequence=1), None, anonymous)
    assert codes[:2] == [0, ErrorCode.INVALID_RECORD]
    assert read_all(sim_broker, "accounts") == [b"one", b"two"]


def test_a_transaction_that_an_earlier_self_left_open_makes_nobody_a_member(sim_broker: SimBroker) -> None:
    txn = Txn(sim_broker)
    txn.init()
    sim_broker.append_own("accounts", in_transaction(b"left", producer_id=txn.id))
    txn.init()
    assert txn.epoch == 1
    assert produce(txn, txn.batch(b"x", sequence=0)) == [ErrorCode.INVALID_TXN_STATE]


@both
def test_later_records_need_no_word_of_the_coordinator(
    sim_broker: SimBroker, versions: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first on, wherever that is: here it is the first of the log."""
    txn = begun(sim_broker, versions)
    asked: list[str] = []
    for name in ("verify", "add_partitions"):
        monkeypatch.setattr(
            type(sim_broker.services.transactions), name, lambda *_, name=name, **__: asked.append(name)
        )
    assert produce(txn, txn.batch(b"two", sequence=1)) == [0]
    assert asked == []
    assert read_all(sim_broker, "accounts") == [b"one", b"two"]


def test_who_joins_while_the_transaction_before_is_being_ended_is_told_to_come_again(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker, SECOND)
    answer = sim_broker.ask(ApiKey.END_TXN, 5, txn.end_fields(commit=True))
    txn.epoch = answer.producer_epoch
    sim_broker.hold_syncs()
    fields = txn.produce_fields("accounts", txn.batch(b"next", sequence=0), 1)
    asked = sim_broker.send(ApiKey.PRODUCE, 12, fields)
    sim_broker.pass_time(2.0)
    [told] = asked.response.responses[0].partition_responses
    assert told.error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_join_that_fails_in_a_way_that_nobody_knows_leaves_nobody_waiting(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = Txn(sim_broker, versions=SECOND)
    txn.init()
    joins: Promise[None] = Promise()
    monkeypatch.setattr(type(sim_broker.services.transactions), "add_partitions", lambda *_, **__: joins)
    asked = sim_broker.send(ApiKey.PRODUCE, 12, txn.produce_fields("accounts", txn.batch(b"x", sequence=0)))
    sim_broker.settle()
    assert not asked.done
    heard: list[Promise[None]] = []
    joins.on_done(heard.append)
    joins.fail(RuntimeError("a bug"))
    assert heard == [joins], "nor whoever waits beside it"
    sim_broker.settle()
    assert asked.done
    assert "UNKNOWN_SERVER_ERROR" in (asked.closed or "")
    assert read_all(sim_broker, "accounts") == []
