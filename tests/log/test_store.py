"""What spans logs: many of them, deleting them, and the slow check of what nobody reads."""

import pytest
from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.log.harness import EPOCH, NOW_MS, TOPIC_ID, CountingDisk, LogHarness, append, send, values
from tests.work import calls

from tidelog.log.scan import BadBatch
from tidelog.log.scrub import Scrub, check_piece
from tidelog.sim.world.disk import SimDisk
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.markers import marker_record

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "200"}


def test_a_log_is_the_same_for_everyone(harness: LogHarness) -> None:
    assert harness.log() is harness.log()
    assert harness.log("tide", 1) is not harness.log()
    assert {log.place for log in harness.store.logs()} == {"tide-0", "tide-1"}


def test_a_deleted_log_leaves_its_name_at_once_and_its_files_later(harness: LogHarness) -> None:
    log = harness.log()
    append(log, b"old")
    piece = log.read(0, 100, 1)
    harness.store.delete("tide", 0, b"another's id....")
    assert harness.log() is log
    harness.store.delete("tide", 0, TOPIC_ID)
    with pytest.raises(KafkaError) as caught:
        append(log, b"x")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    again = harness.log(topic_id=bytes(15) + b"\x02")
    assert (again.log_end, append(again, b"new")) == (0, 0)
    assert piece is not None
    assert bytes(piece.view()), "a slice under way is sent to its end"
    assert sum(name.endswith("-delete") for name in harness.disk.list_folder(harness.root)) == 1
    harness.settle(61)
    assert sum(name.endswith("-delete") for name in harness.disk.list_folder(harness.root)) == 0
    harness.restart()
    assert values(harness.log(topic_id=bytes(15) + b"\x02")) == [(0, b"new")]


