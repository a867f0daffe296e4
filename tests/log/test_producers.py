"""Idempotence: nothing twice, nothing out of order; transactions: what readers may see. As Kafka 4.3 decides it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.bounds import EPOCH_MAX, PRODUCERS_MAX
from tidelog.log.producer_snapshot import SnapshotError, decode_snapshot, encode_snapshot, read_snapshot
from tidelog.log.producers import Appended, Completed, Producers
from tidelog.log.windows import find_older
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import HEADER, SEQUENCE_MAX, TRANSACTIONAL_FLAG, build, read_header
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record


class Partition:
    """A log of which only the producers are kept."""

    def __init__(self) -> None:
        self.producers = Producers()

    def send(
        self, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, transactional: bool = False
    ) -> tuple[int, int] | None:
        """Append a batch; the offsets of the original where it is a duplicate."""
        attributes = TRANSACTIONAL_FLAG if transactional else 0
        original = self.producers.check(producer, epoch, sequence, count - 1, attributes)
        if original is not None:
            return original.first_offset, original.last_offset
        base = self.producers.end
        self.producers.record(producer, epoch, sequence, base, base + count - 1, 1000, attributes)
        self.producers.check_invariants()
        return None

    def refused(self, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0) -> ErrorCode:
        with pytest.raises(KafkaError) as failure:
            self.send(sequence, count, producer=producer, epoch=epoch)
        assert failure.value.message
        return failure.value.code

    def end(self, *, commit: bool, producer: int = 1, epoch: int = 0) -> Completed | None:
        completed = self.producers.end_transaction(producer, epoch, self.producers.end, 1000, 0, commit=commit)
        self.producers.check_invariants()
        return completed


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_any_of_the_last_five_batches_sent_again_gets_its_first_offsets(partition: Partition) -> None:
    for sequence in range(0, 14, 2):
        assert partition.send(sequence, 2) is None
    assert [partition.send(sequence, 2) for sequence in range(4, 14, 2)] == [
        (4, 5),
        (6, 7),
        (8, 9),
        (10, 11),
        (12, 13),
    ]
    assert partition.send(14) is None


def test_a_batch_older_than_the_window_is_out_of_order(partition: Partition) -> None:
    for sequence in range(7):
        partition.send(sequence)
    assert partition.refused(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(partition: Partition) -> None:
    partition.send(0, 3)
    assert partition.refused(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(3) is None


def test_a_batch_cut_otherwise_than_before_is_no_duplicate(partition: Partition) -> None:
    partition.send(0, 3)
    assert partition.refused(0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(1, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_nothing_is_known_of_may_go_on_anywhere(partition: Partition) -> None:
    assert partition.send(1234) is None
    assert partition.send(1235) is None


def test_a_new_epoch_starts_at_zero(partition: Partition) -> None:
    partition.send(0)
    assert partition.refused(1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0, epoch=1) is None
    assert partition.refused(1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.send(1, epoch=1) is None


def test_the_window_of_an_old_epoch_is_forgotten_with_it(partition: Partition) -> None:
    partition.send(0)
    partition.send(0, epoch=1)
    assert partition.send(0, epoch=1) == (1, 1)


def test_an_epoch_below_none_is_refused(partition: Partition) -> None:
    assert partition.refused(0, epoch=-2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_between_batches(partition: Partition) -> None:
    partition.send(SEQUENCE_MAX)
    assert partition.send(0) is None
    assert partition.send(SEQUENCE_MAX) == (0, 0)
    assert partition.send(0) == (1, 1)


def test_sequences_wrap_inside_a_batch(partition: Partition) -> None:
    assert partition.send(SEQUENCE_MAX - 1, 4) is None
    assert partition.send(SEQUENCE_MAX - 1, 4) == (0, 3)
    assert partition.refused(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(2) is None


def test_after_a_marker_of_a_new_epoch_the_producer_starts_at_zero(partition: Partition) -> None:
    partition.send(0, transactional=True)
    partition.end(commit=True, epoch=1)
    assert partition.refused(1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refused(1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0, epoch=1) is None


def test_a_batch_outside_of_the_open_transaction_is_refused(partition: Partition) -> None:
    partition.send(0, transactional=True)
    assert partition.refused(1) == ErrorCode.INVALID_TXN_STATE
    assert partition.send(1, transactional=True) is None


def test_the_first_unstable_offset_is_that_of_the_oldest_transaction(partition: Partition) -> None:
    assert partition.producers.first_unstable == -1
    partition.send(0, 2, producer=9)
    partition.send(0, 3, producer=1, transactional=True)
    partition.send(0, 3, producer=2, transactional=True)
    assert partition.producers.first_unstable == 2
    assert partition.end(commit=False, producer=1) == Completed(1, 2, 8, True, 5)
    assert partition.producers.first_unstable == 2  # its marker isn't below the high watermark yet
    partition.producers.advance_high_watermark(8)
    assert partition.producers.first_unstable == 2
    partition.producers.advance_high_watermark(9)
    assert partition.producers.first_unstable == 5
    assert partition.end(commit=True, producer=2) == Completed(2, 5, 9, False, 10)
    partition.producers.advance_high_watermark(10)
    assert partition.producers.first_unstable == -1


def test_a_marker_without_a_transaction_completes_nothing(partition: Partition) -> None:
    assert partition.end(commit=True) is None
    assert partition.producers.first_unstable == -1


def marker(partition: Partition, epoch: int, *, coordinator: int = 0, version: int = 1) -> ErrorCode | None:
    """What a coordinator is told that wants to write a marker."""
    try:
        partition.producers.check_marker(1, epoch, coordinator, version)
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_the_open_transactions_epoch_ends_it_in_the_first_versions(
    partition: Partition, version: int
) -> None:
    assert marker(partition, 0, version=version) is None, "a producer that nothing is known of"
    partition.send(0, epoch=3, transactional=True)
    assert marker(partition, 2, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert [marker(partition, epoch, version=version) for epoch in (3, 4)] == [None, None]


@pytest.mark.parametrize("version", [2, 3])
def test_from_the_second_version_on_such_a_marker_is_an_earlier_transactions(
    partition: Partition, version: int
) -> None:
    partition.send(0, epoch=3, transactional=True)
    assert partition.producers.first_unstable == 0
    assert marker(partition, 3, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker(partition, 4, version=version) is None
    partition.end(commit=True, epoch=4)
    assert marker(partition, 4, version=version) is None, "it may come again while nothing is open"
    assert marker(partition, 3, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_in_the_last_epoch_the_marker_has_no_next_one(partition: Partition) -> None:
    partition.send(0, epoch=EPOCH_MAX, transactional=True)
    assert marker(partition, EPOCH_MAX, version=2) is None


def test_a_coordinator_that_was_replaced_ends_nothing(partition: Partition) -> None:
    partition.send(0, transactional=True)
    partition.producers.end_transaction(1, 0, 1, 1000, 5, commit=True)
    told = [marker(partition, 0, coordinator=epoch) for epoch in (4, 5, 6)]
    assert told == [ErrorCode.TRANSACTION_COORDINATOR_FENCED, None, None]


def test_a_transaction_at_the_very_beginning_counts_as_any_other(partition: Partition) -> None:
    """Its first offset is 0, which isn't none."""
    partition.producers = Producers(expiration_ms=100)
    partition.send(0, transactional=True)
    assert partition.refused(1) == ErrorCode.INVALID_TXN_STATE
    assert partition.producers.expire(5000) == 0
    assert partition.end(commit=True) == Completed(1, 0, 1, False, 2)
    partition.send(0, producer=2, transactional=True)
    assert partition.producers.first_unstable == 0, "until the marker is below the high watermark"
    partition.producers.advance_high_watermark(2)
    assert partition.producers.first_unstable == 2


