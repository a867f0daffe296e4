"""What a consumer gets: whole first batches, bounds, the end it may see, and records found by time."""

import pytest
from tests.batches import GZIP, Batch, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, append, batch, send, size_of_first, values

from tidelog.log.log import Log
from tidelog.wire.batch import iterate
from tidelog.wire.errors import ErrorCode, KafkaError

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}


def filled(harness: LogHarness, count: int = 60, **settings: str) -> Log:
    """`count` batches of two records each, over several small segments, a millisecond apart."""
    log = harness.log(**{**SMALL, **settings})
    for n in range(count):
        append(log, b"%d" % n, b"second", now_ms=NOW_MS + n)
    return log


def test_every_offset_is_found_in_every_segment(harness: LogHarness) -> None:
    log = filled(harness)
    assert len(log.segments) > 3
    for offset in range(120):
        piece = log.read(offset, 1, log.log_end)
        assert piece is not None
        header = next(iterate(piece.view()))
        assert header.base_offset <= offset <= header.last_offset
        assert len(piece) == header.size


def test_the_first_batch_is_whole_whatever_the_bound(harness: LogHarness) -> None:
    log = harness.log()
    append(log, bytes(5000))
    append(log, b"b")
    piece = log.read(0, 10, log.log_end)
    assert piece is not None
    assert len(piece) == size_of_first(piece)
    assert log.read(0, 10, log.log_end, at_least_one=False) is None
    assert log.read(1, 100, log.log_end, at_least_one=False) is not None


def test_max_bytes_may_cut_a_later_batch(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(5):
        append(log, bytes(100))
    piece = log.read(0, 400, log.log_end)
    assert piece is not None
    assert len(piece) == 400


def test_nothing_at_or_above_the_end_is_seen(harness: LogHarness) -> None:
    log = filled(harness)
    for end in range(2, 121, 2):
        seen: list[int] = []
        at = 0
        while (piece := log.read(at, 1 << 20, end)) is not None:
            for header in iterate(piece.view()):
                seen.append(header.last_offset)
                at = header.next_offset
        assert seen[-1] == end - 1
        assert log.read(end, 1 << 20, end) is None
    assert log.read(7, 1 << 20, 5) is None


def test_an_end_inside_a_batch_hides_the_batch(harness: LogHarness) -> None:
    log = filled(harness, 3)
    piece = log.read(0, 1 << 20, 3)
    assert piece is not None
    assert [header.base_offset for header in iterate(piece.view())] == [0]


def test_offsets_outside_of_the_log(harness: LogHarness) -> None:
    log = filled(harness)
    log.delete_before(0)
    assert log.read(120, 100, 120) is None
    for offset in (-1, 121):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 120)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_empty_log_has_nothing_to_read(harness: LogHarness) -> None:
    log = harness.log()
    assert log.read(0, 100, 0) is None
    assert log.find_by_time(0, 0) is None
    assert log.max_timestamp() is None
    assert log.size_bytes() == 0


def test_a_reader_at_the_end_goes_on_without_a_search(harness: LogHarness) -> None:
    log = harness.log()
    at = 0
    for n in range(50):
        append(log, b"%d" % n)
        piece = log.read(at, 1 << 20, log.log_end)
        assert piece is not None
        assert [header.base_offset for header in iterate(piece.view())] == [at]
        at = log.log_end


def test_records_are_found_by_their_time(harness: LogHarness) -> None:
    log = filled(harness)
    end = log.log_end
    for n in range(60):
        assert log.find_by_time(NOW_MS + n, end) == (NOW_MS + n, 2 * n, EPOCH)
    assert log.find_by_time(0, end) == (NOW_MS, 0, EPOCH)
    assert log.find_by_time(NOW_MS + 60, end) is None
    assert log.find_by_time(NOW_MS + 30, 60) is None
    assert log.max_timestamp() == (NOW_MS + 59, 118, EPOCH)
    harness.restart()
    log = harness.log(**SMALL)
    assert [log.find_by_time(NOW_MS + n, end) for n in range(60)] == [(NOW_MS + n, 2 * n, EPOCH) for n in range(60)]
    assert log.max_timestamp() == (NOW_MS + 59, 118, EPOCH)


def test_times_that_go_back_and_forth(harness: LogHarness) -> None:
    log = harness.log(**SMALL)
    times = [5, 3, 9, 1, 9, 2, 50, 7, 49, 51, 0] * 6
    for n, delta in enumerate(times):
        append(log, b"%d" % n, now_ms=NOW_MS + delta)
    for wanted in range(52):
        first = next(n for n, delta in enumerate(times) if delta >= wanted)
        assert log.find_by_time(NOW_MS + wanted, log.log_end) == (NOW_MS + times[first], first, EPOCH)
    assert log.max_timestamp() == (NOW_MS + 51, 9, EPOCH)


