"""The files of a data folder as plain entries: what `tidelog log dump` shows.

Nothing is locked or changed, so a running broker's folder can be looked at too. An entry is a dict of what one batch,
record, index slot or line says; `problem` in it names what is wrong there.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tidelog.cli.dump_metadata import metadata_record
from tidelog.cli.record_text import bytes_to_json, headers_to_json
from tidelog.env.disk import ReadableFile
from tidelog.env.real_disk import RealDisk
from tidelog.log.aborted import AbortedIndex
from tidelog.log.checkpoints import read_epochs, read_offsets
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.journal import VOIDS, file_number
from tidelog.log.journal_blocks import damage_at, read_blocks
from tidelog.log.names import parse_partition_folder
from tidelog.log.producer_snapshot import read_snapshot
from tidelog.log.scan import BadBatch, batch_at, batches
from tidelog.wire.batch import BatchHeader, records
from tidelog.wire.errors import KafkaError
from tidelog.wire.record import Record
from tidelog.wire.uuids import uuid_text

Entry: TypeAlias = dict[str, Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
METADATA_TOPIC = "__cluster_metadata"

_disk = RealDisk()


def dump_file(path: str, *, with_records: bool) -> tuple[str, Iterator[Entry]] | None:
    """(what the file is, its entries); None for a file that is none of ours."""
    name = os.path.basename(path)
    if name.endswith((".log", ".checkpoint")):
        kind = "metadata snapshot" if name.endswith(".checkpoint") else "segment"
        return kind, segment(path, with_records=with_records or kind == "metadata snapshot")
    if file_number(name) is not None:
        return "journal", _journal(path, with_records=with_records)
    for suffix, (kind, read) in _BY_SUFFIX.items():
        if name.endswith(suffix):
            return kind, read(path)
    return None


def segment(path: str, *, with_records: bool) -> Iterator[Entry]:
    """Batches with their checksums looked at, and their records where asked; the last entry names a broken end."""
    folder = os.path.basename(os.path.dirname(path))
    metadata = path.endswith(".checkpoint") or (parse_partition_folder(folder) or ("", 0))[0] == METADATA_TOPIC
    file = _disk.open(path)
    try:
        for position, fields in batches(file, 0, file.size(), check=True):
            header = BatchHeader(*fields, position)
            yield batch_entry(header)
            if with_records:
                view, whole = batch_at(file, position, fields)
                yield from _records(view, whole, metadata)
    except BadBatch as error:
        yield {"position": error.pos, "problem": error.reason}


def batch_entry(header: BatchHeader) -> Entry:
    entry: Entry = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": header.pos,
        "bytes": header.size,
        "leader_epoch": header.leader_epoch,
        "compression": CODECS[header.codec] if header.codec < len(CODECS) else str(header.codec),
        "timestamp_type": "append" if header.timestamp_type else "create",
        "max_timestamp": header.max_timestamp,
        "crc": header.crc,
    }
    if header.producer_id >= 0:
        entry |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
        }
    if header.transactional:
        entry["transactional"] = True
    if header.control:
        entry["control"] = True
    return entry


def _records(view: memoryview, header: BatchHeader, metadata: bool) -> Iterator[Entry]:
    try:
        for record in records(view, header):
            yield {"offset": record.offset, "timestamp": record.timestamp, **_content(record, header, metadata)}
    except (KafkaError, ValueError) as error:
        yield {"offset": header.base_offset, "problem": str(error)}


def _content(record: Record, header: BatchHeader, metadata: bool) -> Entry:
    if metadata or header.control:
        return metadata_record(record, control=header.control)
    return {
        **bytes_to_json("key", record.key),
        **bytes_to_json("value", record.value),
        "headers": headers_to_json(list(record.headers)),
    }


def _journal(path: str, *, with_records: bool) -> Iterator[Entry]:
    """What each block has of each log. Blocks of an earlier use of the file lie behind the last, and don't count."""
    file = _disk.open(path)
    end, newest = 0, -1
    for block in read_blocks(file):
        end, newest = block.end, block.number
        for entry in block.entries:
            yield {
                "block": block.number,
                "topic": entry.topic,
                "partition": entry.partition,
                "topic_id": uuid_text(entry.topic_id),
                "segment": entry.segment_base,
                "start_offset": entry.start,
                "end_offset": entry.end,
                "position": entry.position,
                "bytes": entry.size,
            }
            if with_records:
                yield from _batches(file, entry.position, entry.position + entry.size)
    damage = damage_at(file, end, newest)
    if damage is not None:
        yield {"position": end, "problem": damage}


