"""How the bounds of groups and transactions relate."""

from tidelog.config.topic import MESSAGE_BYTES_MAX
from tidelog.controller.bounds import NAME_CHARACTERS_MAX
from tidelog.coordinator import bounds
from tidelog.log.bounds import EPOCH_MAX
from tidelog.wire.bounds import STRING_BYTES_MAX

UUID_CHARACTERS = 36
UTF8_BYTES_MAX = 4


def test_the_last_epoch_is_kept_for_fencing() -> None:
    """A producer that has it could not be fenced any more."""
    assert bounds.CLIENT_EPOCH_MAX < EPOCH_MAX


def test_a_transaction_of_as_many_partitions_as_it_may_have_fits_a_record() -> None:
    """An index takes four bytes; a topic's name of some hundred characters is repeated in the worst case for each."""
    assert bounds.TRANSACTION_PARTITIONS_MAX * (4 + 100) < MESSAGE_BYTES_MAX


def test_a_marker_that_fails_is_tried_again_soon_and_then_less_often() -> None:
    assert 0 < bounds.MARKER_RETRY_S < bounds.MARKER_RETRY_S_MAX


def test_members_may_say_more_than_a_record_holds() -> None:
    """Only the protocol that was chosen is written down: what they say under all of them may be several times that,
    and a group that could still be written isn't refused."""
    assert bounds.SAID_BYTES_MAX >= 2 * MESSAGE_BYTES_MAX


def test_a_member_id_fits_a_string() -> None:
    """Members send it back: one that couldn't be read would never be heard of again."""
    assert UTF8_BYTES_MAX * bounds.OWNER_CHARACTERS_MAX + 1 + UUID_CHARACTERS < STRING_BYTES_MAX
    assert bounds.REASON_CHARACTERS_MAX * UTF8_BYTES_MAX < STRING_BYTES_MAX


def test_any_name_can_be_matched_within_a_turn() -> None:
    """With the dearest expression that is allowed: else a member that sends it would wait for its topics for ever."""
    dearest = 200 + bounds.PATTERN_PROGRAM_MAX * NAME_CHARACTERS_MAX
    assert 10 * dearest < bounds.MATCH_COST_AT_ONCE
    assert min(STRING_BYTES_MAX, bounds.PATTERN_MEMORY_BYTES_MAX) > bounds.PATTERN_CHARACTERS_MAX * UTF8_BYTES_MAX


def test_each_expression_that_is_remembered_may_match_some_names() -> None:
    assert bounds.REMEMBERED_MAX < bounds.NAMES_REMEMBERED_MAX


def test_one_removal_is_a_small_part_of_a_batch() -> None:
    """It is cut at the topic's `max.message.bytes` where that is lower; by default the bound is what makes it short."""
    assert bounds.REMOVAL_BATCH_BYTES < MESSAGE_BYTES_MAX
    assert bounds.EXPIRED_AT_ONCE <= bounds.REMOVED_AT_ONCE <= bounds.COMMITTED_AT_ONCE


def test_what_waits_for_another_broker_is_several_requests_at_most_some_megabytes() -> None:
    """A name of 249 characters, an index, an object or two for each."""
    assert 10 * bounds.MARKERS_TOGETHER < bounds.MARKERS_WAITING_MAX
    assert bounds.TRANSACTION_PARTITIONS_MAX < bounds.MARKERS_WAITING_MAX
    assert bounds.MARKERS_WAITING_MAX * (NAME_CHARACTERS_MAX + 250) <= 100 << 20
    assert bounds.CHECKED_TOGETHER < bounds.CHECKS_WAITING_MAX
