"""A live group of the consumer protocol on a folder that Tidelog and Apache Kafka take turns on.

Its epochs, owners, targets and expressions are there after each turn, and its members go on where they were: the same
heartbeat is answered with the same epoch, and nothing is assigned anew, since both know the topics by the same hash.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.apis.test_group_migration import subscription
from tests.kafka.test_no_lock_in import Folder
from tests.raw import Connection
from tests.reading import create_topic
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

GROUP = "scenario_run"
LATER = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Members:
    """Members of one group, wherever it is coordinated."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = Connection(bootstrap)
        while True:
            found = self.connection.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [GROUP]})
            if found.coordinators[0].error_code == 0:
                break

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        asked = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **fields}
        while True:
            answer = self.connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
            if answer.error_code not in LATER:
                assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
                return answer

    def join(self, member_id: str, **fields: Any) -> Any:
        return self.beat(member_id, 0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields)

    def join_classic(self, member_id: str) -> Any:
        fields = {
            "group_id": GROUP,
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("tides")}],
        }
        while True:
            answer = self.connection.ask(ApiKey.JOIN_GROUP, 9, fields)
            if answer.error_code not in LATER:
                return answer

    def seen(self) -> Any:
        """The group as it is described, in an order of its own."""
        while True:
            group = self.connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [GROUP]}).groups[0]
            if group.error_code not in LATER:
                break
        assert group.error_code == 0, ErrorCode(group.error_code)
        members = {
            member.member_id: (
                member.member_epoch,
                member.instance_id,
                member.rack_id,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex,
                places(member.assignment),
                places(member.target_assignment),
                member.member_type,
            )
            for member in group.members
        }
        return group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name, members


def places(assignment: Any) -> list[tuple[str, int]]:
    return sorted((one.topic_name, index) for one in assignment.topic_partitions for index in one.partitions)


def uses(assignment: Any) -> list[dict[str, Any]]:
    return [{"topic_id": one.topic_id, "partitions": one.partitions} for one in assignment.topic_partitions]


def begin(members: Members) -> Any:
    """Two members, of which one was told to give something up and the other waits for it."""
    owner = members.join("a", subscribed_topic_names=["tides", "winds"], rack_id="north")
    while not (owner.assignment and len(places_of(owner)) == 7):
        owner = members.beat("a", owner.member_epoch)
    anchor = members.join("b", subscribed_topic_names=["tides"], instance_id="anchor")
    while members.seen()[2] < members.seen()[1]:  # the next assignment waits for its interval
        anchor = members.beat("b", anchor.member_epoch, instance_id="anchor", topic_partitions=[])
    members.beat("a", owner.member_epoch, topic_partitions=uses(owner.assignment))
    seen = members.seen()
    assert seen[0] == "Reconciling"
    return seen


def go_on(members: Members, before: Any) -> Any:
    """The one gave up what it should, the other gets it."""
    _, group_epoch, target_epoch, _, known = before
    full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["tides", "winds"]}
    kept = members.beat("a", known["a"][0], topic_partitions=[], **full)
    assert kept.member_epoch == target_epoch
    got = members.beat("b", known["b"][0], instance_id="anchor", topic_partitions=[])
    assert places_of(got)
    after = members.seen()
    assert after[:3] == ("Stable", group_epoch, target_epoch), "and nothing was assigned anew"
    return after


@pytest.mark.parametrize("first", ["tidelog", "kafka"])
def test_a_group_goes_on_under_the_other_broker(jars: Path, tmp_path: Path, first: str) -> None:
    folder = Folder(tmp_path / "data")
    second = "kafka" if first == "tidelog" else "tidelog"
    with getattr(folder, first)("stop") as bootstrap:
        for name, partitions in (("tides", 4), ("winds", 3)):
            create_topic(bootstrap, name, partitions)
        with Members(bootstrap) as members:
            before = begin(members)
    with getattr(folder, second)("stop") as bootstrap, Members(bootstrap) as members:
        assert members.seen() == before
        after = go_on(members, before)
    with getattr(folder, first)("kill") as bootstrap, Members(bootstrap) as members:
        assert members.seen() == after
        quiet = members.beat("a", after[2])
        assert (quiet.member_epoch, quiet.assignment) == (after[2], None)
        members.beat("a", -1)
        members.beat("b", -1, instance_id="anchor")
        assert members.seen()[0] == "Empty"
    with getattr(folder, second)("kill") as bootstrap, Members(bootstrap) as members:
        assert members.seen()[0] == "Empty"


@pytest.mark.parametrize("first", ["tidelog", "kafka"])
def test_a_group_with_an_expression_and_a_classic_member_goes_on(jars: Path, tmp_path: Path, first: str) -> None:
    folder = Folder(tmp_path / "data")
    second = "kafka" if first == "tidelog" else "tidelog"
    with getattr(folder, first)("stop") as bootstrap:
        create_topic(bootstrap, "tides", 4)
        with Members(bootstrap) as members:
            new = members.join("new", subscribed_topic_regex="t.*s")
            while not (new.assignment and len(places_of(new)) == 4):
                full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": "t.*s"}
                new = members.beat("new", new.member_epoch, topic_partitions=[], **full)
            old = members.join_classic(members.join_classic("").member_id)
            assert (old.error_code, old.protocol_name) == (0, "range")
            before = members.seen()
            assert {known[-1] for known in before[4].values()} == {0, 1}, "one of each protocol"
    with getattr(folder, second)("stop") as bootstrap, Members(bootstrap) as members:
        assert members.seen() == before
        members.beat("new", -1)
        joined = members.join_classic(old.member_id)
        assert (joined.error_code, joined.leader) == (0, old.member_id), "it leads a classic group by now"
    with getattr(folder, first)("kill") as bootstrap, Members(bootstrap) as members:
        again = members.join_classic(old.member_id)
        assert (again.error_code, again.generation_id > joined.generation_id - 1) == (0, True)


def places_of(answer: Any) -> list[int]:
    return [index for one in answer.assignment.topic_partitions for index in one.partitions]
