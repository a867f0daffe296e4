"""The bounds of a plain client. How they relate, to those of a broker too, is in tests/rpc/test_bounds.py."""

IN_FLIGHT_MAX = 8
"""Requests of one connection that wait for their answers."""
BATCHES_IN_FLIGHT_MAX = 5
"""Brokers know a producer's last five batches in a partition again; a batch before those could come twice."""
TIMEOUT_MS = 30_000
"""What a request that may wait in the broker is given, unless its caller says otherwise."""
LATE_S = 5.0
"""How long to wait at least for an answer that nobody looked for until its deadline had passed."""
WAIT_MS = 500
"""How long a fetch waits for records."""
FETCH_BYTES = 4 * 1024 * 1024
FETCH_BYTES_MAX = 64 * 1024 * 1024
"""What a fetch asks for of a partition, and what may be asked for."""
TOPICS_MAX = 100_000
COORDINATORS_MAX = 10_000
"""Of which is remembered where they are."""

# -- between nodes (`peer.py`)

PEER_REQUESTS_MAX = 64
"""Requests to one peer, for one purpose, that wait to be sent or for their answers; one more is refused at once."""
PEER_UNSENT_BYTES = 1 << 20
"""While so much is written and not sent, the next request isn't written: a peer that doesn't read holds this and one
request more."""
PEER_ANSWER_BYTES_MAX = 100 * 1024 * 1024
"""A longer answer ends the connection before a byte is set aside for it."""
PEER_READ_BYTES = 64 * 1024
"""Read from a peer in one turn of the loop."""
PEER_STEPS_FROM_BYTES = 64 * 1024
"""An answer from here on is decoded in steps, a slice in each turn of the loop."""
PEER_SETUP_S = 10.0
"""To connect and agree on versions (socket.connection.setup.timeout.ms)."""
PEER_BACKOFF_S = 0.05
PEER_BACKOFF_S_MAX = 1.0
"""Before the next try to connect: twice as long after each, a fifth more or less by chance."""
