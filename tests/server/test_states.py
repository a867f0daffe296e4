"""The tables of a connection's states: whole, and without dead ends."""

import pytest

from tidelog.server import states
from tidelog.server.states import FLOW, INCOMING, Flow, Incoming


@pytest.mark.parametrize(("kind", "table"), [(Incoming, INCOMING), (Flow, FLOW)])
def test_each_state_has_its_row_and_its_name(kind, table):
    assert set(table) == set(kind)
    assert all(getattr(states, state.name) is state for state in kind)
    assert not [
        state for state, following in table.items() if state in following or len(set(following)) < len(following)
    ]


def reached(table, start):
    seen, ahead = {start}, [start]
    while ahead:
        following = set(table[ahead.pop()]) - seen
        seen |= following
        ahead += following
    return seen


@pytest.mark.parametrize(("table", "start"), [(INCOMING, Incoming.PEEKING), (FLOW, Flow.READING)])
def test_each_state_is_reached_from_the_first(table, start):
    assert reached(table, start) == set(table)


def test_what_waits_can_go_on_and_what_ends_can_not():
    ends = {Flow.DRAINING, Flow.CLOSED}
    assert all(Flow.READING in FLOW[flow] for flow in set(Flow) - ends - {Flow.READING})
    assert all(ends <= set(FLOW[flow]) for flow in set(Flow) - ends)
    assert reached(FLOW, Flow.DRAINING) == ends
    assert all(Incoming.EMPTY in INCOMING[incoming] for incoming in set(Incoming) - {Incoming.EMPTY})
