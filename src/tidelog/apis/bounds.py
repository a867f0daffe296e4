"""The bounds of requests that several APIs, or other areas, relate to. How they do is in tests/apis/test_bounds.py."""

# -- waiting

MAX_WAIT_MS = 60_000
"""A fetch is answered after this long whatever it asked for: a client that left unnoticed holds nothing for ever."""
HIGH_WATERMARK_WAIT_MS_MAX = 10_000
"""A sync takes milliseconds; a disk that takes longer than this keeps no client waiting until it gives up by itself."""

# -- fetches

SESSION_PARTITIONS_MAX = 100_000
"""Of one fetch session."""
SESSIONS_PARTITIONS_MAX = 1_000_000
"""Of all sessions together: some 400 MB."""
REPLICA_SESSIONS_MAX = 8
"""Of one broker that follows."""
FAST_FETCHES_MAX = 20_000
"""Partitions, and requests, that the fast path remembers."""
FAST_FETCH_BYTES_MAX = 128 * 1024
"""Of a request for many partitions, which is read in one go; what is larger is read in steps, by the codec."""

# -- administration

DESCRIBED_RESOURCES_MAX = 5000
"""Resources that one request may describe: each takes some 40 times the bytes of its name in the answer."""
FEATURE_UPDATES_MAX = 1000
"""Some ten features are known."""
