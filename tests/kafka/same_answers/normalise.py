"""Answers made comparable: what two brokers can't share is replaced by what it stands for.

Topic ids become their topic's name, ids of producers and members their order of appearance; hosts, ports, cluster ids,
folders and clocks are masked; lists whose order means nothing are sorted. Nothing else is touched here: differences
that are meant stand in `allowed.py`.
"""

import gzip
import re
from collections.abc import Iterator
from typing import Any

import cramjam

from tests.batches import CONTROL, GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, ZSTD, Read, batches
from tests.raw import fields_of, is_struct
from tidelog.wire.keys import ApiKey

ZERO = bytes(16)

DROPPED = {"throttle_time_ms"}
"""Fields left out: how long a client is asked to wait."""

MASKED = {
    "cluster_id",
    "host",
    "port",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "client_instance_id",
    "subscription_id",
    "finalized_features_epoch",
    "broker_epoch",
    "last_timestamp",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "replica_directory_id",
    "session_id",
    "transaction_start_time_ms",
}
"""Fields of which only this is compared: there or not (None, 0, -1, "" or the zero uuid)."""

TEXTS = {"error_message", "batch_index_error_message", "documentation"}
"""Words for people: the wording is each broker's own. None and text are told apart."""

MASKED_IN = {
    ApiKey.DESCRIBE_QUORUM: {"high_watermark", "leader_epoch", "log_end_offset"},
    ApiKey.DESCRIBE_PRODUCERS: set[str](),
}

