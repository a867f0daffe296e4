"""A connection over a real socket: frames cut anywhere, answers in order, back-pressure, bounds.

The host here answers each frame with what the frame itself says: `now:X` with X at once, `late:X` when the test
completes it, `ahead:X` likewise without holding back later frames, `none:` with nothing.
"""

import socket
import struct
import time
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from tidelog.env.real_loop import RealLoop
from tidelog.server.bounds import LARGE_ANSWER_BYTES, PEEK_BYTES
from tidelog.server.buffers import Buffers
from tidelog.server.connection import Connection
from tidelog.server.states import CLOSED, IN_TURN


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Late:
    def __init__(self, name: bytes, *, runs_ahead: bool) -> None:
        self.name = name
        self.runs_ahead = runs_ahead
        self.abandoned = False
        self.slot = None

    def begin(self, slot) -> None:
        self.slot = slot

    def abandon(self) -> None:
        self.abandoned = True


class Host:
    def __init__(self, loop, *, bytes_max: int = -1) -> None:
        self.loop = loop
        self.now = time.monotonic
        self.busy = False
        self.buffers = Buffers(bytes_max)
        self.frame_bytes_max = 8 << 20
        self.requests_max = 5
        self.seen: list[bytes] = []
        self.late: dict[bytes, Late] = {}
        self.waiting: list[Connection] = []
        self.ahead: list[bytes] = []
        self.reason: str | None = None
        self.gone = False
        self.was_broken = False

    def dispatch(self, connection, buffer, start, end):
        payload = bytes(buffer[start:end])
        self.seen.append(payload)
        kind, _, name = payload.partition(b":")
        if kind in (b"late", b"ahead"):
            self.late[name] = Late(name, runs_ahead=kind == b"ahead")
            return self.late[name]
        return None if kind == b"none" else framed(name)

    def dispatch_alike(self, buffer, start, end, most):
        """Any history of a connection has them: test_any_connection.py."""

    def begin_ahead(self, buffer, start, end) -> None:
        self.ahead.append(bytes(buffer[start:end]))

    def may_handle(self) -> bool:
        return not self.busy

    def spent(self, seconds) -> None:
        self.busy = True

    def wait_for_buffers(self, connection) -> None:
        self.waiting.append(connection)

    def broken(self, connection) -> None:
        assert not self.gone
        self.was_broken = True

    def closed(self, connection, reason) -> None:
        self.reason, self.gone = reason, True


class CountingSocket(socket.socket):
    """Knows how much each call received."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(fileno=sock.detach())
        self.received: list[int] = []

    def recv_into(self, space) -> int:
        count = super().recv_into(space)
        self.received.append(count)
        return count


class Pair:
    """A client's blocking end, and the connection at the other."""

    def __init__(self, loop: RealLoop | None = None, **options) -> None:
        self.loop = loop or RealLoop()
        ours, self.client = socket.socketpair()
        ours = CountingSocket(ours)
        ours.setblocking(False)
        self.client.settimeout(5)
        self.host = Host(self.loop, **options)
        self.connection = Connection(self.host, ours, "peer", "PLAINTEXT", 1, 0.0)
        self._received = b""

    def turn(self, times: int = 5) -> None:
        for _ in range(times):
            self.loop.run_once(wait=False)
            self.connection.check_invariants()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        self.client.setblocking(False)
        while view:
            with suppress(BlockingIOError):
                view = view[self.client.send(view) :]
            with suppress(BlockingIOError, ConnectionError):
                self._received += self.client.recv(1 << 20)
            self.turn(1)
        self.turn()

    def answers(self) -> list[bytes]:
        """All whole answers that have come."""
        self.turn()
        self.client.setblocking(False)
        while True:
            try:
                data = self.client.recv(1 << 20)
            except BlockingIOError:
                break
            if not data:
                break
            self._received += data
            self.turn(3)
        found = []
        while len(self._received) >= 4:
            size = struct.unpack_from(">i", self._received)[0]
            if len(self._received) < 4 + size:
                break
            found.append(self._received[4 : 4 + size])
            self._received = self._received[4 + size :]
        return found

    def appended(self, name: bytes) -> None:
        self.host.late[name].slot.appended()
        self.turn()

    def complete(self, name: bytes, answer: bytes) -> None:
        self.host.late[name].slot.complete(framed(answer))
        self.turn()


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.connection.close()
    made.client.close()
    made.loop.close()


