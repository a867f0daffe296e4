"""What transactions leave in the logs: over segments, restarts, retention, compaction, full disks, feature levels."""

import errno

import pytest

from tests.apis.harbour import Harbour
from tests.apis.test_transactions import begun, both
from tests.apis.txn import CLASSIC, SECOND, Txn, fetch, read_all, read_committed
from tidelog.log.aborted import AbortedIndex, AbortedIndexError
from tidelog.log.producers import Completed
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SMALL = {"internal.segment.bytes": "10000"}


@pytest.fixture
def harbour() -> Harbour:
    made = Harbour()
    made.make_topic("accounts", 1, SMALL)
    return made


def again(harbour: Harbour, *txns: Txn) -> Harbour:
    """kill -9, and the next life."""
    after = Harbour(disk=harbour.kill())
    for txn in txns:
        txn.harbour = after
    return after


@both
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_over_many_segments_and_a_restart(
    harbour: Harbour, versions: dict[str, int], commit: bool
) -> None:
    txn = begun(harbour, versions)
    sent = [b"one"]
    for number in range(20):
        value = b"%d" % number + b"." * 3000
        assert txn.send("accounts", value) == 0
        sent.append(value)
    harbour.append("accounts", b"plain")
    assert len(harbour.partition("accounts").log.segments) > 3
    after = again(harbour, txn)
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


def test_aborted_ones_side_by_side_are_told_by_producer_and_first_offset(harbour: Harbour) -> None:
    one, two = begun(harbour, name="one"), begun(harbour, name="two")
    assert one.send("accounts", b"a") == 0
    assert two.abort() == 0
    assert one.commit() == 0
    told = fetch(harbour, "accounts")
    assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions] == [(two.id, 1)]
    assert read_committed(harbour, "accounts") == [b"one", b"a"]


def test_the_last_stable_offset_is_that_of_the_oldest_open_one(harbour: Harbour) -> None:
    one, two = begun(harbour, name="one"), begun(harbour, name="two")
    assert two.commit() == 0
    assert fetch(harbour, "accounts").last_stable_offset == 0
    assert read_committed(harbour, "accounts") == []
    assert one.commit() == 0
    assert fetch(harbour, "accounts").last_stable_offset == 4


def test_an_open_transaction_survives_the_retention_of_what_was_before_it(harbour: Harbour) -> None:
    for _ in range(10):
        harbour.append("accounts", b"old" + b"." * 3000)
    txn = Txn(harbour)
    assert txn.init(timeout_ms=900_000) == 0
    assert txn.add("accounts") == 0
    assert txn.send("accounts", b"one") == 0
    harbour.delete_records("accounts", 10)
    harbour.pass_time(600.0)
    assert len(harbour.partition("accounts").log.segments) < 3
    after = again(harbour, txn)
    assert fetch(after, "accounts", offset=10).last_stable_offset == 10
    assert txn.commit() == 0
    assert read_committed(after, "accounts", offset=10) == [b"one"]


