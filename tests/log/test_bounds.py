"""How the bounds of logs relate to each other, and to those of settings, the loop and clients."""

from hashlib import blake2b

from tidelog.config.topic import INFLATED_BYTES_MAX, MESSAGE_BYTES_MAX
from tidelog.env.bounds import THREADS_MAX, TURN_S
from tidelog.log import bounds
from tidelog.log.appending import FLUSH_BYTES
from tidelog.log.record_check import ON_THE_LOOP
from tidelog.replica.resends import PRODUCERS_MAX as RESENDING_PRODUCERS_MAX


def test_group_commits_find_threads_however_many_logs_are_opened_and_begun() -> None:
    """Each sync is waited for by producers; what clients make the broker open or begin must not stand before it."""
    journal = 1 + bounds.SETTLES_TOGETHER_MAX
    others = bounds.OPENINGS_TOGETHER_MAX + bounds.BEGINNING_JOBS_MAX + journal
    assert bounds.SYNCS_TOGETHER_MAX + others <= THREADS_MAX


def test_what_a_crash_may_have_lost_is_all_that_was_written_since_the_recovery_point() -> None:
    """A flush begins after FLUSH_BYTES, and as much again may be written until it is done; a batch comes whole."""
    assert 2 * FLUSH_BYTES <= bounds.LOST_BYTES
    assert FLUSH_BYTES + MESSAGE_BYTES_MAX < bounds.LOST_BYTES


def test_a_small_file_is_written_again_without_a_word() -> None:
    assert bounds.SMALL_BYTES <= bounds.UNNOTICED_BYTES < bounds.LOST_BYTES


def test_logs_that_are_flushed_or_begun_together_fit_one_sync() -> None:
    assert bounds.FLUSH_TOGETHER <= bounds.SYNCED_LOGS_MAX
    assert bounds.LOGS_A_JOB <= bounds.SYNCED_LOGS_MAX
    assert bounds.SYNC_EACH_MAX <= bounds.SYNCED_LOGS_MAX


def test_a_commit_to_the_journal_is_no_longer_than_one_sync() -> None:
    assert bounds.JOURNALED_LOGS_MAX <= bounds.SYNCED_LOGS_MAX
    assert bounds.LOGS_A_SETTLE <= bounds.SYNCED_LOGS_MAX
    assert bounds.JOURNALED_BYTES_MAX < bounds.UNNOTICED_BYTES


def test_a_producers_window_is_found_again_before_its_snapshot() -> None:
    """Five of the largest batches of a busy producer would be 50 MB; those that clients send, of a megabyte at most by
    default, all lie in what is looked through, with those of others between them."""
    assert bounds.WINDOW_BYTES >= bounds.WINDOW * 1024 * 1024
    assert bounds.WINDOW_BYTES > MESSAGE_BYTES_MAX, "one of the largest, at least"
    assert bounds.WINDOW_RECORDS >= bounds.WINDOW * bounds.RECORDS_AT_ONCE


def test_producers_that_are_waited_for_are_ones_that_are_remembered() -> None:
    assert RESENDING_PRODUCERS_MAX <= bounds.PRODUCERS_MAX
    assert bounds.EPOCH_MAX == 2**15 - 1, "what the field of a batch holds"


def test_a_batch_of_any_size_that_is_allowed_by_default_can_wait_for_its_look() -> None:
    """Beside others of the kind, or whoever sends such a one would be told to try again without end."""
    assert 2 * MESSAGE_BYTES_MAX <= bounds.WAITING_BYTES_MAX
    assert MESSAGE_BYTES_MAX <= INFLATED_BYTES_MAX, "a batch that isn't compressed is as large as its records"


def test_what_is_looked_into_on_the_loop_is_a_part_of_what_a_batch_may_hold() -> None:
    assert bounds.LOOKS_S_A_TURN < TURN_S
    assert ON_THE_LOOP.records < bounds.RECORDS_AT_ONCE < bounds.RECORDS_MAX
    assert ON_THE_LOOP.squeezed_bytes <= ON_THE_LOOP.inflated_bytes < INFLATED_BYTES_MAX


def test_the_records_of_one_batch_fit_a_segment() -> None:
    """Their offsets are told from its base, in an index entry of 32 bits."""
    assert bounds.RECORDS_MAX < bounds.OFFSET_SPAN_MAX == 2**31 - 1


def test_a_failed_read_is_narrowed_down_to_a_page() -> None:
    assert bounds.CHECKED_BYTES % bounds.PIECE_BYTES == bounds.PIECE_BYTES % bounds.PAGE_BYTES == 0
    assert bounds.PAGE_BYTES < bounds.PIECE_BYTES < bounds.CHECKED_BYTES


def test_chunks_of_memory_grow_to_their_largest_by_doubling() -> None:
    assert bounds.CHUNK_BYTES_MAX % bounds.CHUNK_BYTES_MIN == 0
    assert 0 < bounds.RESERVED_AHEAD < bounds.RESERVED_OFFSETS, "the next are reserved while there are some left"
    assert bounds.RESERVED_AHEAD > bounds.RECORDS_MAX, "one batch must not use up all that is left"


def test_a_digest_can_be_as_long_as_the_shortest_key_that_has_one() -> None:
    """A key is taken as it is below that length only: so none is equal to another's digest."""
    assert bounds.RAW_KEY_BYTES <= blake2b.MAX_DIGEST_SIZE
    assert bounds.RAW_KEY_BYTES < bounds.KEY_BYTES
