"""How the bounds of messages relate to each other, and to what requests may ask for."""

from tidelog.apis.bounds import DESCRIBED_RESOURCES_MAX, FEATURE_UPDATES_MAX, SESSION_PARTITIONS_MAX
from tidelog.controller.bounds import CHANGES_MAX, NAME_CHARACTERS_MAX
from tidelog.coordinator.bounds import SUBSCRIBED_NAMES_MAX, TRANSACTION_PARTITIONS_MAX
from tidelog.env.log_lines import MESSAGE_CHARACTERS_MAX as LOGGED_CHARACTERS_MAX
from tidelog.wire import bounds

UTF8_BYTES_MAX = 4  # of one character


def test_an_error_in_words_fits_a_string_and_a_line_of_the_log() -> None:
    """Or answering with it would fail, and the connection would be closed instead."""
    longest = bounds.MESSAGE_CHARACTERS_MAX + len("...")
    assert UTF8_BYTES_MAX * longest <= bounds.STRING_BYTES_MAX
    assert longest <= LOGGED_CHARACTERS_MAX


def test_a_topics_name_fits_a_string_and_an_error_that_repeats_it() -> None:
    assert NAME_CHARACTERS_MAX < bounds.MESSAGE_CHARACTERS_MAX < bounds.STRING_BYTES_MAX


def test_what_a_request_may_ask_for_can_be_sent() -> None:
    """The bound of its API is told with an error that says what to do; that of the codec closes the connection. An
    element of an array may hold another: a partition in its topic."""
    most = (
        2 * CHANGES_MAX,
        2 * SESSION_PARTITIONS_MAX,
        2 * TRANSACTION_PARTITIONS_MAX,
        SUBSCRIBED_NAMES_MAX,
        DESCRIBED_RESOURCES_MAX,
        FEATURE_UPDATES_MAX,
    )
    assert max(most) < bounds.REQUEST_ELEMENTS_MAX


def test_each_element_of_the_largest_request_may_have_a_tagged_field() -> None:
    """Newer clients than this broker send some that it doesn't know."""
    assert bounds.TAGGED_FIELDS_MAX < bounds.REQUEST_TAGGED_FIELDS_MAX
    assert bounds.REQUEST_TAGGED_FIELDS_MAX >= bounds.REQUEST_ELEMENTS_MAX
