"""Regular expressions of subscriptions: RE2's, whole names, and only new names are looked at again."""

from typing import Any

import pytest

from tests.coordinator.consumer.harness import GroupHarness, owned, told
from tidelog.coordinator.bounds import MATCH_COST_AT_ONCE, PATTERN_CHARACTERS_MAX
from tidelog.coordinator.group.consumer import progress, regex
from tidelog.coordinator.group.consumer.regex import Matches, Room, check_regex
from tidelog.wire.errors import ErrorCode, KafkaError

COMPILED = 500
"""What it costs at least to come to know an expression."""


def names(*topics: str) -> dict[str, object]:
    return dict.fromkeys(topics)


def test_the_whole_name_must_match() -> None:
    topics = names("tides", "tides-low", "tide")
    assert Matches().of("tide", topics, Room()) == {"tide"}
    assert Matches().of("tides.*", topics, Room()) == {"tides", "tides-low"}
    assert Matches().of("", topics, Room()) == frozenset()


def test_topics_that_come_and_go_are_noticed() -> None:
    matches = Matches()
    assert matches.of("t.*", names("tides", "winds"), Room()) == {"tides"}
    assert matches.of("t.*", names("tides", "winds", "trade"), Room()) == {"tides", "trade"}
    assert matches.of("t.*", names("winds", "trade"), Room()) == {"trade"}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    matches = Matches()
    topics, letters = names("tides"), names(*"abcd")
    expressions = [f"t.{{{number}}}|{number}" for number in range(30)]

    def remembered(expression: str, topics: dict[str, object]) -> bool:
        room = Room()
        matches.of(expression, topics, room)
        return MATCH_COST_AT_ONCE - room.left < COMPILED

    monkeypatch.setattr(regex, "REMEMBERED_MAX", 20)
    for expression in expressions:
        assert not remembered(expression, topics)
    assert [remembered(expression, topics) for expression in expressions[:8:-1]] == [True] * 20 + [False]
    monkeypatch.setattr(regex, "NAMES_REMEMBERED_MAX", 5)
    assert matches.of(".*", letters, Room()) == set("abcd")
    assert [remembered(expression, topics) for expression in expressions[27:8:-1]] == [True] * 19, "they match nothing"
    assert remembered(".*", letters)
    assert matches.of(".+", letters, Room()) == set("abcd")
    assert remembered(".+", letters)
    assert not remembered(".*", letters)
    assert matches.of("t.*", topics, Room()) == {"tides"}


