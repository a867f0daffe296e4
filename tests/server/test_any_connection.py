"""Any history of a connection: each request that was taken is answered once and in order, and it never stands still.

Frames come cut anywhere and one behind the other; answers come at once, late, in pieces, large, or not at all; requests
run ahead, append late, take turns, keep their buffers; memory is short; the peer takes nothing, goes, or is reset; the
broker stops. Loop and socket are scripted, so that hundreds of histories take seconds:
`python -m tests.server.test_any_connection 0 2000`. It ends with how often each state was met.
"""

import logging
import struct
import sys
from collections import Counter, deque
from dataclasses import dataclass
from random import Random

import pytest

from tests.server.scripted import ScriptedLoop, ScriptedSocket
from tidelog.server.answers import Slot
from tidelog.server.bounds import (
    ANSWERS_A_TURN,
    KEPT_BYTES_MAX,
    LARGE_ANSWER_BYTES,
    LARGE_FRAME_BYTES,
    PEEK_AFTER_BYTES,
    SHARED_BYTES,
)
from tidelog.server.buffers import Buffers
from tidelog.server.connection import Connection
from tidelog.server.states import Flow
from tidelog.wire.errors import MalformedError

STEPS = 150
SETTLED_STEPS_MAX = 20_000
FRAME_BYTES_MAX = 1 << 20
HEAD = struct.Struct(">hIB")  # API key, number, what becomes of it
WEIGHTS = {
    "now": 40,
    "nothing": 8,
    "large": 6,
    "pieces": 8,
    "late": 14,
    "ahead": 16,
    "at once": 4,
    "kept": 6,
    "stop": 0.1,
    "close": 0.1,
    "malformed": 0.1,
    "refused": 0.1,
    "bug": 0.1,
}
KINDS = tuple(WEIGHTS)
ENDS = ("close", "malformed", "refused", "bug")


