"""Which tests speak for which module, and which changes to it nobody can tell.

The tests are those nearest to the module, quickest first: a mutant should die in seconds, and of a test that says what
went wrong.
"""

from typing import NamedTuple

from tools.mutants.changes import Change


class Module(NamedTuple):
    """A module below src/tidelog, and what pytest is told to run for it."""

    path: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"src/tidelog/{self.path}"


class Known(NamedTuple):
    """Changes to a line that make no difference, and why: those of a `kind` only, where one is given.

    The line is known by its text, since numbers move, and by the one right before it, where `behind` is given.
    `becomes` is part of what is put there.
    """

    path: str
    line: str
    reason: str
    kind: str | None = None
    becomes: str | None = None
    behind: str | None = None

    def matches(self, lines: list[str], change: Change) -> bool:
        before = lines[change.line - 1]
        return (
            self.line in before
            and self.kind in (None, change.kind)
            and (self.becomes is None or self.becomes in change.text)
            and (self.behind is None or self.behind in lines[change.line - 2])
        )


MODULES = (
    Module("raft/quorum.py", ("tests/raft/test_quorum.py",)),
    Module(
        "server/connection.py",
        ("tests/server/test_connection.py", "tests/server/test_connection_ends.py", "tests/server/test_flood.py"),
    ),
    Module("machine/machine.py", ("tests/machine", "tests/controller/test_controller.py")),
    Module("controller/topics.py", ("tests/controller/test_topics.py", "tests/apis/test_create_topics.py")),
    Module("coordinator/txn/decide.py", ("tests/coordinator/txn", "tests/apis/test_transactions.py")),
    Module("coordinator/txn/ending.py", ("tests/apis/test_transaction_ends.py", "tests/apis/test_transactions.py")),
    Module(
        "apis/shared/txn_verification.py",
        (
            "tests/apis/test_transactions.py",
            "tests/apis/test_pipelined_transactions.py",
            "tests/apis/test_sent_again.py",
        ),
    ),
    Module(
        "coordinator/group/fencing.py",
        ("tests/apis/test_offsets_of_members.py", "tests/apis/test_offset_commit.py", "tests/apis/test_txn_offsets.py"),
    ),
    Module("coordinator/group/classic/join.py", ("tests/coordinator/classic",)),
    Module("coordinator/group/classic/rebalance.py", ("tests/coordinator/classic",)),
    Module(
        "coordinator/group/consumer/progress.py",
        ("tests/coordinator/consumer", "tests/apis/test_consumer_group_heartbeat.py"),
    ),
    Module("coordinator/group/consumer/reconcile.py", ("tests/coordinator/consumer",)),
    Module(
        "log/recovery.py",
        (
            "tests/log/test_recovery.py",
            "tests/log/test_lost_checkpoints.py",
            "tests/log/test_opening.py",
            "tests/log/test_sync_errors.py",
            "tests/log/test_rewriting.py",
            "tests/log/test_any_history.py",
        ),
    ),
    Module(
        "log/ends.py",
        (
            "tests/log/test_ends.py",
            "tests/log/test_append.py",
            "tests/log/test_truncation.py",
            "tests/log/test_commit.py",
        ),
    ),
    Module("log/retention.py", ("tests/log/test_retention.py",)),
    Module(
        "log/log.py",
        (
            "tests/log/test_truncation.py",
            "tests/log/test_retention.py",
            "tests/log/test_second_look.py",
            "tests/log/test_unreadable.py",
            "tests/log/test_sync_errors.py",
            "tests/log/test_compaction_rules.py",
            "tests/log/test_index_files.py",
            "tests/log/test_any_history.py",
        ),
    ),
    Module("log/producers.py", ("tests/log/test_producers.py", "tests/log/test_any_history.py")),
    Module("replica/partition.py", ("tests/replica",)),
    Module("spark/sink/decisions.py", ("tests/spark/test_decisions.py", "-k", "not outlives and not broker_is_killed")),
)
"""Those that decide: where one slip loses, repeats or hangs something."""

KNOWN: tuple[Known, ...] = (
    Known("raft/quorum.py", "self._epoch_start = 0", "a leader sets it before it is looked at"),
    Known(
        "raft/quorum.py",
        "return",
        "the role is another one now: nothing behind it applies",
        behind="self._on_leader_heard(event.leader_id, event.epoch)",
    ),
    Known("raft/quorum.py", "return", "who grants names no leader", behind="self._count_votes()"),
    Known(
        "replica/partition.py",
        "if current_epoch < self.leader_epoch",
        "they aren't equal here",
        kind="comparison",
    ),
    Known("replica/partition.py", "return", "the same image says the same", behind="if image is self.image:"),
    Known(
        "replica/partition.py",
        "if self.leader != self._node_id or log.offline is not None",
        "a short cut: whether the log is offline is looked at behind it again",
        kind="comparison",
        becomes="is",
    ),
    Known(
        "replica/partition.py",
        "len(self.isr) < log.config.min_insync_replicas and",
        "a short cut: what stands behind `and` decides",
        kind="comparison",
    ),
    Known(
        "replica/partition.py",
        "log.config.min_insync_replicas > 1 and self._is_below_min_isr()",
        "a short cut: what stands behind `and` decides",
        kind="comparison",
    ),
    Known("replica/partition.py", "producers.unread < 0", "a snapshot at offset 0 has no producers", kind="constant"),
    Known("replica/partition.py", "producers.unread < 0", "a snapshot at offset 0 has no producers", becomes="<="),
    Known(
        "replica/partition.py",
        "            self._resends = None",
        "without any producers in it, it is as none",
        kind="left out",
    ),
    Known(
        "replica/partition.py",
        "if not self._resends:",
        "without any producers in it, it is as none",
        kind="negated",
    ),
    Known(
        "replica/partition.py",
        "            or log.offline is not None",
        "a log that is offline has nothing to append to",
        kind="and/or",
    ),
    Known(
        "replica/partition.py",
        "if 0 <= unstable < self.high_watermark",
        "where they are equal both are the answer",
        kind="comparison",
        becomes="<=",
    ),
    Known("replica/partition.py", "                self._fetches = None", "nobody in it is as none", kind="left out"),
    Known("coordinator/txn/ending.py", "AT_ONCE = ", "how many at once is a matter of speed"),
    Known(
        "coordinator/txn/ending.py",
        "if promise.error is not None:",
        "only what is logged depends on it",
        behind="return  # the next leader finds the Prepare record",
    ),
    Known(
        "coordinator/txn/ending.py",
        "break",
        "markers of a coordinator that was replaced are fenced by its epoch",
        behind="if not shard.leads:",
    ),
    Known("coordinator/group/classic/join.py", "reason=(request.reason or", "a reason is only logged"),
    Known("coordinator/group/classic/join.py", "REASON_MAX = ", "a reason is only logged"),
    Known(
        "apis/shared/txn_verification.py",
        "raise KafkaError(",
        "the coordinator, and the log, say the same of an epoch that is over",
        kind="left out",
        behind="if producer.epoch < known.epoch:",
    ),
    Known(
        "log/producers.py",
        "self._find_first_unstable()",
        "one that ended counts until its marker is below the high watermark",
        behind="producer.txn_first_offset = -1",
    ),
    Known("log/producers.py", "SEQUENCE_MAX // 2", "half of all sequences apart: either way", becomes="<="),
    Known("log/producers.py", "SEQUENCE_MAX // 2", "half of all sequences apart: either way", becomes="3"),
    Known("log/producers.py", "SEQUENCE_MAX // 2", "half of all sequences apart: either way", becomes="1"),
)
