"""The bytes of a journal (journal.py): blocks, each of which holds batches of several logs. Pure.

A block is there or not: it has a checksum over all of it, and a number, which is higher than that of the block before
it in the file. What is left of an earlier use of the file has lower numbers. Blocks begin at multiples of `ALIGNMENT`,
so that writing one never touches a sector of another.

    block:  magic, checksum of what follows, number, bytes of what follows, how many topics and entries
    topic:  id, bytes of the name; then the name
    entry:  which topic, partition, base of the segment, offsets from and to relative to that, bytes of its batches;
            then these
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.log.scan import read_fields
from tidelog.wire.batch import ATTRIBUTES_AT, HEADER_BYTES, MAGIC
from tidelog.wire.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.env.disk import ReadableFile
    from tidelog.env.network import Buffer
    from tidelog.wire.topic_partition import TopicPartition

ALIGNMENT = 4096
BLOCK_MAGIC = b"TLJ1"

_BLOCK = Struct(">4sIQIHI")
_CHECKED_FROM = 8
_TOPIC = Struct(">16sH")
_ENTRY = Struct(">HiqIII")


class Piece(NamedTuple):
    """Batches of a log that follow each other in one segment: those of the offsets from `start` up to `end`."""

    topic: str
    topic_id: bytes
    partition: int
    segment_base: int
    start: int
    end: int
    data: bytes


class Entry(NamedTuple):
    """Where such batches lie in a journal, and in which block."""

    number: int
    topic: str
    topic_id: bytes
    partition: int
    segment_base: int
    start: int
    end: int
    path: str
    position: int
    size: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


class Block(NamedTuple):
    """A block that is whole, from `start` on: `end` is where the next one begins."""

    number: int
    start: int
    end: int
    entries: list[Entry]


def entry_bytes(topic: str, size: int) -> int:
    """What batches of so many bytes take in a block, at most."""
    return _TOPIC.size + 4 * len(topic) + _ENTRY.size + size


def block_bytes(contents: int) -> int:
    """What a block takes whose topics and entries take so many bytes."""
    return -(-(_BLOCK.size + contents) // ALIGNMENT) * ALIGNMENT


def encode_block(number: int, pieces: list[Piece]) -> bytes:
    topics: dict[tuple[bytes, str], int] = {}
    entries: list[bytes] = []
    for piece in pieces:
        topic, base = topics.setdefault((piece.topic_id, piece.topic), len(topics)), piece.segment_base
        entries.append(_ENTRY.pack(topic, piece.partition, base, piece.start - base, piece.end - base, len(piece.data)))
        entries.append(piece.data)
    names: list[bytes] = []
    for topic_id, name in topics:
        encoded = name.encode()
        names += (_TOPIC.pack(topic_id, len(encoded)), encoded)
    contents = b"".join((*names, *entries))
    checked = _BLOCK.pack(BLOCK_MAGIC, 0, number, len(contents), len(topics), len(pieces))[_CHECKED_FROM:]
    checksum = crc32c(contents, crc32c(checked))
    block = b"".join((BLOCK_MAGIC, checksum.to_bytes(4), checked, contents))
    return block.ljust(block_bytes(len(contents)), b"\0")


def read_blocks(file: ReadableFile) -> Iterator[Block]:
    """Those from the beginning of the file on, up to the first that isn't whole, or is older."""
    at, last = 0, -1
    while (block := _read_block(file, at, last)) is not None:
        yield block
        at, last = block.end, block.number


def damage_at(file: ReadableFile, at: int, last: int) -> str | None:
    """Why what is at `at`, where sound blocks end, can't be what a power loss leaves; None where it can.

    One block is written at a time, so behind a torn one nothing is newer than `last`, the newest block before it.
    """
    size, head = file.size(), file.read(at, _BLOCK.size)
    if len(head) == _BLOCK.size:
        magic, _, number, length, _, _ = _BLOCK.unpack(head)
        if magic == BLOCK_MAGIC and number > last and at + _BLOCK.size + length > size:
            return "a block goes on behind the end of the file"
    for behind in range(at + ALIGNMENT, size, ALIGNMENT):
        if _read_block(file, behind, last) is not None:
            return "a block is damaged, and sound ones are behind it"
    return None


def _read_block(file: ReadableFile, at: int, last: int) -> Block | None:
    """The one at this place, if it is whole and newer than block `last`."""
    head = file.read(at, _BLOCK.size)
    if len(head) < _BLOCK.size:
        return None
    magic, checksum, number, length, topics, entries = _BLOCK.unpack(head)
    if magic != BLOCK_MAGIC or number <= last or at + _BLOCK.size + length > file.size():
        return None
    body = file.read(at + _BLOCK.size, length)
    if len(body) < length or crc32c(body, crc32c(head[_CHECKED_FROM:])) != checksum:
        return None
    found = _entries(file.path, number, at + _BLOCK.size, body, topics, entries)
    return Block(number, at, at + block_bytes(length), found)


def _entries(path: str, number: int, at: int, body: bytes, topics: int, count: int) -> list[Entry]:
    names: list[tuple[bytes, str]] = []
    pos = 0
    for _ in range(topics):
        topic_id, size = _TOPIC.unpack_from(body, pos)
        pos += _TOPIC.size
        names.append((topic_id, body[pos : pos + size].decode()))
        pos += size
    entries: list[Entry] = []
    for _ in range(count):
        topic, partition, base, start, end, size = _ENTRY.unpack_from(body, pos)
        pos += _ENTRY.size
        topic_id, name = names[int(topic)]
        entries.append(Entry(number, name, topic_id, partition, base, base + start, base + end, path, at + pos, size))
        pos += size
    return entries


class Found(NamedTuple):
    """A batch in a buffer: where it is, and what tells it from another one of the same offsets."""

    pos: int
    base: int
    end: int
    crc: int
    leader_epoch: int


def batches_of(data: Buffer) -> list[Found] | None:
    """The batches that `data` is made of; None where it isn't whole and sound batches of rising offsets."""
    view = memoryview(data)
    found: list[Found] = []
    pos, next_offset = 0, -1
    while pos < len(view):
        if len(view) - pos < HEADER_BYTES:
            return None
        fields = read_fields(view, pos)
        end = pos + fields.size
        if (
            fields.magic != MAGIC
            or fields.size < HEADER_BYTES
            or end > len(view)
            or fields.last_offset_delta < 0
            or fields.base_offset < next_offset
            or crc32c(view[pos + ATTRIBUTES_AT : end]) != fields.crc
        ):
            return None
        next_offset = fields.last_offset + 1
        found.append(Found(pos, fields.base_offset, next_offset, fields.crc, fields.leader_epoch))
        pos = end
    return found
