"""What a log takes from a producer, what it makes of it, and how it says no."""

import struct

import pytest
from tests.batches import CONTROL, GZIP, LOG_APPEND_TIME, LZ4, ZSTD, Batch, Producer, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, batch, send, values

from tidelog.log.bounds import RECORDS_MAX
from tidelog.log.validate import RecordsRefused
from tidelog.sim.world.disk import SimDisk
from tidelog.wire.batch import read_header, records
from tidelog.wire.errors import ErrorCode, KafkaError

HOUR_MS = 3_600_000


def refusal(harness: LogHarness, made: Batch | bytes, **settings: str) -> KafkaError:
    log = harness.log(**settings)
    with pytest.raises(KafkaError) as caught:
        send(log, made)
    assert log.log_end == 0
    assert log.offline is None
    return caught.value


def first_header(harness: LogHarness):
    piece = harness.log().read(0, 1 << 20, harness.log().log_end)
    assert piece is not None
    return piece.view(), read_header(piece.view())


def test_batches_get_offsets_one_after_the_other(harness: LogHarness) -> None:
    log = harness.log()
    assert send(log, batch(b"a", b"b", b"c")) == (0, 3, -1)
    assert send(log, batch(b"d")) == (3, 4, -1)
    assert (log.log_start, log.log_end) == (0, 4)
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    log.check_invariants()


def test_nothing_is_on_disk_before_the_first_write(harness: LogHarness) -> None:
    log = harness.log()
    assert harness.folders() == []
    append(log, b"a")
    names = harness.disk.list_folder(log.folder)
    assert names == ["00000000000000000000.log", "partition.metadata"]


def test_the_leader_epoch_is_stamped_and_remembered(harness: LogHarness) -> None:
    log = harness.log()
    log.lead(EPOCH)
    append(log, b"a")
    log.lead(EPOCH + 2)
    append(log, b"b", epoch=EPOCH + 2)
    assert log.epochs.entries() == [(EPOCH, 0), (EPOCH + 2, 1)]
    view, header = first_header(harness)
    assert header.leader_epoch == EPOCH
    assert read_header(view, header.end).leader_epoch == EPOCH + 2


