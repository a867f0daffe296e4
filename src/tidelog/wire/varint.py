"""Zigzag variable-length integers, as records inside a batch use them."""

from tidelog.env.network import Buffer


class VarintError(ValueError):
    """The number is longer than its type allows, or the bytes end inside it."""


def encode(value: int) -> bytes:
    """The zigzag varint of a signed number of up to 64 bits."""
    value = (value << 1) ^ (value >> 63)
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = tuple(bytes((value,)) for value in range(128))


def decode(buffer: Buffer, pos: int, end: int, bits: int = 32) -> tuple[int, int]:
    """The number at `pos` and the position behind it; it must end before `end` and fit `bits` (32 or 64)."""
    value = shift = 0
    while True:
        if pos >= end:
            raise VarintError("the bytes end inside a number")
        byte = buffer[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift >= bits:
            raise VarintError(f"a number is longer than {bits} bits")
    if value >> bits:
        value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), pos