def _batches(file: ReadableFile, start: int, end: int) -> Iterator[Entry]:
    try:
        for position, fields in batches(file, start, end, check=True):
            yield batch_entry(BatchHeader(*fields, position))
            view, header = batch_at(file, position, fields)
            yield from _records(view, header, metadata=False)
    except BadBatch as error:
        yield {"position": error.pos, "problem": error.reason}


def _offset_index(path: str) -> Iterator[Entry]:
    base = int(os.path.basename(path).partition(".")[0])
    for relative, position in OFFSET_ENTRY.iter_unpack(_whole_entries(path, OFFSET_ENTRY.size)):
        if not position:
            return  # room that Kafka reserved and did not fill
        yield {"offset": base + relative, "position": position}


def _time_index(path: str) -> Iterator[Entry]:
    base = int(os.path.basename(path).partition(".")[0])
    for timestamp, relative in TIME_ENTRY.iter_unpack(_whole_entries(path, TIME_ENTRY.size)):
        if not timestamp:
            return
        yield {"timestamp": timestamp, "offset": base + relative}


def _whole_entries(path: str, size: int) -> bytes:
    data = _disk.read_whole(path)
    return data[: len(data) - len(data) % size]


def _aborted(path: str) -> Iterator[Entry]:
    for entry in AbortedIndex(_disk, path).entries():
        yield entry._asdict()


def _producers(path: str) -> Iterator[Entry]:
    for producer_id, producer in read_snapshot(_disk, path):
        entry: Entry = {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_first_offset": producer.txn_first_offset,
        }
        if producer.window:
            entry |= {"last_sequence": producer.last_sequence, "last_offset": producer.window[-1].last_offset}
        yield entry


def _epochs(path: str) -> Iterator[Entry]:
    for epoch, start in read_epochs(_disk, path):
        yield {"leader_epoch": epoch, "start_offset": start}


def _offsets(path: str) -> Iterator[Entry]:
    for (topic, partition), offset in sorted(read_offsets(_disk, path).items()):
        yield {"topic": topic, "partition": partition, "offset": offset}


def _voids(path: str) -> Iterator[Entry]:
    """Up to which block nothing counts of a log."""
    for (topic, partition), number in sorted(read_offsets(_disk, path).items()):
        yield {"topic": topic, "partition": partition, "block": number}


def _properties(path: str) -> Iterator[Entry]:
    """Lines of name=value, or name: value; comments left out."""
    for line in _disk.read_whole(path).decode(errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition("=") if "=" in line else line.partition(":")
            yield {name.strip(): value.strip()}


def _json_file(path: str) -> Iterator[Entry]:
    import json

    yield json.loads(_disk.read_whole(path))


_BY_SUFFIX: dict[str, tuple[str, Callable[[str], Iterator[Entry]]]] = {
    ".index": ("offset index", _offset_index),
    ".timeindex": ("time index", _time_index),
    ".txnindex": ("aborted transactions", _aborted),
    ".snapshot": ("producer snapshot", _producers),
    "leader-epoch-checkpoint": ("leader epochs", _epochs),
    "-offset-checkpoint": ("offsets checkpoint", _offsets),
    VOIDS: ("void blocks of a journal", _voids),
    "partition.metadata": ("partition metadata", _properties),
    "meta.properties": ("folder properties", _properties),
    "quorum-state": ("quorum state", _json_file),
    ".kafka_cleanshutdown": ("clean shutdown mark", _json_file),
}
