"""Where a coordinator's state lives: its internal topic, and the partition of a group or transactional id."""

from functools import lru_cache

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

KEYS_REMEMBERED = 10_000
"""Keys whose partition isn't computed anew for each request."""


@lru_cache(KEYS_REMEMBERED)
def partition_of(key: str, partitions: int) -> int:
    """The partition that holds the state of a group or transactional id: Java's String.hashCode, modulo."""
    number = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(units), 2):
        number = (31 * number + (units[place] << 8 | units[place + 1])) & 0xFFFF_FFFF
    if number >= 1 << 31:
        number = (1 << 32) - number
    return number % partitions if number < 1 << 31 else 0
