"""A clean stop of many logs: little is saved of most of them, nothing is missing, and the loop isn't held."""

from pathlib import Path

import pytest
from tests.batches import Producer
from tests.log.harness import EPOCH, NOW_MS, CountingDisk, LogHarness, append, values

from tidelog.log import clean_stop
from tidelog.log.log import Log
from tidelog.log.names import OFFSET_INDEX, SNAPSHOT, TIME_INDEX

LOGS = 30
SAVED = 16  # as many as are prepared in one step


@pytest.fixture(autouse=True)
def few_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_stop, "STOP_SAVED_MAX", SAVED)


def logs(harness: LogHarness) -> list[Log]:
    return [harness.log("tide", number) for number in range(LOGS)]


def names(harness: LogHarness, log: Log) -> list[str]:
    return [name.lstrip("0") for name in harness.disk.list_folder(log.folder)]


def written(harness: LogHarness) -> list[Log]:
    """The last ones have more batches than the others."""
    made = logs(harness)
    for number, log in enumerate(made):
        append(log, b"first", producer=Producer(number, 0, 0))
        if number >= LOGS - SAVED:
            append(log, b"second", producer=Producer(number, 0, 1))
    return made


def test_logs_with_little_to_read_keep_their_batches_only(harness: LogHarness) -> None:
    made = written(harness)
    harness.stop()
    few = names(harness, made[0])
    assert few == [".log", "partition.metadata"]
    assert names(harness, made[-1]) == [
        ".index",
        ".log",
        ".timeindex",
        "2.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert sum(names(harness, log) == few for log in made) == LOGS - SAVED
    harness.start()


def test_all_that_was_known_of_them_is_known_again(harness: LogHarness, caplog: pytest.LogCaptureFixture) -> None:
    ends = [(log.log_end, values(log), log.epochs.entries()) for log in written(harness)]
    harness.restart()
    assert harness.store.recoveries.clean
    again = logs(harness)
    assert [(log.log_end, values(log), log.epochs.entries()) for log in again] == ends
    assert [log.recovery_point for log in again] == [log.log_end for log in again]
    assert append(again[0], b"first", producer=Producer(0, 0, 0)) == 0, "it was sent before"
    assert append(again[0], b"second", producer=Producer(0, 0, 1)) == 1
    assert not harness.store.upkeep.dirty[1:], "nothing is to be done for the others"
    assert not caplog.records


def test_a_power_loss_after_the_stop_takes_nothing(sim: LogHarness) -> None:
    known = [values(log) for log in written(sim)]
    sim.stop()
    sim.power_loss()
    assert sim.store.recoveries.clean
    assert [values(log) for log in logs(sim)] == known


def test_a_crash_after_such_a_stop_and_more_batches_loses_nothing(sim: LogHarness) -> None:
    written(sim)
    sim.restart()
    made = logs(sim)
    for number, log in enumerate(made):
        append(log, b"third", producer=Producer(number, 0, 2 if number >= LOGS - SAVED else 1), epoch=EPOCH + 1)
        sim.commit(log)
    known = [(values(log), log.epochs.entries()) for log in made]
    sim.power_loss()
    again = logs(sim)
    assert [(values(log), log.epochs.entries()) for log in again] == known
    assert append(again[0], b"third", producer=Producer(0, 0, 1)) == 1, "it was sent before"


def test_of_a_log_that_was_flushed_before_all_but_the_producers_is_saved(harness: LogHarness) -> None:
    """Apache Kafka takes an index that is there for whole, up to the newest time, and so it does leader epochs."""
    log = written(harness)[0]
    harness.flush(log)
    append(log, b"later", now_ms=NOW_MS + 5, producer=Producer(0, 0, 1), epoch=EPOCH + 1)
    harness.stop()
    assert [name for name in names(harness, log) if name.endswith(SNAPSHOT)] == ["1.snapshot"]
    times = harness.disk.read_whole(f"{log.folder}/{0:020d}{TIME_INDEX}")
    assert (times[-12:-4], times[-4:]) == ((NOW_MS + 5).to_bytes(8), (1).to_bytes(4))
    assert harness.disk.read_whole(f"{log.folder}/leader-epoch-checkpoint") == b"0\n2\n7 0\n8 1\n"
    harness.start()
    again = harness.log("tide", 0)
    assert append(again, b"later", producer=Producer(0, 0, 1), epoch=EPOCH + 1) == 1, "it was sent before"
    assert len(values(again)) == 2


def test_a_time_index_is_written_over_and_not_cut_to_nothing(real: LogHarness) -> None:
    log = real.log()
    for number in range(3):
        append(log, b"value", now_ms=NOW_MS + number)
        real.restart()
        log = real.log()
        path = Path(f"{log.folder}/{0:020d}{TIME_INDEX}")
        assert path.read_bytes() == (NOW_MS + number).to_bytes(8) + number.to_bytes(4)
        assert Path(f"{log.folder}/{0:020d}{OFFSET_INDEX}").read_bytes() == b""


def test_a_stop_syncs_as_little_for_many_logs_as_for_a_few(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    written(sim)
    before = sim.disk.syncs
    sim.stop()
    assert sim.disk.syncs - before <= 20, "three of everything, the checkpoints and the mark"
    sim.start()


def test_where_everything_fails_to_be_synced_the_folder_is_not_marked(sim: LogHarness) -> None:
    assert isinstance(sim.disk, CountingDisk)
    written(sim)
    sim.disk.failing_syncs = 1
    sim.stop()
    sim.start()
    assert not sim.store.recoveries.clean
    assert len(values(sim.log("tide", LOGS - 1))) <= 2
