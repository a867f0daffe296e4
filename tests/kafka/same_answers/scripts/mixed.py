"""A seeded mix: producers, readers and administrators take turns on a few topics."""

from collections.abc import Callable
from random import Random

from tests.batches import NOW_MS, Batch, Producer, Sent
from tests.kafka.same_answers.scripts.configs import DELETE, SET, TOPIC, alter
from tests.kafka.same_answers.scripts.produce import CODECS, some_records, wrong_batches
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

TURNS = 60


class Mix:
    """What the players know: topics, producers with their next sequence. Chosen by the seed alone, never by answers."""

    def __init__(self, side: Side, rng: Random) -> None:
        self.side = side
        self.rng = rng
        tag = f"{rng.getrandbits(32):08x}"
        self.topics = [
            side.create(f"plain-{tag}", 2),
            side.create(f"keyed-{tag}", 2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}),
            side.create(f"small-{tag}", 2, {"segment.bytes": "1048576", "max.message.bytes": "2000"}),
            side.create(f"zipped-{tag}", 2, {"compression.type": "zstd"}),
            side.create(f"stamped-{tag}", 2, {"message.timestamp.type": "LogAppendTime"}),
        ]
        self.ids = [self._new_id() for _ in range(3)]
        self.next: dict[tuple[int, str, int], int] = {}
        self.sent: list[tuple[str, int, bytes]] = []

    def _new_id(self) -> int:
        fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        return self.side.ask(ApiKey.INIT_PRODUCER_ID, 4, fields).producer_id

    def where(self) -> tuple[str, int]:
        return self.rng.choice(self.topics), self.rng.choice([0, 0, 0, 1])

    def version(self, key: ApiKey) -> int:
        return self.rng.choice(versions(key))

    def send(self) -> None:
        topic, partition = self.where()
        batch = Batch(some_records(self.rng), codec=self.rng.choice(CODECS))
        version = self.version(ApiKey.PRODUCE)
        acks = self.rng.choice([1, -1])
        self.side.produce(topic, batch.encode(), version=version, partition=partition, acks=acks, note=topic)

    def send_in_sequence(self) -> None:
        topic, partition = self.where()
        who = self.rng.randrange(len(self.ids))
        records = [Sent(b"s%d" % i, key=b"k%d" % i) for i in range(self.rng.randint(1, 3))]
        slip = self.rng.choice([0] * 12 + [1, -1, 5, -5])
        sequence = self.next.get((who, topic, partition), 0)
        data = Batch(records, producer=Producer(self.ids[who], 0, max(sequence + slip, 0))).encode()
        if not slip:
            self.next[who, topic, partition] = sequence + len(records)
        self.sent.append((topic, partition, data))
        self.side.produce(topic, data, partition=partition, note=f"{topic} slip {slip}")

    def send_again(self) -> None:
        if self.sent:
            topic, partition, data = self.rng.choice(self.sent[-8:])
            self.side.produce(topic, data, partition=partition, note=f"{topic} again")

    def send_wrong(self) -> None:
        topic, partition = self.where()
        what, data = self.rng.choice(list(wrong_batches().items()))
        version = self.version(ApiKey.PRODUCE)
        self.side.produce(topic, data, version=version, partition=partition, note=f"{topic} {what}")

    def read(self) -> None:
        topic, partition = self.where()
        # Where the broker compresses, how much fits is its own.
        limits = [1, 200, 500, 50_000_000] if not topic.startswith("zipped") else [1, 50_000_000]
        self.side.fetch(
            topic,
            self.rng.randint(-1, 40),
            version=self.version(ApiKey.FETCH),
            partition=partition,
            max_bytes=self.rng.choice(limits),
            partition_max_bytes=self.rng.choice(limits),
            isolation=self.rng.randint(0, 1),
            note=topic,
        )

    def seek(self) -> None:
        topic, partition = self.where()
        time = self.rng.choice([-1, -2, -3, -4, -5, -6, NOW_MS - 3, NOW_MS, NOW_MS + 2, NOW_MS + 9])
        if topic.startswith("stamped"):
            time = -1
        self.side.list_offset(topic, time, version=self.version(ApiKey.LIST_OFFSETS), partition=partition)

    def trim(self) -> None:
        topic, partition = self.where()
        offset = self.rng.choice([-1, 0, 1, 3, 8, 500])
        topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
        version = self.version(ApiKey.DELETE_RECORDS)
        self.side.ask(
            ApiKey.DELETE_RECORDS, version, {"topics": topics, "timeout_ms": 5000}, f"{topic} before {offset}"
        )

    def configure(self) -> None:
        topic, _ = self.where()
        changes = [("max.message.bytes", SET, "900"), ("max.message.bytes", DELETE, None)]
        if topic.startswith("zipped"):
            changes += [("compression.type", SET, "gzip"), ("compression.type", DELETE, None)]
        change = self.rng.choice(changes)
        alter(self.side, f"{topic} {change}", TOPIC, topic, change)


def play_turns(mix: Mix, *, trims: bool = True) -> None:
    plays: list[Callable[[], None]] = [mix.send] * 6 + [mix.send_in_sequence] * 6 + [mix.read] * 4 + [mix.seek] * 2
    plays += [mix.send_again, mix.send_again, mix.send_wrong, mix.send_wrong, mix.configure]
    plays += [mix.trim] if trims else []
    for _ in range(TURNS):
        mix.rng.choice(plays)()


def turns(side: Side, rng: Random) -> None:
    mix = Mix(side, rng)
    play_turns(mix)
    for topic in mix.topics:
        side.look(topic, 2, stamped=topic.startswith("stamped"))


SCRIPTS = (turns,)
