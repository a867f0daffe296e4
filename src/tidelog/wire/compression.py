"""The payload of a record batch, squeezed and inflated: gzip, snappy, lz4 and zstd as Kafka's clients write them.

Nothing here trusts a length that the data claims: the output grows by doubling, from the size of the input, and stops
at the limit. `CompressionError` says what is wrong; the caller decides which protocol error that is.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Any, cast

from tidelog.env.network import Buffer


class Codec(IntEnum):
    """The codec's number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The names of topic config `compression.type`, but for `producer`."""

_INT = Struct(">i")
_LITTLE_UINT = Struct("<I")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES = 32 * 1024  # what the Java client writes
_SNAPPY_RATIO_MAX = 24  # a snappy copy makes at most 64 bytes out of 3
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_HEADER = (
    b"\x04\x22\x4d\x18\x60\x40\x82"  # independent blocks of 64 KB, no checksums: all that the Java client reads
)
_LZ4_STORED = 1 << 31
_GROWTH_START_BYTES = 64 * 1024
_GZIP_CHUNK_BYTES = 16 * 1024
_PIECES_LEAST = 1024
_PIECE_BYTES = 8 * 1024  # of gzip's members and snappy's blocks on average, at least; clients write 32 KB and more
_OUTPUT_FULL = "failed to write whole buffer"


class CompressionError(ValueError):
    """The data is not what its codec says, or inflates beyond the limit."""


class InflatesTooLarge(CompressionError):
    """The data inflates beyond the limit."""


def _cramjam() -> Any:
    """Loaded on first use: a broker that only stores what it is sent never needs it."""
    import cramjam

    return cast(Any, cramjam)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` squeezed by `codec`; `level` is the codec's own (gzip 1-9, lz4 1-17, zstd -7 to 22)."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        squeezer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return squeezer.compress(data) + squeezer.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.ZSTD:
        return bytes(_cramjam().zstd.compress(data, level=3 if level is None else level))
    raise CompressionError(f"unknown compression codec {codec}; 0 to 4 are known")


def decompress(codec: int, data: Buffer, limit: int) -> bytes | bytearray:
    """`data` inflated, at most `limit` bytes of it; more raises `InflatesTooLarge`."""
    if codec == Codec.NONE:
        if len(data) > limit:
            raise _too_large(limit)
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_gzip(data, limit)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    if codec == Codec.LZ4:
        return _decompress_growing("lz4", data, limit)
    if codec == Codec.ZSTD:
        return _decompress_growing("zstd", data, limit)
    raise CompressionError(f"unknown compression codec {codec}; 0 to 4 are known")


def _pieces_max(limit: int) -> int:
    """How many members or blocks there may be: those that hold next to nothing take time all the same."""
    return _PIECES_LEAST + limit // _PIECE_BYTES


def _too_many_pieces(limit: int) -> CompressionError:
    return CompressionError(
        f"compressed data is in more than the {_pieces_max(limit)} pieces that {limit} bytes are allowed"
    )


def _too_large(limit: int) -> InflatesTooLarge:
    return InflatesTooLarge(f"compressed data inflates to more than the {limit} bytes allowed")


def _compress_xerial(data: Buffer) -> bytes:
    """The framing that snappy-java writes: a header, then blocks of 32 KB, each with its length."""
    squeeze = _cramjam().snappy.compress_raw
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(squeeze(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """A frame of independent blocks: the Java client refuses linked ones, which is what most libraries write."""
    squeeze = _cramjam().lz4.compress_block
    options: dict[str, object] = {"store_size": False}
    if level is not None:
        options |= {"mode": "high_compression", "compression": level}
    view = memoryview(data)
    parts: list[bytes] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        squeezed = bytes(squeeze(block, **options))
        if len(squeezed) < len(block):
            parts.append(_LITTLE_UINT.pack(len(squeezed)))
            parts.append(squeezed)
        else:
            parts.append(_LITTLE_UINT.pack(len(block) | _LZ4_STORED))
            parts.append(bytes(block))
    parts.append(bytes(4))
    return b"".join(parts)


def _decompress_gzip(data: Buffer, limit: int) -> bytes | bytearray:
    """Members that follow each other are one text. Fed in pieces: what is behind a member is copied with its end."""
    view = memoryview(data)
    out = bytearray()
    pos, end, left = 0, len(view), _pieces_max(limit)
    while True:
        inflater = zlib.decompressobj(31)
        while not inflater.eof:
            chunk = view[pos : pos + _GZIP_CHUNK_BYTES]
            if not chunk:
                raise CompressionError("corrupt gzip data: it ends too early")
            try:
                part = inflater.decompress(chunk, limit - len(out) + 1)
            except zlib.error as error:
                raise CompressionError(f"corrupt gzip data: {error}") from None
            pos += len(chunk)
            if len(out) + len(part) > limit:
                raise _too_large(limit)
            if inflater.eof and not out and pos - len(inflater.unused_data) == end:
                return part
            out += part
        pos -= len(inflater.unused_data)
        left -= 1
        if pos == end:
            return out
        if not left:
            raise _too_many_pieces(limit)


def _decompress_snappy(data: Buffer, limit: int) -> bytes | bytearray:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit, limit)
    out = bytearray()
    pos = len(_XERIAL_HEADER)
    end, left = len(view), _pieces_max(limit)
    while pos < end:
        left -= 1
        if left < 0:
            raise _too_many_pieces(limit)
        if pos + 4 > end:
            raise CompressionError("corrupt snappy data: it ends inside the length of a block")
        (size,) = _INT.unpack_from(view, pos)
        if bytes(view[pos : pos + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            pos += len(_XERIAL_HEADER)
            continue
        pos += 4
        if size < 0 or size > end - pos:
            raise CompressionError(f"corrupt snappy data: a block claims {size} bytes where {end - pos} remain")
        out += _decompress_snappy_block(view[pos : pos + size], limit - len(out), limit)
        pos += size
    return out


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> bytearray:
    snappy = _cramjam().snappy
    try:
        size: int = snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise CompressionError(f"corrupt snappy data: {len(block)} bytes claim to inflate to {size}")
        if size > room:
            raise _too_large(limit)
        out = bytearray(size)
        if size:
            snappy.decompress_raw_into(block, out)
    except _cramjam().DecompressionError as error:
        raise CompressionError(f"corrupt snappy data: {error}") from None
    return out


def _decompress_growing(name: str, data: Buffer, limit: int) -> bytearray:
    """Inflate into room that doubles until it is enough: at most twice the work, never more room than the limit."""
    if not len(data):
        raise CompressionError(f"corrupt {name} data: it is empty")
    library = _cramjam()
    inflate_into = getattr(library, name).decompress_into
    room = min(limit, max(_GROWTH_START_BYTES, 4 * len(data)))
    while True:
        out = bytearray(room)
        try:
            size: int = inflate_into(data, out)
        except library.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise CompressionError(f"corrupt {name} data: {error}") from None
        else:
            del out[size:]
            return out
        if room == limit:
            raise _too_large(limit)
        del out  # before there is a larger one
        room = min(limit, room * 2)
