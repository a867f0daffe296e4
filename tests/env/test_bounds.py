"""How the bounds of a turn of the loop relate."""

from tidelog.env import bounds


def test_a_turn_that_takes_all_it_may_is_not_a_long_one() -> None:
    """Callbacks, sockets and timers have TURN_S each before they break off, then come slices: else every busy broker
    would tell of long turns, and those that some request makes would be lost among them."""
    slices_s = bounds.SLICE_S + bounds.WOKEN_S_A_TURN + bounds.DRIVEN_S_A_TURN
    assert 3 * bounds.TURN_S + slices_s < bounds.LONG_TURN_S


def test_one_callback_that_holds_a_turn_is_remembered_before_the_turn_is_long() -> None:
    assert bounds.HELD_S < bounds.LONG_TURN_S
    assert bounds.CPU_READ_S < bounds.LONG_TURN_S, "or the CPU time of the turns before would count as a long one's"


def test_several_that_were_woken_have_their_share_in_one_turn() -> None:
    assert bounds.WOKEN_S < bounds.SLICE_S, "what was waited for is short, or else it is long work as any other"
    assert 10 * bounds.WOKEN_S <= bounds.WOKEN_S_A_TURN
    assert max(bounds.WOKEN_S_A_TURN, bounds.DRIVEN_S_A_TURN) < bounds.TURN_S


def test_names_that_nobody_answers_for_leave_threads_to_the_group_commit() -> None:
    assert bounds.LOOKUPS_AT_ONCE + 8 + 3 < bounds.THREADS_MAX