def test_the_oldest_transaction_counts_whether_it_is_open_or_its_end_is_not_seen_yet(partition: Partition) -> None:
    partition.send(0, producer=1, transactional=True)
    partition.send(0, producer=2, transactional=True)
    partition.end(commit=True, producer=2)
    assert partition.producers.first_unstable == 0
    partition.end(commit=True, producer=1)
    partition.send(1, producer=1, transactional=True)
    assert partition.producers.first_unstable == 0
    partition.producers.advance_high_watermark(4)
    assert partition.producers.first_unstable == 4


def test_what_a_marker_would_end_is_told_before_it_is_written(partition: Partition) -> None:
    def batch(producer: int, *, empty: bool = False) -> bytes:
        made = [] if empty else [marker_record(0, 1000, commit=False)]
        return bytes(
            build(made, base_offset=9, producer_id=producer, producer_epoch=0, transactional=True, control=True)
        )

    partition.send(0, producer=1, transactional=True)
    partition.send(0, producer=2)
    told = [partition.producers.completed_by(data, read_header(data)) for data in map(batch, (1, 2, 3))]
    assert told == [Completed(1, 0, 9, True, 10), None, None]
    assert partition.producers.first_unstable == 0


def test_the_producer_with_the_id_zero_is_one(partition: Partition) -> None:
    data = build([Record(value=b"x")], producer_id=0, producer_epoch=0, base_sequence=0)
    partition.producers.replay(data, read_header(data))
    assert partition.producers.end == 1
    assert partition.send(0, producer=0) == (0, 0)