def test_a_batch_inside_a_larger_frame_is_found_by_its_bounds(harness: LogHarness) -> None:
    data = bytearray(b"before" + batch(b"a").encode() + b"behind")
    log = harness.log()
    assert log.append(memoryview(data), 6, len(data) - 6, EPOCH, NOW_MS) == (0, 1, -1)
    assert values(log) == [(0, b"a")]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a").encode()[:40], ErrorCode.INVALID_RECORD),
        (batch(b"a").encode()[:-1], ErrorCode.INVALID_RECORD),
        (Batch([Sent()], length=13), ErrorCode.CORRUPT_MESSAGE),
        (Batch([Sent()], length=20), ErrorCode.CORRUPT_MESSAGE),
        (Batch([Sent()], magic=3), ErrorCode.CORRUPT_MESSAGE),
        (Batch([Sent()], magic=1), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], crc=1), ErrorCode.CORRUPT_MESSAGE),
        (Batch([Sent()], base_offset=5), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], base_offset=5, crc=1), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], count=2), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], count=0), ErrorCode.INVALID_RECORD),
        (Batch([], count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], last_offset_delta=7), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], attributes=6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (Batch([Sent()], attributes=CONTROL), ErrorCode.INVALID_RECORD),
        (Batch([Sent()], producer=Producer(9, 0, -1)), ErrorCode.INVALID_RECORD),
        (batch(b"a").encode() + batch(b"b").encode(), ErrorCode.INVALID_RECORD),
        (batch(b"a").encode() + Batch([Sent()], magic=9).encode(), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", at=NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"a", producer=Producer(1, -5, 0)), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_each_wrong_batch_has_its_error(sim: LogHarness, made: Batch | bytes, code: ErrorCode) -> None:
    assert refusal(sim, made).code == code
    assert sim.folders() == []


def test_bytes_behind_the_batch_that_are_no_batch_are_passed_over(harness: LogHarness) -> None:
    log = harness.log()
    assert send(log, batch(b"a").encode() + batch(b"b").encode()[:30]) == (0, 1, -1)
    append(log, b"c")
    assert values(log) == [(0, b"a"), (1, b"c")]


def test_max_message_bytes_counts_the_whole_batch(sim: LogHarness) -> None:
    fits = batch(bytes(500)).encode()
    assert refusal(sim, batch(bytes(501)), max_message_bytes=str(len(fits))).code == ErrorCode.MESSAGE_TOO_LARGE
    assert send(sim.log(), fits)[0] == 0


def test_a_batch_larger_than_a_segment_is_refused(sim: LogHarness) -> None:
    assert refusal(sim, batch(bytes(2000)), internal_segment_bytes="1000").code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_too_far_ahead_are_named_record_by_record(sim: LogHarness) -> None:
    late = Batch([Sent(), Sent(timestamp_delta=2 * HOUR_MS), Sent()], base_timestamp=NOW_MS)
    error = refusal(sim, late)
    assert isinstance(error, RecordsRefused)
    assert [place for place, _ in error.refused] == [1]


def test_a_made_up_max_timestamp_is_put_right(harness: LogHarness) -> None:
    log = harness.log()
    send(log, Batch([Sent()], base_timestamp=NOW_MS, max_timestamp=NOW_MS + 50 * HOUR_MS))
    assert first_header(harness)[1].max_timestamp == NOW_MS
    assert log.max_timestamp() == (NOW_MS, 0, EPOCH)


def test_timestamps_too_far_behind_are_refused_where_the_topic_says_so(sim: LogHarness) -> None:
    old = batch(b"a", at=NOW_MS - 10_001)
    assert refusal(sim, old, message_timestamp_before_max_ms="10000").code == ErrorCode.INVALID_TIMESTAMP
    assert append(sim.log(), b"b") == 0


def test_a_compacted_topic_wants_keys(sim: LogHarness) -> None:
    error = refusal(sim, batch(b"a", b"b"), cleanup_policy="compact")
    assert isinstance(error, RecordsRefused)
    assert (error.code, [place for place, _ in error.refused]) == (ErrorCode.INVALID_RECORD, [0, 1])
    assert send(sim.log(), batch(b"a", key=b"k"))[0] == 0


def test_records_are_walked_where_the_topic_asks_for_it(sim: LogHarness) -> None:
    broken = Batch([Sent()], body=b"\x7f" + bytes(30))
    assert refusal(sim, broken, tidelog_validate="records").code == ErrorCode.INVALID_RECORD


def test_log_append_time_dates_the_batch_without_touching_its_records(harness: LogHarness) -> None:
    log = harness.log(message_timestamp_type="LogAppendTime")
    sent = batch(b"a", b"b", at=NOW_MS - 999, codec=LZ4)
    assert send(log, sent, now_ms=NOW_MS + 5) == (0, 2, NOW_MS + 5)
    view, header = first_header(harness)
    assert header.attributes == LOG_APPEND_TIME | LZ4
    assert [record.timestamp for record in records(view, header)] == [NOW_MS + 5] * 2
    assert log.find_by_time(NOW_MS + 5, 2) == (NOW_MS + 5, 0, EPOCH)
    assert bytes(view[61:]) == sent.encode()[61:]


def test_a_producer_may_not_claim_log_append_time(sim: LogHarness) -> None:
    claimed = Batch([Sent()], attributes=LOG_APPEND_TIME, base_timestamp=NOW_MS)
    assert refusal(sim, claimed, message_timestamp_type="LogAppendTime").code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("kept", ["zstd", "gzip", "snappy", "lz4", "uncompressed"])
def test_a_topic_may_want_another_codec(sim: LogHarness, kept: str) -> None:
    log = sim.log(compression_type=kept)
    producer = Producer(4, 0, 0)
    send(log, batch(b"a" * 100, b"b" * 100, producer=producer, codec=ZSTD if kept != "zstd" else LZ4))
    send(log, batch(b"c" * 100, producer=Producer(4, 0, 2)))
    assert [value for _, value in values(log)] == [b"a" * 100, b"b" * 100, b"c" * 100]
    _, header = first_header(sim)
    assert header.codec == {"zstd": 4, "gzip": 1, "snappy": 2, "lz4": 3, "uncompressed": 0}[kept]
    assert (header.producer_id, header.base_sequence, header.record_count) == (4, 0, 2)


def test_recompression_counts_against_max_message_bytes(sim: LogHarness) -> None:
    squeezed = batch(bytes(100_000), codec=ZSTD)
    settings = {"compression_type": "uncompressed", "max_message_bytes": "50000"}
    assert refusal(sim, squeezed, **settings).code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_resent_batch_gets_its_first_offsets_again(harness: LogHarness) -> None:
    log = harness.log()
    sent = [batch(b"%d" % n, producer=Producer(1, 0, n), at=NOW_MS + n) for n in range(6)]
    for n, one in enumerate(sent):
        assert send(log, one) == (n, n + 1, -1)
    for n in range(1, 6):
        assert send(log, sent[n]) == (n, n + 1, NOW_MS + n)
    assert log.log_end == 6
    with pytest.raises(KafkaError) as caught:
        send(log, batch(b"x", producer=Producer(1, 0, 9)))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_new_settings_hold_from_the_next_append_on(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a")
    log.configure(harness.topic({"max_message_bytes": "10"}))
    with pytest.raises(KafkaError):
        append(log, b"b")
    log.configure(harness.topic({}))
    assert append(log, b"c") == 1


def test_a_follower_takes_batches_with_the_offsets_they_have(harness: LogHarness) -> None:
    log = harness.log()
    made = b"".join(
        Batch([Sent(b"x")] * 3, base_offset=base, leader_epoch=epoch, base_timestamp=NOW_MS).encode()
        for base, epoch in ((0, 1), (3, 1), (9, 4))
    )
    assert log.append_records(memoryview(bytearray(made)), 0, len(made), NOW_MS) == (0, 12)
    assert log.epochs.entries() == [(1, 0), (4, 9)]
    assert [offset for offset, _ in values(log)] == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    again = bytearray(made)
    with pytest.raises(KafkaError) as caught:
        log.append_records(memoryview(again), 0, len(again), NOW_MS)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    struct.pack_into(">q", again, 0, 12)
    again[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_records(memoryview(again), 0, len(again), NOW_MS)
    assert caught.value.code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE)


def test_a_batch_of_more_records_than_anyone_sends_is_refused(harness: LogHarness) -> None:
    log = harness.log()
    claimed = Batch([Sent()], codec=GZIP, base_timestamp=NOW_MS, count=RECORDS_MAX, last_offset_delta=RECORDS_MAX - 1)
    assert send(log, claimed)[:2] == (0, RECORDS_MAX)
    claimed = Batch([Sent()], codec=GZIP, base_timestamp=NOW_MS, count=RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX)
    with pytest.raises(KafkaError, match="1000001 records; 1000000 are allowed") as refused:
        send(log, claimed)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_a_log_that_was_empty_knows_its_producers_without_reading_what_was_written(sim: LogHarness) -> None:
    log = sim.log()
    append(log, b"from nobody in particular")
    assert isinstance(sim.disk, SimDisk)
    sim.disk.flip_bit(log.segments[0].stem + ".log", 16, 17)  # its magic: whoever reads the batch takes the log offline
    assert len(log.producers) == 0
    sim.flush(log)
    assert (log.recovery_point, log.offline) == (1, None)
