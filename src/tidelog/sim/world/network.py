"""A network that delays bytes, cuts them into pieces, and loses connections. What arrives is right and in order."""

from itertools import count

from tidelog.env.network import Socket
from tidelog.sim.world.loop import Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.socket import SimSocket

DELAY_S_MAX = 0.001


class SimListener:
    """`env.Listener`: one simulated socket, whatever addresses the host has."""

    def __init__(self, network: "SimNetwork", host: str, port: int, sock: SimSocket) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.sockets: list[Socket] = [sock]
        self._sock = sock

    def accept(self, sock: Socket) -> tuple[Socket, str] | None:
        return (self._sock.accepted.popleft(), "127.0.0.1") if self._sock.accepted else None

    def close(self) -> None:
        self._network.unlisten(self.port, self._sock)
        self._sock.close()


class SimNetwork:
    """Every connection of the world. `owner` names the process that a socket belongs to."""

    def __init__(self, timeline: Timeline, random: SimRandom) -> None:
        self._timeline = timeline
        self._random = random
        self._numbers = count(3)
        self._listening: dict[int, SimSocket] = {}
        self._next_port = 20_000
        self._open: dict[SimSocket, None] = {}  # in the order they were made

    def view(self, owner: str) -> "OwnedNetwork":
        """The network as a process sees it."""
        return OwnedNetwork(self, owner)

    def listen(self, owner: str, host: str, port: int) -> SimListener:
        if not port:
            port = self._next_port
            self._next_port += 1
        if port in self._listening:
            raise OSError(98, f"the simulated port {port} is taken")
        sock = SimSocket(self, self._numbers, owner)
        self._listening[port] = sock
        return SimListener(self, host, port, sock)

    def unlisten(self, port: int, sock: SimSocket) -> None:
        if self._listening.get(port) is sock:
            del self._listening[port]

    def connect(self, owner: str, port: int) -> SimSocket:
        """A connection to whoever listens on the port when the call arrives there; it can be written to at once."""
        near = SimSocket(self, self._numbers, owner)
        far = SimSocket(self, self._numbers, "")
        near.peer, far.peer = far, near
        self._open[near] = self._open[far] = None
        self._timeline.plan(self._random.between(0.0, DELAY_S_MAX), self._arrive, port, near, far)
        return near

    def _arrive(self, port: int, near: SimSocket, far: SimSocket) -> None:
        listening = self._listening.get(port)
        if listening is None or listening.closed:
            far.close()
            near.reset()
            return
        far.owner = listening.owner
        listening.accepted.append(far)
        listening.notify()

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
                self._timeline.plan_at(self._arrival(target), target.deliver, data[start:end])

    def _arrival(self, target: SimSocket) -> float:
        slow = 50 if self._random.chance(0.01) else 1
        soonest = self._timeline.now + self._random.between(0.0, DELAY_S_MAX * slow)
        target.arrives = max(target.arrives, soonest)
        return target.arrives

    def closed(self, sock: SimSocket) -> None:
        self._open.pop(sock, None)
        peer = sock.peer
        if peer is not None and not peer.closed:
            self._timeline.plan_at(self._arrival(peer), peer.end)

    def connections(self, owner: str) -> list[SimSocket]:
        return [sock for sock in self._open if sock.owner == owner]

    def drop(self, sock: SimSocket) -> None:
        """Lose a connection: either end notices, each in its time; what is under way may still arrive before that."""
        for end in (sock, sock.peer):
            if end is not None and not end.closed:
                self._timeline.plan(self._random.between(0.0, 4 * DELAY_S_MAX), end.reset)

    def kill(self, owner: str) -> None:
        """The process is gone: its ports are free, its connections reset."""
        for port, sock in list(self._listening.items()):
            if sock.owner == owner:
                del self._listening[port]
                for waiting in sock.accepted:
                    waiting.close()
        for sock in self.connections(owner):
            self._open.pop(sock)
            sock.closed = True
            if sock.peer is not None and not sock.peer.closed:
                self._timeline.plan(self._random.between(0.0, 2 * DELAY_S_MAX), sock.peer.reset)


class OwnedNetwork:
    """`env.Network` of one process."""

    def __init__(self, network: SimNetwork, owner: str) -> None:
        self._network = network
        self._owner = owner

    def listen(
        self, host: str, port: int, backlog: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> SimListener:
        return self._network.listen(self._owner, host, port)
