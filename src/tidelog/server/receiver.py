"""What a connection receives: bytes from the socket, cut into what may be frames, and kept while they have to wait.

Reading goes into the shared buffer, or into the frame's own buffer for a large frame; what is left of a half frame is
kept here. A large frame that waits for its turn, or is read in steps, stays in the buffer that it was received into.
Its states are `Incoming` (states.py).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

from tidelog.server.bounds import LARGE_FRAME_BYTES, PEEK_AFTER_BYTES, PEEK_BYTES
from tidelog.server.states import AWAITS_BUFFERS, CLOSED, DRAINING, EMPTY, HALF, HELD, INCOMING, LARGE, PEEKING, READING

if TYPE_CHECKING:
    from tidelog.env.network import Socket
    from tidelog.server.host import Host
    from tidelog.server.states import Flow, Incoming

KIND_BYTES = 6  # the size of a frame, and the key of its API
FETCH = 1  # the key; below it is Produce, above it what must be admitted

_read_size = Struct(">i").unpack_from


class Taker(Protocol):
    """Who handles what was received: the connection."""

    @property
    def flow(self) -> Flow: ...

    def take(self, buffer: memoryview, start: int, end: int) -> int:
        """Handle whole frames in [start, end), unless there is a reason to wait; where the first begins that wasn't."""
        ...

    def take_one(self, buffer: memoryview, end: int) -> int:
        """The same for a frame of which nothing is missing, and behind which nothing came."""
        ...

    def wait_for_buffers(self) -> None: ...

    def failed(self, error: Exception) -> None: ...

    def peer_gone(self) -> None:
        """The other side has ended the connection."""
        ...


