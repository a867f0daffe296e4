"""ConsumerGroupHeartbeat through the broker, on virtual time: joins, hand-overs, sessions, static members, patterns."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

FAST = {
    "offsets.topic.num.partitions": "2",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "3000",
}
GROUP = "scenario_run"


class Port:
    """A broker with members whose requests a test sends."""

    def __init__(self, settings: dict[str, str] | None = None, sim_broker: SimBroker | None = None) -> None:
        self.sim_broker = sim_broker or SimBroker({**FAST, **(settings or {})})
        self.names: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        for name, topic in self.sim_broker.services.metadata.image.topics.items():
            self.names[topic.id], self.ids[name] = name, topic.id
        fields = {"key_type": 0, "coordinator_keys": [GROUP]}
        assert self.sim_broker.ask(ApiKey.FIND_COORDINATOR, 4, fields).coordinators[0].error_code == 0
        self.sim_broker.pass_time(0.5)

    def topic(self, name: str, partitions: int) -> None:
        self.ids[name] = self.sim_broker.make_topic(name, partitions)
        self.names[self.ids[name]] = name

    def grow(self, name: str, partitions: int) -> None:
        fields = {"topics": [{"name": name, "count": partitions, "assignments": None}], "timeout_ms": 10_000}
        assert self.sim_broker.ask(ApiKey.CREATE_PARTITIONS, 3, fields).results[0].error_code == 0

    def beat(self, member_id: str, epoch: int, version: int = 1, group: str = GROUP, **fields: Any) -> Any:
        if "uses" in fields:
            fields["topic_partitions"] = [
                {"topic_id": self.ids[name], "partitions": found} for name, found in fields.pop("uses").items()
            ]
        asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, **fields}
        answer = self.sim_broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, asked)
        live = self.sim_broker.services.groups.shard_of(group or GROUP).state.groups.get(group)
        if isinstance(live, ConsumerGroup):
            live.check_invariants()
        return answer

    def join(self, member_id: str, *names: str, **fields: Any) -> Any:
        first = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": list(names), "topic_partitions": []}
        return self.beat(member_id, 0, **{**first, **fields})

    def told(self, answer: Any) -> dict[str, list[int]] | None:
        assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
        if answer.assignment is None:
            return None
        return {self.names[one.topic_id]: one.partitions for one in answer.assignment.topic_partitions}

    def describe(self, group: str = GROUP) -> Any:
        return self.sim_broker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups[0]

    def log_end(self) -> int:
        return self.sim_broker.services.groups.shard_of(GROUP).partition.log.log_end


@pytest.fixture
def port() -> Port:
    made = Port()
    made.topic("tides", 4)
    return made


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def test_the_first_member_gets_everything_at_once(port: Port) -> None:
    answer = port.join("a", "tides")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 3000)
    assert port.told(answer) == {"tides": [0, 1, 2, 3]}
    group = port.describe()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)


def test_a_partition_is_handed_over_only_when_its_owner_gave_it_up(port: Port) -> None:
    port.join("a", "tides")
    second = port.join("b", "tides")
    assert (second.member_epoch, port.told(second)) == (3, {})
    asked_back = port.beat("a", 2, uses={"tides": [0, 1, 2, 3]})
    assert (asked_back.member_epoch, port.told(asked_back)) == (2, {"tides": [0, 1]})
    assert port.told(port.beat("b", 3, uses={})) is None, "not yet: the other hasn't confirmed"
    assert port.describe().group_state == "Reconciling"
    confirmed = port.beat("a", 2, uses={"tides": [0, 1]})
    assert (confirmed.member_epoch, port.told(confirmed)) == (3, None)
    assert port.told(port.beat("b", 3, uses={})) == {"tides": [2, 3]}
    assert port.describe().group_state == "Stable"


def test_what_stays_with_a_member_is_never_taken_away_on_the_way(port: Port) -> None:
    port.join("a", "tides")
    port.join("b", "tides")
    assert port.told(port.beat("a", 2, uses={"tides": [0, 1, 2, 3]})) == {"tides": [0, 1]}
    port.beat("a", 2, uses={"tides": [0, 1]})
    port.beat("b", 3, uses={})
    port.join("c", "tides")
    assert port.told(port.beat("b", 3, uses={"tides": [2, 3]})) == {"tides": [2]}, "keeps one of its two throughout"
    assert port.told(port.beat("a", 3, uses={"tides": [0, 1]})) is None, "and the other keeps both"


def test_a_heartbeat_that_brings_nothing_writes_nothing_and_sets_no_timer(port: Port) -> None:
    port.join("a", "tides")
    loop = port.sim_broker.loop
    end, timers = port.log_end(), loop.timers_set
    for _ in range(20):
        answer = port.beat("a", 2)
        assert (answer.member_epoch, answer.assignment) == (2, None)
    assert port.log_end() == end
    assert loop.timers_set == timers


def test_a_member_that_is_not_heard_of_loses_its_place(port: Port) -> None:
    port.join("a", "tides")
    port.join("b", "tides")
    for _ in range(4):
        port.sim_broker.pass_time(3.0)
        last = port.beat("b", port.describe().members[-1].member_epoch, uses={})
    assert port.told(last) in (None, {"tides": [0, 1, 2, 3]})
    assert [member.member_id for member in port.describe().members] == ["b"]
    assert port.describe().members[0].assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert code(port.beat("a", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_is_as_long_as_the_group_says(port: Port) -> None:
    changes = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "4000"}]
    resources = [{"resource_type": 32, "resource_name": GROUP, "configs": changes}]
    asked = {"resources": resources, "validate_only": False}
    assert port.sim_broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses[0].error_code == 0
    port.join("a", "tides")
    port.sim_broker.pass_time(3.9)
    assert len(port.describe().members) == 1
    port.sim_broker.pass_time(0.2)
    assert port.describe().group_state == "Empty"


def test_one_that_does_not_give_up_what_it_should_is_taken_out(port: Port) -> None:
    port.join("a", "tides", rebalance_timeout_ms=2000)
    port.join("b", "tides")
    port.beat("a", 2, uses={"tides": [0, 1, 2, 3]})
    port.sim_broker.pass_time(1.5)
    assert code(port.beat("a", 2, uses={"tides": [0, 1, 2, 3]})) is ErrorCode.NONE, "it has time yet"
    port.sim_broker.pass_time(0.6)
    assert code(port.beat("a", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert port.told(port.beat("b", 3, uses={})) == {"tides": [0, 1, 2, 3]}


def test_an_answer_that_was_lost_is_given_again(port: Port) -> None:
    port.join("a", "tides")
    port.grow("tides", 6)
    port.beat("a", 2)  # answered with epoch 3 and more partitions; never arrives
    again = port.beat("a", 2, uses={"tides": [0, 1, 2, 3]}, rebalance_timeout_ms=5000, subscribed_topic_names=["tides"])
    assert (again.member_epoch, port.told(again)) == (3, {"tides": [0, 1, 2, 3, 4, 5]})
    assert code(port.beat("a", 2)) is ErrorCode.FENCED_MEMBER_EPOCH, "without saying what it uses: no"
    assert code(port.beat("a", 2, uses={"tides": [9]})) is ErrorCode.FENCED_MEMBER_EPOCH, "what isn't its own: no"


def test_epochs_that_never_were_are_fenced(port: Port) -> None:
    port.join("a", "tides")
    for epoch in (1, 3, 99):
        assert code(port.beat("a", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH
    again = port.join("a", "tides")
    assert (again.member_epoch, port.told(again)) == (2, {"tides": [0, 1, 2, 3]}), "0 begins anew"


def test_a_member_that_leaves_frees_its_partitions_at_once(port: Port) -> None:
    port.join("a", "tides")
    port.join("b", "tides")
    left = port.beat("a", -1)
    assert (code(left), left.member_id, left.member_epoch) == (ErrorCode.NONE, "a", -1)
    assert port.told(port.beat("b", 3, uses={})) == {"tides": [0, 1, 2, 3]}
    port.beat("b", -1)
    assert port.describe().group_state == "Empty"
    assert code(port.beat("b", 4)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_that_gains_partitions_is_noticed_by_the_next_heartbeat(port: Port) -> None:
    port.join("a", "tides")
    port.grow("tides", 5)
    answer = port.beat("a", 2)
    assert (answer.member_epoch, port.told(answer)) == (3, {"tides": [0, 1, 2, 3, 4]})


def test_a_topic_that_appears_later_or_goes_is_noticed(port: Port) -> None:
    port.join("a", "tides", "winds")
    port.topic("winds", 2)
    assert port.told(port.beat("a", 2)) == {"tides": [0, 1, 2, 3], "winds": [0, 1]}
    port.sim_broker.delete_topic("winds")
    asked_back = port.beat("a", 3, uses={"tides": [0, 1, 2, 3], "winds": [0, 1]})
    assert port.told(asked_back) == {"tides": [0, 1, 2, 3]}


def test_more_members_than_partitions(port: Port) -> None:
    answers = [port.join(f"m{index}", "tides") for index in range(6)]
    for _ in range(3):
        answers = [
            port.beat(
                answer.member_id,
                port.describe().members[index].member_epoch,
                uses={
                    port.names[one.topic_id]: one.partitions
                    for one in port.describe().members[index].assignment.topic_partitions
                    if answer.member_id != "m0"
                },
            )
            for index, answer in enumerate(answers)
        ]
    sizes = sorted(
        sum(len(one.partitions) for one in member.assignment.topic_partitions) for member in port.describe().members
    )
    assert sizes == [0, 0, 1, 1, 1, 1]
    assert port.describe().group_state == "Stable"


def test_the_next_assignment_waits_for_its_interval() -> None:
    port = Port({"group.consumer.assignment.interval.ms": "1000"})
    port.topic("tides", 4)
    port.join("a", "tides")
    second = port.join("b", "tides")
    assert (second.member_epoch, port.describe().group_state) == (2, "Assigning")
    port.sim_broker.pass_time(1.1)
    assert port.told(port.beat("a", 2, uses={"tides": [0, 1, 2, 3]})) == {"tides": [0, 1]}


def test_the_assignor_that_most_ask_for_is_taken(port: Port) -> None:
    port.topic("winds", 4)
    port.join("a", "tides", "winds", server_assignor="range")
    assert port.describe().assignor_name == "range"
    port.join("b", "tides", "winds")
    assert port.told(port.beat("a", 2, uses={"tides": [0, 1, 2, 3], "winds": [0, 1, 2, 3]})) == {
        "tides": [0, 1],
        "winds": [0, 1],
    }
    refused = port.join("c", "tides", server_assignor="sticky")
    assert code(refused) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_full_group_takes_nobody_more() -> None:
    port = Port({"group.consumer.max.size": "1"})
    port.topic("tides", 1)
    port.join("a", "tides")
    assert code(port.join("b", "tides")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(port.beat("a", 2)) is ErrorCode.NONE


def test_ids_are_made_by_the_broker_in_version_0_and_by_members_from_1_on(port: Port) -> None:
    first = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["tides"], "topic_partitions": []}
    given = port.beat("", 0, version=0, **first)
    assert len(given.member_id) == 22
    assert code(port.beat(given.member_id, given.member_epoch, version=0)) is ErrorCode.NONE
    assert code(port.beat("", 0, version=1, **first)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "word"),
    [
        ("a", 0, {"subscribed_topic_names": ["t"], "topic_partitions": []}, "RebalanceTimeoutMs"),
        ("a", 0, {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"]}, "TopicPartitions"),
        ("a", 0, {"rebalance_timeout_ms": 1, "topic_partitions": []}, "SubscribedTopicNames"),
        ("a", -2, {}, "InstanceId"),
        ("a", -3, {}, "MemberEpoch"),
        (" ", 1, {}, "MemberId"),
        ("a", 1, {"instance_id": ""}, "InstanceId"),
        ("a", 1, {"rack_id": " "}, "RackId"),
        ("a", 1, {"group": " "}, "GroupId"),
    ],
)
def test_requests_that_make_no_sense(port: Port, member_id: str, epoch: int, fields: Any, word: str) -> None:
    answer = port.beat(member_id, epoch, **fields)
    assert code(answer) is ErrorCode.INVALID_REQUEST
    assert answer.error_message.startswith(word) or word in answer.error_message


def test_a_group_that_is_not_there(port: Port) -> None:
    assert code(port.beat("a", 5)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(port.beat("a", -1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(port.describe()) is ErrorCode.GROUP_ID_NOT_FOUND


# ---- static members


def test_a_static_member_that_rests_comes_back_under_the_same_id_too(port: Port) -> None:
    """As a consumer does that unsubscribes and subscribes again; with other topics, so that all is assigned anew."""
    port.topic("winds", 1)
    port.join("a", "tides", instance_id="buoy")
    assert port.beat("a", -2, instance_id="buoy").error_code == 0
    again = port.join("a", "tides", "winds", instance_id="buoy")
    assert (code(again), port.told(again)) == (ErrorCode.NONE, {"tides": [0, 1, 2, 3], "winds": [0]})


def test_a_static_member_comes_back_without_a_rebalance(port: Port) -> None:
    port.join("a", "tides", instance_id="anchor")
    left = port.beat("a", -2, instance_id="anchor")
    assert (code(left), left.member_epoch) == (ErrorCode.NONE, -2)
    back = port.join("b", "tides", instance_id="anchor")
    assert (back.member_epoch, port.told(back)) == (2, {"tides": [0, 1, 2, 3]}), "in the same epoch"
    assert [member.member_id for member in port.describe().members] == ["b"]
    assert code(port.beat("a", 2, instance_id="anchor")) is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_that_is_in_use_is_not_given_twice(port: Port) -> None:
    port.join("a", "tides", instance_id="anchor")
    assert code(port.join("b", "tides", instance_id="anchor")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert code(port.beat("x", 2, instance_id="buoy")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(port.beat("x", -2, instance_id="anchor")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_in_time_is_gone(port: Port) -> None:
    port.join("a", "tides", instance_id="anchor")
    port.beat("a", -2, instance_id="anchor")
    port.sim_broker.pass_time(10.1)
    assert port.describe().group_state == "Empty"


def test_a_static_member_that_comes_back_with_other_topics_is_assigned_anew(port: Port) -> None:
    port.topic("winds", 2)
    port.join("a", "tides", instance_id="anchor")
    port.beat("a", -2, instance_id="anchor")
    back = port.join("b", "winds", instance_id="anchor")
    assert (back.member_epoch, port.told(back)) == (3, {"winds": [0, 1]})


# ---- regular expressions


def test_an_expression_is_resolved_at_once(port: Port) -> None:
    port.topic("winds", 2)
    answer = port.join("a", subscribed_topic_names=None, subscribed_topic_regex="w.*|ti")
    assert port.told(answer) == {"winds": [0, 1]}, "the whole name must match"
    assert port.describe().members[0].subscribed_topic_regex == "w.*|ti"


def test_a_new_topic_that_an_expression_matches_is_noticed_after_ten_seconds(port: Port) -> None:
    port.join("a", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    port.topic("trade-winds", 1)
    assert port.told(port.beat("a", 2)) is None
    port.sim_broker.pass_time(6.0)
    assert port.told(port.beat("a", 2)) is None
    port.sim_broker.pass_time(5.0)
    assert port.told(port.beat("a", 2)) == {"tides": [0, 1, 2, 3], "trade-winds": [0]}


@pytest.mark.parametrize("regex", ["(", "[a-", "(?<=a)b", "a{1001}", "x" * 4001, "(.{1,1000}){1,1}" * 200])
def test_expressions_that_re2_does_not_take_or_that_are_too_large(port: Port, regex: str) -> None:
    answer = port.join("a", subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert code(answer) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert code(port.describe()) is ErrorCode.GROUP_ID_NOT_FOUND, "and nothing was made"


def test_names_and_an_expression_together_and_one_after_the_other(port: Port) -> None:
    port.topic("winds", 2)
    both = port.join("a", "tides", subscribed_topic_regex="w.*")
    assert port.told(both) == {"tides": [0, 1, 2, 3], "winds": [0, 1]}
    without = port.beat("a", 2, uses={"tides": [0, 1, 2, 3], "winds": [0, 1]}, subscribed_topic_regex="")
    assert port.told(without) == {"tides": [0, 1, 2, 3]}
    assert port.describe().members[0].subscribed_topic_regex == ""


# ---- what is remembered


def test_a_group_survives_kill_9_with_its_epochs_and_owners(port: Port) -> None:
    port.join("a", "tides")
    port.join("b", "tides")
    port.beat("a", 2, uses={"tides": [0, 1, 2, 3]})
    before = port.describe()
    port.sim_broker.settle()
    again = Port(sim_broker=SimBroker(FAST, disk=port.sim_broker.kill()))
    after = again.describe()
    assert after == before
    confirmed = again.beat("a", 2, uses={"tides": [0, 1]})
    assert confirmed.member_epoch == 3
    assert again.told(again.beat("b", 3, uses={})) == {"tides": [2, 3]}
    again.sim_broker.pass_time(10.1)
    assert again.describe().group_state == "Empty", "sessions began anew"


def test_a_group_that_was_deleted_begins_anew(port: Port) -> None:
    port.join("a", "tides")
    fields = {"groups_names": [GROUP]}
    assert port.sim_broker.ask(ApiKey.DELETE_GROUPS, 2, fields).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    port.beat("a", -1)
    assert port.sim_broker.ask(ApiKey.DELETE_GROUPS, 2, fields).results[0].error_code == 0
    assert code(port.describe()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert port.join("a", "tides").member_epoch == 2


def test_listing_tells_type_and_state(port: Port) -> None:
    port.join("a", "tides")
    listed = port.sim_broker.ask(ApiKey.LIST_GROUPS, 5, {}).groups
    assert [(one.group_id, one.group_state, one.group_type) for one in listed] == [(GROUP, "Stable", "consumer")]
