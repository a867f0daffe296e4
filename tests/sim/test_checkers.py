"""The checkers find what they are there to find."""

import pytest

from tidelog.sim.scenarios.checkers import History, Violation, check_numbered


@pytest.fixture
def history() -> History:
    history = History(frozenset(("os",)))
    history.saw_acknowledged("t", 0, 0, [b"a", b"b"])
    return history


def test_a_kept_promise_is_no_violation(history: History) -> None:
    history.saw_fetched("t", 0, 1, b"b")
    history.saw_end("t", 0, 2, 2, "Fetch")
    history.check_whole("t", 0, 0, [b"a", b"b", b"more"])


def test_another_value_at_an_offset_is_found(history: History) -> None:
    with pytest.raises(Violation, match="offset 1 was b'b' and is fetched as b'x'"):
        history.saw_fetched("t", 0, 1, b"x")
    with pytest.raises(Violation, match="is acknowledged as"):
        history.saw_acknowledged("t", 0, 1, [b"x"])
    with pytest.raises(Violation, match="was shown"):
        history.saw_written("t", 0, 1, [b"x"])


def test_a_lost_record_is_found(history: History) -> None:
    with pytest.raises(Violation, match="ends at 1, but 2 was shown"):
        history.check_whole("t", 0, 0, [b"a"])
    with pytest.raises(Violation, match="offset 0 was shown as b'a' and is b'x' now"):
        history.check_whole("t", 0, 0, [b"x", b"b"])


def test_an_end_that_falls_is_found(history: History) -> None:
    with pytest.raises(Violation, match="ends at 1 says ListOffsets, after 2 was shown"):
        history.saw_end("t", 0, 1, 2, "ListOffsets")


def test_an_end_that_was_shown_counts_though_no_record_was(history: History) -> None:
    history.saw_end("t", 0, 5, 2, "ListOffsets")
    with pytest.raises(Violation, match="ends at 4, but 5 was shown"):
        history.check_whole("t", 0, 0, [b"a", b"b", b"c", b"d"])


def test_acks_1_is_promised_until_the_cache_is_lost(history: History) -> None:
    history.saw_written("t", 0, 2, [b"c"])
    with pytest.raises(Violation, match="acknowledged"):
        history.check_whole("t", 0, 0, [b"a", b"b"])
    with pytest.raises(Violation, match="acks=1"):
        history.saw_fetched("t", 0, 2, b"x")


def test_after_a_power_loss_only_what_was_durable_is_promised(history: History) -> None:
    history.saw_written("t", 0, 2, [b"c"])
    history.saw_acknowledged("os", 0, 0, [b"a"])
    history.cache_was_lost()
    history.check_whole("t", 0, 0, [b"a", b"b"])
    history.check_whole("os", 0, 0, [])


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([b"p:0:", b"p:0:"], "record 0 of p where 1"),
        ([b"p:0:", b"p:2:"], "record 2 of p where 1"),
        ([b"p:1:"], "record 1 of p where 0"),
    ],
)
def test_an_idempotent_producer_leaves_each_record_once(found: list[bytes], text: str) -> None:
    with pytest.raises(Violation, match=text):
        check_numbered("t-0", found, "p", once=True)


def test_order_is_kept_though_records_may_be_lost() -> None:
    check_numbered("t-0", [b"p:0:", b"q:7:", b"p:2:"], "p", once=False)
    with pytest.raises(Violation, match="record 1 of p behind its record 2"):
        check_numbered("t-0", [b"p:2:", b"p:1:"], "p", once=False)


def test_what_was_deleted_stays_deleted_and_nothing_else_does(history: History) -> None:
    history.of("t", 0).start_max = 1
    assert history.may_be_gone("t", 0, 0)
    assert not history.may_be_gone("t", 0, 1)
    history.saw_deleted("t", 0, 1, 1)
    assert history.of("t", 0).start == 1
    history.check_whole("t", 0, 1, [b"b"])
    with pytest.raises(Violation, match="starts at 0, though records below 1 were deleted"):
        history.saw_start("t", 0, 0, 1)
    with pytest.raises(Violation, match="starts at 2, but nobody deleted beyond 1"):
        history.saw_start("t", 0, 2, 1)
    check_numbered("t-0", [b"p:3:", b"p:4:"], "p", once=True, whole=False)


def test_what_was_on_its_way_on_a_lost_connection_may_come_late_and_still_in_order() -> None:
    check_numbered("t-0", [b"p:0:", b"p:4:", b"p:1:", b"p:2:", b"p:5:"], "p", once=False, connections=[4])
    with pytest.raises(Violation, match="record 1 of p behind its record 2"):
        check_numbered("t-0", [b"p:4:", b"p:2:", b"p:1:"], "p", once=False, connections=[4])
