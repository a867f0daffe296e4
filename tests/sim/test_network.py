"""The simulated network: bytes arrive in order, in pieces, late; connections get lost."""

import pytest

from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimListener, SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.socket import WINDOW_BYTES, SimSocket


class Town:
    """A server that gathers whatever it is sent, and a client."""

    def __init__(self, seed: int) -> None:
        self.timeline = Timeline()
        self.network = SimNetwork(self.timeline, SimRandom(seed))
        self.server = SimLoop(self.timeline, SimRandom(seed))
        self.client = SimLoop(self.timeline, SimRandom(seed + 1))
        self.listener: SimListener = self.network.view("server").listen("localhost", 9092, 10)
        self.server.add_reader(self.listener.sockets[0], self.accept)
        self.accepted: list[SimSocket] = []
        self.received = bytearray()
        self.reads = 0
        self.ends: list[str] = []

    def accept(self) -> None:
        accepted = self.listener.accept(self.listener.sockets[0])
        assert accepted is not None
        sock, peer = accepted
        assert isinstance(sock, SimSocket)
        assert peer == "127.0.0.1"
        self.accepted.append(sock)
        self.server.add_reader(sock, lambda: self._read(sock))

    def _read(self, sock: SimSocket) -> None:
        buffer = memoryview(bytearray(10_000))
        try:
            count = sock.recv_into(buffer)
        except OSError:
            self.ends.append("reset")
            self.server.remove_reader(sock)
            return
        if not count:
            self.ends.append("end")
            self.server.remove_reader(sock)
        self.reads += 1
        self.received += buffer[:count]

    def connect(self) -> SimSocket:
        return self.network.connect("client", 9092)

    def pass_time(self, seconds: float = 1.0) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)


def test_bytes_arrive_in_order_whatever_the_pieces() -> None:
    pieces: set[int] = set()
    for seed in range(20):
        town = Town(seed)
        sock = town.connect()
        sent = bytes(range(256)) * 20
        pos = 0
        while pos < len(sent):
            pos += sock.send(sent[pos : pos + 1000])
        town.pass_time()
        assert bytes(town.received) == sent
        pieces.add(town.reads)
    assert len(pieces) > 3


def test_a_sender_waits_while_nobody_reads_and_goes_on_when_someone_does() -> None:
    town = Town(1)
    town.server.remove_reader(town.listener.sockets[0])
    sock = town.connect()
    sent = 0

    def send() -> None:
        nonlocal sent
        try:
            while sent < 2 * WINDOW_BYTES:
                sent += sock.send(bytes(min(50_000, 2 * WINDOW_BYTES - sent)))
        except BlockingIOError:
            return
        town.client.remove_writer(sock)

    town.client.add_writer(sock, send)
    town.pass_time()
    assert sent == WINDOW_BYTES
    town.server.add_reader(town.listener.sockets[0], town.accept)
    town.pass_time()
    assert sent == len(town.received) == 2 * WINDOW_BYTES


def test_what_was_sent_before_the_close_arrives_before_the_end() -> None:
    town = Town(2)
    sock = town.connect()
    sock.send(b"farewell")
    sock.close()
    assert sock.fileno() == -1
    town.pass_time()
    assert bytes(town.received) == b"farewell"
    assert town.ends == ["end"]
    with pytest.raises(OSError, match="closed"):
        sock.send(b"x")


def test_a_dropped_connection_is_noticed_at_both_ends() -> None:
    town = Town(3)
    sock = town.connect()
    town.pass_time()
    town.network.drop(sock)
    town.pass_time()
    assert town.ends == ["reset"]
    with pytest.raises(ConnectionResetError):
        sock.recv_into(memoryview(bytearray(1)))
    with pytest.raises(ConnectionResetError):
        sock.send(b"x")


def test_nobody_listens_on_the_port_of_a_killed_process() -> None:
    town = Town(4)
    first = town.connect()
    town.pass_time()
    town.network.kill("server")
    second = town.connect()
    town.pass_time()
    for sock in (first, second):
        with pytest.raises(ConnectionResetError):
            sock.recv_into(memoryview(bytearray(1)))
    assert town.network.listen("other", "localhost", 9092).port == 9092


def test_a_port_is_taken_once() -> None:
    town = Town(5)
    with pytest.raises(OSError, match="taken"):
        town.network.listen("other", "localhost", 9092)
    assert town.network.listen("other", "localhost", 0).port > 0
    town.listener.close()
    town.network.listen("other", "localhost", 9092)


def test_an_empty_socket_would_block() -> None:
    town = Town(6)
    sock = town.connect()
    with pytest.raises(BlockingIOError):
        sock.recv_into(memoryview(bytearray(1)))
