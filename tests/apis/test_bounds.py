"""How the bounds of requests relate."""

from tidelog.apis import bounds
from tidelog.config.broker import BrokerConfig
from tidelog.server.bounds import SHARED_BYTES


def test_several_sessions_of_the_largest_kind_have_room() -> None:
    """Or one client could keep all others from having any."""
    assert 2 * bounds.SESSION_PARTITIONS_MAX <= bounds.SESSIONS_PARTITIONS_MAX


def test_each_session_of_a_full_cache_may_have_many_partitions() -> None:
    """Those that `max.incremental.fetch.session.cache.slots` allows by default."""
    assert BrokerConfig.parse({}).max_incremental_fetch_session_cache_slots <= bounds.SESSIONS_PARTITIONS_MAX


def test_what_is_read_in_one_go_came_in_one_go() -> None:
    """The fast path reads from the buffer that all connections share."""
    assert bounds.FAST_FETCH_BYTES_MAX <= SHARED_BYTES


def test_a_wait_for_a_sync_ends_before_a_wait_for_records() -> None:
    """A fetch waits because its client wants it to; for a sync nobody wants to wait."""
    assert bounds.HIGH_WATERMARK_WAIT_MS_MAX < bounds.MAX_WAIT_MS