class Errors(logging.Handler):
    """What the connection logged as a bug of its own, or of whoever handles its requests."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


ERRORS = Errors()


@dataclass
class Request:
    number: int
    kind: str
    frame: bytes
    slot: Slot | None = None
    runs_ahead: bool = False
    done: bool = False
    abandoned: bool = False
    give_back: object = None

    def answer(self) -> bytes | list | None:
        if self.kind == "nothing":
            return None
        body = struct.pack(">I", self.number) + bytes(LARGE_ANSWER_BYTES if self.kind == "large" else self.number % 50)
        frame = struct.pack(">i", len(body)) + body
        return [frame[:3], memoryview(frame)[3:7], frame[7:]] if self.kind == "pieces" else frame

    @property
    def answer_bytes(self) -> bytes:
        return b"".join(self.answer()) if self.kind == "pieces" else self.answer() or b""

    # -- what the connection asks of a late answer

    def begin(self, slot: Slot) -> None:
        self.slot = slot
        if self.kind == "at once":
            slot.appended()
            self.complete()
        elif self.kind == "refused":
            slot.fail("no answer to be had")

    def abandon(self) -> None:
        assert not self.done
        assert not self.abandoned
        self.abandoned = True
        self.give_up_buffer()

    # -- what the test does

    def complete(self) -> None:
        self.done = True
        self.give_up_buffer()
        self.slot.complete(self.answer())

    def give_up_buffer(self) -> None:
        if self.give_back is not None:
            self.give_back()
            self.give_back = None


class History:
    """The connection, its host and its client, and the model: what was sent, what was taken, what was answered."""

    def __init__(self, seed: int, met: Counter[str] | None = None) -> None:
        self.random = Random(seed)
        self.met = Counter() if met is None else met
        self.loop = ScriptedLoop()
        self.clock = 0.0
        self.buffers = Buffers(self.random.choice((-1, 1 << 18, 1 << 20)))
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.requests_max = self.random.choice((1, 2, 5))
        self.is_busy = False
        self.large_frames = self.random.choice((0.05, 0.15, 0.6))
        self.keys = self.random.choice(((0,), (0, 0, 1, 3), (0, 3, 3)))
        self.waiting: deque[Connection] = deque()
        self.strangers: list[memoryview] = []
        self.end: str | None = None  # why the connection was closed
        self.is_bug = self.stopped = False
        self.sent: list[Request] = []
        self.unsent = bytearray()
        self.taken = 0
        self.checked = 0  # of those taken, whose answers the client has seen
        self.seen = bytearray()
        self.sock = ScriptedSocket(self.random)
        self.connection = Connection(self, self.sock, "peer", "PLAINTEXT", 1, 0.0)

    # -- the host

    def now(self) -> float:
        return self.clock

    def may_handle(self) -> bool:
        return not self.is_busy

    def spent(self, seconds: float) -> None:
        self.is_busy = self.random.random() < 0.5

    def wait_for_buffers(self, connection: Connection) -> None:
        assert not self.waiting, "it waits once"
        self.waiting.append(connection)

    def broken(self, connection: Connection) -> None:
        assert self.end is None

    def closed(self, connection: Connection, reason: str | None) -> None:
        assert self.end is None
        self.end = reason or "peer"

    def dispatch(self, connection: Connection, buffer: memoryview, start: int, end: int):
        request = self.take(buffer, start - 4, end)
        if buffer[start + 1] > 1:
            seconds = self.random.choice((0.0, 0.0001, 0.002))
            self.clock += seconds
            connection.time_quota.spent(seconds)
        if request.kind == "malformed":
            raise MalformedError("not understood")
        if request.kind == "bug":
            self.is_bug = True
            raise ValueError("a bug")
        if request.kind == "stop":
            self.stop()
        if request.kind == "close":
            connection.close()
        if request.kind in ("late", "ahead", "at once", "kept", "refused"):
            request.runs_ahead = request.kind == "ahead"
            if request.kind == "kept":
                request.give_back = connection.keep_frame()
            return request
        request.done = True
        return request.answer()

    def begin_ahead(self, buffer: memoryview, start: int, end: int) -> None:
        """Whatever begins then changes nothing for the connection."""

    def dispatch_alike(self, buffer: memoryview, start: int, end: int, most: int):
        """Some that are appended, and answered now or later: where there are two at least, and sometimes."""
        kind = self.sent[self.taken].kind
        if kind not in ("now", "ahead") or self.random.random() < 0.2:
            return None
        several: list[Request] = []
        for request in self.sent[self.taken : self.taken + most]:
            if request.kind != kind or request.frame[5] or start + len(request.frame) > end:
                break
            several.append(request)
            end_of = start + len(request.frame)
            assert bytes(buffer[start:end_of]) == request.frame
            start = end_of
        if len(several) < 2:
            return None
        self.met["alike"] += 1
        for request in several:
            self.take(memoryview(request.frame), 0, len(request.frame))
            request.runs_ahead = kind == "ahead"
        return [request if kind == "ahead" else request.answer() for request in several], start

    def take(self, buffer: memoryview, start: int, end: int) -> Request:
        """The model: a request is taken when it is the next one, whole, and nothing before it is in its way."""
        assert self.connection.flow is Flow.READING
        assert not self.sock.is_full, "a request was taken though answers aren't"
        assert not self.stopped
        request = self.sent[self.taken]
        assert bytes(buffer[start:end]) == request.frame
        under_way = [
            other for other in self.sent[self.checked : self.taken] if other.slot is not None and not other.done
        ]
        assert all(other.runs_ahead for other in under_way), "a request was taken before another had appended"
        assert len(under_way) < self.requests_max
        self.taken += 1
        if request.kind == "now":
            request.done = True
        return request

    # -- the client

    def request(self, kind: str = "now", key: int = 0, size: int = HEAD.size) -> bytes:
        """The frame of one more, which the client is about to send."""
        number = len(self.sent)
        body = HEAD.pack(key, number, KINDS.index(kind)) + bytes([number % 251]) * (size - HEAD.size)
        self.sent.append(Request(number, kind, struct.pack(">i", len(body)) + body))
        return self.sent[-1].frame

    def write(self) -> None:
        """One more request, or a burst of small ones."""
        if self.random.random() < 0.01:
            for _ in range(ANSWERS_A_TURN + 50):
                self.unsent += self.request()
        else:
            kind = self.random.choices(KINDS, WEIGHTS.values())[0]
            self.unsent += self.request(kind, self.random.choice(self.keys), self.size())

    def size(self) -> int:
        if self.random.random() >= self.large_frames:
            return self.random.randint(HEAD.size, self.random.choice((50, 300, 30_000)))
        near = self.random.choice((LARGE_FRAME_BYTES, LARGE_FRAME_BYTES, SHARED_BYTES, PEEK_AFTER_BYTES))
        return near + self.random.randint(-9, 9)

    def send(self) -> None:
        if self.random.random() < 0.7:
            self.write()
        count = len(self.unsent)
        if self.random.random() < 0.5:
            count = self.random.randint(0, min(count, self.random.choice((8, 200, 100_000))))
        self.sock.arrived += self.unsent[:count]
        del self.unsent[:count]

    def open_window(self) -> None:
        self.sock.window = self.random.choice((0, 1, 30, 500, 100_000))

    def look_at_answers(self) -> None:
        """The model: answers are those of the requests that were taken, in order, each once, and none too early."""
        self.seen += self.sock.outgoing
        self.sock.outgoing.clear()
        while self.checked < self.taken:
            request = self.sent[self.checked]
            expected = request.answer_bytes if request.kind not in ENDS else b""
            if not request.done or len(self.seen) < len(expected):
                break
            assert self.seen[: len(expected)] == expected, f"answer {self.checked}"
            del self.seen[: len(expected)]
            self.checked += 1
        if self.seen:
            assert self.checked < self.taken, "nobody asked for it"
            assert self.sent[self.checked].done, "an answer overtook another"
            assert self.sent[self.checked].answer_bytes.startswith(self.seen)

    # -- events

    def readable(self) -> None:
        reader = self.loop.readers.get(self.sock)
        in_vain = self.random.random() < 0.05
        if reader is not None and (self.sock.arrived or self.sock.ended or self.sock.reset or in_vain):
            reader()

    def writable(self) -> None:
        writer = self.loop.writers.get(self.sock)
        if writer is not None and (self.sock.window or self.sock.reset):
            writer()

    def soon(self) -> None:
        if self.loop.soon:
            callback, args = self.loop.soon.popleft()
            callback(*args)

    def turn(self) -> None:
        if self.loop.in_turn:
            self.loop.in_turn.popleft()()

    def under_way(self) -> list[Request]:
        return [
            request
            for request in self.sent[self.checked : self.taken]
            if request.slot is not None and not request.done and not request.abandoned
        ]

    def append(self) -> None:
        if requests := self.under_way():
            request = self.random.choice(requests)
            request.runs_ahead = True
            request.slot.appended()

    def complete(self) -> None:
        if requests := self.under_way():
            self.random.choice(requests).complete()

    def look_for_buffers(self) -> None:
        """As the server does, every few milliseconds."""
        if self.waiting and not self.buffers.exhausted():
            self.waiting.popleft().buffers_free()

    def stranger(self) -> None:
        """Others take memory, and give it back."""
        if self.strangers and self.random.random() < 0.6:
            self.buffers.give_back(self.strangers.pop())
        else:
            self.strangers.append(self.buffers.lend(300_000, 300_000))
        self.buffers.kept_bytes += (
            self.random.choice((0, 0, KEPT_BYTES_MAX)) if self.buffers.kept_bytes < KEPT_BYTES_MAX else 0
        )

    def others_begin(self) -> None:
        self.is_busy = True

    def others_end(self) -> None:
        self.is_busy = False
        self.clock += self.random.choice((0.001, 1.0))
        if self.buffers.kept_bytes >= KEPT_BYTES_MAX:
            self.buffers.kept_bytes -= KEPT_BYTES_MAX

    def sweep(self) -> None:
        self.connection.look_for_peer()
        self.connection.frame_began(self.clock)
        if self.connection.half_frame:
            arrived = sum(len(request.frame) for request in self.sent) - len(self.unsent) - len(self.sock.arrived)
            assert self.connection.frame_filled == arrived - sum(
                len(request.frame) for request in self.sent[: self.taken]
            )

    def stop(self) -> None:
        self.connection.stop_reading()
        self.stopped = True

    def close(self) -> None:
        self.connection.close("the test closed it")

    def go_away(self) -> None:
        self.sock.ended = True

    def reset(self) -> None:
        self.sock.reset = True

    def do(self, event) -> None:
        self.loop.alone = self.random.random() < 0.5
        event(self)
        self.buffers.shared[: 1 << 12] = b"\xee" * (1 << 12)  # it belongs to whoever is read next
        assert len(ERRORS.seen) == self.is_bug, ERRORS.seen[-1]
        self.connection.check_invariants()
        self.look_at_answers()
        self.met[self.connection.flow.name] += 1

    def settle(self) -> None:
        """Everything comes that is waited for: then all whole frames that came are answered, and it reads on."""
        events = (
            History.open_window,
            History.readable,
            History.writable,
            History.soon,
            History.turn,
            History.complete,
            History.look_for_buffers,
            History.others_end,
        )
        for buffer in self.strangers:
            self.buffers.give_back(buffer)
        self.strangers.clear()
        for _ in range(SETTLED_STEPS_MAX):
            if self.is_settled():
                break
            for event in events:
                self.do(event)
            self.sock.window = 1 << 20
        assert self.is_settled(), f"it stands still: {self.connection.flow}"

    def is_settled(self) -> bool:
        if self.end is not None:
            return True
        arrived = sum(len(request.frame) for request in self.sent) - len(self.unsent)
        whole = 0
        while whole < len(self.sent) and (arrived := arrived - len(self.sent[whole].frame)) >= 0:
            whole += 1
        if self.stopped:
            return self.checked == self.taken and not self.connection.busy
        return self.checked == self.taken == whole and self.connection.flow is Flow.READING and not self.sock.arrived

    def go(self) -> None:
        ERRORS.seen.clear()
        logging.getLogger("tidelog.server").addHandler(ERRORS)
        try:
            self.live()
            self.ended()
        finally:
            logging.getLogger("tidelog.server").removeHandler(ERRORS)

    def live(self) -> None:
        events, weights = list(EVENTS), list(EVENTS.values())
        for _ in range(STEPS):
            if self.end is not None:
                break
            if self.random.random() < 0.02:
                self.settle()
            self.do(self.random.choices(events, weights)[0])
        if self.end is None and self.random.random() < 0.8:
            self.sock.arrived += self.unsent
            self.unsent.clear()
            self.settle()
        if self.end is None:
            self.do(History.close)
        self.met[f"end: {self.end}"] += 1

    def ended(self) -> None:
        """Nothing is left of it, and what comes late harms nobody."""
        taken = self.taken
        for request in self.sent[self.checked : taken]:
            assert request.done or request.abandoned or request.slot is None or request.kind in ENDS
            request.give_up_buffer()
        for _ in range(20):
            for event in (History.soon, History.turn, History.look_for_buffers, History.sweep, History.others_end):
                self.do(event)
        self.connection.stop_reading()
        self.connection.close()
        assert self.taken == taken
        assert (self.loop.readers, self.loop.writers) == ({}, {})
        assert self.sock.closed
        assert self.buffers.kept_bytes % KEPT_BYTES_MAX == 0
        for buffer in self.strangers:
            self.buffers.give_back(buffer)
        assert self.buffers.lent_bytes == 0


EVENTS = {
    History.send: 20,
    History.open_window: 10,
    History.readable: 25,
    History.writable: 10,
    History.soon: 15,
    History.turn: 8,
    History.append: 4,
    History.complete: 8,
    History.look_for_buffers: 4,
    History.stranger: 2,
    History.others_begin: 3,
    History.others_end: 3,
    History.sweep: 8,
    History.stop: 0.1,
    History.close: 0.1,
    History.go_away: 0.06,
    History.reset: 0.1,
}


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_in_any_history_requests_are_answered_in_order_and_nothing_stands_still(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            History(seed).go()
        except BaseException as error:
            error.add_note(f"seed {seed}: python -m tests.server.test_any_connection {seed} {seed + 1}")
            raise


def test_histories_meet_every_state() -> None:
    met: Counter[str] = Counter()
    for seed in range(1000, 1100):
        History(seed, met).go()
    assert {"alike", *(flow.name for flow in Flow)} <= set(met)


def test_a_large_frame_behind_answers_that_can_not_be_sent_gives_its_buffer_back() -> None:
    history = History(0)
    stream = history.request() + history.request(size=LARGE_FRAME_BYTES)
    history.sock.arrived += stream[:100]
    while history.sock.arrived:
        history.loop.readers[history.sock]()  # the first one's answer leaves with the turn of the loop
    assert history.connection.half_frame
    history.sock.unsendable = True
    history.sock.arrived += stream[100:]
    while history.end is None:
        history.loop.readers[history.sock]()
    history.connection.check_invariants()
    assert history.taken == 1
    assert history.buffers.lent_bytes == 0


def test_half_a_frame_has_no_deadline_while_we_do_not_read() -> None:
    history = History(0)
    history.sock.arrived += history.request("ahead")
    while history.sock.arrived:
        history.loop.readers[history.sock]()
    history.sock.arrived += history.request()[:5]
    while history.sock.arrived:
        history.loop.readers[history.sock]()
    assert history.connection.frame_began(1.0) == history.connection.frame_began(2.0) == 1.0
    history.sent[0].complete()
    history.soon()
    assert history.connection.flow is Flow.AWAITS_PEER
    history.sock.arrived += history.sent[1].frame[5:]
    history.connection.look_for_peer()
    history.connection.check_invariants()
    assert history.connection.frame_began(3.0) is None
    history.settle()


def test_a_peer_that_is_reset_while_its_request_is_under_way_is_noticed_by_the_next_look() -> None:
    history = History(0)
    history.sock.arrived += history.request("late")
    while history.sock.arrived:
        history.loop.readers[history.sock]()
    assert (history.taken, history.connection.flow) == (1, Flow.AWAITS_ANSWER)
    history.sock.reset = True
    history.connection.look_for_peer()
    assert history.end == "peer"
    assert history.sent[0].abandoned


if __name__ == "__main__":
    logging.getLogger("tidelog").propagate = False
    counted: Counter[str] = Counter()
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        History(number, counted).go()
    print(*(f"{count:8} {name}" for name, count in counted.most_common()), sep="\n")
