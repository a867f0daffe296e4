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