def test_frames_cut_anywhere_are_put_together(pair):
    stream = framed(b"now:first") + framed(b"now:second")
    for byte in stream:
        pair.send(bytes([byte]))
    assert pair.answers() == [b"first", b"second"]


def test_many_frames_in_one_read_are_answered_in_order(pair):
    pair.send(b"".join(framed(b"now:%d" % number) for number in range(500)))
    assert pair.answers() == [b"%d" % number for number in range(500)]


def test_a_late_answer_holds_back_the_frames_behind_it(pair):
    pair.send(framed(b"late:a") + framed(b"now:b"))
    assert pair.answers() == []
    assert pair.host.seen == [b"late:a"]
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!", b"b"]


def test_frames_behind_a_late_answer_go_on_once_it_has_appended(pair):
    pair.send(framed(b"late:a") + framed(b"late:b") + framed(b"now:c"))
    pair.send(framed(b"now:d"))  # comes while nothing is read
    assert pair.host.seen == [b"late:a"]
    pair.appended(b"a")
    assert pair.host.seen == [b"late:a", b"late:b"]
    pair.appended(b"b")
    assert pair.host.seen == [b"late:a", b"late:b", b"now:c", b"now:d"]
    assert pair.answers() == []
    pair.complete(b"b", b"b!")
    assert pair.answers() == []
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!", b"b!", b"c", b"d"]


def test_having_appended_dispatches_nothing_by_itself(pair):
    """Whoever says so is in the middle of its work: what comes next has a turn of its own."""
    pair.send(framed(b"late:a") + framed(b"now:b"))
    pair.host.late[b"a"].slot.appended()
    assert pair.host.seen == [b"late:a"]
    pair.turn()
    assert pair.host.seen == [b"late:a", b"now:b"]


def test_having_appended_frees_no_more_requests_than_are_allowed(pair):
    pair.send(b"".join(framed(b"ahead:%d" % number) for number in range(4)) + framed(b"late:a") + framed(b"now:b"))
    pair.appended(b"a")
    assert pair.host.seen[-1] == b"late:a", "five are under way"
    pair.complete(b"0", b"0")
    assert pair.host.seen[-1] == b"now:b"


def test_an_end_before_having_appended_harms_nothing(pair):
    pair.send(framed(b"late:a") + framed(b"now:b"))
    pair.connection.close()
    pair.appended(b"a")
    pair.complete(b"a", b"a!")
    assert pair.host.seen == [b"late:a"]


def test_requests_that_run_ahead_are_dispatched_but_answered_in_order(pair):
    pair.send(framed(b"ahead:a") + framed(b"ahead:b") + framed(b"now:c"))
    assert pair.host.seen == [b"ahead:a", b"ahead:b", b"now:c"]
    pair.complete(b"b", b"b!")
    assert pair.answers() == []
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!", b"b!", b"c"]


def test_answers_of_several_pieces_and_requests_without_any_keep_their_places_among_plain_ones(pair):
    """All of them become ready at once, by the first: a fetch's slices of a log between produce requests' answers."""
    pair.send(b"".join(framed(b"ahead:%c" % name) for name in b"abcde"))

    def complete(name: bytes, answer) -> None:
        pair.host.late[name].slot.complete(answer)

    complete(b"b", [framed(b"b!")[:4], memoryview(b"b!")])
    complete(b"c", None)
    complete(b"d", framed(b"d!"))
    complete(b"e", [memoryview(framed(b"e!"))])
    complete(b"a", framed(b"a!"))
    assert pair.answers() == [b"a!", b"b!", b"d!", b"e!"]


def test_running_ahead_is_bounded(pair):
    pair.send(b"".join(framed(b"ahead:%d" % number) for number in range(9)))
    assert len(pair.host.seen) == 5
    for number in range(9):
        pair.complete(b"%d" % number, b"%d!" % number)
    assert pair.answers() == [b"%d!" % number for number in range(9)]


