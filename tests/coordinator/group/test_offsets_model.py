"""Random commits, deletions, transactions, crashes and restarts, against a plain dictionary."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.apis.offsets import TOPIC, commit, fetch, find, shard, sim_broker
from tests.apis.sim_broker import SimBroker
from tests.apis.test_offset_fetch import in_transaction
from tidelog.wire.keys import ApiKey

GROUPS = st.sampled_from(["alpha", "beta", "gamma", "delta"])
PARTITIONS = st.integers(0, 2)
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 1000), min_size=1)
PRODUCERS = st.sampled_from([70, 71])
SETTINGS = {"offsets.topic.num.partitions": "2"}


class Offsets(RuleBasedStateMachine):
    """`known` holds each offset with the moment of its record, so that the later one wins."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, dict[int, tuple[int, int]]] = {}
        self.pending: dict[int, dict[str, dict[int, tuple[int, int]]]] = {}
        self.moment = 0
        self.port: SimBroker

    @initialize()
    def begin(self) -> None:
        self.port = sim_broker(SETTINGS)
        for group in ("alpha", "beta", "gamma", "delta"):
            find(self.port, group)

    def _dated(self, offsets: dict[int, int]) -> dict[int, tuple[int, int]]:
        self.moment += 1
        return {partition: (self.moment, offset) for partition, offset in offsets.items()}

    @rule(group=GROUPS, offsets=OFFSETS)
    def commit(self, group: str, offsets: dict[int, int]) -> None:
        assert commit(self.port, offsets, group) == {0}
        self.known.setdefault(group, {}).update(self._dated(offsets))

    @rule(group=GROUPS, offsets=OFFSETS, producer=PRODUCERS)
    def commit_in_transaction(self, group: str, offsets: dict[int, int], producer: int) -> None:
        in_transaction(self.port, producer, offsets, group)
        self.pending.setdefault(producer, {}).setdefault(group, {}).update(self._dated(offsets))

    @rule(producer=PRODUCERS, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        for index in range(2):
            one = self.port.services.groups.shards.at(index)
            self.port.wait(one.end_transaction(producer, 0, 0, committed))
        for group, offsets in self.pending.pop(producer, {}).items():
            known = self.known.setdefault(group, {})
            for partition, dated in offsets.items():
                if committed and dated > known.get(partition, (-1, -1)):
                    known[partition] = dated

    @rule(group=GROUPS, partitions=st.sets(PARTITIONS, min_size=1))
    def delete_offsets(self, group: str, partitions: set[int]) -> None:
        topics = [{"name": TOPIC, "partitions": [{"partition_index": index} for index in partitions]}]
        self.port.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": topics})
        self._forget(group, partitions)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.port.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})
        self._forget(group, {0, 1, 2})

    def _forget(self, group: str, partitions: set[int]) -> None:
        for offsets in (self.known, *self.pending.values()):
            for partition in partitions:
                offsets.get(group, {}).pop(partition, None)

    @rule()
    def crash(self) -> None:
        self.port = sim_broker(SETTINGS, disk=self.port.kill())
        self.port.pass_time(1.5)

    @rule()
    def stop_and_start(self) -> None:
        self.port.wait(self.port.broker.stop())
        self.port = sim_broker(SETTINGS, disk=self.port.kill())
        self.port.pass_time(1.5)

    @rule()
    def roll_segments(self) -> None:
        for one in self.port.services.groups.shards.loaded():
            one.partition.log.roll(self.port.timeline.now_ms())

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        for group in ("alpha", "beta", "gamma", "delta"):
            expected = {(TOPIC, index): offset for index, (_, offset) in self.known.get(group, {}).items()}
            assert fetch(self.port, group) == expected
            pending = {index for groups in self.pending.values() for index in groups.get(group, ())}
            stable = fetch(self.port, group, require_stable=True)
            assert {key for key, offset in stable.items() if offset < 0} == {
                (TOPIC, index) for index in pending & self.known.get(group, {}).keys()
            }
            state = shard(self.port, group).state
            assert (group in state.writers) == bool(pending)


OffsetsTest = Offsets.TestCase
OffsetsTest.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
