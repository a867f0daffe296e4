"""How a connection ends: what was answered before, who notices that the peer has gone, what waits for memory."""

import socket
import struct
from types import SimpleNamespace

import pytest

from tests.server.test_connection import Pair, framed
from tidelog.config import BrokerConfig
from tidelog.env.real import real_environment
from tidelog.env.real_loop import RealLoop
from tidelog.server.server import Server
from tidelog.wire.errors import MalformedError


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.connection.close()
    made.client.close()
    made.loop.close()


def refuse(pair: Pair, word: bytes, error: Exception) -> None:
    """Frames with this word are refused with `error`."""
    dispatch = pair.host.dispatch

    def refusing(connection, buffer, start, end):
        if word in bytes(buffer[start:end]):
            raise error
        return dispatch(connection, buffer, start, end)

    pair.host.dispatch = refusing


def test_what_came_before_a_refused_frame_is_answered_before_the_connection_closes(pair, caplog):
    refuse(pair, b"bad", MalformedError("bad was sent"))
    pair.client.send(framed(b"now:a") + framed(b"now:b") + framed(b"now:bad") + framed(b"now:c"))
    pair.turn()
    assert pair.host.reason == "bad was sent"
    assert pair.answers() == [b"a", b"b"]
    assert caplog.records == [], "no bug of ours"


def test_a_bug_behind_a_late_answer_closes_the_connection(pair, caplog):
    refuse(pair, b"bug", ValueError("a bug"))
    pair.send(framed(b"late:a") + framed(b"now:bug"))
    assert not pair.host.gone
    pair.complete(b"a", b"a!")
    assert pair.host.reason is not None
    assert "a bug" in caplog.text
    assert pair.answers() == [b"a!"]


def test_an_answer_that_can_not_be_made_closes_the_connection(pair):
    pair.send(framed(b"ahead:a") + framed(b"ahead:b"))
    pair.host.late[b"a"].slot.fail("no answer to a")
    assert pair.host.reason == "no answer to a"
    assert pair.host.late[b"b"].abandoned
    pair.complete(b"b", b"b!")  # too late, and harmless


def test_a_slice_that_can_not_be_read_closes_the_connection_and_harms_nobody_else(pair, caplog):
    class Gone:
        def __len__(self) -> int:
            return 10

        def view(self) -> memoryview:
            raise RuntimeError("no such bytes")

    pair.send(framed(b"late:a"))
    pair.host.late[b"a"].slot.complete([b"head", Gone(), b"tail"])
    pair.turn()
    assert pair.host.gone
    assert "no such bytes" in caplog.text


def test_a_file_that_ends_before_its_slice_closes_the_connection(pair):
    class Short:
        def __len__(self) -> int:
            return 1 << 20

        def send(self, sock, sent: int) -> int:
            return 0

    pair.send(framed(b"late:a"))
    pair.host.late[b"a"].slot.complete([b"head", Short(), b"tail"])
    pair.turn()
    assert pair.host.gone


def test_a_peer_that_goes_while_its_fetch_is_parked_is_noticed(pair):
    pair.send(framed(b"late:a"))
    pair.connection.look_for_peer()
    assert not pair.host.gone
    pair.client.close()
    pair.connection.look_for_peer()
    assert pair.host.gone
    assert pair.host.late[b"a"].abandoned


def test_looking_for_the_peer_loses_nothing_that_it_sent(pair):
    pair.send(framed(b"late:a") + framed(b"now:b")[:3])
    pair.client.send(framed(b"now:b")[3:] + framed(b"now:c"))
    for _ in range(3):
        pair.connection.look_for_peer()
    pair.complete(b"a", b"a!")
    assert pair.answers() == [b"a!", b"b", b"c"]


def test_while_a_frame_waits_for_memory_nothing_more_is_read(pair):
    pair.host.buffers.bytes_max = pair.host.buffers.lent_bytes = 1
    frame = framed(b"now:" + b"q" * 700_000)
    pair.client.setblocking(False)
    sent = pair.client.send(framed(b"ahead:a") + frame)
    pair.turn()
    assert pair.host.waiting == [pair.connection]
    pair.complete(b"a", b"a!")  # a reason to look at the frame again, but there still is no memory
    pair.turn(20)
    assert not pair.host.gone
    assert pair.host.waiting == [pair.connection], "it waits once"
    pair.host.buffers.lent_bytes = 0
    pair.connection.buffers_free()
    pair.send((framed(b"ahead:a") + frame)[sent:])
    assert pair.answers() == [b"a!", frame[8:]]


def test_answers_that_become_ready_together_leave_together(pair):
    pair.send(b"".join(framed(b"ahead:%d" % number) for number in range(5)))
    for number in range(5):
        pair.host.late[b"%d" % number].slot.complete(framed(b"%d!" % number))
    pair.turn()
    assert pair.client.recv(1 << 16) == b"".join(framed(b"%d!" % number) for number in range(5))


def test_a_frame_above_the_limit_is_refused_behind_one_that_is_handled_together_with_others(pair):
    """Only the first of those that are handled together was looked at by the connection itself."""
    frames = [b"\0\0now:" + b"a" * 150, b"\0\0now:" + b"b" * 250]
    pair.host.frame_bytes_max = 200
    together: list[bytes] = []

    def dispatch_alike(buffer, start, end, most):
        together.append(bytes(buffer[start:end]))
        return [framed(b"x") for _ in frames], end

    pair.host.dispatch_alike = dispatch_alike
    pair.client.send(b"".join(map(framed, frames)))
    pair.turn()
    assert together == []
    assert pair.host.reason == "a frame claims 256 bytes, 200 is the most (socket.request.max.bytes)"


@pytest.mark.parametrize("how", ["in order", "while it waits", "half a frame"])
def test_connection_that_the_peer_ends_is_broken(pair, how):
    if how == "while it waits":
        pair.send(framed(b"late:a"))
    elif how == "half a frame":
        pair.send(framed(b"now:a")[:3])
    pair.client.close()
    pair.turn()
    pair.connection.look_for_peer()
    assert (pair.host.gone, pair.host.was_broken) == (True, True)


def test_answer_that_the_peer_does_not_take_any_more_breaks_the_connection(pair):
    pair.send(framed(b"late:a"))
    pair.client.close()
    pair.complete(b"a", b"a!")
    assert (pair.host.gone, pair.host.was_broken) == (True, True)


def test_connection_that_we_close_is_not_broken(pair):
    refuse(pair, b"bad", MalformedError("bad was sent"))
    pair.client.send(framed(b"now:bad"))
    pair.turn()
    assert (pair.host.gone, pair.host.was_broken) == (True, False)


def test_server_tells_which_connections_the_other_side_ended():
    loop = RealLoop()
    env = real_environment(loop)
    broken: list[int] = []
    config = BrokerConfig.parse({"log.dirs": "/nowhere"})
    dispatch = SimpleNamespace(handle=None, handle_alike=None, begin_ahead=None)
    server = Server(SimpleNamespace(env=env, config=config), dispatch, broken.append)
    listener = server.listen("CONTROLLER", "127.0.0.1", 0)
    server.start()
    clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]

    def until(count: int) -> None:
        while server.connections != count:
            loop.run_once(wait=True)

    until(3)
    clients[1].close()
    until(2)
    assert broken == [2]
    clients[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # so that closing resets it
    clients[0].close()
    until(1)
    assert broken == [2, 1]
    server.stop_accepting()
    server.close()
    assert broken == [2, 1], "the last one was closed here"
    clients[2].close()
    loop.close()