@pytest.mark.parametrize("seed", range(8))
def test_answers_leave_in_order_whatever_comes_when(pair, seed):
    """Two connections of one loop, so that answers may wait for the end of a turn; frames are cut anywhere."""
    random = Random(seed)
    pairs = [pair, Pair(pair.loop)]
    sizes = (1, 40, 3000, 20_000)
    frames = [[(random.choice(("now", "ahead", "late", "none")), n) for n in range(40)] for _ in pairs]
    bodies = [[b"%d" % n * random.choice(sizes) for n in range(40)] for _ in pairs]
    wire = [
        b"".join(framed(b"%s:%s" % (kind.encode(), body)) for (kind, _), body in zip(each, texts, strict=True))
        for each, texts in zip(frames, bodies, strict=True)
    ]
    found: list[list[bytes]] = [[], []]
    try:
        while any(wire) or any(host.late for host in (each.host for each in pairs)):
            for number, one in enumerate(pairs):
                cut = random.choice((1, 7, 100, 5000, 100_000))
                one.client.setblocking(False)
                with suppress(BlockingIOError):  # nothing more is read before what is late was answered
                    wire[number] = wire[number][one.client.send(wire[number][:cut]) :] if wire[number] else b""
                pending = list(one.host.late)
                for name in random.sample(pending, random.randint(0, len(pending))):
                    one.host.late.pop(name).slot.complete(framed(name))
            pair.turn(random.randint(1, 3))
            for number, one in enumerate(pairs):
                found[number] += one.answers()
        for number, one in enumerate(pairs):
            found[number] += one.answers()
            expected = [body for (kind, _), body in zip(frames[number], bodies[number], strict=True) if kind != "none"]
            assert found[number] == expected
            assert not one.connection.busy
    finally:
        pairs[1].connection.close()
        pairs[1].client.close()


@pytest.mark.parametrize(
    "before",
    [b"", framed(b"now:1"), framed(b"now:1") + b"\0\0", framed(b"now:1") + framed(b"now:" + b"l" * 200_000)[:150_000]],
    ids=["nothing", "a request", "half a length", "half a large request"],
)
def test_a_client_that_goes_is_noticed_whatever_came_of_it(pair, before):
    pair.send(before)
    assert not pair.host.gone
    pair.client.close()
    pair.turn()
    assert (pair.host.gone, pair.connection.flow, pair.host.reason) == (True, CLOSED, None)


def test_reading_stops_while_answers_that_wait_for_the_end_of_a_turn_are_not_taken(pair):
    """Two connections are read in each turn, so that their answers leave at its end; one client takes none."""
    other, frame = Pair(pair.loop), framed(b"now:" + b"x" * 10_000)
    pair.client.setblocking(False)
    rest, sent = frame, 0
    try:
        while sent < 2000:
            try:
                rest = rest[pair.client.send(rest) :]
            except BlockingIOError:
                break
            if not rest:
                rest, sent = frame, sent + 1
            other.client.setblocking(False)
            other.client.send(framed(b"now:1"))
            pair.turn(2)
            other.answers()
        assert sent < 2000, "it is read for ever, and its answers pile up"
        taken = len(pair.host.seen)
        pair.turn()
        assert len(pair.host.seen) == taken
        assert len(pair.answers()) == len(pair.host.seen) > taken, "it goes on when they are taken"
    finally:
        other.connection.close()
        other.client.close()


def test_a_request_of_no_bytes_is_one(pair):
    pair.send(framed(b"now:1") + framed(b""))
    pair.send(framed(b""))
    assert pair.host.seen == [b"now:1", b"", b""]


def test_a_request_that_trickles_in_began_when_it_began(pair):
    frame = framed(b"now:slow")
    pair.send(frame[:3])
    assert pair.connection.frame_began(1.0) == 1.0
    for place in range(3, len(frame) - 1):
        pair.send(frame[place : place + 1])
        assert pair.connection.frame_began(2.0) == 1.0
    pair.send(frame[-1:] + frame[:3])
    assert pair.connection.frame_began(3.0) == 3.0, "that is the next one"


