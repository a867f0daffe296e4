"""Groups in the hands of someone who means harm: short requests with endless answers, members that hold the others up.

On virtual time. What a request costs is counted in calls of functions, and of RE2 in a measure of its own: neither
depends on how busy the machine is.
"""

import struct
from collections import Counter
from typing import Any

import pytest

from tests.apis.groups import SETTINGS, become_member, harbour_wait, join, join_fields, leave, send_join, stable, sync
from tests.apis.offsets import TOPIC, commit, find, sim_broker
from tests.apis.sim_broker import Asked, SimBroker
from tests.apis.test_consumer_group_heartbeat import GROUP, Port
from tests.raw import build, request_class
from tests.work import calls
from tidelog.coordinator.bounds import MATCH_COST_AT_ONCE
from tidelog.coordinator.group.consumer import regex
from tidelog.coordinator.patterns import compiled, cost
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey

ANSWER_BYTES_MAX = 1 << 20
CALLS_MAX = 200_000
"""Functions that are called for one request, Python's own included: some tens of milliseconds."""


def ask_in_time(broker: SimBroker, key: ApiKey, version: int, fields: dict[str, Any]) -> Asked:
    message = request_class(key)
    frame = request_header(key, version, 1, "hostile") + encoder(message, version)(build(message, fields))
    with calls() as spent:
        asked = broker.send_frame(frame)
        broker.pass_time(0.1)  # in steps
    assert spent.count < CALLS_MAX
    assert asked.done
    return asked


def subscription(topics: int) -> bytes:
    names = b"".join(struct.pack(">h", 6) + b"t%05d" % index for index in range(topics))
    return struct.pack(">hi", 0, topics) + names + struct.pack(">i", -1)


def test_a_group_named_a_thousand_times_is_told_once() -> None:
    broker = sim_broker(partitions=50)
    assert commit(broker, dict.fromkeys(range(50), 7), metadata="m" * 4000) == {0}
    for topics in (None, [{"name": TOPIC, "partition_indexes": list(range(50))}]):
        groups = [{"group_id": "crew", "topics": topics}] * 1000
        asked = ask_in_time(broker, ApiKey.OFFSET_FETCH, 8, {"groups": groups})
        assert asked.frame is not None
        assert len(asked.frame) < ANSWER_BYTES_MAX
        assert len(asked.response.groups) == 1
        assert len(asked.response.groups[0].topics[0].partitions) == 50


@pytest.mark.parametrize("version", [7, 8, 10])
def test_a_partition_named_a_thousand_times_is_told_once(version: int) -> None:
    broker = sim_broker()
    assert commit(broker, {0: 7}, metadata="m" * 4000) == {0}
    topic_id = broker.services.metadata.image.topics[TOPIC].id
    named = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
    group = {"group_id": "crew", "topics": [{**named, "partition_indexes": [0] * 20}] * 100}
    fields = group if version < 8 else {"groups": [group]}
    answer = ask_in_time(broker, ApiKey.OFFSET_FETCH, version, fields).response
    found = answer.topics if version < 8 else answer.groups[0].topics
    assert [[one.committed_offset for one in topic.partitions] for topic in found] == [[7]]


def test_a_group_described_a_thousand_times_is_described_once() -> None:
    broker = sim_broker(SETTINGS)
    member_id, joining = become_member(broker, group="crew", protocols=[{"name": "range", "metadata": bytes(100_000)}])
    sync(broker, member_id, harbour_wait(broker, joining).generation_id, {member_id: b""}, group="crew")
    asked = ask_in_time(broker, ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["crew"] * 1000})
    assert [group.group_id for group in asked.response.groups] == ["crew"]
    asked = ask_in_time(broker, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["crew"] * 1000})
    assert [group.group_id for group in asked.response.groups] == ["crew"]


def test_long_subscriptions_are_read_once_for_all_offsets() -> None:
    broker = sim_broker(SETTINGS, partitions=100)
    find(broker, "readers")
    # Read once they are three quarters of what one request may take, read twice they are more than it.
    named = {"group": "readers", "protocols": [{"name": "range", "metadata": subscription(15_000)}]}
    member_id, joining = become_member(broker, **named)
    sync(broker, member_id, harbour_wait(broker, joining).generation_id, {member_id: b""}, group="readers")
    partitions = [{"partition_index": index % 100} for index in range(1000)]
    topics = [{"name": TOPIC, "partitions": partitions}]
    asked = ask_in_time(broker, ApiKey.OFFSET_DELETE, 0, {"group_id": "readers", "topics": topics})
    assert asked.response.error_code == 0


