"""A network that delays bytes, cuts them into pieces, and loses connections. What arrives is right and in order.

Each machine has an address; the ways between two of them can be cut, one way or both, or be slow (`links.py`). Names of
hosts are addresses here. A world of one machine has one address, LOOPBACK.
"""

from collections.abc import Callable
from functools import partial
from itertools import count

from tidelog.env.loop import Loop
from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.sim.world.links import Links
from tidelog.sim.world.loop import Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.socket import SimSocket

DELAY_S_MAX = 0.001
LAME = (20.0, 400.0)
"""So many times as long takes what is sent on a bad way."""
LOOPBACK = "127.0.0.1"
LOCAL = ("localhost", LOOPBACK, "::1")


class SimListener:
    """`env.Listener`: one simulated socket, whatever addresses the host has."""

    def __init__(self, network: "SimNetwork", host: str, port: int, sock: SimSocket) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.sockets: list[Socket] = [sock]
        self._sock = sock

    def accept(self, sock: Socket) -> tuple[Socket, str] | None:
        if not self._sock.accepted:
            return None
        accepted = self._sock.accepted.popleft()
        return accepted, LOOPBACK if accepted.peer is None else accepted.peer.address

    def close(self) -> None:
        self._network.unlisten(self.port, self._sock)
        self._sock.close()


