"""One member's steps towards the target, and that no two members ever have the same partition."""

from dataclasses import replace

import pytest

from tests.coordinator.consumer.harness import owned, topic_id
from tidelog.coordinator.group.consumer.progress import counted
from tidelog.coordinator.group.consumer.reconcile import Owned, reconcile
from tidelog.coordinator.group.consumer.state import Member, MemberState, Partitions, Subscription
from tidelog.wire.errors import ErrorCode, KafkaError

TIDES, WINDS = topic_id("tides"), topic_id("winds")


def member(epoch: int = 3, state: int = MemberState.STABLE, **assigned: dict[int, int]) -> Member:
    return Member(
        "a",
        epoch=epoch,
        previous_epoch=epoch,
        state=state,
        assigned={topic_id(name): epochs for name, epochs in assigned.items()},
    )


def step(
    before: Member,
    target: Partitions,
    said: Owned = None,
    *,
    taken: tuple[int, ...] = (),
    subscribed: tuple[bytes, ...] = (TIDES, WINDS),
    changed: bool = False,
) -> Member:
    return reconcile(
        before, 4, target, subscribed, lambda _, index: index not in taken, said, subscription_changed=changed
    )


def test_a_member_in_the_target_epoch_stays_as_it_is() -> None:
    settled = member(4, tides={0: 2})
    assert step(settled, {TIDES: (0,)}) is settled


def test_what_is_free_is_given_in_the_target_epoch() -> None:
    after = step(member(tides={0: 2}), {TIDES: (0, 1)})
    assert (after.epoch, after.previous_epoch, after.state) == (4, 3, MemberState.STABLE)
    assert after.assigned == {TIDES: {0: 2, 1: 4}}, "each since when it has it"


def test_what_must_go_is_asked_back_first_and_the_epoch_stays() -> None:
    before = member(tides={0: 2, 1: 2})
    after = step(before, {TIDES: (0,), WINDS: (5,)})
    assert (after.epoch, after.state) == (3, MemberState.UNREVOKED)
    assert after.assigned == {TIDES: {0: 2}}
    assert after.revoking == {TIDES: {1: 2}}
    assert step(after, {TIDES: (0,), WINDS: (5,)}) is after, "a heartbeat that says nothing confirms nothing"
    assert step(after, {TIDES: (0,), WINDS: (5,)}, owned(tides=[0, 1])) is after, "it still uses it"
    done = step(after, {TIDES: (0,), WINDS: (5,)}, owned(tides=[0]))
    assert (done.epoch, done.state, done.revoking) == (4, MemberState.STABLE, {})
    assert done.assigned == {TIDES: {0: 2}, WINDS: {5: 4}}


def test_what_it_says_it_does_not_use_goes_at_once() -> None:
    after = step(member(tides={0: 2, 1: 2}), {TIDES: (0,)}, owned(tides=[0]))
    assert (after.epoch, after.state, after.assigned) == (4, MemberState.STABLE, {TIDES: {0: 2}})


def test_what_others_still_have_is_waited_for() -> None:
    before = member(tides={0: 2})
    waiting = step(before, {TIDES: (0, 1, 2)}, taken=(1,))
    assert (waiting.epoch, waiting.state) == (4, MemberState.UNRELEASED)
    assert waiting.assigned == {TIDES: {0: 2, 2: 4}}
    still = step(waiting, {TIDES: (0, 1, 2)}, taken=(1,))
    assert (still.assigned, still.previous_epoch) == (waiting.assigned, 4)
    assert step(still, {TIDES: (0, 1, 2)}, taken=(1,)) is still
    done = step(still, {TIDES: (0, 1, 2)})
    assert (done.state, done.assigned) == (MemberState.STABLE, {TIDES: {0: 2, 1: 4, 2: 4}})


def test_a_partition_that_it_is_giving_up_comes_back_when_the_target_returns_it() -> None:
    revoking = replace(member(state=MemberState.UNREVOKED), revoking={TIDES: {1: 2}})
    after = step(revoking, {TIDES: (1,)}, [])
    assert (after.state, after.assigned, after.revoking) == (MemberState.STABLE, {TIDES: {1: 4}}, {})


def test_a_topic_that_is_not_subscribed_any_more_goes_whatever_the_target_says() -> None:
    before = member(4, tides={0: 2}, winds={5: 3})
    target = {TIDES: (0,), WINDS: (5,)}
    after = step(before, target, owned(tides=[0], winds=[5]), subscribed=(TIDES,), changed=True)
    assert (after.epoch, after.state) == (4, MemberState.UNREVOKED)
    assert (after.assigned, after.revoking) == ({TIDES: {0: 2}}, {WINDS: {5: 3}})
    gone = step(before, target, owned(tides=[0]), subscribed=(TIDES,), changed=True)
    assert (gone.state, gone.assigned, gone.revoking) == (MemberState.STABLE, {TIDES: {0: 2}}, {})
    same = step(before, target, None, changed=True)
    assert same is before, "all of it is still subscribed"


def test_a_topic_that_is_not_subscribed_is_not_given_though_the_target_still_has_it() -> None:
    after = step(member(tides={0: 2}), {TIDES: (0, 1), WINDS: (5,)}, subscribed=(TIDES,))
    assert (after.state, after.assigned) == (MemberState.STABLE, {TIDES: {0: 2, 1: 4}})


def test_another_change_of_subscription_adds_to_what_must_go() -> None:
    before = replace(member(3, MemberState.UNREVOKED, tides={0: 2}), revoking={WINDS: {5: 3}})
    after = step(before, {}, owned(tides=[0], winds=[5]), subscribed=(), changed=True)
    assert (after.assigned, after.revoking) == ({}, {WINDS: {5: 3}, TIDES: {0: 2}})


def test_a_state_of_a_newer_version_makes_the_member_begin_anew() -> None:
    strange = member(3, MemberState.UNKNOWN, tides={0: 2})
    for said in (None, owned(tides=[0])):
        with pytest.raises(KafkaError) as refused:
            step(strange, {TIDES: (0,)}, said)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(strange, {TIDES: (0,)}, []).state == MemberState.STABLE


def test_how_many_members_have_each_subscription_is_counted() -> None:
    tides, winds = Subscription(("tides",)), Subscription(("winds",))
    assert counted({}, None, tides) == {tides: 1}
    assert counted({tides: 1}, None, tides) == {tides: 2}
    assert counted({tides: 2}, tides, winds) == {tides: 1, winds: 1}
    assert counted({tides: 1}, tides, winds) == {winds: 1}
    assert counted({tides: 1, winds: 3}, winds, None) == {tides: 1, winds: 2}
