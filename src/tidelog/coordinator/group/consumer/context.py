"""What a decision about a consumer group looks at besides the group."""

from typing import NamedTuple

from tidelog.coordinator.group.consumer.downgrade import MakeDowngrade
from tidelog.coordinator.group.consumer.regex import Matches
from tidelog.coordinator.group.consumer.terms import Terms
from tidelog.metadata.image import ClusterImage


class DecisionContext(NamedTuple):
    """The cluster, the settings and the time, and what needn't be looked at since it was already."""

    image: ClusterImage
    terms: Terms
    now_ms: int
    matches: Matches
    """What expressions match, as far as that is known: it saves time, and changes no decision but by the work that one
    may do at once."""
    downgrade: MakeDowngrade
    """What the group becomes where only members of the classic protocol stay."""
    compare_topics: bool = True
    """The image's topics may be others than when the group's hash was last compared."""
    refresh_regexes: bool = False
    """It is time to match the group's expressions again."""
    computes_us: float = float("inf")
    """A target that takes longer than so many microseconds isn't computed by this decision."""
