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

    The line is known by its text, since numbers move. `becomes` is what has to stand in the changed line.
    """

    path: str
    line: str
    reason: str
    kind: str | None = None
    becomes: str | None = None

    def matches(self, lines: list[str], change: Change) -> bool:
        before = lines[change.line - 1]
        return (
            self.line in before
            and self.kind in (None, change.kind)
            and (self.becomes is None or self.becomes in change.text)
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
        "apis/joining.py",
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
    Module("coordinator/group/classic/joining.py", ("tests/coordinator/classic",)),
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
    Module("log/retention.py", ("tests/log/test_retention.py",)),
    Module(
        "log/truncation.py",
        (
            "tests/log/test_second_look.py",
            "tests/log/test_retention.py",
            "tests/log/test_aborted.py",
            "tests/log/test_compaction_rules.py",
            "tests/log/test_index_files.py",
            "tests/log/test_any_history.py",
        ),
    ),
    Module("log/producers.py", ("tests/log/test_producers.py", "tests/log/test_any_history.py")),
    Module("replica/partition.py", ("tests/replica",)),
    Module("spark/decisions.py", ("tests/spark/test_decisions.py", "-k", "not outlives and not broker_is_killed")),
)
"""Those that decide: where one slip loses, repeats or hangs something."""

KNOWN: tuple[Known, ...] = ()