def test_how_much_has_come_of_a_request_is_told(pair):
    connection, small, large = pair.connection, framed(b"now:small"), framed(b"now:" + b"l" * 200_000)
    assert (connection.half_frame, connection.frame_filled) == (False, 0)
    pair.send(small[:5])
    assert (connection.half_frame, connection.frame_filled) == (True, 5)
    pair.send(small[5:] + large[:100])
    assert (connection.half_frame, connection.frame_filled) == (True, 100)
    pair.send(large[100:150_000])
    assert (connection.half_frame, connection.frame_filled) == (True, 150_000)
    pair.send(large[150_000:])
    assert (connection.half_frame, connection.frame_filled) == (False, 0)
    assert pair.answers() == [b"small", b"l" * 200_000]


def test_frames_that_wait_for_an_answer_are_no_half_frame(pair):
    pair.send(framed(b"late:1") + framed(b"now:2"))
    assert not pair.connection.half_frame
    assert (pair.connection.busy, pair.connection.owes_answer) == (True, True)
    pair.complete(b"1", b"1")
    assert pair.answers() == [b"1", b"2"]
    assert (pair.connection.busy, pair.connection.owes_answer) == (False, False)


def test_a_request_without_answer_leaves_no_gap(pair):
    pair.send(framed(b"none:") + framed(b"now:a") + framed(b"ahead:b") + framed(b"none:") + framed(b"now:c"))
    pair.complete(b"b", b"b!")
    assert pair.answers() == [b"a", b"b!", b"c"]


def test_large_frames_come_whole_between_small_ones(pair):
    large = [b"now:" + bytes([65 + number]) * size for number, size in enumerate((70_000, 1 << 20, 3 << 20))]
    pair.send(framed(b"now:x") + b"".join(framed(frame) + framed(b"now:y") for frame in large))
    received = pair.answers()
    assert received == [b"x", large[0][4:], b"y", large[1][4:], b"y", large[2][4:], b"y"]
    assert pair.host.buffers.lent_bytes == 0


@pytest.mark.parametrize("size", [-1, (8 << 20) + 1])
def test_an_impossible_length_closes_the_connection_and_says_why(pair, size):
    pair.send(struct.pack(">i", size) + b"x")
    assert pair.host.gone
    assert f"claims a size of {size} bytes" in pair.host.reason or f"claims {size} bytes" in pair.host.reason


@pytest.mark.parametrize("size", [-1, (8 << 20) + 1])
def test_what_came_before_an_impossible_length_is_answered(pair, size):
    pair.send(framed(b"now:a") + framed(b"now:b") + struct.pack(">i", size) + b"x")
    assert pair.answers() == [b"a", b"b"]
    assert pair.host.gone


def test_a_request_above_the_limit_is_refused_behind_one_of_its_kind_too(pair):
    """Those that are handled together are none the larger for it."""
    pair.host.frame_bytes_max = 1000
    small, large = framed(b"\0\0:a"), framed(b"\0\0:" + bytes(1000))
    pair.host.dispatch_alike = lambda buffer, start, end, most: ([framed(b"together")] * 2, end)
    pair.send(small)
    pair.send(small + large)
    assert pair.answers() == [b"a", b"a"]
    assert "claims 1003 bytes" in pair.host.reason


def test_what_takes_long_before_those_behind_a_late_one_are_handled_may_begin(pair):
    """The host is shown what waits, and none of it is handled before its turn."""
    behind = framed(b"ahead:b" + bytes(100)) + framed(b"ahead:c" + bytes(100))
    pair.send(framed(b"late:a") + behind)
    assert pair.host.ahead == [behind]
    assert pair.host.seen == [b"late:a"]
    pair.host.late[b"a"].slot.complete(framed(b"a!"))
    pair.turn()
    assert [seen[:7] for seen in pair.host.seen] == [b"late:a", b"ahead:b", b"ahead:c"]
    assert pair.host.ahead == [behind]


