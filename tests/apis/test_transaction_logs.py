"""What transactions leave in the logs: over segments, restarts, retention, compaction, full disks, feature levels."""

import errno

import pytest

from tests.apis.sim_broker import SimBroker
from tests.apis.test_transactions import begun, both
from tests.apis.txn import CLASSIC, SECOND, Txn, fetch, read_all, read_committed
from tidelog.log.aborted import AbortedIndex, AbortedIndexError
from tidelog.log.producers import Completed
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SMALL = {"internal.segment.bytes": "10000"}


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("accounts", 1, SMALL)
    return made


def again(sim_broker: SimBroker, *txns: Txn) -> SimBroker:
    """kill -9, and the next life."""
    after = SimBroker(disk=sim_broker.kill())
    for txn in txns:
        txn.sim_broker = after
    return after


@both
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_over_many_segments_and_a_restart(
    sim_broker: SimBroker, versions: dict[str, int], commit: bool
) -> None:
    txn = begun(sim_broker, versions)
    sent = [b"one"]
    for number in range(20):
        value = b"%d" % number + b"." * 3000
        assert txn.send("accounts", value) == 0
        sent.append(value)
    sim_broker.append("accounts", b"plain")
    assert len(sim_broker.partition("accounts").log.segments) > 3
    after = again(sim_broker, txn)
    assert read_committed(after, "accounts") == []
    assert txn.send("accounts", b"last") == 0, "the sequence goes on"
    assert txn.end(commit=commit) == 0
    whole = [*sent, b"plain", b"last"] if commit else [b"plain"]
    assert read_committed(after, "accounts") == whole
    for offset in (0, 7, 15, 21):
        wanted = (len(sent) - offset + 2) if commit else 1
        assert len(read_committed(after, "accounts", offset=offset)) == wanted
    last = again(after)
    assert read_committed(last, "accounts") == whole
    assert fetch(last, "accounts").last_stable_offset == 24


def test_aborted_ones_side_by_side_are_told_by_producer_and_first_offset(sim_broker: SimBroker) -> None:
    one, two = begun(sim_broker, name="one"), begun(sim_broker, name="two")
    assert one.send("accounts", b"a") == 0
    assert two.abort() == 0
    assert one.commit() == 0
    told = fetch(sim_broker, "accounts")
    assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions] == [(two.id, 1)]
    assert read_committed(sim_broker, "accounts") == [b"one", b"a"]


def test_the_last_stable_offset_is_that_of_the_oldest_open_one(sim_broker: SimBroker) -> None:
    one, two = begun(sim_broker, name="one"), begun(sim_broker, name="two")
    assert two.commit() == 0
    assert fetch(sim_broker, "accounts").last_stable_offset == 0
    assert read_committed(sim_broker, "accounts") == []
    assert one.commit() == 0
    assert fetch(sim_broker, "accounts").last_stable_offset == 4


def test_an_open_transaction_survives_the_retention_of_what_was_before_it(sim_broker: SimBroker) -> None:
    for _ in range(10):
        sim_broker.append("accounts", b"old" + b"." * 3000)
    txn = Txn(sim_broker)
    assert txn.init(timeout_ms=900_000) == 0
    assert txn.add("accounts") == 0
    assert txn.send("accounts", b"one") == 0
    sim_broker.delete_records("accounts", 10)
    sim_broker.pass_time(600.0)
    assert len(sim_broker.partition("accounts").log.segments) < 3
    after = again(sim_broker, txn)
    assert fetch(after, "accounts", offset=10).last_stable_offset == 10
    assert txn.commit() == 0
    assert read_committed(after, "accounts", offset=10) == [b"one"]


