"""What counts as durable, by the settings of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.setting import LONG_MAX

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig


def page_cache_counts(config: TopicConfig) -> bool:
    """Whether what was written counts as durable, be it up to so many records (`flush.messages`)."""
    return config.tidelog_durability == "os"


def counts_messages(config: TopicConfig) -> bool:
    """Whether what was written counts as durable up to so many records."""
    return page_cache_counts(config) and config.flush_messages < LONG_MAX
