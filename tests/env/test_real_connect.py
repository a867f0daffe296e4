"""Connecting outward on the real loop: nothing blocks, and every trouble comes by the promise."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.env import real_connect
from tidelog.env.bounds import LOOKUPS_AT_ONCE
from tidelog.env.promise import gather
from tidelog.env.real_loop import RealLoop
from tidelog.env.real_network import RealListener, RealNetwork


@pytest.fixture
def loop() -> Iterator[RealLoop]:
    loop = RealLoop()
    yield loop
    loop.close()


@pytest.fixture
def listener() -> Iterator[RealListener]:
    listener = RealNetwork().listen("127.0.0.1", 0, 8)
    yield listener
    listener.close()


def counted(step: Callable[[], int], last: type[OSError]) -> int:
    """The bytes of all steps up to the one that fails in this way."""
    count = 0
    while True:
        try:
            count += step()
        except last:
            return count


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_bytes_go_to_whoever_listens(loop: RealLoop, listener: RealListener, host: str) -> None:
    promise = RealNetwork().connect(loop, host, listener.port, 10.0)
    assert not promise.done, "it is told on the loop, and not before whoever asked has its promise"
    near = loop.run_until(promise)
    accepted = listener.accept(listener.sockets[0])
    assert accepted is not None
    far, _ = accepted
    near.send(b"hello")
    arrived = memoryview(bytearray(10))
    got = 0

    def read() -> None:
        nonlocal got
        got = far.recv_into(arrived)

    loop.add_reader(far, read)
    while not got:
        loop.run_once()
    assert bytes(arrived[:got]) == b"hello"
    loop.remove_reader(far)
    near.close()
    far.close()


def test_what_was_abandoned_takes_back_what_has_not_arrived(loop: RealLoop, listener: RealListener) -> None:
    network = RealNetwork()
    near = loop.run_until(network.connect(loop, "127.0.0.1", listener.port, 10.0))
    accepted = listener.accept(listener.sockets[0])
    assert accepted is not None
    far, _ = accepted
    given = counted(lambda: near.send(bytes(1 << 16)), BlockingIOError)  # until all buffers on the way are full
    network.abandon(near)
    room = memoryview(bytearray(1 << 16))
    assert counted(lambda: far.recv_into(room), ConnectionResetError) < given
    far.close()


def test_an_address_where_nobody_listens_refuses(loop: RealLoop) -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            loop.run_until(RealNetwork().connect(loop, "127.0.0.1", taken.getsockname()[1], 10.0))


def test_the_next_address_of_a_name_is_tried(
    loop: RealLoop, listener: RealListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]

    def look_up(*_: object, **__: object) -> object:
        return answers

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    sock = loop.run_until(RealNetwork().connect(loop, "somewhere", listener.port, 10.0))
    sock.close()


def test_a_name_that_nobody_knows_is_an_error_of_the_promise(loop: RealLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="not known"):
        loop.run_until(RealNetwork().connect(loop, "nowhere", 9092, 10.0))


def test_a_full_backlog_ends_in_a_timeout_and_leaves_no_socket(loop: RealLoop) -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        with pytest.raises(TimeoutError):
            loop.run_until(RealNetwork().connect(loop, "127.0.0.1", deaf.getsockname()[1], 0.05))


def test_a_resolver_that_hangs_holds_a_few_threads_and_not_the_loop(
    loop: RealLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    asked: list[str] = []

    def hang(host: str) -> real_connect.Addresses:
        asked.append(host)
        answered.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(real_connect, "_look_up", hang)
    network = RealNetwork()
    names = [f"node-{number % 5}" for number in range(20)]
    tries = [network.connect(loop, name, 9092, 0.05) for name in names]
    loop.run_until(gather(tries))
    assert all(isinstance(each.error, TimeoutError) for each in tries)
    assert len(asked) == LOOKUPS_AT_ONCE
    again = network.connect(loop, "node-0", 9092, 30.0)
    answered.set()
    with pytest.raises(OSError, match="try again"):
        loop.run_until(again)
    while len(asked) < 5:
        loop.run_once()
    assert sorted(asked) == sorted(set(names)), "each name once, however many ask for it"
