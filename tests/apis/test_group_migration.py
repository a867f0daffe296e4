"""A live group between the two protocols, both ways, request by request: nobody loses its place on the way."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from tests.apis.sim_broker import Asked, SimBroker
from tests.apis.test_consumer_group_heartbeat import FAST, GROUP, Port, code
from tidelog.coordinator.group.classic.state import ClassicGroup
from tidelog.coordinator.group.consumer import embedded
from tidelog.coordinator.group.consumer.embedded import AssignmentData, SubscriptionData, TopicPartition
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {**FAST, "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


def subscription(*topics: str, uses: dict[str, Sequence[int]] | None = None, rack: str | None = None) -> bytes:
    owned = [TopicPartition(topic=name, partitions=list(found)) for name, found in (uses or {}).items()]
    data = SubscriptionData(topics=list(topics), owned_partitions=owned, rack_id=rack)
    return struct.pack(">h", 3) + encoder(SubscriptionData, 3)(data)


def assignment(uses: dict[str, Sequence[int]], user_data: bytes | None = None) -> bytes:
    listed = [TopicPartition(topic=name, partitions=list(found)) for name, found in uses.items()]
    data = AssignmentData(assigned_partitions=listed, user_data=user_data)
    return struct.pack(">h", 3) + encoder(AssignmentData, 3)(data)


def read(data: bytes) -> dict[str, list[int]]:
    return {one.topic: one.partitions for one in embedded.read_assignment(data).assigned_partitions}


class Docks(Port):
    """A broker with members of either protocol."""

    def __init__(self, settings: dict[str, str] | None = None, sim_broker: SimBroker | None = None) -> None:
        super().__init__({**SETTINGS, **(settings or {})}, sim_broker)

    @property
    def group(self) -> Any:
        return self.sim_broker.services.groups.shard_of(GROUP).state.groups.get(GROUP)

    def send_join(self, member_id: str, *topics: str, version: int = 9, **more: Any) -> Asked:
        fields = {
            "group_id": GROUP,
            "session_timeout_ms": 8_000,
            "rebalance_timeout_ms": more.pop("rebalance_timeout_ms", 5_000),
            "member_id": member_id,
            "group_instance_id": more.pop("instance", None),
            "protocol_type": "consumer",
            "protocols": [
                {"name": name, "metadata": subscription(*topics, uses=more.get("uses"))}
                for name in more.get("protocols", ["cooperative-sticky", "range"])
            ],
        }
        return self.sim_broker.send(ApiKey.JOIN_GROUP, version, fields)

    def classic_join(self, member_id: str, *topics: str, **more: Any) -> Any:
        asked = self.send_join(member_id, *topics, **more)
        self.sim_broker.timeline.run_until(lambda: asked.done, self.sim_broker.timeline.now + 30)
        return asked.response

    def classic_sync(self, member_id: str, generation: int, given: dict[str, bytes] | None = None, **more: Any) -> Any:
        fields = {
            "group_id": GROUP,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": more.get("protocol", "cooperative-sticky"),
            "assignments": [{"member_id": one, "assignment": data} for one, data in (given or {}).items()],
        }
        return self.sim_broker.ask(ApiKey.SYNC_GROUP, 5, fields)

    def classic_beat(self, member_id: str, generation: int) -> ErrorCode:
        fields = {"group_id": GROUP, "generation_id": generation, "member_id": member_id}
        return code(self.sim_broker.ask(ApiKey.HEARTBEAT, 4, fields))

    def classic_leave(self, *member_ids: str) -> Any:
        members = [{"member_id": one, "group_instance_id": None} for one in member_ids]
        return self.sim_broker.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": GROUP, "members": members})

    def classic_member(self, *topics: str) -> str:
        """A new member of a classic group on its own, in generation 1 with all of `tides`."""
        required = self.classic_join("", *topics)
        assert code(required) is ErrorCode.MEMBER_ID_REQUIRED
        joined = self.classic_join(required.member_id, *topics)
        assert (code(joined), joined.generation_id) == (ErrorCode.NONE, 1)
        synced = self.classic_sync(joined.member_id, 1, {joined.member_id: assignment({"tides": [0, 1, 2, 3]})})
        assert read(synced.assignment) == {"tides": [0, 1, 2, 3]}
        return required.member_id


@pytest.fixture
def docks() -> Docks:
    made = Docks()
    made.topic("tides", 4)
    return made


def test_a_classic_group_takes_a_member_of_the_new_protocol_and_is_handed_over_bit_by_bit(docks: Docks) -> None:
    old = docks.classic_member("tides")
    new = docks.join("new", "tides")
    assert (new.member_epoch, docks.told(new)) == (2, {}), "the old one still has everything"
    assert isinstance(docks.group, ConsumerGroup)
    docks.group.check_invariants()
    group = docks.describe()
    assert {(one.member_id, one.member_type, one.member_epoch) for one in group.members} == {(old, 0, 1), ("new", 1, 2)}
    assert docks.classic_beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    asked_back = docks.classic_join(old, "tides", uses={"tides": [0, 1, 2, 3]})
    assert (code(asked_back), asked_back.generation_id) == (ErrorCode.NONE, 1), "it stays until it gave them up"
    assert read(docks.classic_sync(old, 1).assignment) == {"tides": [0, 1]}
    assert docks.classic_beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    moved = docks.classic_join(old, "tides", uses={"tides": [0, 1]})
    assert moved.generation_id == 2
    assert read(docks.classic_sync(old, 2).assignment) == {"tides": [0, 1]}
    assert docks.classic_beat(old, 2) is ErrorCode.NONE
    assert docks.told(docks.beat("new", 2, uses={})) == {"tides": [2, 3]}
    assert docks.describe().group_state == "Stable"


def test_an_eager_member_has_nothing_when_it_joins_again(docks: Docks) -> None:
    old = docks.classic_member("tides")
    docks.join("new", "tides")
    joined = docks.classic_join(old, "tides")
    assert joined.generation_id == 2
    assert read(docks.classic_sync(old, 2).assignment) == {"tides": [0, 1]}


def test_the_group_goes_back_when_the_last_member_of_the_new_protocol_leaves(docks: Docks) -> None:
    old = docks.classic_member("tides")
    docks.join("new", "tides")
    docks.classic_join(old, "tides")
    docks.classic_sync(old, 2)
    docks.beat("new", 2, uses={})
    left = docks.beat("new", -1)
    assert code(left) is ErrorCode.NONE
    group = docks.group
    assert isinstance(group, ClassicGroup)
    assert (group.generation, list(group.members)) == (2, [old])
    assert docks.classic_beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = docks.classic_join(old, "tides")
    assert (joined.generation_id, joined.leader) == (3, old)
    synced = docks.classic_sync(old, 3, {old: assignment({"tides": [0, 1, 2, 3]})})
    assert read(synced.assignment) == {"tides": [0, 1, 2, 3]}
    assert code(docks.describe()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_it_goes_back_too_when_the_last_one_is_not_heard_of(docks: Docks) -> None:
    old = docks.classic_member("tides")
    docks.join("new", "tides")
    docks.classic_join(old, "tides")
    docks.classic_sync(old, 2)
    for _ in range(5):
        docks.sim_broker.pass_time(2.5)
        docks.classic_beat(old, 2)
    assert isinstance(docks.group, ClassicGroup)


def test_who_waits_for_a_generation_is_told_to_join_again(docks: Docks) -> None:
    old = docks.classic_member("tides")
    other = docks.classic_join("", "tides").member_id
    waiting = docks.send_join(other, "tides")
    assert not waiting.done
    docks.join("new", "tides")
    assert code(waiting.response) is ErrorCode.REBALANCE_IN_PROGRESS
    again = docks.classic_join(other, "tides")
    assert code(again) is ErrorCode.NONE
    assert {member.member_id for member in docks.describe().members} == {old, other, "new"}


def test_classic_members_come_and_go_in_a_group_of_the_new_protocol(docks: Docks) -> None:
    docks.join("new", "tides")
    required = docks.classic_join("", "tides")
    assert code(required) is ErrorCode.MEMBER_ID_REQUIRED
    joined = docks.classic_join(required.member_id, "tides")
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (3, "cooperative-sticky", "")
    assert read(docks.classic_sync(joined.member_id, 3).assignment) == {}
    docks.beat("new", 2, uses={"tides": [0, 1]})
    assert docks.classic_beat(joined.member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS, "what it waited for is free"
    again = docks.classic_join(joined.member_id, "tides", uses={})
    assert read(docks.classic_sync(again.member_id, again.generation_id).assignment) == {"tides": [2, 3]}
    left = docks.classic_leave(again.member_id, "nobody")
    assert [one.error_code for one in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert docks.told(docks.beat("new", 3)) == {"tides": [0, 1, 2, 3]}


def test_classic_members_are_fenced_by_generation_protocol_and_id(docks: Docks) -> None:
    docks.join("new", "tides")
    member = docks.classic_join(docks.classic_join("", "tides").member_id, "tides")
    assert docks.classic_beat(member.member_id, 9) is ErrorCode.ILLEGAL_GENERATION
    assert docks.classic_beat("nobody", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert docks.classic_beat("new", 2) is ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    assert code(docks.classic_sync(member.member_id, 2)) is ErrorCode.ILLEGAL_GENERATION
    wrong = docks.classic_sync(member.member_id, 3, protocol="range")
    assert code(wrong) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = docks.classic_join("", "tides", protocols=["sticky"])
    assert code(other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "nothing that both classic members know"


def test_a_classic_member_that_does_not_join_or_sync_in_time_is_taken_out(docks: Docks) -> None:
    old = docks.classic_member("tides")
    docks.join("new", "tides", rebalance_timeout_ms=30_000)
    for _ in range(6):
        docks.sim_broker.pass_time(1.0)
        docks.classic_beat(old, 1)
        docks.beat("new", 2, uses={})
    assert [member.member_id for member in docks.describe().members] == ["new"], "called to join, it didn't"
    required = docks.classic_join("", "tides").member_id
    joined = docks.classic_join(required, "tides")
    for _ in range(6):
        docks.sim_broker.pass_time(1.0)
        docks.classic_beat(required, joined.generation_id)
        docks.beat("new", docks.describe().members[-1].member_epoch)
    assert [member.member_id for member in docks.describe().members] == ["new"], "it joined and never synced"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_without_upgrades_a_classic_group_stays_one(policy: str) -> None:
    docks = Docks({"group.consumer.migration.policy": policy})
    docks.topic("tides", 4)
    docks.classic_member("tides")
    assert code(docks.join("new", "tides")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(docks.group, ClassicGroup)


def test_without_downgrades_the_group_stays_one_of_the_new_protocol() -> None:
    docks = Docks({"group.consumer.migration.policy": "UPGRADE"})
    docks.topic("tides", 4)
    docks.classic_member("tides")
    docks.join("new", "tides")
    docks.beat("new", -1)
    assert isinstance(docks.group, ConsumerGroup)


def test_with_migration_disabled_no_classic_member_joins_a_group_of_the_new_protocol() -> None:
    docks = Docks({"group.consumer.migration.policy": "disabled"})
    docks.topic("tides", 4)
    docks.join("new", "tides")
    assert code(docks.classic_join("", "tides")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_changes_protocols_with_the_next_member_whatever_the_policy() -> None:
    docks = Docks({"group.consumer.migration.policy": "disabled"})
    docks.topic("tides", 4)
    old = docks.classic_member("tides")
    docks.classic_leave(old)
    assert docks.join("new", "tides").member_epoch == 2
    docks.beat("new", -1)
    docks.classic_member("tides")
    assert isinstance(docks.group, ClassicGroup)


def remembering(docks: Docks, assignor: str) -> None:
    """A classic group whose assignment carries what its assignor wants to know again."""
    required = docks.classic_join("", "tides", protocols=[assignor])
    member = docks.classic_join(required.member_id, "tides", protocols=[assignor]).member_id
    given = {member: assignment({"tides": [0]}, b"memory")}
    assert read(docks.classic_sync(member, 1, given, protocol=assignor).assignment) == {"tides": [0]}


def test_what_an_assignor_of_its_own_remembers_would_be_lost_so_the_group_stays(docks: Docks) -> None:
    remembering(docks, "by-the-moon")
    assert code(docks.join("new", "tides")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(docks.group, ClassicGroup)


def test_what_known_assignors_add_does_not_stand_in_the_way(docks: Docks) -> None:
    remembering(docks, "cooperative-sticky")
    assert code(docks.join("new", "tides")) is ErrorCode.NONE
    assert isinstance(docks.group, ConsumerGroup)


def test_a_group_that_is_not_of_consumers_stays(docks: Docks) -> None:
    fields = {
        "group_id": GROUP,
        "session_timeout_ms": 8_000,
        "rebalance_timeout_ms": 5_000,
        "member_id": "",
        "protocol_type": "connect",
        "protocols": [{"name": "default", "metadata": b""}],
    }
    assert docks.sim_broker.ask(ApiKey.JOIN_GROUP, 3, fields).error_code == 0
    assert code(docks.join("new", "tides")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_static_member_keeps_its_partitions_from_one_protocol_to_the_other_and_back(docks: Docks) -> None:
    joined = docks.classic_join("", "tides", instance="anchor")
    docks.classic_sync(joined.member_id, 1, {joined.member_id: assignment({"tides": [0, 1, 2, 3]})})
    up = docks.join("new", "tides", instance_id="anchor")
    assert docks.told(up) == {"tides": [0, 1, 2, 3]}, "restarted with the new protocol"
    assert [member.member_id for member in docks.describe().members] == ["new"]
    other = docks.classic_join(docks.classic_join("", "tides").member_id, "tides")
    assert isinstance(docks.group, ConsumerGroup)
    down = docks.classic_join("", "tides", instance="anchor")
    assert isinstance(docks.group, ClassicGroup), "nobody speaks the new protocol any more"
    assert code(down) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert {member.instance_id for member in docks.group.members.values()} == {None, "anchor"}
    assert other.member_id in docks.group.members


def test_a_migrated_group_survives_kill_9(docks: Docks) -> None:
    old = docks.classic_member("tides")
    docks.join("new", "tides")
    docks.sim_broker.settle()
    again = Docks(sim_broker=SimBroker(SETTINGS, disk=docks.sim_broker.kill()))
    assert {member.member_id for member in again.describe().members} == {old, "new"}
    again.beat("new", -1)
    again.sim_broker.settle()
    last = Docks(sim_broker=SimBroker(SETTINGS, disk=again.sim_broker.kill()))
    last.sim_broker.open(*last.sim_broker.services.store.unopened())
    assert isinstance(last.group, ClassicGroup)
    assert list(last.group.members) == [old]


def test_commits_are_fenced_by_epoch_for_members_of_either_protocol(docks: Docks) -> None:
    old = docks.classic_member("tides")
    docks.join("new", "tides")
    docks.classic_join(old, "tides")
    docks.classic_sync(old, 2)
    docks.beat("new", 2, uses={})

    def commit(member_id: str, epoch: int, partition: int) -> ErrorCode:
        partitions = [{"partition_index": partition, "committed_offset": 7, "committed_metadata": ""}]
        topics = [{"name": "tides", "partitions": partitions}]
        fields = {"group_id": GROUP, "generation_id_or_member_epoch": epoch, "member_id": member_id, "topics": topics}
        return ErrorCode(docks.sim_broker.ask(ApiKey.OFFSET_COMMIT, 9, fields).topics[0].partitions[0].error_code)

    assert commit("new", 2, 2) is ErrorCode.NONE
    assert commit("new", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("new", 3, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(old, 2, 0) is ErrorCode.NONE
    assert commit(old, 1, 0) is ErrorCode.NONE, "it has had this one since generation 1"
    assert commit(old, 1, 3) is ErrorCode.ILLEGAL_GENERATION
    assert commit("nobody", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_whose_first_protocol_cannot_be_read_is_told_so(docks: Docks) -> None:
    """The group was taken over by what it said under the protocol that all know."""
    fields = {
        "group_id": GROUP,
        "session_timeout_ms": 8_000,
        "rebalance_timeout_ms": 5_000,
        "protocol_type": "consumer",
        "group_instance_id": "buoy",
        "protocols": [{"name": "odd", "metadata": b""}, {"name": "range", "metadata": subscription("tides")}],
    }
    odd = docks.sim_broker.send(ApiKey.JOIN_GROUP, 9, fields)
    plain = docks.send_join("", "tides", protocols=["range"], instance="keel")
    docks.sim_broker.pass_time(1)
    leader = odd.response if odd.response.members else plain.response
    generation = leader.generation_id
    docks.classic_sync(leader.member_id, generation, {}, protocol="range")
    assert docks.join("new").error_code == 0
    told = docks.classic_sync(odd.response.member_id, generation, protocol="odd")
    assert code(told) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("says", [{"version": 0}, {"rebalance_timeout_ms": -1}])
def test_a_classic_member_without_a_rebalance_timeout_has_its_session_to_join_and_sync(
    docks: Docks, says: dict[str, int]
) -> None:
    """The oldest JoinGroup knows none; in a later one, -1 is what it said before, and a new member said nothing."""
    docks.join("new", "tides", rebalance_timeout_ms=30_000)
    joined = docks.classic_join("", "tides", **says)
    if code(joined) is ErrorCode.MEMBER_ID_REQUIRED:
        joined = docks.classic_join(joined.member_id, "tides", **says)
    old = joined.member_id
    epoch = docks.beat("new", 2, uses={"tides": [0, 1]}).member_epoch
    for _ in range(4):
        docks.sim_broker.pass_time(1.0)
        docks.beat("new", epoch)
        docks.classic_beat(old, joined.generation_id)
    again = docks.classic_join(old, "tides", **says)
    assert code(again) is ErrorCode.NONE
    docks.sim_broker.pass_time(2.0)
    assert code(docks.classic_sync(old, again.generation_id)) is ErrorCode.NONE
    assert {member.member_id for member in docks.describe().members} == {"new", old}
    for _ in range(9):
        docks.sim_broker.pass_time(1.0)
        docks.beat("new", epoch)
    assert [member.member_id for member in docks.describe().members] == ["new"], "its session ended"
