"""Settings of transactions: their timeouts, how long transactional ids are kept, what guards them."""

from tidelog.config.setting import Settings, boolean, integer


class TransactionSettings(Settings):
    """Transactions and their coordinator."""

    add_partitions_to_txn_retry_backoff_max_ms = integer(
        100, "How long a produce request that begins a transaction waits for the end of the one before.", at_least=0
    )
    add_partitions_to_txn_retry_backoff_ms = integer(
        20,
        "The pause between two looks whether the transaction before has ended, with its coordinator elsewhere.",
        at_least=1,
    )
    tidelog_transaction_lease_ms = integer(
        900_000,
        "A two-phase transaction with a lease is aborted when nobody has renewed it for so long; not one that is "
        "prepared, whose commit may be recorded elsewhere. Spark's sink asks for leases; two-phase transactions of "
        "other clients have none. 0: nobody's have.",
        at_least=0,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10_000, "How often transactions whose time is over are looked for.", at_least=1
    )
    transaction_max_timeout_ms = integer(
        900_000, "The longest timeout that a transactional producer may ask for.", at_least=1
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Ask the coordinator, before the first records of a transaction are appended to a partition, whether the "
        "partition is part of it; for clients that don't join partitions by producing to them.",
        dynamic=True,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3_600_000, "How often transactional ids that expired are removed.", at_least=1
    )
    transaction_state_log_load_buffer_size = integer(
        5_242_880, "How much of `__transaction_state` is read at once when it is loaded.", at_least=1
    )
    transaction_two_phase_commit_enable = boolean(
        False, "Let clients have transactions without a timeout, which another process ends (KIP-939)."
    )
    transactional_id_expiration_ms = integer(
        604_800_000, "A transactional id that nobody used for so long is forgotten.", at_least=1
    )
