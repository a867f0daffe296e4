"""Transactions over three simulated brokers that are killed, frozen and cut off: what was acknowledged counts, once."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.apis.txn import CLASSIC, SECOND, Txn, read_committed
from tests.sim.across import REPLICATED, Across, Pending
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey

PARTITIONS = 3
TRANSACTIONS = 30
AWAY_S = (0.1, 4.0)
PAUSE_S = 0.1
PATIENCE_S = 60.0
AGAIN = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""What clients ask again after."""


class Weather:
    """One broker at a time is away, in one of several ways, and comes back."""

    def __init__(self, across: Across, dice: Random) -> None:
        self.across = across
        self.seen: set[str] = set()
        self._dice = dice
        self._back_at = 0.0
        self._back: Callable[[], None] | None = None

    def blow(self) -> None:
        """Between any two requests."""
        now = self.across.world.timeline.now
        if self._back is not None and now >= self._back_at:
            self.calm()
        if self._back is None and self._dice.random() < 0.15:
            kind = self._dice.choice(["kill", "freeze", "split", "one-way split", "slow"])
            self.seen.add(kind)
            self._begin(kind, self._dice.randint(1, 3))
            self._back_at = now + self._dice.uniform(*AWAY_S)

    def _begin(self, kind: str, broker_id: int) -> None:
        across, network = self.across, self.across.world.network
        machine = across.machine(broker_id)
        address = machine.address
        other = across.machine(broker_id % 3 + 1).address
        if kind == "kill":
            across.kill(broker_id)
            self._back = lambda: across.start(broker_id)
        elif kind == "freeze":
            machine.freeze()
            self._back = machine.thaw
        elif kind == "slow":
            network.slow(address, other, 200.0)
            self._back = network.heal_all
        else:
            network.split(address, other, one_way=kind != "split")
            self._back = network.heal_all

    def calm(self) -> None:
        back, self._back = self._back, None
        if back is not None:
            back()


class Careful:
    """A producer that asks again until it knows, as clients do."""

    def __init__(self, weather: Weather, name: str, versions: dict[str, int], dice: Random) -> None:
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """By transactions whose commit was acknowledged."""
        self._weather = weather
        self._across = weather.across
        self._dice = dice
        self._number = 0
        self._txn = Txn(self._across, name, versions=versions)
        self._until(lambda: self._initialise())

    def _initialise(self) -> int | None:
        fields = {"transactional_id": self._txn.name, "transaction_timeout_ms": 600_000}
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
        if answer is not None and not answer.error_code:
            self._txn.id, self._txn.epoch = answer.producer_id, answer.producer_epoch
        return None if answer is None else answer.error_code

    def _ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """The answer; None where its connection broke, or it takes too long."""
        across = self._across
        self._weather.blow()
        at = across.route(key, fields)
        if at is None or not across.machine(at).up:
            return None
        pending: Pending = across.send_at(at, key, version, fields)
        deadline = across.world.timeline.now + 3.0
        while not pending.done and across.world.timeline.now < deadline:
            across.pass_time(0.02)
            self._weather.blow()
        return pending.response

    def _until(self, ask: Callable[[], int | None]) -> None:
        """Until the answer is yes; anything that clients don't ask again after is a fault of the cluster."""
        deadline = self._across.world.timeline.now + PATIENCE_S
        while (told := ask()) != ErrorCode.NONE:
            assert told is None or told in AGAIN, ErrorCode(told).name
            assert self._across.world.timeline.now < deadline, f"{self._txn.name} waits for ever: {told}"
            self._across.pass_time(PAUSE_S)

    def transact(self) -> None:
        values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for _ in range(self._dice.randint(1, 5)):
            index = self._dice.randrange(PARTITIONS)
            self._number += 1
            value = f"{self._txn.name}:{self._number}".encode()
            values[index].append(value)
            if self._txn.versions is CLASSIC:
                self._until(lambda index=index: self._add(index))
            self._until(lambda index=index, value=value: self._send(index, value))
            self._txn.sequences["tide", index] = self._txn.sequences.get(("tide", index), 0) + 1
        commit = self._dice.random() < 0.7
        self._until(lambda: self._end(commit=commit))
        if commit:
            for written, new in zip(self.written, values, strict=True):
                written += new

    def _add(self, index: int) -> int | None:
        answer = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, self._txn.add_fields("tide", index))
        return (
            None
            if answer is None
            else answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )

    def _send(self, index: int, value: bytes) -> int | None:
        sequence = self._txn.sequences.get(("tide", index), 0)
        fields = self._txn.produce_fields("tide", self._txn.batch(value, sequence=sequence), index)
        answer = self._ask(ApiKey.PRODUCE, self._txn.versions["produce"], fields)
        if answer is None:
            return None
        told = answer.responses[0].partition_responses[0].error_code
        return ErrorCode.NONE if told == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else told

    def _end(self, *, commit: bool) -> int | None:
        version = self._txn.versions["end"]
        answer = self._ask(ApiKey.END_TXN, version, self._txn.end_fields(commit=commit))
        if answer is None:
            return None
        if not answer.error_code and version >= 5:
            self._txn.sequences.clear()
            self._txn.id, self._txn.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


def live(seed: int, *, replicas: int = 1) -> set[str]:
    """The faults that were met."""
    dice = Random(seed)
    across = Across(REPLICATED if replicas > 1 else None, seed=seed)
    across.make_topic("tide", replicas=replicas)
    across.pass_time(3.0 if replicas > 1 else 0.0)  # until they are in sync
    weather = Weather(across, dice)
    names = [across.name_at(broker_id) for broker_id in (1, 2, 3)]
    producers = [Careful(weather, name, dice.choice([CLASSIC, SECOND]), dice) for name in names]
    for _ in range(TRANSACTIONS):
        dice.choice(producers).transact()
    weather.calm()

    def is_stable() -> bool:
        try:
            partitions = [across.partition("tide", index) for index in range(PARTITIONS)]
        except KafkaError:  # it is being opened, after a start
            return False
        return all(one.last_stable_offset == one.high_watermark for one in partitions)

    across.world.wait(lambda: all(machine.ready for machine in across.world.brokers), 30.0, lambda: "all brokers")
    across.world.wait(is_stable, 30.0, lambda: "the ends of all transactions")
    for index in range(PARTITIONS):
        found = read_committed(across, "tide", index)
        for producer, name in zip(producers, names, strict=True):
            own = [value for value in found if value.startswith(name.encode() + b":")]
            assert own == producer.written[index], (seed, name, index)
        assert len(found) == sum(len(producer.written[index]) for producer in producers)
    return weather.seen


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_acknowledged_counts_once_whatever_broker_was_away(seed: int, replicas: int) -> None:
    assert live(seed, replicas=replicas)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replicas", [1, 3])
def test_many_lives(replicas: int) -> None:
    seen = set[str]().union(*(live(seed, replicas=replicas) for seed in range(10, 110)))
    assert seen == {"kill", "freeze", "split", "one-way split", "slow"}