class SimNetwork:
    """Every connection of the world. `owner` names the process that a socket belongs to."""

    def __init__(self, timeline: Timeline, random: SimRandom) -> None:
        self._timeline = timeline
        self._random = random
        self._numbers = count(3)
        self._listening: dict[tuple[str, int], SimSocket] = {}
        self._private: set[SimSocket] = set()
        self._next_port = 20_000
        self._open: dict[SimSocket, None] = {}  # in the order they were made
        self.lame = 0.0
        """How likely it is that a connection is on a bad way, and slow as long as it lasts, in both directions."""
        self._links = Links()

    def view(self, owner: str, address: str = LOOPBACK) -> "OwnedNetwork":
        """The network as a process sees it, on the machine of this address."""
        return OwnedNetwork(self, owner, address)

    # -- splits and slow links

    def split(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Nothing of `one` arrives at `other`, nor the other way round unless the split is one-way."""
        self._links.cut(one, other)
        if not one_way:
            self._links.cut(other, one)

    def slow(self, one: str, other: str, factor: float) -> None:
        self._links.slow(one, other, factor)
        self._links.slow(other, one, factor)

    def is_split(self, one: SimSocket, other: SimSocket) -> bool:
        """Whether one of them can't hear of the other, its end included."""
        return self._links.is_cut(one) or self._links.is_cut(other)

    def heal(self, one: str, other: str) -> None:
        self._links.mend(one, other)
        self._links.mend(other, one)
        self._release()

    def heal_all(self) -> None:
        """No way is cut, slow or bad any more."""
        self.lame = 0.0
        for sock in self._open:
            sock.slowness = 1.0
        self._links.mend_all()
        self._release()

    def _release(self) -> None:
        for target, held in self._links.released():
            for arrival in held:
                self._bring(target, arrival)

    def _bring(self, target: SimSocket, arrival: Callable[[], None]) -> None:
        """Behind all that is on its way to `target` already."""
        self._timeline.plan_at(self._arrival(target), self._links.arrive, target, arrival)

    # -- listening and connecting

    def listen(self, owner: str, host: str, port: int, address: str = LOOPBACK) -> SimListener:
        """On all that the machine has; on `localhost` for those only that are on the same machine."""
        if not port:
            port = self._next_port
            self._next_port += 1
        if (address, port) in self._listening:
            raise OSError(98, f"the simulated port {port} is taken")
        sock = SimSocket(self, self._numbers, owner, address)
        self._listening[address, port] = sock
        if host in LOCAL:
            self._private.add(sock)
        return SimListener(self, host, port, sock)

    def unlisten(self, port: int, sock: SimSocket) -> None:
        if self._listening.get((sock.address, port)) is sock:
            del self._listening[sock.address, port]
            self._private.discard(sock)

    def connect(self, owner: str, port: int, source: str = LOOPBACK, target: str = LOOPBACK) -> SimSocket:
        """A connection to whoever listens on the port when the call arrives there; it can be written to at once."""
        near, far = self._pair(owner, source, target)
        self._timeline.plan(self._random.between(0.0, DELAY_S_MAX), self._call, port, near, far)
        return near

    def _pair(self, owner: str, source: str, target: str) -> tuple[SimSocket, SimSocket]:
        near = SimSocket(self, self._numbers, owner, source)
        far = SimSocket(self, self._numbers, "", target)
        near.peer, far.peer = far, near
        if self.lame and self._random.chance(self.lame):
            near.slowness = far.slowness = self._random.between(*LAME)
        self._open[near] = self._open[far] = None
        return near, far

    def _call(self, port: int, near: SimSocket, far: SimSocket) -> None:
        self._arrive(port, near, far)

    def _arrive(self, port: int, near: SimSocket, far: SimSocket) -> bool:
        """The call arrived: whether somebody listens there for it."""
        listening = self._listening.get((far.address, port))
        private = listening in self._private and near.address != far.address
        if listening is None or listening.closed or private:
            far.close()
            near.reset()
            return False
        far.owner = listening.owner
        listening.accepted.append(far)
        listening.notify()
        return True

    def dial(self, owner: str, source: str, loop: Loop, host: str, port: int, timeout_s: float) -> Promise[Socket]:
        """As a process connects: it is told when the answer is there, or that none came in time."""
        near, far = self._pair(owner, source, source if host in LOCAL else host)
        promise: Promise[Socket] = Promise()

        def tell(error: OSError | None) -> None:
            if promise.done:
                return
            timer.cancel()
            if error is None:
                promise.resolve(near)
            else:
                near.close()
                promise.fail(error)

        def tell_soon(error: OSError | None) -> None:
            loop.call_soon(tell, error)

        def knock() -> None:
            if near.closed:  # nobody waits for it any more
                far.close()
                return
            listens = self._arrive(port, near, far)
            answer = None if listens else ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
            self._bring(near, lambda: tell_soon(answer))

        late = TimeoutError(f"no connection to {host}:{port} within {timeout_s:g} s")
        timer = loop.call_later(timeout_s, tell, late)
        self._bring(far, knock)
        return promise

    def accept_bytes(self, most: int) -> int:
        """How many of the bytes offered a socket takes: usually all."""
        return self._random.random_int(1, most) if self._random.chance(0.1) else most

    def carry(self, target: SimSocket, data: bytes) -> None:
        """Bring the bytes to `target`, in one piece or a few, behind all that is on its way already."""
        random = self._random
        pieces = 1 if random.chance(0.8) else random.random_int(2, 4)
        cuts = sorted(random.random_int(0, len(data)) for _ in range(pieces - 1))
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if start < end:
                self._bring(target, partial(target.deliver, data[start:end]))

    def _arrival(self, target: SimSocket) -> float:
        slow = 50 if self._random.chance(0.01) else 1
        delay_s = self._random.between(0.0, DELAY_S_MAX * slow) * self._links.factor(target) * target.slowness
        soonest = self._timeline.now + delay_s
        target.arrives = max(target.arrives, soonest)
        return target.arrives

    def abandon(self, sock: SimSocket) -> None:
        """What a split holds back of it never arrives."""
        if sock.peer is not None:
            self._links.forget(sock.peer)
        sock.close()

    def closed(self, sock: SimSocket) -> None:
        self._open.pop(sock, None)
        peer = sock.peer
        if peer is not None and not peer.closed:
            self._bring(peer, peer.end)

    def connections(self, owner: str) -> list[SimSocket]:
        return [sock for sock in self._open if sock.owner == owner]

    def drop(self, sock: SimSocket) -> None:
        """Lose a connection: either end notices, each in its time; what is under way may still arrive before that."""
        for end in (sock, sock.peer):
            if end is not None and not end.closed:
                self._timeline.plan(self._random.between(0.0, 4 * DELAY_S_MAX), end.reset)

    def kill(self, owner: str) -> None:
        """The process is gone: its ports are free, its connections reset."""
        for place, sock in list(self._listening.items()):
            if sock.owner == owner:
                del self._listening[place]
                self._private.discard(sock)
                for waiting in sock.accepted:
                    waiting.close()
        for sock in self.connections(owner):
            self._open.pop(sock)
            sock.closed = True
            if sock.peer is not None and not sock.peer.closed:
                delay_s = self._random.between(0.0, 2 * DELAY_S_MAX)
                self._timeline.plan(delay_s, self._links.arrive, sock.peer, sock.peer.reset)


class OwnedNetwork:
    """`env.Network` of one process."""

    def __init__(self, network: SimNetwork, owner: str, address: str) -> None:
        self._network = network
        self._owner = owner
        self._address = address

    def listen(
        self, host: str, port: int, backlog: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> SimListener:
        return self._network.listen(self._owner, host, port, self._address)

    def connect(self, loop: Loop, host: str, port: int, timeout_s: float) -> Promise[Socket]:
        return self._network.dial(self._owner, self._address, loop, host, port, timeout_s)

    def abandon(self, sock: Socket) -> None:
        assert isinstance(sock, SimSocket)
        self._network.abandon(sock)