def restored(partition: Partition) -> Producers:
    """After a restart: of each window, a snapshot has the last batch."""
    producers = partition.producers
    producers.restore(decode_snapshot(encode_snapshot(producers.items()), "x"), producers.end)
    return producers


def test_the_batch_right_before_what_is_remembered_is_known_to_be_in_the_log(partition: Partition) -> None:
    for sequence in range(4):
        partition.send(sequence)
    producers = restored(partition)
    assert [producers.is_unread(1, 0, sequence) for sequence in range(5)] == [True, True, True, False, False]
    assert [producers.is_unread(producer, epoch, 2) for producer, epoch in ((1, 1), (2, 0))] == [False, False]
    assert partition.refused(2) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_new_epoch_after_a_restart_begins_with_an_empty_window(partition: Partition) -> None:
    for end in (False, True):
        partition.send(0)
        producers = restored(partition)
        if end:
            partition.end(commit=True, epoch=1)
        partition.send(0, epoch=1)
        assert producers.short_windows() == {}
        assert partition.refused(SEQUENCE_MAX, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        partition.producers = Producers()


def test_a_window_is_filled_with_no_more_than_it_holds_and_only_where_it_is_short(partition: Partition) -> None:
    for sequence in range(10):
        partition.send(sequence)
    window = [Appended(n, n, n, n, 1000) for n in range(10)]
    producers = restored(partition)
    producers.refill({1: window[:9], 2: window[:9]})
    found = producers.get(1)
    assert found is not None
    assert found.window == window[5:]
    producers.refill({1: window[:5]})
    assert found.window == window[5:], "it is full"
    for older, expected in ((window[7:9], window[7:]), (window[6:8], window[9:]), ([], window[9:])):
        producers = restored(partition)
        producers.refill({1: older})
        found = producers.get(1)
        assert found is not None
        assert found.window == expected


def test_a_transaction_whose_end_was_not_seen_yet_is_forgotten_with_all_else(partition: Partition) -> None:
    partition.send(0, transactional=True)
    partition.end(commit=True)
    partition.producers.clear(7)
    partition.send(0, transactional=True)
    assert partition.producers.first_unstable == 7


def test_what_is_forgotten_is_forgotten_wholly(partition: Partition) -> None:
    partition.send(0)
    partition.send(0, producer=2, transactional=True)
    partition.end(commit=True, producer=2)
    partition.send(1, producer=2, transactional=True)
    producers = restored(partition)
    assert producers.unread == 4
    producers.clear(7)
    assert (len(producers), producers.first_unstable, producers.end, producers.unread) == (0, -1, 7, -1)
    producers.advance_high_watermark(7)
    producers.record(3, 0, 0, 7, 7, 1000, 0)
    assert producers.first_unstable == -1


def test_idle_producers_expire_but_not_with_an_open_transaction(partition: Partition) -> None:
    partition.producers = Producers(expiration_ms=100)
    partition.send(0, producer=1)
    partition.send(0, producer=2, transactional=True)
    assert partition.producers.expire(1099) == 0
    assert partition.producers.expire(1100) == 1
    assert partition.producers.get(1) is None
    assert partition.send(77, producer=1) is None


def test_beyond_the_bound_the_longest_idle_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PRODUCERS_MAX == 100_000
    monkeypatch.setattr("tidelog.log.producers.PRODUCERS_MAX", 100)
    producers = Producers()
    for producer_id in range(101):
        producers.record(producer_id, 0, 0, producer_id, producer_id, 1000 + producer_id, 0)
    kept = [producer_id for producer_id in range(101) if producers.get(producer_id) is not None]
    assert kept == list(range(10, 101)), "a tenth of them goes, and nobody else"


def test_an_open_transaction_is_never_forgotten_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.producers.PRODUCERS_MAX", 20)
    producers = Producers()
    producers.record(0, 0, 0, 0, 0, 1, TRANSACTIONAL_FLAG)
    for producer_id in range(1, 60):
        producers.record(producer_id, 0, 0, producer_id, producer_id, 1000 + producer_id, 0)
    assert producers.get(0) is not None
    assert producers.first_unstable == 0
    producers.check_invariants()


def test_a_log_that_kafka_wrote_is_replayed(partition: Partition) -> None:
    producers = partition.producers
    data = build([Record(value=b"a")] * 3, producer_id=5, producer_epoch=1, base_sequence=0, transactional=True)
    plain = build([Record(value=b"b")], base_offset=3)
    abort = build(
        [marker_record(3, 500, commit=False)],
        base_offset=4,
        producer_id=5,
        producer_epoch=1,
        transactional=True,
        control=True,
    )
    cleaned = build([], base_offset=5, last_offset_delta=0, producer_id=6, producer_epoch=0, control=True)
    found = [producers.replay(batch, read_header(batch)) for batch in (data, plain, abort, cleaned)]
    assert found == [None, None, Completed(5, 0, 4, True, 5), None]
    assert producers.end == 6
    producer = producers.get(5)
    assert producer is not None
    assert (producer.coordinator_epoch, producer.last_timestamp, producer.last_sequence) == (3, 500, 2)


def test_of_a_producer_the_time_of_its_last_batch_is_told(partition: Partition) -> None:
    for offset, timestamp in enumerate((1000, 3000, 2000)):
        partition.producers.record(5, 0, offset, offset, offset, timestamp, 0, seen_ms=9000)
        producer = partition.producers.get(5)
        assert producer is not None
        assert producer.last_timestamp == timestamp


def test_a_snapshot_comes_back_with_one_batch_of_each(partition: Partition) -> None:
    for sequence in range(3):
        partition.send(sequence, producer=1)
    partition.send(SEQUENCE_MAX, 2, producer=2, transactional=True)
    partition.end(commit=True, producer=3)
    encoded = encode_snapshot(partition.producers.items())
    assert len(encoded) == 10 + 3 * 46
    restored = Producers()
    restored.restore(decode_snapshot(encoded, "x.snapshot"), partition.producers.end)
    assert restored.end == 6
    assert restored.first_unstable == 3
    restored.check_invariants()
    windows = {producer_id: producer.window for producer_id, producer in restored.items()}
    assert windows == {
        1: [Appended(2, 2, 2, 2, 1000)],
        2: [Appended(SEQUENCE_MAX, 0, 3, 4, 1000)],
        3: [],
    }
    assert restored.check(1, 0, 3, 0, 0) is None
    assert encode_snapshot(restored.items()) == encoded


def test_producers_that_expired_are_not_restored(partition: Partition) -> None:
    partition.send(0, producer=1)
    entries = decode_snapshot(encode_snapshot(partition.producers.items()), "x")
    restored = Producers(expiration_ms=100)
    restored.restore(entries, 1, now_ms=1100)
    assert len(restored) == 0


def test_after_a_restart_an_older_batch_sent_again_is_not_fatal(partition: Partition) -> None:
    for sequence in range(4):
        partition.send(sequence)
    partition.producers.restore(decode_snapshot(encode_snapshot(partition.producers.items()), "x"), 4)
    assert partition.send(3) == (3, 3)
    assert partition.refused(1) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER  # clients take it for an acknowledgement
    assert partition.refused(5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(4) is None


def test_windows_are_filled_again_from_the_tail(partition: Partition) -> None:
    batches = [
        build([Record(value=b"x")] * 2, base_offset=2 * n, producer_id=1, producer_epoch=0, base_sequence=2 * n)
        for n in range(8)
    ]
    for batch in batches:
        partition.producers.replay(batch, read_header(batch))
    entries = decode_snapshot(encode_snapshot(partition.producers.items()), "x")
    partition.producers.restore(entries, 16)
    assert partition.producers.unread == 16
    assert [partition.producers.is_unread(1, 0, sequence) for sequence in (12, 14, 16)] == [True, False, False]
    headers = [HEADER.unpack_from(batch) for batch in batches]
    partition.producers.refill(find_older(headers, partition.producers.short_windows()))
    assert partition.producers.unread == -1
    partition.producers.check_invariants()
    assert [partition.send(2 * n, 2) for n in range(3, 8)] == [(2 * n, 2 * n + 1) for n in range(3, 8)]
    assert partition.refused(4, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(16) is None


def test_a_damaged_snapshot_is_told() -> None:
    whole = encode_snapshot([])
    for damaged in (
        b"",
        whole[:-1],
        b"\0\x02" + whole[2:],
        whole + b"x",
        bytes([*whole[:3], whole[3] ^ 1, *whole[4:]]),
    ):
        with pytest.raises(SnapshotError, match=r"x\.snapshot"):
            decode_snapshot(damaged, "x.snapshot")


def test_a_snapshot_is_read_from_its_file(partition: Partition) -> None:
    disk = SimDisk(SimRandom(1))
    disk.make_folders("/t-0")
    disk.sync_folder("/")
    partition.send(0, 5)
    disk.write_whole("/t-0/5.snapshot", encode_snapshot(partition.producers.items()))
    assert len(read_snapshot(disk, "/t-0/5.snapshot")) == 1


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=15),
    steps=st.lists(st.integers(0, 5), max_size=30),
    start=st.sampled_from([0, SEQUENCE_MAX - 5]),
)
def test_whatever_a_producer_resends_nothing_is_written_twice_and_order_is_kept(
    sizes: list[int], steps: list[int], start: int
) -> None:
    partition = Partition()
    sequences = [start]
    for size in sizes:
        sequences.append((sequences[-1] + size) & SEQUENCE_MAX)
    written: list[int] = []
    for back in steps:
        index = max(0, len(written) - back)
        if index == len(sizes):
            continue
        duplicate = partition.send(sequences[index], sizes[index])
        if index < len(written):
            assert duplicate == (written[index], written[index] + sizes[index] - 1)
        else:
            assert duplicate is None
            written.append(partition.producers.end - sizes[index])
    assert partition.producers.end == sum(sizes[: len(written)])
