"""Dead letters back to where they came from, each once: what is sent and how far it came are one transaction."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Producer as KafkaProducer

from tidelog.client import ClientError, read
from tidelog.client.connect import MESSAGE_BYTES_MAX, knock, settings
from tidelog.client.consumer import Message
from tidelog.client.errors import from_kafka
from tidelog.client.start import Start
from tidelog.rpc import EARLIEST, Cluster, Options, list_offsets
from tidelog.rpc.groups import committed_offset
from tidelog.wire.errors import KafkaError

ORIGIN = "tidelog.topic"
ORIGIN_PARTITION = "tidelog.partition"
LETTERS_MAX = 1000
"""Letters of one transaction."""
PATIENCE_S = 30.0
FENCED = (
    LibraryError._FATAL,
    LibraryError._FENCED,
    LibraryError.INVALID_PRODUCER_EPOCH,
    LibraryError.PRODUCER_FENCED,
)
"""How the library tells a producer that another has its name: after the first time only that it is over."""


def redrive(bootstrap: str, dead: str, to: str | None, limit: int | None, *, dry_run: bool = False) -> dict[str, int]:
    """Send dead letters to the partitions they came from (or the topic `to`), each once; how many went where.

    How far it came is kept as the offsets of a group, written in the transaction that sends: whatever is killed, the
    next call goes on where this one came to. Records that arrive meanwhile are left for it.
    """
    knock(bootstrap)
    with Cluster(bootstrap, Options(patience_s=PATIENCE_S)) as cluster:
        sending = None if dry_run else Sending(bootstrap, dead)
        places = [(dead, partition) for partition in sorted(cluster.topic(dead).partitions)]
        begin = {place: each.offset for place, each in list_offsets(cluster, dict.fromkeys(places, EARLIEST)).items()}
        sent: dict[str, int] = {}
        for place in places:
            known = committed_offset(cluster, f"redrive-{dead}", place)
            start = max(begin[place], known[0] if known else 0)
            left = None if limit is None else limit - sum(sent.values())
            letters = islice(_letters(bootstrap, place, start), left)
            while chunk := list(islice(letters, LETTERS_MAX)):
                aimed = [(_target(letter, to, cluster), letter) for letter in chunk]
                if sending is not None:
                    sending.send(aimed, place)
                for (topic, _), _ in aimed:
                    sent[topic] = sent.get(topic, 0) + 1
    return sent


def _letters(bootstrap: str, place: tuple[str, int], start: int) -> Iterator[Message]:
    return read(
        bootstrap,
        place[0],
        start=Start("offset", start),
        partitions=[place[1]],
        stop_at_end=True,
        isolation_level="read_committed",
    )


def _target(letter: Message, to: str | None, cluster: Cluster) -> tuple[str, int]:
    """Where a letter goes: the partition that it came from, where that is there; -1 leaves it to the key."""
    headers = {
        name: value.decode() for name, value in letter.headers if value is not None and name.startswith("tidelog.")
    }
    topic = to or headers.get(ORIGIN)
    if topic is None:
        raise ClientError(
            f"{letter.topic}-{letter.partition} offset {letter.offset} has no header {ORIGIN}: it is no dead letter",
            "name the topic to send it to with --to",
        )
    partition = headers.get(ORIGIN_PARTITION, "")
    try:
        there = cluster.topic(topic).partitions
    except KafkaError as error:
        raise ClientError(str(error), f"`tidelog topic create {topic}`, or name another with --to") from None
    if topic == headers.get(ORIGIN) and partition.isdecimal() and int(partition) in there:
        return topic, int(partition)
    return topic, -1


class Sending:
    """A transactional producer under the name of the dead letters' topic: a second one that redrives it is fenced."""

    def __init__(self, bootstrap: str, dead: str) -> None:
        self._bootstrap = bootstrap
        self._doing = f"redrive {dead}"
        group = Consumer(settings(bootstrap, group_id=f"redrive-{dead}"))
        self._group: Any = group.consumer_group_metadata()
        group.close()
        own = {"transactional_id": f"redrive-{dead}", "partitioner": "murmur2_random", "linger_ms": 5}
        self._producer = KafkaProducer(settings(bootstrap, message_max_bytes=MESSAGE_BYTES_MAX, **own))
        self._call(lambda: self._producer.init_transactions(PATIENCE_S))

    def send(self, aimed: Iterable[tuple[tuple[str, int], Message]], place: tuple[str, int]) -> None:
        """Some letters of one partition and how far they go, all or nothing."""
        producer = self._producer

        def all_of_them() -> None:
            producer.begin_transaction()
            end = 0
            for (topic, partition), letter in aimed:
                headers: Any = [(name, value) for name, value in letter.headers if not name.startswith("tidelog.")]
                producer.produce(topic, letter.value, letter.key, partition, headers=headers)
                end = letter.offset + 1
            producer.send_offsets_to_transaction([TopicPartition(*place, end)], self._group, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)

        self._call(all_of_them)

    def _call(self, what: Any) -> None:
        try:
            what()
        except KafkaException as error:
            if error.args[0].code() in FENCED:
                raise ClientError(
                    f"another process began to {self._doing} meanwhile, and goes on where this one came to",
                    "each letter is sent once all the same; let one do it at a time",
                ) from None
            raise from_kafka(error, self._bootstrap, self._doing) from None