def test_a_large_expression_and_long_names_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the names keeps all of the expression's alternatives alive to its end."""
    port = Port()
    spent: Counter[int] = Counter()

    def noted(expression: Any, name: str) -> int:
        taken = cost(expression, name)
        spent[port.sim_broker.timeline.events] += taken
        return taken

    monkeypatch.setattr(regex, "cost", noted)
    for number in range(300):
        port.topic("".join("ab"[number * 7919 >> place % 13 & 1] for place in range(240)) + f"-{number}", 1)
    alternatives = "|".join(f"(?:a|b)*a(?:a|b){{{count}}}" for count in range(1, 90))
    first = {"rebalance_timeout_ms": 5_000, "subscribed_topic_regex": f"(?:{alternatives})c", "topic_partitions": []}
    joining = {"group_id": GROUP, "member_id": "a", "member_epoch": 0, **first}
    asked = ask_in_time(port.sim_broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
    assert asked.response.error_code == 0
    beat = {"group_id": GROUP, "member_id": "a", "member_epoch": asked.response.member_epoch}
    ask_in_time(port.sim_broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
    dearest = cost(compiled(first["subscribed_topic_regex"]), "x" * 249)
    assert len(spent) > 1, "it takes more than a turn"
    assert max(spent.values()) <= MATCH_COST_AT_ONCE + dearest


def test_a_group_that_nobody_joins_in_no_time_at_all_does_not_spin() -> None:
    broker = sim_broker(SETTINGS)
    first = join(broker, instance="a", group="crew")
    sync(broker, first.member_id, first.generation_id, {first.member_id: b""}, group="crew")
    assert join(broker, instance="a", group="crew", rebalance_timeout_ms=0).error_code == 0
    send_join(broker, instance="b", group="crew", rebalance_timeout_ms=1000)
    leave(broker, {"group_instance_id": "b"}, group="crew")
    group = broker.services.groups.shard_of("crew").live.classic["crew"]
    broker.pass_time(1.5)
    assert group.join_deadline_ms > broker.timeline.now * 1000 + 400, "the next look isn't at once"


def test_a_static_member_that_rests_while_it_gives_up_partitions_is_taken_out_when_its_session_ends() -> None:
    port = Port()
    port.topic("tides", 4)
    port.join("a", "tides", instance_id="boat", rebalance_timeout_ms=2000)
    other = port.join("b", "tides")
    told = port.beat("a", 2, instance_id="boat", uses={"tides": [0, 1, 2, 3]})
    assert port.told(told) == {"tides": [0, 1]}, "it is to give up the others, within two seconds"
    assert port.beat("a", -2, instance_id="boat").error_code == 0
    held: dict[str, list[int]] | None = {}
    for _ in range(15):
        port.sim_broker.pass_time(1)
        other = port.beat("b", other.member_epoch)
        held = port.told(other) or held
    assert held == {"tides": [0, 1, 2, 3]}
    assert list(port.sim_broker.services.groups.shard_of(GROUP).state.groups[GROUP].members) == ["b"]


def test_offsets_may_be_kept_for_ever_and_a_day() -> None:
    broker = sim_broker()
    assert commit(broker, {0: 1}, version=4, retention_time_ms=2**63 - 1) == {0}
    assert commit(broker, {1: 1}, version=4, retention_time_ms=-(2**63)) == {0}


def test_a_client_with_a_name_as_long_as_can_be_spoils_no_group() -> None:
    """Its member id is made of its name, and told to the others."""
    broker = sim_broker(SETTINGS)
    (member_id,) = stable(broker, group="crew")
    broker.send(ApiKey.JOIN_GROUP, 3, join_fields(group="crew"), client_id="c" * 32_760)
    broker.settle()
    answer = join(broker, member_id, group="crew")
    assert (answer.error_code, len(answer.members)) == (0, 2)
    assert broker.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["crew"]}).groups[0].group_state == "CompletingRebalance"


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g" * 32_760]}),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g" * 32_760]}),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "g" * 32_760, "member_id": "m", "member_epoch": 3}),
    ],
)
def test_errors_about_the_longest_of_names_can_be_told(key: ApiKey, version: int, fields: dict[str, Any]) -> None:
    answer = sim_broker().ask(key, version, fields)
    found = answer if hasattr(answer, "error_code") else answer.groups[0]
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message.startswith(("Group gggg", "Consumer group gggg"))
