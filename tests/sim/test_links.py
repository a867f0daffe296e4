"""Processes on several machines: connecting, splits in one direction and in both, slow links."""

import pytest

from tidelog.env.network import Socket
from tidelog.env.promise import Promise
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimListener, SimNetwork
from tidelog.sim.world.random import SimRandom

PORT = 9093


class Machine:
    """One process on a machine of its own, which remembers what it is sent."""

    def __init__(self, town: "Town", address: str) -> None:
        self.address = address
        self.loop = SimLoop(town.timeline, SimRandom(f"{town.seed}/{address}"))
        self.network = town.network.view(f"process-{address}", address)
        self.received = bytearray()
        self.ends: list[str] = []
        self.peers: list[str] = []
        self.accepted: list[Socket] = []

    def listen(self, host: str = "") -> SimListener:
        listener = self.network.listen(host, PORT, 10)

        def accept() -> None:
            accepted = listener.accept(listener.sockets[0])
            assert accepted is not None
            self.accepted.append(accepted[0])
            self.peers.append(accepted[1])
            self.watch(accepted[0])

        self.loop.add_reader(listener.sockets[0], accept)
        return listener

    def watch(self, sock: Socket) -> None:
        self.loop.add_reader(sock, lambda: self._read(sock))

    def _read(self, sock: Socket) -> None:
        buffer = memoryview(bytearray(1000))
        try:
            count = sock.recv_into(buffer)
        except ConnectionResetError:
            self.ends.append("reset")
            self.loop.remove_reader(sock)
            return
        self.received += buffer[:count]
        if not count:
            self.ends.append("end")
            self.loop.remove_reader(sock)

    def connect(self, host: str, timeout_s: float = 1.0) -> Promise[Socket]:
        return self.network.connect(self.loop, host, PORT, timeout_s)


class Town:
    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self.timeline = Timeline()
        self.network = SimNetwork(self.timeline, SimRandom(seed))
        self.a, self.b = Machine(self, "10.0.0.1"), Machine(self, "10.0.0.2")

    def connected(self) -> Socket:
        self.b.listen()
        promise = self.a.connect("10.0.0.2")
        self.pass_time()
        return promise.result()

    def pass_time(self, seconds: float = 2.0) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)


def test_a_process_reaches_another_machine_and_is_known_by_its_own_address() -> None:
    town = Town()
    town.connected().send(b"hello")
    town.pass_time()
    assert town.b.received == b"hello"
    assert town.b.peers == ["10.0.0.1"]


def test_nobody_listens_is_refused_and_so_is_a_port_that_is_for_its_own_machine_only() -> None:
    town = Town()
    for prepare in (lambda: None, lambda: town.b.listen("localhost")):
        prepare()
        refused = town.a.connect("10.0.0.2")
        town.pass_time()
        with pytest.raises(ConnectionRefusedError):
            refused.result()
    own = town.b.connect("localhost")
    town.pass_time()
    own.result()


def test_two_machines_listen_on_the_same_port() -> None:
    town = Town()
    town.a.listen()
    town.b.listen()


def test_a_machine_that_cannot_be_reached_is_a_timeout() -> None:
    for one_way in (("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")):
        town = Town()
        town.b.listen()
        town.network.split(*one_way, one_way=True)
        late = town.a.connect("10.0.0.2", 1.0)
        town.pass_time(0.9)
        assert not late.done
        town.pass_time(0.2)
        with pytest.raises(TimeoutError):
            late.result()
        assert not town.network.connections("process-10.0.0.1"), "nothing is left of it"


def test_a_split_holds_bytes_back_in_one_direction_and_they_come_in_order_when_it_heals() -> None:
    for seed in range(20):
        town = Town(seed)
        sock = town.connected()
        town.a.watch(sock)
        town.network.split("10.0.0.1", "10.0.0.2", one_way=True)
        for number in range(10):
            town.timeline.run_until(lambda: False, town.timeline.now + 0.01)
            assert sock.send(bytes([number])) == 1
        town.b.accepted[0].send(b"+")
        town.pass_time()
        assert town.a.received == b"+", "the other way is open"
        assert town.b.received == b""
        town.network.heal("10.0.0.1", "10.0.0.2")
        sock.send(b"!")
        town.pass_time()
        assert town.b.received == bytes(range(10)) + b"!"


def test_a_death_behind_a_split_is_noticed_when_it_heals() -> None:
    town = Town()
    sock = town.connected()
    town.a.watch(sock)
    town.network.split("10.0.0.1", "10.0.0.2")
    town.network.kill("process-10.0.0.2")
    town.pass_time()
    assert town.a.ends == []
    town.network.heal_all()
    town.pass_time()
    assert town.a.ends == ["reset"]


def test_a_slow_link_takes_longer() -> None:
    def first_byte_s(factor: float) -> float:
        town = Town(7)
        sock = town.connected()
        town.network.slow("10.0.0.1", "10.0.0.2", factor)
        began = town.timeline.now
        sock.send(b"x")
        assert town.timeline.run_until(lambda: bool(town.b.received), began + 60)
        return town.timeline.now - began

    assert first_byte_s(1000.0) > 100 * first_byte_s(1.0)


def test_who_dies_while_it_connects_leaves_nothing() -> None:
    town = Town()
    town.b.listen()
    promise = town.a.connect("10.0.0.2")
    town.a.loop.kill()
    town.network.kill("process-10.0.0.1")
    town.pass_time()
    assert not promise.done
    assert town.b.accepted == [] or town.b.ends
