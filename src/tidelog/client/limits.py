"""What a topic takes: how large its batches may be, asked before they are made."""

from typing import Any

import confluent_kafka.admin
from confluent_kafka import KafkaException

from tidelog.client.connect import REQUEST_TIMEOUT_S, knock, settings

library: Any = confluent_kafka.admin  # its own types are partial, so they end here

BATCH_BYTES = 1_000_000  # the library's own


def batch_bytes(bootstrap: str, topic: str) -> int:
    """How large batches may be, so that no small record is refused for the company it is in."""
    knock(bootstrap)
    resource = library.ConfigResource(library.ResourceType.TOPIC, topic)
    client = library.AdminClient(settings(bootstrap))
    answer = client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    try:
        return min(BATCH_BYTES, max(int(answer.result(REQUEST_TIMEOUT_S * 2)["max.message.bytes"].value), 1))
    except (KafkaException, KeyError):
        return BATCH_BYTES  # the topic isn't there yet, or we may not ask