def test_a_claimed_length_allocates_nothing_to_speak_of(pair):
    pair.send(struct.pack(">i", 8 << 20) + b"now:x")
    assert pair.connection.half_frame
    assert pair.host.buffers.lent_bytes == 16 * 1024


def test_when_the_client_goes_late_answers_are_abandoned(pair):
    pair.send(framed(b"late:a"))
    pair.client.close()
    pair.turn()
    assert not pair.host.gone  # nothing is read while a request is under way
    pair.connection.close()
    assert pair.host.late[b"a"].abandoned


def test_reading_stops_while_the_client_takes_no_answers(pair):
    answer = b"now:" + b"z" * 200_000
    sent = 0
    pair.client.setblocking(False)
    stream = framed(answer)
    for _ in range(200):
        with suppress(BlockingIOError):
            sent += pair.client.send(stream[sent % len(stream) :])
        pair.turn(1)
    dispatched = len(pair.host.seen)
    assert dispatched < 20
    pair.turn(50)
    assert len(pair.host.seen) == dispatched
    assert b"".join(pair.answers()) == b"z" * 200_000 * len(pair.host.seen)


def test_after_a_large_frame_any_may_come(pair):
    """The next is received into a buffer as large: it may be smaller, larger, several, or cut anywhere."""
    sizes = (1 << 20, 1 << 20, 5, 1 << 20, 400_000, 500_000, 3 << 20, 1 << 20, 70_000, 1 << 20)
    frames = [b"now:" + bytes([65 + number]) * size for number, size in enumerate(sizes)]
    for frame in frames:
        pair.send(framed(frame))
    pair.send(framed(frames[0]))
    pair.send(framed(frames[2]) * 3 + framed(frames[8]))
    pair.send(framed(frames[0]))
    for byte in framed(frames[2]):
        pair.send(bytes([byte]))
    expected = [*frames, frames[0], frames[2], frames[2], frames[2], frames[8], frames[0], frames[2]]
    assert pair.answers() == [frame[4:] for frame in expected]
    assert pair.host.buffers.lent_bytes == 0


def test_a_length_out_of_bounds_is_told_after_a_large_frame_too(pair):
    pair.send(framed(b"none:" + bytes(1 << 20)) * 2)
    pair.send(struct.pack(">i", 9 << 20) + b"x")
    pair.turn()
    assert pair.host.gone
    assert pair.host.reason
    assert pair.host.buffers.lent_bytes == 0


def test_without_memory_for_a_large_frame_the_connection_waits(pair):
    pair.host.buffers.bytes_max = 1
    pair.host.buffers.lent_bytes = 1
    frame = b"now:" + b"q" * 100_000
    pair.client.setblocking(False)
    pair.client.send(framed(frame)[:50_000])
    pair.turn()
    assert pair.host.waiting == [pair.connection]
    pair.host.buffers.lent_bytes = 0
    pair.connection.buffers_free()
    pair.send(framed(frame)[50_000:])
    assert pair.answers() == [frame[4:]]


def test_what_a_client_that_goes_amid_a_large_frame_had_in_memory_is_free_again(pair):
    pair.send(framed(b"now:" + b"q" * 100_000)[:50_000])
    assert pair.host.buffers.lent_bytes > 0
    pair.client.close()
    pair.turn()
    assert (pair.host.gone, pair.host.buffers.lent_bytes) == (True, 0)


def test_when_the_broker_stops_what_was_accepted_is_answered_and_nothing_more(pair):
    pair.send(framed(b"ahead:a"))
    pair.connection.stop_reading()
    pair.client.send(framed(b"now:b"))
    pair.turn()
    assert pair.connection.busy
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!"]
    assert not pair.connection.busy


def other(name: bytes) -> bytes:
    """A frame that is no Produce and no Fetch, by its API key."""
    return framed(b"now:" + name)


