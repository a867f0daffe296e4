"""A task's part of a batch's fingerprint: a sum of its rows' hashes, so that neither order nor cuts show in it."""

from typing import Any
from zlib import crc32

import numpy
import pyarrow

from tidelog.spark.native import packer
from tidelog.spark.sink.arrow_buffers import binary, buffers

arrow: Any = pyarrow
numbers: Any = numpy

SPREAD = 2654435761
"""An odd number that leaves no two of 2^32 the same when multiplied."""


class RowHash:
    """Counts rows and adds up their hashes: of topic, key, value, headers, and partition where one is chosen."""

    def __init__(self, topic: str | None) -> None:
        self._topic = topic
        self._native = packer()[0]
        self.rows = 0
        self.total = 0
        self.topics: set[str] = set()
        """Those that the rows name."""

    def add(self, rows: Any) -> None:
        """The rows of an Arrow batch."""
        key, value = buffers(binary(rows, "key")), buffers(binary(rows, "value"))
        seed = crc32((self._topic or "").encode())
        self.total += self._native.hash_rows(rows.num_rows, *key, *value, self._extra(rows), seed)
        self.rows += rows.num_rows

    def _extra(self, rows: Any) -> bytes:
        """What a row has besides key and value, in 32 bits; no bytes at all where no row has anything."""
        names = rows.schema.names
        bits: Any = None
        if self._topic is None and "topic" in names:
            known = rows.column("topic").dictionary_encode()
            named = known.dictionary.to_pylist()
            self.topics.update(named)
            hashes = numbers.array([crc32((name or "").encode()) for name in named] + [0])
            bits = hashes[known.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        if "partition" in names:
            chosen = rows.column("partition").cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            bits = _joined(bits, (chosen + 1) * SPREAD)
        if "headers" in names and rows.column("headers").null_count < rows.num_rows:
            bits = _joined(bits, numbers.array([_hashed(pairs) for pairs in rows.column("headers").to_pylist()]))
        return b"" if bits is None else (bits & 0xFFFFFFFF).astype(numbers.uint32).tobytes()


def _joined(bits: Any, more: Any) -> Any:
    return more if bits is None else bits ^ more


def _hashed(pairs: list[dict[str, Any] | None] | None) -> int:
    """None and no headers are the same to a record."""
    made = 0
    for pair in pairs or ():
        name, value = (None, None) if pair is None else (pair["key"], pair["value"])
        made = crc32(repr((name, value)).encode(), made)
    return made
