"""How a partition's folder and its files are called: Kafka's names, so that its tools find their way."""

from typing import Final

from tidelog.wire.topic_partition import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
AGAIN: Final = ".again"
"""A copy of a file's tail while that is written again; Kafka has no such file and passes it over."""
DELETE_FOLDER: Final = "-delete"
STRAY_FOLDER: Final = "-stray"
SEGMENT_FILES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
METADATA_TOPIC: Final = "__cluster_metadata"

_NAME_BYTES_MAX = 255


def partition_folder(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_folder(name: str) -> TopicPartition | None:
    """(topic, partition); None for a name that is no partition's folder, one to be deleted included."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    return topic, int(partition)


def deleted_folder(topic: str, partition: int, unique: bytes) -> str:
    """The name of a folder that waits for its deletion. A long topic's name is cut to what a file system takes."""
    return _renamed_folder(topic, partition, unique, DELETE_FOLDER)


def stray_folder(topic: str, partition: int, unique: bytes) -> str:
    """The name of a folder that belongs to no topic of the cluster."""
    return _renamed_folder(topic, partition, unique, STRAY_FOLDER)


def _renamed_folder(topic: str, partition: int, unique: bytes, suffix: str) -> str:
    tail = f"-{partition}.{unique.hex()}{suffix}"
    return topic[: _NAME_BYTES_MAX - len(tail)] + tail


def segment_stem(base_offset: int) -> str:
    return f"{base_offset:020d}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a file that belongs to a segment, or a snapshot; None for any other."""
    stem, dot, suffix = name.partition(".")
    if not dot or len(stem) != 20 or not stem.isascii() or not stem.isdigit():
        return None
    return int(stem), dot + suffix
