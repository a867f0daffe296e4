"""Settings of groups of the classic protocol, whose members bring their own timeouts."""

from tidelog.config.setting import INT_MAX, Settings, integer


class ClassicGroupSettings(Settings):
    """What members may ask for, how many there may be, and how long a new group waits for them."""

    group_initial_rebalance_delay_ms = integer(
        100,
        "How long a group that was empty waits for more members before its first generation; where one comes, as long "
        "again, up to the rebalance timeout. 0 begins at once.",
    )
    group_max_session_timeout_ms = integer(1_800_000, "The longest session timeout that a member may ask for.")
    group_max_size = integer(INT_MAX, "How many members a group may have.", at_least=1)
    group_min_session_timeout_ms = integer(6000, "The shortest session timeout that a member may ask for.")
