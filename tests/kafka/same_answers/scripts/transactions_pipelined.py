"""Transactional batches of which several are sent in one write, before any of them is answered."""

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.kafka.same_answers.scripts.transactions import CLASSIC, SECOND, Txn, look
from tests.kafka.same_answers.side import Side
from tidelog.wire.keys import ApiKey

Parts = Sequence[tuple[int, int]]
"""(partition, sequence) of each batch of one request."""
Asked = tuple[ApiKey, int, dict[str, Any]]


def request(txn: Txn, topic: str, parts: Parts, version: int, acks: int = -1) -> Asked:
    """Batches of one record each."""
    batches = [
        {
            "index": index,
            "records": Batch(
                [Sent(b"%d:%d" % (index, sequence))],
                producer=Producer(txn.id, txn.epoch, sequence),
                attributes=TRANSACTIONAL,
            ).encode(),
        }
        for index, sequence in parts
    ]
    named = txn.side.named(topic, ApiKey.PRODUCE, version)
    fields = {
        "transactional_id": txn.name,
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [named | {"partition_data": batches}],
    }
    return ApiKey.PRODUCE, version, fields


def burst(txn: Txn, topic: str, requests: Sequence[Parts], version: int, *, acks: int = -1, note: str = "") -> None:
    asked = [request(txn, topic, parts, version, acks) for parts in requests]
    txn.side.ask_together(asked, f"{txn.name} {note}".rstrip())


def begun(side: Side, name: str, end_version: int = SECOND) -> Txn:
    txn = Txn(side, name, end_version)
    txn.init()
    return txn


def one_after_the_other(side: Side, rng: Random) -> None:
    topic = side.create("pipelined-order", 3)
    for version in (12, 13):
        for acks in (-1, 1):
            txn = begun(side, f"order-{version}-{acks}")
            burst(txn, topic, [[(0, sequence)] for sequence in range(12)], version, acks=acks)
            txn.end(commit=acks < 0)
    for index in range(3):
        side.wait_until_shown(topic, index)
        look(side, topic, index)


def parts_of_the_request_before(side: Side, rng: Random) -> None:
    topic = side.create("pipelined-parts", 3)
    txn = begun(side, "parts")
    burst(txn, topic, [[(0, 0), (1, 0)], [(1, 1)], [(0, 1), (2, 0)], [(2, 1), (1, 2), (0, 2)]], 12)
    txn.end(commit=True)
    burst(txn, topic, [[(2, 0)], [(2, 1), (0, 0)], [(1, 0)], [(0, 1)]], 12, note="again")
    txn.end(commit=False)
    for index in range(3):
        look(side, topic, index)


def repeats_and_gaps(side: Side, rng: Random) -> None:
    topic = side.create("pipelined-gaps", 2)
    for version in (12, 13):
        txn = begun(side, f"gaps-{version}")
        sequences = (1, 0, 0, 2, 1, 3, 2, 2, 3, 9, 4)
        burst(txn, topic, [[(0, sequence)] for sequence in sequences], version)
        burst(txn, topic, [[(1, 0), (0, 5)], [(1, 2), (0, 6)], [(1, 1), (0, 8)], [(1, 2)]], version)
        txn.end(commit=True)
    look(side, topic, 0)
    look(side, topic, 1)


def not_all_joined(side: Side, rng: Random) -> None:
    """Clients of the first version, that have said which partitions they write to; or not."""
    topic = side.create("pipelined-first", 2)
    for version in (9, 11):
        txn = begun(side, f"first-{version}", CLASSIC)
        txn.add(topic, 0)
        burst(txn, topic, [[(0, 0), (1, 0)], [(1, 1), (0, 1)], [(0, 2)], [(1, 0)]], version)
        txn.add(topic, 1)
        burst(txn, topic, [[(1, 1)], [(1, 0)], [(1, 1)], [(0, 3), (1, 2)]], version, note="joined")
        txn.end(commit=True)
    look(side, topic, 0)
    look(side, topic, 1)


def of_one_that_was_replaced(side: Side, rng: Random) -> None:
    topic = side.create("pipelined-fenced", 2)
    for end_version, version in ((CLASSIC, 11), (SECOND, 12)):
        old = begun(side, f"replaced-{end_version}", end_version)
        begun(side, old.name, end_version)
        burst(old, topic, [[(0, 0)], [(0, 1), (1, 0)], [(1, 1)]], version)
    nobody = Txn(side, "nobody", SECOND)
    nobody.id, nobody.epoch = 99_999, 0
    burst(nobody, topic, [[(0, 0)], [(0, 1)]], 12)
    look(side, topic)


def an_end_behind_them(side: Side, rng: Random) -> None:
    topic = side.create("pipelined-ends")
    for commit in (True, False):
        txn = begun(side, f"ends-behind-{commit}")
        fields = {"transactional_id": txn.name, "producer_id": txn.id, "producer_epoch": txn.epoch, "committed": commit}
        asked: list[Asked] = [request(txn, topic, [(0, sequence)], 12) for sequence in range(4)]
        side.ask_together([*asked, (ApiKey.END_TXN, 5, fields)], txn.name)
        txn.settle()
        look(side, topic)


def without_answers(side: Side, rng: Random) -> None:
    topic = side.create("pipelined-acks-0")
    txn = begun(side, "unanswered")
    asked = [request(txn, topic, [(0, sequence)], 12, acks=0) for sequence in range(4)]
    side.ask_together([*asked, request(txn, topic, [(0, 4)], 12)], txn.name)
    look(side, topic)
    asked = [request(txn, topic, [(0, 7)], 12, acks=0), request(txn, topic, [(0, 5)], 12)]
    side.ask_together(asked, f"{txn.name} behind one that is refused")
    look(side, topic)
    txn.end(commit=True)


def any_order(side: Side, rng: Random) -> None:
    """Bursts over three partitions: in order, with a repeat or a gap now and then, over several transactions."""
    topic = side.create(f"pipelined-any-{rng.getrandbits(32):08x}", 3)
    for turn in range(6):
        version = rng.choice((12, 13))
        txn = begun(side, f"any-{turn}")
        for _ in range(3):
            following = [0, 0, 0]
            for number in range(rng.randint(1, 4)):
                requests: list[Parts] = []
                for _ in range(rng.randint(1, 8)):
                    parts: list[tuple[int, int]] = []
                    for index in rng.sample(range(3), rng.randint(1, 3)):
                        wrong = rng.choice((-1, 1, 3)) if rng.random() < 0.08 else 0
                        parts.append((index, max(following[index] + wrong, 0)))
                        if not wrong:
                            following[index] += 1
                    requests.append(parts)
                burst(txn, topic, requests, version, note=f"burst {number}")
            txn.end(commit=rng.random() < 0.7)
    for index in range(3):
        look(side, topic, index)


SCRIPTS = [
    one_after_the_other,
    parts_of_the_request_before,
    repeats_and_gaps,
    not_all_joined,
    of_one_that_was_replaced,
    an_end_behind_them,
    without_answers,
    any_order,
]
