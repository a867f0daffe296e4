"""How much of a cluster `tidelog status` looks at, and what it finds worth telling.

How these relate is in tests/client/test_bounds.py.
"""

FREE_SHARE_MIN = 0.05
DAYS_LEFT_MIN = 7.0
"""A disk with less free than this, or for less than so many days, is a problem."""
ASKED_GROUPS_MAX = 300
"""Groups whose offsets are looked at: each takes a request."""
ASKED_REASONS_MAX = 50
"""Partitions that are offline whose reasons are asked for: one request each."""
ASKED_MINIMUMS_MAX = 1000
"""Topics with replicas out of sync whose min.insync.replicas is looked at: one request for all."""
TOLD_OFFLINE_MAX = 20
TOLD_GROUPS_MAX = 20
"""Problems of one kind that are told one by one."""
NOTES_MAX = 3
"""Notes of one kind that are."""
OPEN_LONGER_THAN_MS = 60_000
"""A transaction that is open for longer is worth a word."""
