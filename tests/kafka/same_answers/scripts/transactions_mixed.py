"""Transactions at random, right and wrong: two producers of each kind under two names, who fence each other, join or
don't, write out of turn, commit offsets, and end what they began or what others did."""

from collections.abc import Callable
from random import Random

from tests.kafka.same_answers.scripts.group_members import new_group
from tests.kafka.same_answers.scripts.transactions import CLASSIC, SECOND, Txn, _committed, look
from tests.kafka.same_answers.side import Side
from tidelog.wire.keys import ApiKey

TURNS = 70
PARTITIONS = 2


class Play:
    def __init__(self, side: Side, rng: Random) -> None:
        self.side = side
        self.rng = rng
        tag = f"{rng.getrandbits(32):08x}"
        self.topic = side.create(f"txn-mix-{tag}", PARTITIONS)
        self.group = new_group(side, rng, "txn-mix")
        self.txns = [
            Txn(side, f"{name}-{tag}", kind) for name, kind in (("old", CLASSIC), ("new", SECOND)) for _ in range(2)
        ]
        for txn in self.txns:
            txn.find()

    def txn(self) -> Txn:
        return self.rng.choice(self.txns)

    def init(self) -> None:
        self.txn().init(self.rng.randint(3, 5))

    def resume(self) -> None:
        txn = self.txn()
        if txn.id >= 0:
            txn.resume(self.rng.randint(3, 5))

    def add(self) -> None:
        self.txn().add(self.topic, self.rng.randrange(PARTITIONS), version=self.rng.randint(0, 4))

    def send(self) -> None:
        txn, partition = self.txn(), self.rng.randrange(PARTITIONS)
        slip = self.rng.choice([0] * 8 + [1, -1])
        sequence = max(txn.sequences.get((self.topic, partition), 0) + slip, 0)
        if txn.id >= 0:
            txn.send(self.topic, b"x", partition=partition, sequence=sequence, note=f"slip {slip}")

    def end(self) -> None:
        slip = self.rng.choice([0] * 8 + [1, -1])
        txn = self.txn()
        if txn.id >= 0 and txn.epoch + slip >= 0:
            txn.end(commit=self.rng.random() < 0.6, note=f"slip {slip}", producer_epoch=txn.epoch + slip)

    def commit_offset(self) -> None:
        txn = self.txn()
        if txn.joins:
            txn.commit_offset(self.group, self.topic, self.rng.randrange(50), 5)
        else:
            if self.rng.random() < 0.7:
                txn.add_group(self.group)
            txn.commit_offset(self.group, self.topic, self.rng.randrange(50), self.rng.randint(0, 4))

    def see(self) -> None:
        look(self.side, self.topic, self.rng.randrange(PARTITIONS))
        _committed(self.side, self.group, self.topic)

    def producers(self) -> None:
        topics = [{"name": self.topic, "partition_indexes": list(range(PARTITIONS))}]
        self.side.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})


def turns(side: Side, rng: Random) -> None:
    play = Play(side, rng)
    for txn in play.txns:
        txn.init()
    plays: list[Callable[[], None]] = [play.send] * 10 + [play.add] * 5 + [play.end] * 5 + [play.commit_offset] * 3
    plays += [play.init, play.resume, play.see]
    for _ in range(TURNS):
        rng.choice(plays)()
    for txn in play.txns:
        txn.init()
        txn.settle()
    play.see()


SCRIPTS = (turns,)
