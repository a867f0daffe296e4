"""The states of a connection: what lies here of requests that came, and what has to come before more are taken.

Theory of operation
-------------------

Two things change independently of each other, so there are two machines.

`Incoming` says what lies here of bytes that were received and not handled. Its owner is the receiver:

    EMPTY     nothing: the next read takes whatever came
    PEEKING   nothing: the next read takes little, or one frame as large as the last. So a connection begins, and so it
              goes on after a frame of a megabyte, or when its requests have to take turns
    HALF      the head of a small frame, whose rest is to come
    LARGE     a frame fills a buffer of its own
    HELD      frames that came are kept until they may be taken; the last one need not be whole

`Flow` says whether requests are taken, or what they wait for. Its owner is the connection:

    READING          nothing: bytes are received, and frames are handled as they come
    YIELDED          others have their turn; the loop calls back soon
    IN_TURN          its turn among all that takes long (`env/slices.py`); the loop calls back
    AWAITS_ANSWER    the last request may still change something, or too many are under way
    AWAITS_PEER      the peer has to take the answers that were sent
    AWAITS_BUFFERS   there is no memory for a large frame that has begun
    DRAINING         the broker stops: no more requests are taken, those that were are answered
    CLOSED

Why nothing is lost: frames leave HELD only to be handled, or when the connection drains or closes; what isn't handled
then is held again.

Why nothing is handled out of order, or too early: frames are handled in READING only, and in READING nothing is HELD.
While one is handled the flow may leave READING, and then the next one isn't handled.

Why it never stands still: there may be several reasons to wait, but a state stands for one of them, and each has one
event that ends it and that is certain to come, as nothing else is done with it:

    YIELDED          the callback, one for each time that the state is entered
    IN_TURN          likewise
    AWAITS_ANSWER    answers were sent; or the last request has appended, which makes it YIELDED, since a log or a
                     coordinator is in the middle of its work then
    AWAITS_PEER      the outbox is empty
    AWAITS_BUFFERS   the server's call, one for each time that the state is entered

Whoever hears of that event looks for the other reasons, the peer first, then the answer, and enters their state, or
READING. All other events leave these states alone, so that a callback finds the state that it was asked for, or a
connection that drains or is closed. Since no request is taken while the connection waits, none is added whose answer
would have to be awaited: YIELDED, IN_TURN and AWAITS_BUFFERS, which are entered only when no answer is awaited, never
become AWAITS_ANSWER.

The loop is told lazily that nothing is to be read: by the first event that comes in vain. In READING it always watches.

`check_invariants` of the connection and its parts says what holds between events.
"""

from enum import Enum


class Incoming(Enum):
    EMPTY = "nothing"
    PEEKING = "nothing, and little is received next"
    HALF = "half a small frame"
    LARGE = "a part of a large frame"
    HELD = "frames that wait"

    __hash__ = object.__hash__  # Enum's own is written in Python


class Flow(Enum):
    READING = "reads"
    YIELDED = "lets others have their turn"
    IN_TURN = "waits for its turn"
    AWAITS_ANSWER = "waits for an answer"
    AWAITS_PEER = "waits for the peer to take answers"
    AWAITS_BUFFERS = "waits for memory"
    DRAINING = "answers what was taken"
    CLOSED = "is closed"

    __hash__ = object.__hash__


# In the order above. Names of the module are found faster than members of an Enum.
EMPTY, PEEKING, HALF, LARGE, HELD = Incoming
READING, YIELDED, IN_TURN, AWAITS_ANSWER, AWAITS_PEER, AWAITS_BUFFERS, DRAINING, CLOSED = Flow

INCOMING: dict[Incoming, tuple[Incoming, ...]] = {
    EMPTY: (HALF, LARGE, HELD, PEEKING),
    PEEKING: (EMPTY, HALF, LARGE, HELD),
    HALF: (EMPTY, HELD),
    LARGE: (EMPTY,),
    HELD: (EMPTY, PEEKING),
}
"""HALF becomes EMPTY when more came: what lies there is looked at again from its beginning."""

FLOW: dict[Flow, tuple[Flow, ...]] = {
    READING: (AWAITS_ANSWER, AWAITS_PEER, YIELDED, IN_TURN, AWAITS_BUFFERS, DRAINING, CLOSED),
    YIELDED: (READING, AWAITS_PEER, DRAINING, CLOSED),
    IN_TURN: (READING, AWAITS_PEER, DRAINING, CLOSED),
    AWAITS_ANSWER: (READING, AWAITS_PEER, YIELDED, DRAINING, CLOSED),
    AWAITS_PEER: (READING, AWAITS_ANSWER, DRAINING, CLOSED),
    AWAITS_BUFFERS: (READING, AWAITS_PEER, DRAINING, CLOSED),
    DRAINING: (CLOSED,),
    CLOSED: (),
}