def test_requests_that_take_long_are_handled_in_turn_with_each_other_and_in_order(pair):
    handled_in: list[int] = []
    dispatch = pair.host.dispatch

    def slow(connection, buffer, start, end):
        handled_in.append(pair.loop.turns)
        deadline = time.monotonic() + 0.002
        while time.monotonic() < deadline:
            pass
        connection.time_quota.spent(0.002)
        return dispatch(connection, buffer, start, end)

    pair.host.dispatch = slow
    pair.client.send(b"".join(other(b"%d" % number) for number in range(20)))
    pair.turn(100)
    assert pair.answers() == [b"%d" % number for number in range(20)]
    assert all(count <= 2 for count in Counter(handled_in).values()), "a turn handles one, and one that waited"


def test_of_a_connection_that_has_to_wait_for_its_turn_little_is_received(pair):
    pair.host.busy = True  # others took this turn's time
    pair.client.setblocking(False)
    frames = b"".join(other(b"%0100d" % number) for number in range(1000))
    sent = pair.client.send(frames)
    pair.loop.run_once(wait=False)
    assert pair.connection.sock.received == [PEEK_BYTES], f"of {sent} bytes"
    pair.send(frames[sent:])
    pair.turn(2000)
    assert pair.answers() == [b"%0100d" % number for number in range(1000)]


def test_who_spent_little_comes_at_once_beside_who_spent_much(pair):
    pair.host.busy = True  # others took this turn's time
    pair.send(other(b"waits"))
    assert pair.answers() == [b"waits"]
    pair.host.busy = False
    pair.connection.time_quota.spent(1.0)
    pair.host.busy = False
    pair.send(other(b"in debt"))
    assert pair.answers() == [b"in debt"], "who is in debt waits for its turn, not for ever"


def test_answers_that_wait_for_the_end_of_the_turn_leave_before_those_that_come_behind_them(pair):
    pair.loop.alone = False  # other connections have something to read, too
    for name in (b"a", b"b", b"c"):
        frame = framed(b"now:" + name)
        assert pair.connection.take_one(memoryview(frame), len(frame)) == len(frame)
    frames = framed(b"now:d") + framed(b"now:e")
    assert pair.connection.take(memoryview(frames), 0, len(frames)) == len(frames)
    assert pair.answers() == [b"a", b"b", b"c", b"d", b"e"]


def test_a_request_that_has_to_wait_for_its_turn_has_one(pair):
    pair.host.busy = True
    frame = other(b"waits")
    assert pair.connection.take_one(memoryview(frame), len(frame)) == 0, "it was not handled"
    assert pair.connection.flow is IN_TURN
    assert pair.host.seen == []


def request(api_key: int, name: bytes) -> bytes:
    return framed(struct.pack(">h", api_key) + b":" + name)


def test_produce_and_fetch_never_wait_for_a_turn(pair):
    pair.host.busy = True
    one, two = request(1, b"a"), request(0, b"b") + request(1, b"c")
    assert pair.connection.take_one(memoryview(one), len(one)) == len(one)
    assert pair.connection.take(memoryview(two), 0, len(two)) == len(two)
    assert pair.answers() == [b"a", b"b", b"c"]


def test_any_other_request_does_where_the_time_is_spent(pair):
    pair.host.busy = True
    two = request(1, b"a") + request(3, b"b")
    assert pair.connection.take(memoryview(two), 0, len(two)) == len(request(1, b"a"))
    assert pair.connection.flow is IN_TURN
    assert pair.answers() == [b"a"]


def test_a_small_answer_waits_for_the_end_of_the_turn_and_a_large_one_does_not(pair):
    pair.loop.alone = False
    pair.client.setblocking(False)
    small, large = framed(b"now:small"), framed(b"now:" + bytes(LARGE_ANSWER_BYTES))
    pair.connection.take_one(memoryview(small), len(small))
    with pytest.raises(BlockingIOError):
        pair.client.recv(1)
    assert pair.answers() == [b"small"]
    pair.loop.alone = False
    pair.connection.take_one(memoryview(large), len(large))
    assert pair.client.recv(1 << 20)


def test_a_late_answer_to_a_request_that_came_alone_is_sent(pair):
    pair.send(framed(b"none:"))
    pair.send(framed(b"late:a"))
    assert pair.connection.owes_answer
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!"]
    assert not pair.connection.busy
