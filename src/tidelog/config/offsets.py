"""Settings of committed offsets: their bounds, and how long they are kept."""

from tidelog.config.setting import Settings, integer, long


class OffsetSettings(Settings):
    """Offsets that groups commit."""

    offset_metadata_max_bytes = integer(
        4096, "The longest text that may be committed with an offset; a longer one is refused."
    )
    offsets_commit_timeout_ms = integer(
        5000, "How long a change of a group or its offsets may wait for its commit.", at_least=1
    )
    offsets_load_buffer_size = integer(
        5_242_880, "How much of `__consumer_offsets` is read at once when it is loaded.", at_least=1
    )
    offsets_retention_check_interval_ms = long(
        600_000, "How often offsets that are kept no longer, and groups without any, are removed.", at_least=1
    )
    offsets_retention_minutes = integer(
        10_080,
        "How long offsets are kept: from when their group became empty, or from their commit where the group has no "
        "members or no longer subscribes to the topic.",
        at_least=1,
    )
