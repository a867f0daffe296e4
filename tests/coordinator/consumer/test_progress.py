"""What a member's request does to its group: when the epoch grows, when the target follows, what is to be done next."""

import pytest

from tests.coordinator.consumer.harness import TERMS, GroupHarness, told, topic_id
from tidelog.coordinator.group.consumer import progress
from tidelog.coordinator.group.consumer.regex import Room


def shares(harness: GroupHarness) -> dict[str, int]:
    """How many partitions the target has for each member."""
    return {member: sum(map(len, target.values())) for member, target in harness.group.target.items()}


def test_a_heartbeat_that_changes_nothing_and_is_not_asked_to_look_leaves_the_topics_to_the_next() -> None:
    harness = GroupHarness({"tides": 2})
    epoch = harness.join("a", "tides").member_epoch
    assert (harness.made.compared, harness.made.resolved) == (True, True)
    harness.compare_topics = False
    harness.has(tides=4)
    harness.beat("a", epoch)
    assert not harness.made.compared, "or else nobody would look at the two that came"
    assert harness.made.resolved, "or else each heartbeat would match expressions again"
    assert (harness.written, harness.group.epoch) == ([], epoch)
    harness.compare_topics = True
    harness.beat("a", epoch)
    assert harness.made.compared
    assert harness.group.epoch == epoch + 1


def test_a_member_by_expression_of_topics_that_others_named_has_its_part_of_them() -> None:
    """The topics of the group are the same: it is the members that changed."""
    harness = GroupHarness({"tides": 2})
    epoch = harness.join("a", "tides").member_epoch
    harness.join("b", subscribed_topic_regex="ti.*")
    assert harness.group.epoch == epoch + 1
    assert shares(harness) == {"a": 1, "b": 1}


def test_an_expression_that_could_not_be_matched_at_once_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupHarness({"tides": 2})
    with monkeypatch.context() as patched:
        patched.setattr(progress, "Room", lambda: Room(0))
        harness.join("a", subscribed_topic_regex="ti.*")
        assert not harness.made.resolved
        assert not harness.group.target.get("a")
    harness.beat("a", harness.group.epoch)
    assert harness.made.resolved
    assert harness.group.target["a"]


def test_a_static_member_that_comes_back_with_another_subscription_leaves_nothing_to_its_former_self() -> None:
    harness = GroupHarness({"tides": 4, "winds": 2})
    harness.join("a", "tides", instance_id="one")
    epoch = harness.join("b", "tides").member_epoch
    harness.leave("a", -2, "one")
    again = harness.join("a2", "tides", "winds", instance_id="one")
    assert set(shares(harness)) == {"a2", "b"}
    assert sum(shares(harness).values()) == 6, "all have an owner"
    assert again.member_epoch > epoch
    assert told(again) is not None


def test_a_static_member_that_comes_back_keeps_its_partitions_though_the_topic_grew_meanwhile() -> None:
    harness = GroupHarness({"tides": 4})
    harness.join("a", "tides")
    harness.join("b", "tides", instance_id="one")
    before = set(harness.group.target["b"][topic_id("tides")])
    harness.leave("b", -2, "one")
    harness.has(tides=6)
    harness.join("b2", "tides", instance_id="one")
    assert shares(harness) == {"a": 3, "b2": 3}
    assert before < set(harness.group.target["b2"][topic_id("tides")]), "or else what it has in memory is for nothing"


@pytest.mark.parametrize(
    ("assignors", "expected"), [(("uniform", "range"), {"a": 3, "b": 3}), (("range", "uniform"), {"a": 4, "b": 2})]
)
def test_a_group_whose_members_ask_for_no_assignor_has_the_first_that_is_configured(
    assignors: tuple[str, ...], expected: dict[str, int]
) -> None:
    harness = GroupHarness({"tides": 3, "winds": 3}, TERMS._replace(assignors=assignors))
    harness.join("a", "tides", "winds")
    harness.join("b", "tides", "winds")
    assert shares(harness) == expected


def test_a_member_that_takes_up_an_expression_that_others_have_gets_its_part_and_gives_it_back() -> None:
    """The topics of the group are the same all the time: it is what one member wants that changes."""
    harness = GroupHarness({"tides": 4, "winds": 2})
    harness.join("a", subscribed_topic_regex="ti.*")
    epoch = harness.join("b", "winds").member_epoch
    assert shares(harness) == {"a": 4, "b": 2}
    epoch = harness.beat("b", epoch, subscribed_topic_regex="ti.*").member_epoch
    assert shares(harness) == {"a": 3, "b": 3}
    harness.beat("b", epoch, subscribed_topic_regex="")
    assert shares(harness) == {"a": 4, "b": 2}
