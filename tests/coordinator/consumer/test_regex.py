"""Regular expressions of subscriptions: RE2's, whole names, and only new names are looked at again."""

import pytest

from tests.coordinator.consumer.crew import Crew, owned, told
from tidelog.coordinator.group.consumer.regex import REGEX_CHARACTERS_MAX, REMEMBERED_MAX, Matches, check_regex
from tidelog.wire.errors import ErrorCode, KafkaError


def names(*topics: str) -> dict[str, object]:
    return dict.fromkeys(topics)


def test_the_whole_name_must_match() -> None:
    topics = names("tides", "tides-low", "tide")
    assert Matches().of("tide", topics) == {"tide"}
    assert Matches().of("tides.*", topics) == {"tides", "tides-low"}
    assert Matches().of("", topics) == frozenset()


def test_topics_that_come_and_go_are_noticed() -> None:
    matches = Matches()
    assert matches.of("t.*", names("tides", "winds")) == {"tides"}
    assert matches.of("t.*", names("tides", "winds", "trade")) == {"tides", "trade"}
    assert matches.of("t.*", names("winds", "trade")) == {"trade"}


def test_what_is_remembered_is_bounded() -> None:
    matches = Matches()
    topics = names("tides")
    for number in range(REMEMBERED_MAX + 10):
        matches.of(f"t.{{{number % 100}}}|{number}", topics)
    assert len(matches._known) == REMEMBERED_MAX
    assert matches.of("t.*", topics) == {"tides"}


@pytest.mark.parametrize("regex", ["(", "a{1001}", "(?<=a)b", r"(a)\1", "\udc80", "a" * (REGEX_CHARACTERS_MAX + 1)])
def test_what_re2_does_not_take(regex: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_regex(regex)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message or "") < 1000


def test_an_expression_that_hangs_other_engines_does_not_here() -> None:
    """It takes `re` longer than the universe is old."""
    check_regex("(a*)*b")
    assert Matches().of("(a*)*b", names("a" * 200)) == frozenset()


def test_an_expression_that_was_taken_by_another_version_matches_nothing() -> None:
    assert Matches().of("(", names("tides")) == frozenset()


def test_an_expression_that_matches_nothing_starts_no_rebalance() -> None:
    crew = Crew({"tides": 2})
    crew.join("a", "tides")
    answer = crew.join("b", subscribed_topic_regex="nothing")
    assert (answer.member_epoch, told(answer), crew.group.epoch) == (2, {}, 2)


def test_members_that_share_an_expression_share_its_record() -> None:
    crew = Crew({"tides": 2})
    crew.join("a", subscribed_topic_regex="t.*")
    crew.join("b", subscribed_topic_regex="t.*")
    assert list(crew.group.resolved) == ["t.*"]
    crew.leave("a")
    assert list(crew.group.resolved) == ["t.*"]
    crew.leave("b")
    assert not crew.group.resolved


def test_a_refresh_writes_only_what_changed() -> None:
    crew = Crew({"tides": 1, "winds": 1})
    crew.join("a", subscribed_topic_regex="t.*")
    crew.join("b", subscribed_topic_regex="w.*")
    crew.beat("a", 2, topic_partitions=owned(tides=[0]))
    crew.refresh_regexes = True
    crew.beat("a", 3)
    assert crew.written == []
    crew.has(tides=1, winds=1, waves=1)
    crew.beat("a", 3)
    assert [entry.key.regular_expression for entry in crew.written if hasattr(entry.key, "regular_expression")] == [
        "w.*"
    ]