def test_the_record_inside_a_compressed_batch_is_found_by_its_time(harness: LogHarness) -> None:
    log = harness.log()
    sent = [Sent(b"%d" % n, timestamp_delta=delta) for n, delta in enumerate((0, 30, 10, 20))]
    send(log, Batch(sent, codec=GZIP, base_timestamp=NOW_MS))
    assert log.find_by_time(NOW_MS + 5, 4) == (NOW_MS + 30, 1, EPOCH)
    assert log.max_timestamp() == (NOW_MS + 30, 1, EPOCH)
    log.delete_before(0)


def test_deleted_records_are_not_found_by_time(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"a", b"b", b"c")
    harness.commit(log)
    log.delete_before(2)
    assert log.find_by_time(0, 3) == (NOW_MS, 2, EPOCH)


def test_few_files_are_open_however_many_are_read(real: LogHarness) -> None:
    real.store.files.limit = 16
    logs = [real.log("tide", n) for n in range(60)]
    for round_number in range(3):
        for n, log in enumerate(logs):
            append(log, b"%d" % n)
            assert len(values(log)) == round_number + 1
        assert len(real.store.files) <= 16
    many = real.log("many", **SMALL)
    for _ in range(400):
        append(many, bytes(100))
    piece = many.read(0, 1000, many.log_end)
    assert len(values(many)) == 400
    assert len(real.store.files) <= 16
    assert piece is not None
    assert size_of_first(piece), "a slice keeps its file"


def test_missing_and_damaged_indexes_are_built_again(harness: LogHarness) -> None:
    log = filled(harness)
    expected = values(log)
    folder = log.folder
    harness.stop()
    names = [name for name in harness.disk.list_folder(folder) if name.endswith(("index", "timeindex"))]
    assert len(names) == 2 * len([name for name in harness.disk.list_folder(folder) if name.endswith(".log")])
    contents = {name: harness.disk.read_whole(f"{folder}/{name}") for name in names}
    for number, name in enumerate(names):
        damage = (None, b"\xff" * 7, b"\x7f\xff\xff\xff" * 6, b"")[number % 4]
        if damage is None:
            harness.disk.remove(f"{folder}/{name}")
        else:
            harness.disk.write_whole(f"{folder}/{name}", damage)
    harness.start()
    log = harness.log(**SMALL)
    assert values(log) == expected
    assert log.find_by_time(NOW_MS + 31, 120) == (NOW_MS + 31, 62, EPOCH)
    append(log, b"more", now_ms=NOW_MS + 61)
    harness.settle(1)
    harness.stop()
    for name in names[:-2]:
        if contents[name] and harness.disk.read_whole(f"{folder}/{name}"):
            assert harness.disk.read_whole(f"{folder}/{name}") == contents[name]


def test_the_delete_before_of_a_client_may_fall_inside_a_batch(harness: LogHarness) -> None:
    log = filled(harness)
    harness.commit(log)
    assert log.delete_before(31) == 31
    assert values(log)[0] == (31, b"second")
    with pytest.raises(KafkaError) as caught:
        log.read(30, 100, 120)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError) as caught:
        log.delete_before(121)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_before(5) == 31
    saved = harness.store.starts.saved(log)
    harness.run(lambda: saved.done)
    harness.kill()
    assert harness.log(**SMALL).log_start == 31
    harness.restart()
    log = harness.log(**SMALL)
    assert log.log_start == 31
    assert send(log, batch(b"x", at=NOW_MS + 99))[0] == 120


def test_headers_that_lie_about_their_newest_record_are_not_followed_for_ever(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(10):
        send(log, Batch([Sent()], codec=GZIP, base_timestamp=NOW_MS, max_timestamp=NOW_MS + 1000))
    send(log, Batch([Sent()], base_timestamp=NOW_MS + 500))
    assert log.find_by_time(NOW_MS, log.log_end) == (NOW_MS, 0, EPOCH)
    assert log.find_by_time(NOW_MS + 500, log.log_end) == (NOW_MS + 1000, 2, EPOCH)


def test_a_mapped_read_gives_what_a_read_gives_in_whatever_order_it_is_asked(harness: LogHarness) -> None:
    log = harness.log(index_interval_bytes="200")
    for n in range(60):
        append(log, *[b"%d" % n] * (1 + n % 3), b"x" * (90 + 17 * (n % 5)), now_ms=NOW_MS + n)
    end = log.log_end
    mapped = 0
    for at in range(3 * end):
        if at == 2 * end:  # fewer entries than where the last one was found
            log.truncate_to(end // 2)
        offset = at * 37 % end if at < end else at % end
        for bound in (1, 150, 400, 1000, 1 << 20):
            for seen in (log.log_end, 40):
                piece = log.read_mapped(offset, bound, seen)
                if piece is not None:
                    mapped += 1
                    found = log.read(offset, bound, seen)
                    assert found is not None
                    assert piece == found.view()
    assert mapped > 300
    log.go_offline("a test says so")
    assert log.read_mapped(0, 400, end) is None
