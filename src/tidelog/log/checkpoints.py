"""The small text files beside the logs, in Kafka's format: how far each log is flushed, started, replicated.

Each is replaced atomically by `Disk.write_whole`. A malformed one, which an empty one is too, raises `CheckpointError`,
which names file and line: what then happens (start empty, take the folder offline) is the caller's decision.
"""

from collections.abc import Iterable, Mapping

from tidelog.env.disk import Disk
from tidelog.wire.topic_partition import TopicPartition
from tidelog.wire.uuids import ZERO_UUID, uuid_bytes, uuid_text

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
REPLICATION = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = 0


class CheckpointError(Exception):
    """A checkpoint file can't be read as one. The message names the file, the line and what stands there."""


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """(topic, partition) -> offset; empty where the file is missing."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in _read_entries(disk, path):
        parts = line.split()
        if len(parts) != 3:
            raise _malformed(path, number, line, "topic, partition and offset")
        offsets[parts[0], _number(path, number, line, parts[1])] = _number(path, number, line, parts[2])
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    _write_entries(disk, path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """(leader epoch, start offset) in the file's order; empty where the file is missing."""
    entries: list[tuple[int, int]] = []
    for number, line in _read_entries(disk, path):
        parts = line.split()
        if len(parts) != 2:
            raise _malformed(path, number, line, "leader epoch and start offset")
        entries.append((_number(path, number, line, parts[0]), _number(path, number, line, parts[1])))
    return entries


def write_epochs(disk: Disk, path: str, entries: Iterable[tuple[int, int]]) -> None:
    _write_entries(disk, path, [f"{epoch} {start}" for epoch, start in entries])


def read_partition_metadata(disk: Disk, path: str) -> bytes | None:
    """The topic id of a partition's folder; None where the file is missing."""
    text = _read_text(disk, path)
    if text is None:
        return None
    values: list[str] = []
    for number, (line, name) in enumerate(zip(_padded(text, 2), ("version", "topic_id"), strict=True), 1):
        found, colon, value = line.partition(":")
        if not colon or found.strip() != name:
            raise _malformed(path, number, line, f"`{name}: <value>`")
        values.append(value.strip())
    if _number(path, 1, text, values[0]) < _VERSION:
        raise _malformed(path, 1, values[0], f"a version of {_VERSION} or more")
    try:
        topic_id = uuid_bytes(values[1])
    except ValueError:
        raise _malformed(path, 2, values[1], "a topic id (22 characters of url-safe base64)") from None
    if topic_id == ZERO_UUID:
        raise _malformed(path, 2, values[1], "a topic id other than zero")
    return topic_id


def partition_metadata(topic_id: bytes) -> bytes:
    """What a partition's folder says of whose it is."""
    return f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def write_partition_metadata(disk: Disk, path: str, topic_id: bytes) -> None:
    disk.write_whole(path, partition_metadata(topic_id))


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """The broker epoch of a clean shutdown: -1 where the mark doesn't tell it, None where there is no mark."""
    text = _read_text(disk, path)
    if text is None:
        return None
    import json

    try:
        epoch = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    disk.write_whole(path, f'{{"version":{_VERSION},"brokerEpoch":{broker_epoch}}}'.encode())


def _write_entries(disk: Disk, path: str, lines: list[str]) -> None:
    disk.write_whole(path, "\n".join((str(_VERSION), str(len(lines)), *lines, "")).encode())


def _read_entries(disk: Disk, path: str) -> Iterable[tuple[int, str]]:
    """(line number, line) of each entry, after version and count were checked."""
    text = _read_text(disk, path)
    if text is None:
        return ()
    lines = _padded(text, 2)
    if _number(path, 1, lines[0], lines[0]) != _VERSION:
        raise _malformed(path, 1, lines[0], f"version {_VERSION}")
    count = _number(path, 2, lines[1], lines[1])
    lines = text.splitlines()
    if count != len(lines) - 2:
        raise _malformed(path, 2, lines[1], f"the number of entries, {len(lines) - 2}")
    if not text.endswith("\n"):  # digits may be missing
        raise _malformed(path, len(lines), lines[-1], "a whole line, with its end")
    return enumerate(lines[2:], 3)


def _read_text(disk: Disk, path: str) -> str | None:
    try:
        data = disk.read_whole(path)
    except FileNotFoundError:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"{path} is no checkpoint file: it isn't UTF-8 text") from None


def _padded(text: str, count: int) -> list[str]:
    lines = text.splitlines()[:count]
    return lines + [""] * (count - len(lines))


def _number(path: str, number: int, line: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _malformed(path, number, line, "a number") from None


def _malformed(path: str, number: int, line: str, expected: str) -> CheckpointError:
    return CheckpointError(f"{path} line {number} should hold {expected}, but reads {line[:100]!r}")
