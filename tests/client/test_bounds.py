"""How the bounds of what `tidelog status` tells relate."""

from tidelog.cli import serve_check
from tidelog.client import bounds


def test_what_is_told_one_by_one_was_asked_for() -> None:
    """Or an offline partition would be told without its reason, and a group without its lag."""
    assert bounds.TOLD_OFFLINE_MAX <= bounds.ASKED_REASONS_MAX
    assert bounds.TOLD_GROUPS_MAX <= bounds.ASKED_GROUPS_MAX
    assert bounds.NOTES_MAX <= bounds.TOLD_GROUPS_MAX, "problems come before notes"


def test_a_check_before_the_start_finds_the_same_disk_too_full_as_the_status_does() -> None:
    """It has a number of its own since a broker that starts doesn't import the client."""
    assert serve_check.FREE_SHARE_MIN == bounds.FREE_SHARE_MIN