def test_a_full_disk_does_not_lose_what_is_to_be_skipped(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker waits for room for its entry in the index of aborted transactions."""
    txn = begun(harbour)
    opened = harbour.disk.open
    full = True

    def open_unless_full(path: str, *, create: bool = False):
        if full and path.endswith(".txnindex"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return opened(path, create=create)

    monkeypatch.setattr(harbour.disk, "open", open_unless_full)
    assert txn.abort() == 0
    harbour.pass_time(1.0)
    assert txn.state == "PrepareAbort"
    assert fetch(harbour, "accounts").last_stable_offset == 0
    assert harbour.append("accounts", b"after") == 1, "the log goes on"
    full = False
    harbour.pass_time(5.0)
    assert txn.state == "CompleteAbort"
    assert read_committed(harbour, "accounts") == [b"after"]


def test_a_damaged_index_of_aborted_transactions_holds_up_its_own_partition_only(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.make_topic("sound")
    txn = begun(harbour)
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
        harbour.pass_time(1.0)
    offline = harbour.partition("accounts").log.offline
    assert offline is not None
    assert "has an entry of version 127" in offline
    assert fetch(harbour, "sound").last_stable_offset == 2, "the other one goes on"
    assert txn.state == "PrepareAbort"
    after = again(harbour, txn)
    after.pass_time(5.0)
    assert txn.state == "CompleteAbort"
    assert fetch(after, "accounts").last_stable_offset == 2


def test_two_who_write_with_one_producer_id_do_not_mix(harbour: Harbour) -> None:
    first = begun(harbour)
    second = Txn(harbour)
    second.id, second.epoch = first.id, first.epoch
    assert second.send("accounts", b"mine", sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert second.send("accounts", b"one", sequence=0) == 0, "taken for the first one's, sent again"
    assert read_all(harbour, "accounts") == [b"one"]


@pytest.mark.parametrize("level", [0, 1])
def test_older_feature_levels_keep_the_epoch_and_old_records(harbour: Harbour, level: int) -> None:
    update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": 2}
    answer = harbour.ask(ApiKey.UPDATE_FEATURES, 1, {"timeout_ms": 10_000, "feature_updates": [update]})
    assert answer.error_code == 0, answer
    txn = begun(harbour)
    new = Txn(harbour)
    assert new.init() == 0
    assert new.epoch == txn.epoch + 2
    data = bytes(fetch(harbour, "__transaction_state", _partition_of(harbour, "bank"), isolation=0).records)
    versions = {record.value[1] for header in iterate(data) for record in records(data, header) if record.value}
    assert versions == {level}
    after = again(harbour, new)
    assert new.add("accounts") == 0
    assert new.send("accounts", b"later") == 0
    assert new.commit() == 0
    assert read_committed(after, "accounts") == [b"later"]


def _partition_of(harbour: Harbour, name: str) -> int:
    return harbour.services.transactions.shards.of(name).index


def test_an_end_that_comes_from_another_process_after_a_restart_is_told_how_it_ended() -> None:
    """Two-phase commit: docs/transactions.md has the table."""
    harbour = Harbour({"transaction.two.phase.commit.enable": "true"})
    harbour.make_topic("accounts")
    workers = [Txn(harbour, f"worker-{number}", versions=SECOND) for number in range(3)]
    for worker in workers:
        assert worker.init(version=6, enable2_pc=True) == 0
        assert worker.send("accounts", worker.name.encode()) == 0
    committed, aborted, undecided = [worker.end_fields(commit=True) for worker in workers]
    after = Harbour({"transaction.two.phase.commit.enable": "true"}, disk=harbour.kill())
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
    harbour = Harbour({"log.cleaner.backoff.ms": "1000"})
    configs = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}
    harbour.make_topic("accounts", 1, configs)
    assert harbour.partition("accounts").log.config.cleanup_policy
    txn = Txn(harbour, versions=CLASSIC)
    txn.init(timeout_ms=900_000)
    for commit in (True, False):
        assert txn.add("accounts") == 0
        fields = txn.produce_fields("accounts", _keyed(txn, b"committed" if commit else b"aborted"))
        told = harbour.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
        assert told.error_code == 0, told
        assert txn.end(commit=commit) == 0
    harbour.pass_time(30.0)
    after = again(harbour, txn)
    assert read_committed(after, "accounts") == [b"committed"]


def _keyed(txn: Txn, value: bytes) -> bytes:
    from tests.batches import TRANSACTIONAL, Batch, Producer, Sent

    sequence = txn.sequences.get(("accounts", 0), 0)
    txn.sequences["accounts", 0] = sequence + 1
    producer = Producer(txn.id, txn.epoch, sequence)
    at_ms = txn.harbour.timeline.now_ms()
    sent = [Sent(value, key=b"k")]
    return Batch(sent, base_timestamp=at_ms, producer=producer, attributes=TRANSACTIONAL).encode()
