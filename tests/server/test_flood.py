"""Requests that come faster than their answers are taken, or in thousands at once: memory and turns stay bounded."""

from tests.server.test_connection import Pair, framed, other, pair  # noqa: F401 - a fixture
from tidelog.server.bounds import ANSWERS_A_TURN, LARGE_ANSWER_BYTES
from tidelog.server.states import IN_TURN


def test_large_answers_are_made_only_as_they_are_taken(pair: Pair) -> None:  # noqa: F811
    answer = bytes(4 * LARGE_ANSWER_BYTES)
    pair.host.dispatch = lambda connection, buffer, start, end: pair.host.seen.append(b"") or framed(answer)
    pair.client.setblocking(False)
    pair.client.send(framed(b"give") * 300)
    pair.turn(200)
    assert len(pair.host.seen) < 100
    seen = 0
    while seen < 300:
        seen += len(pair.answers())
        pair.turn(50)
    assert seen == len(pair.host.seen) == 300


def test_an_answer_is_large_from_its_bound_on(pair: Pair) -> None:  # noqa: F811
    large = b"now:" + b"z" * (LARGE_ANSWER_BYTES - 4)  # answered with a length and as much
    pair.send(framed(b"none:"))  # of the first request little is received
    pair.client.send(framed(large) * 2)
    pair.turn(1)
    assert pair.host.seen == [b"none:", large], "the next is made when this one was sent"
    assert pair.answers() == [large[4:]] * 2


def test_thousands_of_requests_in_one_read_take_several_turns(pair: Pair) -> None:  # noqa: F811
    pair.client.send(framed(b"now:x") * 2000)
    pair.turn(1)
    assert len(pair.host.seen) == ANSWERS_A_TURN
    pair.turn(2000)
    assert pair.answers() == [b"x"] * 2000


def test_thousands_of_requests_whose_answers_come_in_pieces_take_several_turns(pair: Pair) -> None:  # noqa: F811
    dispatch = pair.host.dispatch
    pair.host.dispatch = lambda *request: [dispatch(*request)]
    pair.client.send(framed(b"now:x") * 2000)
    pair.turn(1)
    assert len(pair.host.seen) == ANSWERS_A_TURN
    pair.turn(2000)
    assert pair.answers() == [b"x"] * 2000


def test_large_answers_do_not_pile_up_behind_one_that_is_late(pair: Pair) -> None:  # noqa: F811
    large = b"now:" + b"z" * LARGE_ANSWER_BYTES
    pair.send(framed(b"ahead:a") + framed(b"now:b") + framed(large) + framed(large))
    assert pair.host.seen == [b"ahead:a", b"now:b", large]
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!", b"b", large[4:], large[4:]]


def test_a_stream_that_never_pauses_is_no_trickle(pair: Pair) -> None:  # noqa: F811
    frame = framed(b"now:x")
    pair.send(frame + frame[:3])
    assert pair.connection.half_frame
    assert pair.connection.frame_began(1.0) == pair.connection.frame_began(2.0) == 1.0
    pair.send(frame[3:] + frame[:3])
    assert pair.connection.half_frame
    assert pair.connection.frame_began(3.0) == 3.0


def test_a_peer_that_takes_nothing_is_not_waited_for(pair: Pair) -> None:  # noqa: F811
    pair.send(framed(b"late:a"))
    assert pair.connection.stirred()
    assert not pair.connection.stirred()
    assert pair.connection.owes_answer
    pair.complete(b"a", bytes(8 << 20))
    assert pair.connection.stirred()
    pair.turn(20)
    assert not pair.connection.stirred()
    assert not pair.connection.owes_answer
    pair.client.setblocking(False)
    pair.client.recv(1 << 20)
    pair.turn()
    assert pair.connection.stirred()


def test_what_waits_until_the_peer_takes_its_answers_is_no_trickle(pair: Pair) -> None:  # noqa: F811
    """The sweep closes a connection whose request doesn't come whole for a minute; this one isn't let come."""
    small, large = framed(b"now:c"), framed(b"now:" + b"z" * 100_000)
    dispatch, answer = pair.host.dispatch, framed(bytes(8 << 20))
    pair.host.dispatch = lambda *_: answer
    pair.client.send(small)
    pair.turn(20)
    pair.host.dispatch = dispatch
    pair.client.setblocking(False)
    sent = pair.client.send(small + large)
    pair.turn()
    for _ in range(4):
        pair.connection.look_for_peer()  # which receives some of it
    assert not pair.connection.half_frame
    told = pair.answers()
    pair.send((small + large)[sent:])
    assert [len(answer) for answer in told + pair.answers()] == [8 << 20, 1, 100_000]


def test_who_had_its_turn_waits_for_the_next(pair: Pair) -> None:  # noqa: F811
    pair.host.now = lambda: 0.0  # the slice isn't over by the clock
    pair.host.busy = True
    pair.send(other(b"a"))
    assert pair.answers() == [b"a"]
    frame = other(b"b")
    assert pair.connection.take_one(memoryview(frame), len(frame)) == 0, "it was not handled"
    assert pair.connection.flow is IN_TURN
