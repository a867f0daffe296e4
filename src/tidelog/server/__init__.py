"""Listeners, connections, dispatch: bytes from sockets to the APIs and back, in order and within bounds."""