@pytest.mark.parametrize(
    "expression",
    ["((a{0,99}b{0,99}){0,9}){0,9}", "(", "a{1001}", "(?<=a)b", r"(a)\1", "\udc80", "a" * (PATTERN_CHARACTERS_MAX + 1)],
)
def test_what_re2_does_not_take(expression: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_regex(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message or "") < 1000


def test_an_expression_that_hangs_other_engines_does_not_here() -> None:
    """It takes `re` longer than the universe is old."""
    check_regex("(a*)*b")
    assert Matches().of("(a*)*b", names("a" * 200), Room()) == frozenset()


def test_an_expression_that_was_taken_by_another_version_matches_nothing() -> None:
    assert Matches().of("(", names("tides"), Room()) == frozenset()


def test_an_expression_that_matches_nothing_starts_no_rebalance() -> None:
    harness = GroupHarness({"tides": 2})
    harness.join("a", "tides")
    answer = harness.join("b", subscribed_topic_regex="nothing")
    assert (answer.member_epoch, told(answer), harness.group.epoch) == (2, {}, 2)


def test_members_that_share_an_expression_share_its_record() -> None:
    harness = GroupHarness({"tides": 2})
    harness.join("a", subscribed_topic_regex="t.*")
    harness.join("b", subscribed_topic_regex="t.*")
    assert list(harness.group.resolved) == ["t.*"]
    harness.leave("a")
    assert list(harness.group.resolved) == ["t.*"]
    harness.leave("b")
    assert not harness.group.resolved


def expressions(harness: GroupHarness) -> list[tuple[str, bool]]:
    """Those of which something was written by the last decision, and whether they are still there."""
    found = [entry for entry in harness.written if hasattr(entry.key, "regular_expression")]
    return [(entry.key.regular_expression, entry.value is not None) for entry in found]


def change(harness: GroupHarness, member: str, **more: Any) -> None:
    harness.beat(member, harness.group.members[member].epoch, **more)


def test_a_member_that_changes_its_expression_leaves_no_record_of_the_former() -> None:
    harness = GroupHarness({"tides": 1, "winds": 1})
    harness.join("a", subscribed_topic_regex="t.*")
    assert expressions(harness) == [("t.*", True)]
    change(harness, "a", subscribed_topic_regex="w.*")
    assert sorted(expressions(harness)) == [("t.*", False), ("w.*", True)]
    assert list(harness.group.resolved) == ["w.*"]


def test_an_expression_that_others_still_have_stays_when_one_changes_its_own() -> None:
    harness = GroupHarness({"tides": 1, "winds": 1})
    harness.join("a", subscribed_topic_regex="t.*")
    harness.join("b", subscribed_topic_regex="t.*")
    change(harness, "b", subscribed_topic_regex="w.*")
    assert expressions(harness) == [("w.*", True)]
    assert sorted(harness.group.resolved) == ["t.*", "w.*"]


def test_a_member_that_names_topics_instead_leaves_no_record_and_one_that_always_did_none_at_all() -> None:
    harness = GroupHarness({"tides": 1, "winds": 1})
    harness.join("a", subscribed_topic_regex="t.*")
    change(harness, "a", subscribed_topic_regex="", subscribed_topic_names=["winds"])
    assert expressions(harness) == [("t.*", False)]
    assert not harness.group.resolved
    harness.join("b", "tides")
    assert expressions(harness) == []
    change(harness, "b", subscribed_topic_names=["winds"])
    assert expressions(harness) == []


def test_an_expression_that_is_none_is_refused_and_changes_nothing() -> None:
    harness = GroupHarness({"tides": 1})
    harness.join("a", subscribed_topic_regex="t.*")
    epoch = harness.group.epoch
    with pytest.raises(KafkaError) as refused:
        change(harness, "a", subscribed_topic_regex="(")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (harness.group.epoch, list(harness.group.resolved)) == (epoch, ["t.*"])


def test_a_refresh_writes_only_what_changed() -> None:
    harness = GroupHarness({"tides": 1, "winds": 1})
    harness.join("a", subscribed_topic_regex="t.*")
    harness.join("b", subscribed_topic_regex="w.*")
    harness.beat("a", 2, topic_partitions=owned(tides=[0]))
    harness.refresh_regexes = True
    harness.beat("a", 3)
    assert harness.written == []
    harness.has(tides=1, winds=1, waves=1)
    harness.beat("a", 3)
    assert [entry.key.regular_expression for entry in harness.written if hasattr(entry.key, "regular_expression")] == [
        "w.*"
    ]


def test_what_is_too_much_for_one_look_is_found_in_several() -> None:
    matches, topics = Matches(), names(*(f"tides-{number}" for number in range(100)), "winds")
    looks = 1
    while (found := matches.of("tides.*", topics, Room(2000))) is None:
        looks += 1
    assert found == topics.keys() - {"winds"}
    assert looks > 10
    assert matches.of("tides.*", topics, Room(51)) == found, "it is known now"


def test_topics_that_change_in_the_middle_of_a_look_are_all_looked_at() -> None:
    matches = Matches()
    before = names(*(f"t{number}" for number in range(1000)))
    assert matches.of("t.*", before, Room(50_000)) is None
    after = names("tides", "winds", "trends")
    assert matches.of("t.*", after, Room()) == {"tides", "trends"}


def test_a_group_whose_expressions_take_several_looks_has_its_partitions_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = GroupHarness({f"tides-{number}": 1 for number in range(40)})
    monkeypatch.setattr(progress, "Room", lambda: Room(9000))
    answer = harness.join("a", subscribed_topic_regex="tides-[0-9]*")
    assert told(answer) == {}
    harness.refresh_regexes = True  # as where one isn't resolved yet
    for _ in range(20):
        answer = harness.beat("a", answer.member_epoch, topic_partitions=[])
        if told(answer):
            break
    assert len(told(answer) or {}) == 40
