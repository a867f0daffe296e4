"""The entry of a child process that answers questions: `python -m tidelog.env.worker PARENT MODULE`.

Its standard input is a socket. A question comes as its length and its bytes, and is answered the same way, by the
module's `answer`. It ends when the other side closes.
"""

import socket
import sys
from importlib import import_module
from struct import Struct

from tidelog.env.child import become_child

_LENGTH = Struct(">Q")
_READ_BYTES = 1 << 20


class HangUp(Exception):
    """The other side is gone."""


def exchange(sock: socket.socket, question: bytearray) -> bytearray:
    """Ask, and wait for the answer. HangUp or OSError where there is none."""
    _send(sock, question)
    return _receive(sock)


def _send(sock: socket.socket, data: bytes | bytearray) -> None:
    sock.sendall(_LENGTH.pack(len(data)))
    sock.sendall(data)


def _receive(sock: socket.socket) -> bytearray:
    (size,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    filled = 0
    while filled < size:
        count = sock.recv_into(view[filled : filled + _READ_BYTES])
        if not count:
            raise HangUp
        filled += count
    return data


def main() -> None:
    become_child(int(sys.argv[1]))
    answer = import_module(sys.argv[2]).answer
    with socket.socket(fileno=0) as sock:
        try:
            while True:
                _send(sock, answer(_receive(sock)))
        except (HangUp, ConnectionError):
            return


if __name__ == "__main__":
    main()