def test_a_full_disk_does_not_lose_what_is_to_be_skipped(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker waits for room for its entry in the index of aborted transactions."""
    txn = begun(sim_broker)
    opened = sim_broker.disk.open
    full = True

    def open_unless_full(path: str, *, create: bool = False):
        if full and path.endswith(".txnindex"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return opened(path, create=create)

    monkeypatch.setattr(sim_broker.disk, "open", open_unless_full)
    assert txn.abort() == 0
    sim_broker.pass_time(1.0)
    assert txn.state == "PrepareAbort"
    assert fetch(sim_broker, "accounts").last_stable_offset == 0
    assert sim_broker.append("accounts", b"after") == 1, "the log goes on"
    full = False
    sim_broker.pass_time(5.0)
    assert txn.state == "CompleteAbort"
    assert read_committed(sim_broker, "accounts") == [b"after"]


def test_a_damaged_index_of_aborted_transactions_holds_up_its_own_partition_only(
    sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim_broker.make_topic("sound")
    txn = begun(sim_broker)
    assert txn.add("sound", 0) == 0
    assert txn.send("sound", b"two") == 0
    sound = AbortedIndex.append

    def damaged(index: AbortedIndex, completed: Completed) -> None:
        if "accounts-0" in index.path:
            raise AbortedIndexError(f"{index.path} has an entry of version 127; 0 is known")
        sound(index, completed)

    with monkeypatch.context() as patched:
        patched.setattr(AbortedIndex, "append", damaged)
        assert txn.abort() == 0
        sim_broker.pass_time(1.0)
    offline = sim_broker.partition("accounts").log.offline
    assert offline is not None
    assert "has an entry of version 127" in offline
    assert fetch(sim_broker, "sound").last_stable_offset == 2, "the other one goes on"
    assert txn.state == "PrepareAbort"
    after = again(sim_broker, txn)
    after.pass_time(5.0)
    assert txn.state == "CompleteAbort"
    assert fetch(after, "accounts").last_stable_offset == 2


def test_two_who_write_with_one_producer_id_do_not_mix(sim_broker: SimBroker) -> None:
    first = begun(sim_broker)
    second = Txn(sim_broker)
    second.id, second.epoch = first.id, first.epoch
    assert second.send("accounts", b"mine", sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert second.send("accounts", b"one", sequence=0) == 0, "taken for the first one's, sent again"
    assert read_all(sim_broker, "accounts") == [b"one"]


@pytest.mark.parametrize("level", [0, 1])
def test_older_feature_levels_keep_the_epoch_and_old_records(sim_broker: SimBroker, level: int) -> None:
    update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": 2}
    answer = sim_broker.ask(ApiKey.UPDATE_FEATURES, 1, {"timeout_ms": 10_000, "feature_updates": [update]})
    assert answer.error_code == 0, answer
    txn = begun(sim_broker)
    new = Txn(sim_broker)
    assert new.init() == 0
    assert new.epoch == txn.epoch + 2
    data = bytes(fetch(sim_broker, "__transaction_state", _partition_of(sim_broker, "bank"), isolation=0).records)
    versions = {record.value[1] for header in iterate(data) for record in records(data, header) if record.value}
    assert versions == {level}
    after = again(sim_broker, new)
    assert new.add("accounts") == 0
    assert new.send("accounts", b"later") == 0
    assert new.commit() == 0
    assert read_committed(after, "accounts") == [b"later"]


def _partition_of(sim_broker: SimBroker, name: str) -> int:
    return sim_broker.services.transactions.shards.of(name).index


def test_an_end_that_comes_from_another_process_after_a_restart_is_told_how_it_ended() -> None:
    """Two-phase commit: docs/transactions.md has the table."""
    sim_broker = SimBroker({"transaction.two.phase.commit.enable": "true"})
    sim_broker.make_topic("accounts")
    workers = [Txn(sim_broker, f"worker-{number}", versions=SECOND) for number in range(3)]
    for worker in workers:
        assert worker.init(version=6, enable2_pc=True) == 0
        assert worker.send("accounts", worker.name.encode()) == 0
    committed, aborted, undecided = [worker.end_fields(commit=True) for worker in workers]
    after = SimBroker({"transaction.two.phase.commit.enable": "true"}, disk=sim_broker.kill())
    after.pass_time(7200.0)
    driver = Txn(after, "worker-2")
    assert driver.state == "Ongoing", "not yet: nobody but its owner ends it"
    assert after.ask(ApiKey.END_TXN, 5, aborted | {"committed": False}).error_code == 0
    for _ in range(2):
        assert after.ask(ApiKey.END_TXN, 5, committed).error_code == 0
        assert after.ask(ApiKey.END_TXN, 5, aborted).error_code == ErrorCode.INVALID_TXN_STATE
        after.settle()
    assert after.ask(ApiKey.END_TXN, 5, committed | {"committed": False}).error_code == ErrorCode.INVALID_TXN_STATE
    assert after.ask(ApiKey.END_TXN, 5, undecided).error_code == 0
    after.settle()
    assert read_committed(after, "accounts") == [b"worker-0", b"worker-2"]
    assert Txn(after, "worker-0").init() == 0
    assert after.ask(ApiKey.END_TXN, 5, committed).error_code == ErrorCode.PRODUCER_FENCED
    unknown = committed | {"transactional_id": "nobody"}
    assert after.ask(ApiKey.END_TXN, 5, unknown).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_compaction_takes_the_last_committed_value_of_a_key_and_no_aborted_one() -> None:
    sim_broker = SimBroker({"log.cleaner.backoff.ms": "1000"})
    configs = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}
    sim_broker.make_topic("accounts", 1, configs)
    assert sim_broker.partition("accounts").log.config.cleanup_policy
    txn = Txn(sim_broker, versions=CLASSIC)
    txn.init(timeout_ms=900_000)
    for commit in (True, False):
        assert txn.add("accounts") == 0
        fields = txn.produce_fields("accounts", _keyed(txn, b"committed" if commit else b"aborted"))
        told = sim_broker.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
        assert told.error_code == 0, told
        assert txn.end(commit=commit) == 0
    sim_broker.pass_time(30.0)
    after = again(sim_broker, txn)
    assert read_committed(after, "accounts") == [b"committed"]


def _keyed(txn: Txn, value: bytes) -> bytes:
    from tests.batches import TRANSACTIONAL, Batch, Producer, Sent

    sequence = txn.sequences.get(("accounts", 0), 0)
    txn.sequences["accounts", 0] = sequence + 1
    producer = Producer(txn.id, txn.epoch, sequence)
    at_ms = txn.sim_broker.timeline.now_ms()
    sent = [Sent(value, key=b"k")]
    return Batch(sent, base_timestamp=at_ms, producer=producer, attributes=TRANSACTIONAL).encode()
