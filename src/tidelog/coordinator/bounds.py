"""The bounds of groups and transactions. How they relate is in tests/coordinator/test_bounds.py."""

from tidelog.log.bounds import EPOCH_MAX

# -- reading a shard's log

CHUNK_BYTES = 16 * 1024
"""What is read at once; a batch that is larger comes whole."""
CHUNKS_AT_ONCE = 4
"""A log of so few chunks is read while its first client waits, which is told of loading otherwise."""
ENTRIES_A_STEP = 500
"""Folded between two turns of the loop."""

# -- members of groups

PENDING_MEMBERS_MAX = 10_000
"""Ids of one group that were handed out and not used yet; above it, a newcomer is told that the group is full."""
SAID_BYTES_MAX = 64 * 1024 * 1024
"""What the members of a group say about themselves, under all their protocols: several times what a record can hold."""
PROTOCOLS_MAX = 100
"""Protocols that a member may offer: clients offer two or three, and those of all members are counted."""
OWNER_CHARACTERS_MAX = 1000
"""How much of a client's name is part of its member ids."""
REASON_CHARACTERS_MAX = 255
"""Why a member joins or leaves, in its own words; the rest isn't logged."""

# -- subscriptions

SUBSCRIBED_NAMES_MAX = 10_000
"""Topics that a member may subscribe to by their names: they are sorted, hashed and written down as one."""
PATTERN_CHARACTERS_MAX = 4000
PATTERN_PROGRAM_MAX = 5000
"""Instructions of a program: enough for an alternative of some hundred names."""
PATTERN_MEMORY_BYTES_MAX = 1 << 20
MATCH_COST_AT_ONCE = 20_000_000
"""What may be matched in one turn of the loop: some tens of milliseconds at the very worst, usually one or two."""
REMEMBERED_MAX = 10_000
"""Expressions whose matches are remembered, of all groups."""
NAMES_REMEMBERED_MAX = 1_000_000
"""Names that these matched, in all."""

# -- offsets

COMMITTED_AT_ONCE = 4000
"""So many offsets of a commit are decided at once, and are one batch: some milliseconds."""
EXPIRED_AT_ONCE = 256
"""How many groups and offsets, at most, one decision removes: some milliseconds' worth."""
REMOVED_AT_ONCE = 512
"""How many tombstones one decision writes: some milliseconds' worth."""
REMOVAL_BATCH_BYTES = 256 * 1024
"""How much one decision removes, in bytes of its tombstones, where the topic's `max.message.bytes` isn't lower."""

# -- transactions

CLIENT_EPOCH_MAX = EPOCH_MAX - 1
"""The last epoch that a producer gets; the one after it is for fencing it."""
TRANSACTION_PARTITIONS_MAX = 50_000
"""Partitions of one transaction: each change of it is a record, and a decision, of them all."""
MARKER_RETRY_S = 0.1
MARKER_RETRY_S_MAX = 5.0
"""After how long a marker that couldn't be written is tried again: at first, and at most."""
MARKERS_TOGETHER = 2000
"""Partitions that one WriteTxnMarkers to another broker names."""
MARKERS_WAITING_MAX = 200_000
"""Markers for one other broker that wait to be sent; one more is tried again later."""
CHECKED_TOGETHER = 2000
"""Partitions that one AddPartitionsToTxn to another coordinator names; those of one producer stay together."""
CHECKS_WAITING_MAX = 10_000
"""Producers that wait to be asked about at one other coordinator; one more is told to come again."""
