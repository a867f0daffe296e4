"""The bounds of logs. How they relate, to those of other areas too, is in tests/log/test_bounds.py."""

# -- threads that work for logs, and what each takes at once

SYNCS_TOGETHER_MAX = 8
"""Syncs that run beside each other."""
SYNC_EACH_MAX = 8
"""Up to so many files and folders are synced one by one."""
SYNCED_LOGS_MAX = 512
"""Logs of one sync: taking note of how far each is written, and telling who waits, takes 20 us each. Others wait for
the next one, which finds little left to write."""
JOURNALED_BYTES_MAX = 32 * 1024
"""Of one log in one commit of the journal. More than that is written once only: its segment is synced, which takes as
long as to write so much twice."""
JOURNALED_LOGS_MAX = 512
"""Logs of one commit of the journal, as of one sync."""
JOURNALS_KEPT_MAX = 8
"""Files of earlier lives, beyond which no new ones are made: a broker that crashes again and again fills no disk."""
SETTLES_TOGETHER_MAX = 2
LOGS_A_SETTLE = 16
"""Threads that sync what the journal holds, and logs that one takes at a time: nobody waits for them, and commits
must find others."""
OPENINGS_TOGETHER_MAX = 4
"""Logs that are opened beside each other. After a crash each waits for three syncs; but a thread that isn't waiting for
the disk takes its share of the interpreter from the loop, and group commits must find threads too."""
OPENINGS_A_JOB = 8
OPENING_JOB_S = 0.02
"""Logs that such a thread opens before it tells of them, where one asks for many; and after how long it tells anyway:
others wait for a thread."""
OPENING_FILES_MAX = 16
"""Files that a log holds open while it is opened."""
BEGINNING_JOBS_MAX = 2
"""Threads that begin new logs: group commits must find others."""
LOGS_A_JOB = 16
"""Logs that such a thread begins before it tells of them."""
BEGUN_AT_ONCE_MAX = 16
BEGUN_AT_ONCE_PER_S = 20
"""Logs that may be begun on the loop: so many, and as many more a second."""

# -- a clean stop

STOP_TOGETHER = 2048
"""Logs that are made durable together: one sync of everything takes as long for many as for a few."""
STOP_SAVED_MAX = 256
"""Logs of which a stop saves what a flush does, those first that have most to read: it makes four files for each, 60 to
300 us a file on ext4. Of the others the next start reads the batches behind the last flush, and of all of them together
there are about `BATCHES_MAX`."""

# -- what a start after a crash reads

BATCHES_MAX = 100_000
"""Batches behind all recovery points together, after which the logs with most of them are flushed: reading them again
takes about 0.2 s."""
FLUSH_TOGETHER = 32
LOST_BYTES = 128 * 1024 * 1024
"""Written since the recovery point at most, with room to spare: a flush moves that after 64 MB (`log/appending.py`),
and at each roll."""
UNNOTICED_BYTES = 4 * 1024 * 1024
"""Up to so much of a tail is written again in the time that a start takes anyway."""
LOOKED_BEHIND_BYTES = 256 * 1024
"""Behind the newest timestamp that a sealed segment's time index knows, so much is looked at for newer ones, which a
file that was torn between two entries would lack: a few milliseconds at most."""
SMALL_BYTES = 1 << 20
"""A file up to this size is written whole, and takes the other's name: two syncs less."""

# -- producers

WINDOW = 5
"""Batches remembered of each producer: as many as it may have in flight."""
WINDOW_BYTES = 32 * 1024 * 1024
WINDOW_RECORDS = 200_000
"""How far back before a snapshot its producers' batches are looked for."""
PRODUCERS_MAX = 100_000
"""Producers remembered in one partition; beyond it the longest idle ones are forgotten, a tenth at a time."""
EPOCH_MAX = 32_767
"""Of a producer: what the field of a batch can hold."""

# -- batches and the looks into them

RECORDS_MAX = 1_000_000
"""Records of one batch, as librdkafka's batch.num.messages has it: compressed, a few kilobytes could claim many more,
and whoever looks for a time in them would go through them all."""
RECORDS_AT_ONCE = 10_000
"""Records that are walked in a few milliseconds."""
WAITING_BYTES_MAX = 256 * 1024 * 1024
"""Of all batches that wait for their look; a connection has one request of them. Who comes later tries again."""
LOOKS_S_A_TURN = 0.005
"""Of a turn of the loop, for all looks in it; what comes later in the turn is looked into aside."""
OFFSET_SPAN_MAX = 2**31 - 1
"""How far the last offset of a segment may be from its base: what an index entry can hold."""

# -- reading what the disk may refuse

CHECKED_BYTES = 1024 * 1024
"""Read ahead of an answer; the answer is no longer, unless its first batch is."""
PIECE_BYTES = 64 * 1024
SECTOR_BYTES = 512
"""Written whole, or not at all, when the power goes."""
PAGE_BYTES = 4096
"""What is read again, in turn, where a read fails: what is left then is the page that is damaged."""

# -- logs that are kept in memory

CHUNK_BYTES_MIN = 64 * 1024
CHUNK_BYTES_MAX = 4 * 1024 * 1024
"""Of the first chunk of a segment, and of the largest."""
RESERVED_OFFSETS = 4_000_000
"""What is reserved on disk at a time: a restart goes on behind it."""
RESERVED_AHEAD = RESERVED_OFFSETS // 2
"""The next ones are reserved when no more than so many are left."""

# -- compaction

RAW_KEY_BYTES = 40
"""Shorter keys are kept as they are, longer ones as a digest of so many bytes: no key can be taken for another."""
KEY_BYTES = 192
"""What a key takes at most: itself or its digest, its number, its share of the table and of the table's growth."""
