"""Listening as clients need it: localhost in both families, port 0 that is the same in both."""

import socket

import pytest

from tidelog.env.real_network import RealNetwork


def families_of_localhost() -> list[tuple[socket.AddressFamily, str]]:
    addresses = [(socket.AF_INET, "127.0.0.1")]
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return addresses
    return [*addresses, (socket.AF_INET6, "::1")]


def test_localhost_is_reached_over_every_family_on_one_port():
    listener = RealNetwork().listen("localhost", 0, 8)
    try:
        reached = 0
        for family, address in families_of_localhost():
            with socket.socket(family) as client:
                client.connect((address, listener.port))
                reached += 1
        accepted = [listener.accept(sock) for sock in listener.sockets]
        assert [peer for _, peer in filter(None, accepted)] == [address for _, address in families_of_localhost()]
        for sock, _ in filter(None, accepted):
            sock.close()
        assert reached == len(listener.sockets)
    finally:
        listener.close()


def test_nobody_waiting_is_no_connection():
    listener = RealNetwork().listen("127.0.0.1", 0, 8)
    try:
        assert listener.accept(listener.sockets[0]) is None
    finally:
        listener.close()


def test_a_port_in_use_is_an_error():
    taken = RealNetwork().listen("127.0.0.1", 0, 8)
    try:
        with pytest.raises(OSError, match="in use"):
            RealNetwork().listen("127.0.0.1", taken.port, 8)
    finally:
        taken.close()
