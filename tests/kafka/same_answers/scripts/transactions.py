"""Transactions, in every version of every request, good and bad.

Kafka says CONCURRENT_TRANSACTIONS while an earlier transaction is being ended, Tidelog waits: a script asks again until
that is over, and only what it ends at is noted.
"""

import time
from random import Random
from typing import Any

from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.kafka.same_answers.side import LATEST, Side, versions
from tidelog.wire.keys import ApiKey

CONCURRENT_TRANSACTIONS = 51
LOADING = (14, 15, 16)
DEADLINE_S = 20.0
READ_COMMITTED = 1
CLASSIC, SECOND = 3, 5
"""Versions of EndTxn by which a client of the first or second kind is known."""


class Txn:
    """A producer made of requests. `end_version` 5 is a client of the second kind, which joins by producing."""

    def __init__(self, side: Side, name: str, end_version: int = CLASSIC) -> None:
        self.side = side
        self.name = name
        self.end_version = end_version
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def joins(self) -> bool:
        return self.end_version >= SECOND

    def ask(self, key: ApiKey, version: int, fields: dict[str, Any], note: str = "") -> Any:
        """Asked until no earlier transaction is in the way."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            response = self.side.quietly(key, version, fields)
            if not (_codes(response) & {CONCURRENT_TRANSACTIONS, *LOADING}) or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self.side.asked.add((key, version))
        label = f"{key.name} v{version} {self.name} {note}".rstrip()
        self.side.note(label, self.side.normaliser.response(key, response), key)
        return response

    def find(self) -> None:
        fields = {"key_type": 1, "coordinator_keys": [self.name]}
        while self.side.quietly(ApiKey.FIND_COORDINATOR, 4, fields).coordinators[0].error_code:
            time.sleep(0.05)

    def init(self, version: int = 4, *, timeout_ms: int = 60_000, note: str = "", **more: Any) -> Any:
        self.find()
        fields = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **more}
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, version, fields, note)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def resume(self, version: int = 4, note: str = "goes on") -> Any:
        return self.init(version, note=note, producer_id=self.id, producer_epoch=self.epoch)

    def add(self, topic: str, *partitions: int, version: int = 3, note: str = "") -> Any:
        topics = [{"name": topic, "partitions": list(partitions or (0,))}]
        if version >= 4:
            fields: dict[str, Any] = {"transactions": [self.batched(topics)]}
        else:
            fields = {
                "v3_and_below_transactional_id": self.name,
                "v3_and_below_producer_id": self.id,
                "v3_and_below_producer_epoch": self.epoch,
                "v3_and_below_topics": topics,
            }
        return self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields, note)

    def batched(self, topics: list[dict[str, Any]], *, verify: bool = False) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "verify_only": verify,
            "topics": topics,
        }

    def send(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None, note: str = "", **how: Any
    ) -> Any:
        place = (topic, partition)
        sequence = how.get("sequence", self.sequences.get(place, 0))
        producer = Producer(self.id, how.get("epoch", self.epoch), sequence)
        data = Batch([Sent(value) for value in values], producer=producer, attributes=TRANSACTIONAL).encode()
        chosen = version or (12 if self.joins else 9)
        fields = {
            "transactional_id": self.name,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                self.side.named(topic, ApiKey.PRODUCE, chosen)
                | {"partition_data": [{"index": partition, "records": data}]}
            ],
        }
        answer = self.ask(ApiKey.PRODUCE, chosen, fields, note)
        if not answer.responses[0].partition_responses[0].error_code:
            self.sequences[place] = sequence + len(values)
        return answer

    def end(self, *, commit: bool, version: int | None = None, note: str = "", **other: Any) -> Any:
        fields = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch} | other
        version = self.end_version if version is None else version
        note = f"{'commit' if commit else 'abort'} {note}".rstrip()
        answer = self.ask(ApiKey.END_TXN, version, {**fields, "committed": commit}, note)
        if not answer.error_code and version >= SECOND:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        self.settle()
        return answer

    def settle(self) -> None:
        """Until the last transaction has ended."""
        deadline = time.monotonic() + DEADLINE_S
        while self.state().startswith("Prepare"):
            assert time.monotonic() < deadline, f"{self.side.name}: {self.name} doesn't end"
            time.sleep(0.01)

    def state(self) -> str:
        fields = {"transactional_ids": [self.name]}
        return self.side.quietly(ApiKey.DESCRIBE_TRANSACTIONS, 0, fields).transaction_states[0].transaction_state

    def describe(self, note: str = "") -> None:
        self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [self.name]}, note)

    def add_group(self, group: str, version: int = 3, note: str = "") -> Any:
        fields = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}
        return self.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, {**fields, "group_id": group}, note)

    def commit_offset(self, group: str, topic: str, offset: int, version: int, note: str = "", **member: Any) -> Any:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        fields = {
            "transactional_id": self.name,
            "group_id": group,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "topics": [{"name": topic, "partitions": [partition]}],
            **member,
        }
        return self.ask(ApiKey.TXN_OFFSET_COMMIT, version, fields, note)


def _codes(response: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    todo = [response]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif hasattr(value, "__dataclass_fields__"):
            for name in value.__dataclass_fields__:
                part = getattr(value, name)
                if name.endswith("error_code"):
                    found.add(part)
                else:
                    todo.append(part)
    return found


def look(side: Side, topic: str, partition: int = 0) -> None:
    """What both kinds of readers see now, and every byte."""
    for isolation in (0, READ_COMMITTED):
        side.fetch(topic, 0, partition=partition, isolation=isolation, note=f"isolation {isolation}")
        side.list_offset(topic, LATEST, partition=partition, isolation=isolation)
    side.read_all(topic, partition)


def each_version(side: Side, rng: Random) -> None:
    """A transaction that commits and one that aborts in every version of the requests."""
    topic = side.create("txn-versions", 2)
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        if version < 6:
            Txn(side, f"init-{version}").init(version)
    for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN):
        txn = Txn(side, f"add-{version}")
        txn.init()
        txn.add(topic, 0, 1, version=version)
        txn.describe()
        txn.send(topic, b"one", version=9)
        txn.end(commit=bool(version % 2))
    for version in range(3, 14):
        txn = Txn(side, f"produce-{version}", SECOND if version >= 12 else CLASSIC)
        txn.init()
        if version < 12:
            txn.add(topic, 0)
        txn.send(topic, b"two", b"three", version=version)
        txn.end(commit=bool(version % 3))
    for version in versions(ApiKey.END_TXN):
        txn = Txn(side, f"end-{version}", version)
        txn.init()
        for commit in (True, False, True):
            if version < SECOND:
                txn.add(topic, 1)
            txn.send(topic, b"four", partition=1)
            txn.end(commit=commit)
    look(side, topic, 0)
    look(side, topic, 1)


def deleted(side: Side, rng: Random) -> None:
    """DeleteRecords takes the beginning of transactions, open and ended ones."""
    topic = side.create("txn-deleted")
    for turn, commit in enumerate((True, False)):
        txn = Txn(side, f"deleted-{turn}", SECOND)
        txn.init()
        for value in (b"five", b"six", b"seven"):
            txn.send(topic, value)
        for offset in (4 * turn + 1, 4 * turn + 3):
            _delete(side, topic, offset)
        look(side, topic)
        side.fetch(topic, 4 * turn + 3, isolation=READ_COMMITTED, note="at the start")
        txn.end(commit=commit)
        look(side, topic)
        _delete(side, topic, 4 * turn + 4)
        look(side, topic)


def _delete(side: Side, topic: str, offset: int) -> None:
    side.wait_until_shown(topic, 0)
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000}, f"before {offset}")


def fencing(side: Side, rng: Random) -> None:
    topic = side.create("txn-fencing", 2)
    for end_version in (CLASSIC, SECOND):
        old = Txn(side, f"fence-{end_version}", end_version)
        old.init(note="the old one")
        if not old.joins:
            old.add(topic, 0)
        old.send(topic, b"open")
        new = Txn(side, old.name, end_version)
        new.init(note="the new one")
        for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN):
            old.add(topic, 1, version=version, note="fenced")
        for version in (9, 11, 12):
            old.send(topic, b"late", version=version, note="fenced")
            old.send(topic, b"late", partition=1, version=version, sequence=0, note="fenced, elsewhere")
        for version in versions(ApiKey.END_TXN):
            old.end(commit=True, version=version, note="fenced")
        for version in range(3, 6):
            old.resume(version, "fenced")
        for version in versions(ApiKey.ADD_OFFSETS_TO_TXN):
            old.add_group("txn-fenced", version, "fenced")
        new.describe()
        look(side, topic)


def going_on(side: Side, rng: Random) -> None:
    """KIP-360: the producer's own id and epoch, the ones before, and others'."""
    txn = Txn(side, "resume")
    txn.init()
    first = txn.id, txn.epoch
    txn.resume()
    second = txn.id, txn.epoch
    txn.id, txn.epoch = first
    txn.resume(note="again: the answer was lost")
    txn.resume()
    txn.id, txn.epoch = first
    txn.resume(note="too old")
    txn.id, txn.epoch = second[0] + 1000, 0
    txn.resume(note="another's id")
    txn.id, txn.epoch = second[0], second[1] + 9
    txn.resume(note="an epoch to come")
    for producer_id, epoch in ((5, -1), (-1, 5)):
        txn.init(note="half of it", producer_id=producer_id, producer_epoch=epoch)


def lost_ends(side: Side, rng: Random) -> None:
    """The answer to an EndTxn that raised the epoch was lost: the producer asks to go on with the epoch it has."""
    topic = side.create("txn-lost-ends")
    for commit in (True, False):
        for writes in (True, False):
            txn = Txn(side, f"lost-end-{commit}-{writes}", SECOND)
            txn.init()
            if writes:
                txn.send(topic, b"value")
            before = txn.id, txn.epoch
            txn.end(commit=commit)
            for note in ("with the epoch of before", "once more"):
                txn.id, txn.epoch = before
                txn.resume(note=note)
            txn.describe()
            txn.init(note="anew")
            txn.id, txn.epoch = before
            txn.resume(note="too old by now")
            txn.send(topic, b"late", note="too old by now")
    look(side, topic)


def wrong_ends(side: Side, rng: Random) -> None:
    """Nothing to end, ended already, the opposite, and the epochs around the right one."""
    topic = side.create("txn-ends")
    for end_version in (CLASSIC, SECOND):
        txn = Txn(side, f"ends-{end_version}", end_version)
        txn.init()
        txn.end(commit=True, note="of nothing")
        txn.end(commit=False, note="of nothing")
        for commit in (True, False):
            if not txn.joins:
                txn.add(topic)
            txn.send(topic, b"value")
            epoch = txn.epoch
            txn.end(commit=commit)
            now = txn.epoch
            for again in (True, False):
                txn.epoch = epoch
                txn.end(commit=again, note="again", producer_epoch=epoch)
            for wrong in (epoch - 1, epoch + 2):
                txn.end(commit=commit, note=f"epoch {wrong - epoch:+}", producer_epoch=wrong)
            txn.epoch = now
            txn.end(commit=True, note="in the present epoch")
            txn.end(commit=commit, note="of another producer", producer_id=txn.id + 1000)
        txn.describe()
    look(side, topic)


def refused(side: Side, rng: Random) -> None:
    topic = side.create("txn-refused", 2)
    txn = Txn(side, "refused")
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        txn.init(timeout_ms=timeout_ms, note=f"timeout {timeout_ms}")
    txn.id, txn.epoch = 4711, 0
    for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN):
        txn.add(topic, version=version, note="unknown id")
    for version in versions(ApiKey.END_TXN):
        txn.end(commit=True, version=version, note="unknown id")
    for version in (9, 11, 12):
        txn.send(topic, b"x", version=version, note="unknown id")
    nameless = Txn(side, "")
    nameless.id, nameless.epoch = 4711, 0
    for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN):
        nameless.add(topic, version=version, note="no id")
    for version in versions(ApiKey.END_TXN):
        nameless.ask(ApiKey.END_TXN, version, {"transactional_id": "", "producer_id": 1, "producer_epoch": 0}, "no id")
    txn.init()
    txn.add(topic, 0, 7, note="a partition that isn't there")
    txn.add("nowhere", 0, note="a topic that isn't there")
    for internal in ("__transaction_state", "__consumer_offsets", "__share_group_state"):
        txn.add(internal, 0, note="the broker's own")
    txn.describe("nothing joined")
    for version in (9, 11):
        txn.send(topic, b"x", version=version, note="didn't join")
    txn.add(topic, 0)
    txn.send(topic, b"x", sequence=0)
    txn.send(topic, b"y", sequence=5, note="out of order")
    txn.send(topic, b"x", sequence=0, note="a duplicate")
    txn.send(topic, b"z", partition=1, note="elsewhere")
    plain = Batch([Sent(b"plain")], producer=Producer(txn.id, txn.epoch, 1)).encode()
    side.produce(topic, plain, version=9, note="not transactional, while one is open")
    txn.end(commit=True)
    txn.send(topic, b"late", note="after the end")
    second = Txn(side, "refused-second", SECOND)
    second.init()
    second.send(topic, b"x", sequence=3, note="begins at 3")
    look(side, topic)


def verifying(side: Side, rng: Random) -> None:
    """What brokers ask each other (v4 and later): many transactions, verify-only."""
    topic = side.create("txn-verify", 3)
    one, two = Txn(side, "verify-1"), Txn(side, "verify-2")
    one.init()
    two.init()
    one.add(topic, 0)
    places = [{"name": topic, "partitions": [0, 1]}]
    stranger = Txn(side, "verify-3")
    stranger.id, stranger.epoch = 1, 0
    for version in (4, 5):
        for verify in (True, False):
            asked = [each.batched(places, verify=verify) for each in (one, two, stranger)]
            one.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": asked}, f"verify {verify}")
        unknown = [one.batched([{"name": topic, "partitions": [0, 9]}], verify=True)]
        one.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": unknown}, "a partition that isn't there")
    one.epoch += 1
    asked = [one.batched(places, verify=True)]
    one.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": asked}, "another epoch")


def offsets(side: Side, rng: Random) -> None:
    topic = side.create("txn-offsets")
    group = "txn-readers"
    while (
        side.quietly(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
        .coordinators[0]
        .error_code
    ):
        time.sleep(0.05)
    for version in versions(ApiKey.TXN_OFFSET_COMMIT):
        txn = Txn(side, f"offsets-{version}", SECOND if version >= 5 else CLASSIC)
        txn.init()
        txn.commit_offset(group, topic, 1, version, "didn't join")
        if version < 5:
            txn.add_group(group, min(version, 4))
        txn.commit_offset(group, topic, 10 + version, version)
        txn.commit_offset(group, "nowhere", 1, version, "a topic that isn't there")
        _committed(side, group, topic)
        txn.describe()
        txn.end(commit=bool(version % 2))
        _committed(side, group, topic)
        txn.commit_offset(group, topic, 99, version, "after the end")
        if txn.joins:
            txn.end(commit=False)
    txn = Txn(side, "offsets-members")
    txn.init()
    for version in versions(ApiKey.ADD_OFFSETS_TO_TXN):
        txn.add_group(group, version)
    txn.commit_offset(group, topic, 5, 3, "a generation", generation_id=3, member_id="someone")
    txn.commit_offset("", topic, 5, 3, "a group without a name")
    txn.end(commit=False)


def _committed(side: Side, group: str, topic: str) -> None:
    for stable in (False, True):
        asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
        side.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [asked], "require_stable": stable}, f"stable {stable}")


def looking(side: Side, rng: Random) -> None:
    """ListTransactions, DescribeTransactions, DescribeProducers."""
    topic = side.create("txn-look", 2)
    open_, done, fresh = Txn(side, "look-open"), Txn(side, "look-done", SECOND), Txn(side, "look-fresh")
    for txn in (open_, done, fresh):
        txn.init()
    open_.add(topic, 1, 0)
    open_.send(topic, b"open")
    done.send(topic, b"done")
    done.end(commit=True)
    for version in versions(ApiKey.LIST_TRANSACTIONS):
        pattern = {"transactional_id_pattern": "look-.*"} if version >= 2 else {}
        mine = [txn.id for txn in (open_, done, fresh)]
        for note, filters in {
            "mine": {"producer_id_filters": mine},
            "ongoing": {"producer_id_filters": mine, "state_filters": ["Ongoing"]},
            "two states": {"producer_id_filters": mine, "state_filters": ["Empty", "CompleteCommit"]},
            "no such state": {"producer_id_filters": mine, "state_filters": ["Nonsense", "Dead", "PrepareEpochFence"]},
            "none": {"producer_id_filters": [2**60]},
        }.items():
            open_.ask(ApiKey.LIST_TRANSACTIONS, version, {**pattern, **filters}, note)
    for note, filters in {
        "pattern": {"transactional_id_pattern": "look-[od].*"},
        "no pattern": {"transactional_id_pattern": "", "producer_id_filters": [open_.id]},
        "part of it": {"transactional_id_pattern": "look"},
        "bad pattern": {"transactional_id_pattern": "look-("},
        "long": {"transactional_id_pattern": "look-.*", "duration_filter": 3_600_000, "state_filters": ["Ongoing"]},
        "short": {"transactional_id_pattern": "look-.*", "duration_filter": 0, "state_filters": ["Ongoing"]},
    }.items():
        open_.ask(ApiKey.LIST_TRANSACTIONS, 2, filters, note)
    names = ["look-open", "look-done", "look-fresh", "look-nobody", ""]
    open_.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": names})
    side.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": topic, "partition_indexes": [0, 1]}]})
    open_.end(commit=False)


def markers(side: Side, rng: Random) -> None:
    """WriteTxnMarkers, as an operator sends it to end a transaction that hangs."""
    topic = side.create("txn-markers", 2)
    for version in versions(ApiKey.WRITE_TXN_MARKERS):
        txn = Txn(side, f"markers-{version}", SECOND)
        txn.init()
        txn.send(topic, b"hangs")

        def write(note: str, *, epoch: int, coordinator_epoch: int = 0, level: int = 0, index: int = 0) -> None:
            marker = {
                "producer_id": txn.id,  # noqa: B023 - used in this round only
                "producer_epoch": epoch,
                "transaction_result": False,
                "topics": [{"name": topic, "partition_indexes": [index]}],
                "coordinator_epoch": coordinator_epoch,
            }
            if version >= 2:  # noqa: B023
                marker["transaction_version"] = level
            txn.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]}, note)  # noqa: B023

        write("too old", epoch=txn.epoch - 1)
        write("no such partition", epoch=txn.epoch, index=9)
        if version >= 2:
            write("the same epoch, in the second version", epoch=txn.epoch, level=2)
        write("an abort", epoch=txn.epoch + 1, coordinator_epoch=3, level=2)
        write("again", epoch=txn.epoch + 1, coordinator_epoch=3, level=2)
        write("an older coordinator", epoch=txn.epoch + 2, coordinator_epoch=2, level=2)
        write("of one who wrote nothing there", epoch=txn.epoch, index=1)
        txn.ask(ApiKey.WRITE_TXN_MARKERS, version, {"markers": []}, "none")
    look(side, topic)
    look(side, topic, 1)


def two_phase(side: Side, rng: Random) -> None:
    """Off by default, and v6 is Kafka's only where unstable versions are enabled."""
    txn = Txn(side, "two-phase")
    txn.find()
    fields = {"transactional_id": txn.name, "transaction_timeout_ms": 60_000, "enable2_pc": True}
    side.ask(ApiKey.INIT_PRODUCER_ID, 6, fields, "two-phase commit")


SCRIPTS = (
    each_version,
    deleted,
    fencing,
    going_on,
    lost_ends,
    wrong_ends,
    refused,
    verifying,
    offsets,
    looking,
    markers,
    two_phase,
)