class Receiver:
    __slots__ = (
        "_began",
        "_buffers",
        "_frame",
        "_frame_bytes",
        "_frame_bytes_max",
        "_frame_filled",
        "_held_frame",
        "_left",
        "_lent",
        "_loop",
        "_receive",
        "_shared",
        "_sock",
        "_taker",
        "_watching",
        "active",
        "incoming",
    )

    def __init__(self, taker: Taker, host: Host, sock: Socket) -> None:
        self._taker = taker
        self._loop = host.loop
        self._buffers = host.buffers
        self._shared = host.buffers.shared
        self._frame_bytes_max = host.frame_bytes_max
        self._sock = sock
        self._receive = sock.recv_into
        self.incoming: Incoming = PEEKING  # what it asks for may have to wait
        self.active = True  # something came since the last look
        self._began: float | None = None  # when it was first seen that a frame is incomplete
        self._left = b""  # HALF, or HELD
        self._frame: memoryview | None = None  # LARGE
        self._frame_bytes = 0  # also of the last large one
        self._frame_filled = 0
        self._held_frame: tuple[memoryview, int] | None = None  # HELD: a large one that is complete, before `_left`
        self._lent: memoryview | None = None  # the large frame that is being handled
        self._watching = False

    def _become(self, incoming: Incoming) -> None:
        assert incoming in INCOMING[self.incoming], f"{self.incoming} can't become {incoming}"
        self.incoming = incoming

    # -- the loop

    def watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._sock, self._readable)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._sock)

    def _readable(self) -> None:
        if self._taker.flow is not READING:
            # Not sooner: a client whose fetch waits has usually nothing to say.
            self._unwatch()
            return
        if self.incoming is not EMPTY:
            self._read_on()
            return
        shared = self._shared
        try:
            count = self._receive(shared)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._taker.peer_gone()
            return
        self.active = True
        try:
            if count >= 4 and _read_size(shared)[0] + 4 == count <= self._frame_bytes_max:
                if not self._taker.take_one(shared, count):
                    self._keep(shared, 0, count)
            else:
                self._take(shared, count)
        except Exception as error:
            self._taker.failed(error)

    # -- receiving

    def _read_on(self) -> None:
        """Receive what may be the rest of a frame, or one as large as the last."""
        incoming, frame, left, shared = self.incoming, self._frame, self._left, self._shared
        if frame is not None:
            space = frame[self._frame_filled : self._frame_bytes]
        elif incoming is HALF:
            shared[: len(left)] = left
            space = shared[len(left) :]
        elif (ahead := self._buffers.lend_ready(self._frame_bytes)) is not None:
            self._read_ahead(ahead)
            return
        else:
            space = shared[:PEEK_BYTES]
        try:
            count = self._receive(space)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._taker.peer_gone()
            return
        self.active = True
        try:
            if frame is not None:
                self._fill_frame(frame, count)
                return
            if incoming is HALF:
                self._left = b""
                self._become(EMPTY)
            self._take(shared, len(left) + count)
        except Exception as error:
            self._taker.failed(error)

    def _read_ahead(self, buffer: memoryview) -> None:
        """Receive into a buffer for a frame as large as the last one: mostly it is."""
        buffers = self._buffers
        try:
            count = self._receive(buffer[: self._frame_bytes])
        except BlockingIOError:
            buffers.give_back(buffer)
            return
        except OSError:
            count = 0
        if not count:
            buffers.give_back(buffer)
            self._taker.peer_gone()
            return
        self.active = True
        try:
            size: int = _read_size(buffer)[0] + 4 if count >= 4 else 0
            if count <= size <= self._frame_bytes_max and size > LARGE_FRAME_BYTES:
                self._become(LARGE)
                self._frame = buffer
                self._frame_bytes = size
                self._frame_filled = 0
                self._fill_frame(buffer, count)
                return
            try:
                self._take(buffer, count)
            finally:
                buffers.give_back(buffer)
        except Exception as error:
            self._taker.failed(error)

    def _fill_frame(self, frame: memoryview, count: int) -> None:
        filled = self._frame_filled = self._frame_filled + count
        size = self._frame_bytes
        if filled < size:
            if filled == len(frame):
                self._frame = self._buffers.grow(frame, filled, size)
            return
        self._frame = self._began = None
        self._become(EMPTY)
        self._take_large(frame, size)
        if size >= PEEK_AFTER_BYTES and self.incoming is EMPTY:
            self._become(PEEKING)

    # -- handing on

    def _take(self, buffer: memoryview, end: int) -> None:
        """Have the frames in it handled; what is left of them is kept."""
        start = self._taker.take(buffer, 0, end)
        if start:
            self._began = None
        if start < end:
            self._keep(buffer, start, end)
        elif self.incoming is PEEKING and self._taker.flow is READING:
            self._become(EMPTY)

    def _take_large(self, frame: memoryview, size: int) -> None:
        """Have the frame handled in its own buffer, which is given back unless somebody keeps it, or it has to wait."""
        self._lent = frame
        try:
            if not self._taker.take_one(frame, size) and self._taker.flow not in (DRAINING, CLOSED):
                self._held_frame, self._lent = (frame, size), None
                if self.incoming is not HELD:
                    self._become(HELD)
        finally:
            unkept = self.take_lent()
            if unkept is not None:
                self._buffers.give_back(unkept)

    def take_lent(self) -> memoryview | None:
        """The buffer of the large frame that is being handled, which is the caller's from now on."""
        lent, self._lent = self._lent, None
        return lent

    def take_up(self, *, peek: bool) -> None:
        """Have the frames handled that were held. `peek`: if that is the last of them, little is received next."""
        if self.incoming is not HELD:
            return
        held, self._held_frame = self._held_frame, None
        if held is not None:
            if not self._left:
                self._become(EMPTY)
            self._take_large(*held)
            if not self._left or self._taker.flow is not READING:
                return
        left, self._left = self._left, b""
        self._become(PEEKING if peek else EMPTY)
        self._take(memoryview(bytearray(left)), len(left))

    # -- keeping

    def _keep(self, buffer: memoryview, start: int, end: int) -> None:
        """Keep frames that have to wait, or the head of one whose rest is still to come."""
        flow = self._taker.flow
        if flow is not READING:
            if flow is not DRAINING and flow is not CLOSED:
                self._hold(buffer, start, end)
            return
        have = end - start
        if have >= KIND_BYTES:
            size: int = _read_size(buffer, start)[0] + 4
            if size > LARGE_FRAME_BYTES:
                buffers = self._buffers
                if buffers.exhausted() or (buffer[start + 5] > FETCH and buffers.many_kept()):
                    self._hold(buffer, start, end)
                    self._taker.wait_for_buffers()
                    return
                frame = buffers.lend(size, have)
                frame[:have] = buffer[start:end]
                self._become(LARGE)
                self._frame, self._frame_bytes, self._frame_filled = frame, size, have
                return
        self._become(HALF)
        self._left = bytes(buffer[start:end])

    def _hold(self, buffer: memoryview, start: int, end: int) -> None:
        self._become(HELD)
        self._began = None
        self._left = bytes(buffer[start:end])

    def look_for_peer(self) -> None:
        """Notice a peer that has gone while nothing is read: a fetch may be parked for as long as the client wanted."""
        if self.incoming is LARGE or len(self._left) > LARGE_FRAME_BYTES:
            return
        space = self._shared[:PEEK_BYTES]
        try:
            count = self._receive(space)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._taker.peer_gone()
            return
        if self.incoming is not HELD:
            self._become(HELD)
            self._began = None
        self._left += bytes(space[:count])

    # -- what is seen of it

    @property
    def half_frame(self) -> bool:
        """Whether a request has begun to arrive and isn't complete."""
        return self.incoming is HALF or self.incoming is LARGE

    @property
    def filled(self) -> int:
        """How much has come of the request that has begun to arrive."""
        return self._frame_filled if self.incoming is LARGE else len(self._left)

    def began(self, now: float) -> float | None:
        """When it was first asked about the request that still arrives; None: there is none."""
        if not self.half_frame:
            self._began = None
        elif self._began is None:
            self._began = now
        return self._began

    # -- the end

    def drop(self) -> None:
        """Forget what came and isn't handled."""
        if self._frame is not None:
            self._buffers.give_back(self._frame)
            self._frame = None
        if self._held_frame is not None:
            self._buffers.give_back(self._held_frame[0])
            self._held_frame = None
        self._left = b""
        self._began = None
        if self.incoming is not EMPTY:
            self._become(EMPTY)

    def close(self) -> None:
        self._unwatch()
        self.drop()

    def check_invariants(self) -> None:
        incoming, flow = self.incoming, self._taker.flow
        assert self._lent is None, "no frame is being handled between events"
        assert (self._frame is not None) == (incoming is LARGE)
        assert bool(self._left) or incoming is not HALF
        assert (bool(self._left) or self._held_frame is not None) == (incoming is HELD or incoming is HALF)
        assert self._held_frame is None or incoming is HELD
        assert self._began is None or self.half_frame
        if self._frame is not None:
            assert self._frame_filled < self._frame_bytes <= self._frame_bytes_max + 4
            assert self._frame_filled < len(self._frame)
        if flow is READING:
            assert incoming is not HELD, "what may be handled is"
            assert self._watching, "what may be read is"
        elif flow in (DRAINING, CLOSED):
            assert incoming is EMPTY or incoming is PEEKING, "what will never be handled isn't kept"
            assert flow is DRAINING or not self._watching
        elif flow is AWAITS_BUFFERS:
            assert incoming is HELD, "a frame has begun that needs memory"
