"""Compacted logs in stories: keyed records written, a cleaning awaited, and what a reader finds afterwards."""

from collections.abc import Callable

from tests.batches import ANYONE, TRANSACTIONAL, Batch, Producer, Sent
from tests.log.harness import EPOCH, NOW_MS, LogHarness, send

from tidelog.log.log import Log
from tidelog.wire.batch import BatchHeader, build, iterate, records
from tidelog.wire.markers import marker_record
from tidelog.wire.record import Record

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "file_delete_delay_ms": "1000"}


def compacted(harness: LogHarness, **settings: str) -> Log:
    return harness.log(**{**COMPACT, **settings})


def put(
    log: Log,
    *pairs: tuple[bytes | None, bytes | None],
    now_ms: int = NOW_MS,
    producer: Producer = ANYONE,
    codec: int = 0,
    transactional: bool = False,
) -> int:
    """Append one batch of (key, value); its base offset."""
    made = Batch([Sent(value, key=key) for key, value in pairs], producer=producer, codec=codec, base_timestamp=now_ms)
    if transactional:
        made.attributes = codec | TRANSACTIONAL
    return send(log, made, now_ms=now_ms)[0]


def end(log: Log, producer: Producer, *, commit: bool, now_ms: int = NOW_MS) -> int:
    """Write the marker that ends the producer's transaction; its offset."""
    marker = build(
        [marker_record(1, now_ms, commit=commit)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transactional=True,
        control=True,
    )
    return log.append(memoryview(marker), 0, len(marker), EPOCH, now_ms, internal=True)[0]


def roll(harness: LogHarness, log: Log) -> None:
    """Seal what was written, make it durable, and tell of that as a replica does."""
    log.roll(harness.now_ms())
    harness.flush(log)
    log.producers.advance_high_watermark(log.durable_end)


def clean(harness: LogHarness, log: Log) -> None:
    """Look once for what is due, and wait until nothing is under way any more."""
    cleaner = harness.store.upkeep.cleaner
    cleaner.look()
    harness.run(lambda: cleaner.idle)
    log.check_invariants()
    harness.settle(2.0)


def headers(log: Log, accept: Callable[[BatchHeader], bool] = lambda _: True) -> list[BatchHeader]:
    """Of every batch that is there, as it stands in the files."""
    found: list[BatchHeader] = []
    for number, segment in enumerate(log.segments):
        log.segments.look(segment, number)
        data = log.segments.file_of(segment).read(0, segment.size)
        found += [header for header in iterate(data) if accept(header)]
    return found


def contents(log: Log, *, control: bool = False) -> list[Record]:
    """Every record from the log's start on, read piece by piece as a consumer does, markers included if asked for."""
    found: list[Record] = []
    at = log.log_start
    while (piece := log.read(at, 1 << 16, log.log_end)) is not None:
        view = piece.view()
        for header in iterate(view):
            if control or not header.control:
                found += [record for record in records(view, header) if record.offset >= at]
            at = header.next_offset
    return found


def table(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader who keeps the last value of each key ends with; tombstones stay as None."""
    return {record.key: record.value for record in contents(log)}


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in contents(log)]
