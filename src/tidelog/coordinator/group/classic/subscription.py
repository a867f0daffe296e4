"""The topics that a group's consumers read: the one part of their metadata that the broker looks at.

Every version of the consumers' own protocol begins alike: a version, then the topics.
"""

import struct

from tidelog.coordinator.group.classic.live import LiveClassicGroup

_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(group: LiveClassicGroup) -> frozenset[str] | None:
    """Of all members under the group's protocol; None where one can't be read."""
    topics: set[str] = set()
    try:
        for member in group.members.values():
            for name, metadata in member.protocols:
                if name == group.protocol:
                    topics.update(topics_of(metadata))
    except ValueError:
        return None
    return frozenset(topics)


def topics_of(metadata: bytes) -> list[str]:
    """The topics of one subscription; ValueError where it isn't one.

    >>> topics_of(bytes.fromhex("0000 00000001 0005 7469646573"))
    ['tides']
    """
    try:
        _, count = _COUNT.unpack_from(metadata)
        pos = _COUNT.size
        if not 0 <= count <= len(metadata):
            raise ValueError(f"a subscription of {len(metadata)} bytes claims {count} topics")
        topics: list[str] = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, pos)
            pos += _LENGTH.size
            if length < 0 or pos + length > len(metadata):
                raise ValueError("a subscription ends in the middle of a topic")
            topics.append(metadata[pos : pos + length].decode())
            pos += length
    except struct.error as error:
        raise ValueError("a subscription is cut off") from error
    return topics
