"""Which topic is meant, beside its name: offsets can't tell one that was deleted and made again."""

import hashlib

NONE = bytes(16).hex()
"""What brokers tell that give topics no ids."""
BITS = 53
"""As many as whoever reads JSON keeps of a number."""


def short_id(topic_id: bytes) -> int | None:
    """A topic's id as a number that fits where Kafka has an offset; None where brokers give none.

    Two topics of one name have the same by a chance of one in 10^15.
    """
    if topic_id.hex() == NONE:
        return None
    return int.from_bytes(hashlib.blake2b(topic_id, digest_size=8).digest(), "big") >> (64 - BITS)
