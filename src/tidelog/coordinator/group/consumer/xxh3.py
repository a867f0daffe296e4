"""XXH3, 64 bits, without a seed: the hash by which Apache Kafka notices that a group's topics changed.

It is kept in the group's record, so a group that moves between Apache Kafka and Tidelog isn't assigned anew only
because the two count differently. Inputs are a few hundred bytes to some kilobytes, hashed when a topic changes.
"""

from struct import Struct, unpack_from

_MASK = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MIX_1, _MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_BLOCK = 1024
_EIGHT = Struct("<8Q")
_STRIPE_KEYS = [_EIGHT.unpack_from(_SECRET, 8 * place) for place in range(16)]
_SCRAMBLE_KEYS = _EIGHT.unpack_from(_SECRET, 192 - _STRIPE)
_LAST_KEYS = _EIGHT.unpack_from(_SECRET, 192 - _STRIPE - 7)


def xxh3_64(data: bytes) -> int:
    size = len(data)
    if size > 240:
        return _long(data)
    if size > 16:
        return _medium(data)
    if size > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, size - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high))
    if size >= 4:
        first, last = unpack_from("<I", data)[0], unpack_from("<I", data, size - 4)[0]
        keyed = (last + (first << 32)) ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        keyed ^= _turned(keyed, 49) ^ _turned(keyed, 24)
        keyed = keyed * _MIX_2 & _MASK
        keyed = (keyed ^ ((keyed >> 35) + size)) * _MIX_2 & _MASK
        return keyed ^ keyed >> 28
    if size:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _finish(mixed ^ unpack_from("<I", _SECRET)[0] ^ unpack_from("<I", _SECRET, 4)[0])
    return _finish(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _medium(data: bytes) -> int:
    size = len(data)
    total = size * _P64_1
    if size <= 128:
        for place in range((size - 1) // 32, -1, -1):
            total += _mix(data, 16 * place, 32 * place) + _mix(data, size - 16 * (place + 1), 32 * place + 16)
        return _avalanche(total)
    for place in range(8):
        total += _mix(data, 16 * place, 16 * place)
    total = _avalanche(total)
    for place in range(8, size // 16):
        total += _mix(data, 16 * place, 16 * (place - 8) + 3)
    return _avalanche(total + _mix(data, size - 16, 136 - 17))


def _long(data: bytes) -> int:
    size = len(data)
    sums = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    blocks = (size - 1) // _BLOCK
    for block in range(blocks):
        for stripe in range(16):
            _add(sums, data, block * _BLOCK + stripe * _STRIPE, _STRIPE_KEYS[stripe])
        for lane, key in enumerate(_SCRAMBLE_KEYS):
            value = sums[lane] & _MASK
            sums[lane] = (value ^ value >> 47 ^ key) * _P32_1 & _MASK
    for stripe in range((size - 1 - blocks * _BLOCK) // _STRIPE):
        _add(sums, data, blocks * _BLOCK + stripe * _STRIPE, _STRIPE_KEYS[stripe])
    _add(sums, data, size - _STRIPE, _LAST_KEYS)
    total = size * _P64_1
    for pair in range(4):
        low = sums[2 * pair] & _MASK ^ _u64(_SECRET, 11 + 16 * pair)
        high = sums[2 * pair + 1] & _MASK ^ _u64(_SECRET, 19 + 16 * pair)
        total += _fold(low, high)
    return _avalanche(total)


def _add(sums: list[int], data: bytes, place: int, keys: tuple[int, ...]) -> None:
    for lane, value in enumerate(_EIGHT.unpack_from(data, place)):
        keyed = value ^ keys[lane]
        sums[lane ^ 1] += value
        sums[lane] += (keyed & 0xFFFF_FFFF) * (keyed >> 32)


def _mix(data: bytes, place: int, secret: int) -> int:
    return _fold(_u64(data, place) ^ _u64(_SECRET, secret), _u64(data, place + 8) ^ _u64(_SECRET, secret + 8))


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 37) * _MIX_1 & _MASK
    return value ^ value >> 32


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _u64(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 8], "little")