def test_logs_deleted_one_after_the_other_share_syncs_of_their_folder(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    for number in range(50):
        append(sim.log("tide", number), b"value")
    sim.settle()
    before = sim.disk.syncs
    for number in range(50):  # each in a turn of its own
        sim.store.delete("tide", number, TOPIC_ID)
        sim.settle(0.0)
    sim.settle()
    assert sim.disk.syncs - before < 25
    sim.power_loss()
    assert not any(name.startswith("tide-") and not name.endswith("-delete") for name in sim.disk.list_folder(sim.root))


def test_what_was_known_of_a_deleted_log_never_counts_for_a_new_one_of_its_name(sim: LogHarness) -> None:
    log = sim.log()
    for _ in range(50):
        append(log, b"old")
    sim.flush(log)
    log.delete_before(40)
    sim.settle(1)
    for life in range(2, 6):
        sim.store.delete("tide", 0, log.topic_id)
        log = sim.log(topic_id=bytes(15) + bytes((life,)))
        append(log, b"new")
        sim.commit(log)
        sim.power_loss()
        log = sim.log(topic_id=bytes(15) + bytes((life,)))
        assert (log.offline, log.log_start, values(log)) == (None, 0, [(0, b"new")])
        for _ in range(10):
            append(log, b"more")
        sim.flush(log)


def test_a_log_on_disk_that_nobody_opened_can_be_deleted(harness: LogHarness) -> None:
    append(harness.log(), b"a")
    harness.restart()
    assert harness.store.unopened() == [("tide", 0)]
    harness.store.delete("tide", 0, TOPIC_ID)
    assert harness.store.unopened() == []
    harness.settle(1)
    assert harness.log().log_end == 0


def test_a_folder_that_no_topic_has_is_put_aside(harness: LogHarness) -> None:
    append(harness.log(), b"a")
    harness.restart()
    harness.store.put_stray_aside("tide", 0)
    harness.settle(1)
    assert any(name.endswith("-stray") for name in harness.disk.list_folder(harness.root))


def test_what_a_deletion_left_behind_goes_at_the_next_start(harness: LogHarness) -> None:
    append(harness.log(), b"a")
    harness.store.delete("tide", 0, TOPIC_ID)
    harness.stop()
    assert any(name.endswith("-delete") for name in harness.disk.list_folder(harness.root))
    harness.start()
    harness.settle(1)
    assert not any(name.endswith("-delete") for name in harness.disk.list_folder(harness.root))


def test_a_topic_with_a_name_like_a_partition(harness: LogHarness) -> None:
    append(harness.log("a-1", 2), b"x")
    append(harness.log("a", 1), b"y")
    harness.restart()
    assert sorted(harness.store.unopened()) == [("a", 1), ("a-1", 2)]
    assert values(harness.log("a-1", 2)) == [(0, b"x")]


def test_a_broken_checkpoint_means_reading_again(harness: LogHarness) -> None:
    append(harness.log(), b"a")
    harness.stop()
    harness.disk.write_whole(f"{harness.root}/recovery-point-offset-checkpoint", b"0\n17\nwhat")
    harness.start()
    assert values(harness.log()) == [(0, b"a")]


CALLS_A_LOG_MAX = 60
CALLS_A_RESTART_MAX = 1000


def test_ten_thousand_logs_that_were_never_written_cost_nothing(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    with calls() as spent:
        for n in range(10_000):
            sim.log("wide", n)
    assert spent.count < 10_000 * CALLS_A_LOG_MAX
    assert sim.folders() == []


def test_many_logs_are_stopped_and_opened_again_quickly(real: LogHarness) -> None:
    count = 1000
    for n in range(count):
        append(real.log("wide", n), b"%d" % n)
    with calls() as spent:
        real.restart()
        logs = [real.log("wide", n) for n in range(count)]
    assert spent.count < count * CALLS_A_RESTART_MAX
    assert all(log.log_end == 1 for log in logs)
    assert values(logs[777]) == [(0, b"777")]
    assert len(real.store.files) == 1


def test_the_scrub_finds_a_flipped_bit_that_nobody_reads(sim: LogHarness) -> None:
    assert isinstance(sim.disk, SimDisk)
    log, other = sim.log(**SMALL), sim.log("other", **SMALL)
    for _ in range(50):
        append(log, b"x" * 50)
        append(other, b"y" * 50)
    sim.flush(log)
    sim.flush(other)
    scrub = Scrub(sim.store.env, sim.store)
    for _ in range(20):
        scrub.step()
        sim.settle(0.2)
    assert (log.offline, other.offline) == (None, None)
    path = log.segments[1].stem + ".log"
    sim.disk.flip_bit(path, 200, 300)
    for _ in range(20):
        scrub.step()
        sim.settle(0.2)
    assert other.offline is None
    assert log.offline is not None
    assert path in log.offline


def test_the_scrub_goes_through_a_segment_in_pieces(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(20):
        append(log, b"x" * 100)
    file = log.segments.file_of(log.segments[0])
    at: tuple[int, int] | None = 0, 0
    steps = 0
    while at is not None:
        pos, least = at
        at = check_piece(file, pos, 500, (least, log.log_end))
        steps += 1
    assert steps > 4


def test_a_transaction_that_was_aborted_is_told_to_readers(harness: LogHarness) -> None:
    def marker(commit: bool) -> bytearray:
        record = marker_record(3, NOW_MS, commit=commit)
        return build([record], transactional=True, control=True, producer_id=8, producer_epoch=0)

    log = harness.log(**SMALL)
    for n, commit in enumerate((True, False, True)):
        append(log, b"plain")
        data = Batch([Sent()], producer=Producer(8, 0, n), attributes=TRANSACTIONAL, base_timestamp=NOW_MS)
        send(log, data)
        assert log.producers.first_unstable == 3 * n + 1
        made = marker(commit)
        log.append(memoryview(made), 0, len(made), EPOCH, NOW_MS, internal=True)
        log.producers.advance_high_watermark(log.log_end)
        assert log.producers.first_unstable == -1
    for ending in ("", "kill", "restart", "flush"):
        if ending == "flush":
            harness.flush(log)
        elif ending:
            getattr(harness, ending)()
        log = harness.log(**SMALL)
        harness.commit(log)
        log.producers.advance_high_watermark(log.durable_end)
        assert log.producers.first_unstable == -1
        piece = log.read(0, 1 << 20, log.log_end)
        assert piece is not None
        found = log.aborted(0, piece)
        assert [(aborted.producer_id, aborted.first_offset, aborted.last_offset) for aborted in found] == [(8, 4, 5)]


def test_when_no_more_files_may_be_opened_fewer_are_kept(sim: LogHarness) -> None:
    logs = [sim.log("tide", n) for n in range(40)]
    for log in logs:
        append(log, b"a")
    files = sim.store.files
    assert len(files) == 40
    files.shrink()
    assert (len(files), files.limit) == (20, 20)
    for log in logs:
        append(log, b"b")
        assert values(log) == [(0, b"a"), (1, b"b")]
    assert len(files) == 20
    files.shrink()
    files.shrink()
    assert files.limit == 16


def test_the_scrub_finds_offsets_that_are_wrong_though_the_checksum_is_right(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(5):
        append(log, b"x")
    file = log.segments.file_of(log.segments[0])
    assert check_piece(file, 0, 1 << 20, (0, 5)) is None
    with pytest.raises(BadBatch, match="offsets 3 to 3, between 3 and 2"):
        check_piece(file, 0, 1 << 20, (0, 3))
    with pytest.raises(BadBatch, match="offsets 0 to 0, between 1 and 4"):
        check_piece(file, 0, 1 << 20, (1, 5))
