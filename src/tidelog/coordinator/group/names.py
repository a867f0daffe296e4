"""Members' ids in the log."""

from collections.abc import Sequence

NAMED_MAX = 5


def some(member_ids: Sequence[str]) -> str:
    """For the log: the first few, and how many more. Ids may be long, and thousands."""
    more = len(member_ids) - NAMED_MAX
    return ", ".join(member_ids[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
