"""Idempotent producers: InitProducerId, the window of five, gaps, stale and new epochs, the sequence that wraps."""

from random import Random

from tests.batches import Batch, Producer, Sent
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

LAST_SEQUENCE = 2**31 - 1


def new_producer(side: Side, version: int = 4) -> int:
    fields: dict[str, object] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    response = side.ask(ApiKey.INIT_PRODUCER_ID, version, fields)
    return response.producer_id


def send(
    side: Side, topic: str, producer: Producer, count: int = 1, note: str = "", version: int = 12, value: bytes = b"v"
) -> None:
    batch = Batch([Sent(value + str(i).encode()) for i in range(count)], producer=producer)
    what = f"epoch {producer.epoch} sequence {producer.sequence} count {count} {note}"
    side.produce(topic, batch.encode(), version=version, note=what)


def ids_in_every_version(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.INIT_PRODUCER_ID)[:-1]:  # Kafka serves the last only where it is told to
        producer_id = new_producer(side, version)
        if version >= 3:
            for with_id, with_epoch in (
                (producer_id, 0),
                (producer_id, 5),
                (producer_id, -1),
                (-1, 0),
                (99_999_999, 3),
            ):
                fields = {
                    "transactional_id": None,
                    "transaction_timeout_ms": 60_000,
                    "producer_id": with_id,
                    "producer_epoch": with_epoch,
                }
                known = "its id" if with_id == producer_id else str(with_id)
                side.ask(ApiKey.INIT_PRODUCER_ID, version, fields, f"with {known} and epoch {with_epoch}")
        fields = {"transactional_id": "", "transaction_timeout_ms": 60_000}
        side.ask(ApiKey.INIT_PRODUCER_ID, version, fields, "an empty transactional id")


def the_window_of_five(side: Side, rng: Random) -> None:
    topic = side.create(f"window-{rng.getrandbits(32):08x}")
    me = new_producer(side)
    sequence = 0
    sent: list[tuple[int, int]] = []
    for _ in range(8):
        count = rng.randint(1, 4)
        send(side, topic, Producer(me, 0, sequence), count)
        sent.append((sequence, count))
        sequence += count
    for place, (first, count) in enumerate(sent):
        send(side, topic, Producer(me, 0, first), count, f"again, batch {place} of 8")
    first, count = sent[-1]
    send(side, topic, Producer(me, 0, first), count + 1, "again with one more")
    send(side, topic, Producer(me, 0, first - 1), count, "overlapping")
    send(side, topic, Producer(me, 0, sequence + 1), 1, "a gap")
    send(side, topic, Producer(me, 0, sequence), 1, "after the gap was refused")
    side.look(topic)


def stale_and_new_epochs(side: Side, rng: Random) -> None:
    topic = side.create(f"epochs-{rng.getrandbits(32):08x}")
    me = new_producer(side)
    send(side, topic, Producer(me, 0, 0), 2)
    send(side, topic, Producer(me, 3, 5), 1, "a new epoch that doesn't begin at 0")
    send(side, topic, Producer(me, 3, 0), 1, "a new epoch")
    send(side, topic, Producer(me, 2, 0), 1, "a stale epoch")
    send(side, topic, Producer(me, 0, 2), 1, "the first epoch again")
    send(side, topic, Producer(me, 3, 1), 3, "goes on")
    send(side, topic, Producer(me, 3, 0), 1, "resent")
    send(side, topic, Producer(me, 0, 0), 2, "the first batch, resent")
    for version in (3, 9, 12, 13):
        send(side, topic, Producer(me, 2, 0), 1, "stale", version)
        send(side, topic, Producer(me, 3, 90), 1, "gap", version)
    side.look(topic)
    fields = {"topics": [{"name": topic, "partition_indexes": [0, 1]}, {"name": "missing", "partition_indexes": [0]}]}
    side.ask(ApiKey.DESCRIBE_PRODUCERS, 0, fields)


def strangers(side: Side, rng: Random) -> None:
    """Ids nobody gave out, and fields that don't go together."""
    topic = side.create(f"strangers-{rng.getrandbits(32):08x}")
    send(side, topic, Producer(7_000_001, 0, 0), 1, "an id nobody gave out")
    send(side, topic, Producer(7_000_002, 0, 40), 1, "an unknown id that begins at 40")
    send(side, topic, Producer(7_000_002, 0, 41), 1, "and goes on")
    send(side, topic, Producer(7_000_002, 0, 0), 1, "and begins at 0")
    send(side, topic, Producer(7_000_003, 5, 40), 1, "an unknown id at epoch 5, sequence 40")
    send(side, topic, Producer(7_000_004, 0, -1), 1, "an id without a sequence")
    send(side, topic, Producer(7_000_005, -1, 0), 1, "an id without an epoch")
    send(side, topic, Producer(7_000_006, -1, -1), 1, "an id alone")
    send(side, topic, Producer(-1, 0, 0), 1, "no id but a sequence")
    send(side, topic, Producer(-1, -1, 5), 1, "a sequence alone")
    send(side, topic, Producer(-7, 0, 0), 1, "a negative id")
    send(side, topic, Producer(7_000_007, -5, 0), 1, "a negative epoch")
    side.look(topic)


def the_sequence_wraps(side: Side, rng: Random) -> None:
    topic = side.create(f"wraps-{rng.getrandbits(32):08x}")
    me = 7_100_000 + rng.randint(0, 1000)
    send(side, topic, Producer(me, 0, LAST_SEQUENCE - 4), 3)
    send(side, topic, Producer(me, 0, LAST_SEQUENCE - 1), 4, "wraps inside the batch")
    send(side, topic, Producer(me, 0, LAST_SEQUENCE - 1), 4, "again")
    send(side, topic, Producer(me, 0, 2), 1, "goes on behind it")
    send(side, topic, Producer(me, 0, 2), 1, "again")
    send(side, topic, Producer(me, 0, LAST_SEQUENCE - 4), 3, "the first again")
    other = me + 10_000
    send(side, topic, Producer(other, 0, LAST_SEQUENCE), 1, "the last sequence")
    send(side, topic, Producer(other, 0, 0), 1, "and 0")
    send(side, topic, Producer(other, 0, LAST_SEQUENCE), 1, "the last sequence again")
    side.look(topic)


SCRIPTS = (
    ids_in_every_version,
    the_window_of_five,
    stale_and_new_epochs,
    strangers,
    the_sequence_wraps,
)
