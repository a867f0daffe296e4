"""How long a reader is behind: the age of the first record that it hasn't read, one small fetch a partition."""

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from tidelog.client.connect import REQUEST_TIMEOUT_S, settings

POLL_S = 0.1


def first_unread_ms(bootstrap: str, unread: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Milliseconds since the record at (or after) each partition's offset was written; none where nothing came in time.

    A fetch of one byte brings one batch: what is there in between costs nothing.
    """
    if not unread:
        return {}
    reader = Consumer(
        settings(
            bootstrap,
            group_id="tidelog",  # the library wants one; without commits and subscriptions it is never used
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_message_max_bytes=1,
            queued_min_messages=1,
            fetch_wait_max_ms=100,
        )
    )
    found: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    try:
        reader.assign([TopicPartition(*place, offset) for place, offset in unread.items()])
        while len(found) < len(unread) and time.monotonic() < deadline:
            for message in reader.consume(1000, POLL_S):
                place = (message.topic() or "", message.partition() or 0)
                if message.error() is None and place not in found:
                    found[place] = max(int(time.time() * 1000) - message.timestamp()[1], 0)
                    reader.pause([TopicPartition(*place)])
    finally:
        reader.close()
    return found