MADE_ID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""How ids end that a broker made for a classic member; those of others are seen before their own answer comes."""

GIVES_PRODUCERS = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)
"""Answers in which a producer hears its id."""

MAKES_MEMBERS = (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)
"""Answers in which a member hears its id."""

UNORDERED = (
    ("brokers", ("broker_id", "node_id")),
    ("groups", ("group_id",)),
    ("members", ("member_id", "group_instance_id")),
    ("topic_partitions", ("topic_id",)),
    ("topics", ("name", "topic", "topic_id")),
    ("responses", ("name", "topic", "topic_id", "resource_name")),
    ("topic_responses", ("name",)),
    ("partitions", ("partition_index", "partition", "partition_id")),
    ("partition_responses", ("index",)),
    ("configs", ("name",)),
    ("results", ("resource_type", "resource_name", "name", "topic", "group_id", "error_code")),
    ("api_keys", ("api_key",)),
    ("supported_features", ("name",)),
    ("finalized_features", ("name",)),
    ("config_resources", ("resource_type", "resource_name")),
    ("active_producers", ("producer_id",)),
    ("replica_election_results", ("topic",)),
    ("node_endpoints", ("node_id",)),
    ("results_by_topic_v3_and_below", ("name",)),
    ("results_by_transaction", ("transactional_id",)),
    ("topic_results", ("name",)),
    ("results_by_partition", ("partition_index",)),
    ("transaction_states", ("transactional_id",)),
    ("markers", ("producer_id",)),
    ("aborted_transactions", ("first_offset", "producer_id")),
)
"""Lists that Kafka fills from hash maps, and what sorts them."""


class Normaliser:
    """Knows, for one broker, which topic id is which topic and which producer id came first."""

    def __init__(self) -> None:
        self._topics: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}
        self._producers: dict[int, int] = {}
        self._members: dict[str, int] = {}

    def id_of(self, name: str) -> bytes:
        return self._ids[name]

    def response(self, key: int, response: Any) -> dict[str, Any]:
        self._learn(response)
        if key in GIVES_PRODUCERS and response.producer_id >= 0:
            self._producers.setdefault(response.producer_id, len(self._producers))
        if key in MAKES_MEMBERS and response.member_id:
            self._members.setdefault(response.member_id, len(self._members))
        masked = MASKED | MASKED_IN.get(ApiKey(key), set())
        return self._struct(response, masked)

    def read(self, data: bytes) -> Iterator[Read]:
        return batches(data)

    def batch(self, batch: Read) -> dict[str, Any]:
        """A stored batch: everything in its header, and its records inflated (the same records deflate differently)."""
        producer = batch.producer
        marker = bool(batch.attributes & CONTROL)  # dated by the broker
        stamped = marker or bool(batch.attributes & LOG_APPEND_TIME)
        return {
            "base_offset": batch.base_offset,
            "leader_epoch": batch.leader_epoch,
            "magic": batch.magic,
            "crc_is_right": batch.crc_is_right,
            "attributes": batch.attributes,
            "last_offset_delta": batch.last_offset_delta,
            "base_timestamp": "<now>" if marker else batch.base_timestamp,
            "max_timestamp": "<now>" if stamped else batch.max_timestamp,
            "producer": (self._producer(producer.id), producer.epoch, producer.sequence),
            "count": batch.count,
            "records": inflate(batch.attributes & 7, batch.body).hex(),
        }

    def _learn(self, value: Any) -> None:
        """Every (name, topic id) pair in an answer."""
        if isinstance(value, list):
            for item in value:
                self._learn(item)
        elif is_struct(value):
            topic_id = getattr(value, "topic_id", None)
            name = getattr(value, "name", None) or getattr(value, "topic_name", None)
            if isinstance(topic_id, bytes) and topic_id != ZERO and name:
                self._topics[topic_id] = name
                self._ids[name] = topic_id
            for part in fields_of(value).values():
                self._learn(part)

    def learn(self, name: str, topic_id: bytes) -> None:
        """A topic that the broker doesn't know, under an id made up."""
        self._topics[topic_id] = name
        self._ids[name] = topic_id

    def _producer(self, producer_id: int) -> Any:
        return f"producer {self._producers[producer_id]}" if producer_id in self._producers else producer_id

    def _struct(self, value: Any, masked: set[str]) -> dict[str, Any]:
        fields = {name: part for name, part in fields_of(value).items() if name not in DROPPED}
        known = {name: self._field(name, part, masked) for name, part in fields.items()}
        if fields.get("error_code") and fields.get("producer_id") == 0:
            known["producer_id"] = 0  # nobody's: the field's default, though a producer may have that id
        return known

    def _field(self, name: str, value: Any, masked: set[str]) -> Any:
        if name in masked or name in TEXTS:
            return value if value in (None, 0, -1, "", ZERO) else "<there>"
        if name == "log_append_time_ms" and value >= 0:
            return "<now>"
        if name == "producer_id":
            return self._producer(value)
        if name in ("member_id", "leader") and value in self._members:
            return f"member {self._members[value]}"
        if name in ("member_id", "leader") and isinstance(value, str):
            return MADE_ID.sub("-<made>", value)
        if name == "topic_id" and isinstance(value, bytes):
            return "0" if value == ZERO else self._topics.get(value, value.hex())
        if name == "records":
            data = bytes(value or b"")
            whole = [self.batch(batch) for batch in batches(data)]
            compressed = any(batch["attributes"] & 7 for batch in whole)
            return {"null": value is None, "length": "<compressed>" if compressed else len(data), "batches": whole}
        if isinstance(value, list):
            items = [self._item(item, masked) for item in value]
            if name == "partitions" and all(isinstance(item, int) for item in items):
                items.sort()
            for list_name, keys in UNORDERED:
                if list_name == name and items and isinstance(items[0], dict):
                    items.sort(key=lambda item: [str(item.get(key)).zfill(12) for key in keys])
            return items
        return self._item(value, masked)

    def _item(self, value: Any, masked: set[str]) -> Any:
        if is_struct(value):
            return self._struct(value, masked)
        if isinstance(value, memoryview | bytearray | bytes):
            return bytes(value).hex()
        return value


def inflate(codec: int, body: bytes) -> bytes:
    """The records of a batch, whatever they were compressed with; as they are where they can't be read."""
    try:
        if codec == GZIP:
            return gzip.decompress(body)
        if codec == SNAPPY:
            return _inflate_snappy(body)
        if codec == LZ4:
            return bytes(cramjam.lz4.decompress(body))
        if codec == ZSTD:
            return bytes(cramjam.zstd.decompress(body))
    except (cramjam.DecompressionError, OSError, EOFError):
        return body
    return body


def _inflate_snappy(body: bytes) -> bytes:
    if not body.startswith(b"\x82SNAPPY\0"):
        return bytes(cramjam.snappy.decompress_raw(body))
    out, pos = b"", 16
    while pos < len(body):
        size = int.from_bytes(body[pos : pos + 4], "big")
        out += bytes(cramjam.snappy.decompress_raw(body[pos + 4 : pos + 4 + size]))
        pos += 4 + size
    return out
