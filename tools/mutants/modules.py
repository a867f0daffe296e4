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


SERVER = (
    "tests/server/test_connection.py",
    "tests/server/test_connection_ends.py",
    "tests/server/test_flood.py",
    "tests/server/test_large_frames.py",
    "tests/server/test_any_connection.py",
)
MODULES = (
    Module(
        "raft/quorum.py",
        ("tests/raft/test_quorum.py", "tests/raft/test_quorum_members.py", "tests/raft/test_network.py"),
    ),
    Module("server/connection.py", SERVER),
    Module("server/answers.py", SERVER),
    Module("server/receiver.py", SERVER),
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
            "tests/log/test_next_start.py",
            "tests/log/test_journal.py",
            "tests/log/test_journal_attacks.py",
            "tests/log/test_recovery.py",
            "tests/log/test_lost_checkpoints.py",
            "tests/log/test_second_look.py",
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
            "tests/log/test_segments_that_go.py",
            "tests/log/test_journal.py",
            "tests/log/test_append.py",
            "tests/log/test_commit.py",
            "tests/log/test_beginning.py",
            "tests/log/test_log_start.py",
            "tests/log/test_producers.py",
            "tests/log/test_truncation.py",
            "tests/log/test_retention.py",
            "tests/log/test_lost_checkpoints.py",
            "tests/log/test_recovery.py",
            "tests/log/test_space.py",
            "tests/log/test_second_look.py",
            "tests/log/test_unreadable.py",
            "tests/log/test_sync_errors.py",
            "tests/log/test_compaction_rules.py",
            "tests/log/test_index_files.py",
            "tests/log/test_any_history.py",
        ),
    ),
    Module("log/producers.py", ("tests/log/test_producers.py", "tests/log/test_any_history.py")),
    Module("replica/leading.py", ("tests/replica/test_leading.py",)),
    Module("replica/partition.py", ("tests/replica",)),
    Module("replica/replica.py", ("tests/replica",)),
    Module(
        "spark/sink/decisions.py",
        (
            "tests/spark/test_decisions_driver.py",
            "tests/spark/test_other_batches.py",
            "tests/spark/test_leases.py",
            "tests/spark/test_decisions.py",
        ),
    ),
)
"""Those that decide: where one slip loses, repeats or hangs something."""

KNOWN: tuple[Known, ...] = (
    Known(
        "machine/machine.py",
        "self._end = 0",
        "who begins to lead sets it, and nothing waits before that",
        behind="self._waiting_answers = 0",
    ),
    Known("controller/topics.py", "_A_STEP = ", "how many in a step is a matter of speed"),
    Known("controller/topics.py", " in enumerate(", "which of many ends a step makes no difference", kind="constant"),
    Known(
        "controller/topics.py",
        "len(records) % PARTITIONS_A_STEP == 0",
        "which of many ends a step makes no difference",
        kind="constant",
    ),
    Known("raft/quorum.py", "self._epoch_start = 0", "a leader sets it before it is looked at"),
    Known(
        "raft/quorum.py",
        "return",
        "the role is another one now: nothing behind it applies",
        behind="self._on_leader_heard(event.leader_id, event.epoch)",
    ),
    Known("raft/quorum.py", "-ends.get(key.id, -1)", "no end is negative: behind all others", kind="constant"),
    Known(
        "replica/replica.py",
        "if current_epoch < self.leader_epoch",
        "they aren't equal here",
        kind="comparison",
    ),
    Known("replica/replica.py", "return", "the same image says the same", behind="if image is self.image:"),
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
        "replica/replica.py",
        "if 0 <= unstable < self.high_watermark",
        "where they are equal both are the answer",
        kind="comparison",
        becomes="<=",
    ),
    Known("replica/replica.py", "                self._fetches = None", "nobody in it is as none", kind="left out"),
    Known("coordinator/group/fencing.py", "if epoch > known.epoch:", "they aren't equal here", becomes=">="),
    Known(
        "coordinator/group/consumer/progress.py",
        "if after.regex and after.regex not in group.regexes():",
        "a short cut: what the group has was checked when it came, and none is an expression, too",
        kind="and/or",
    ),
    Known(
        "coordinator/group/consumer/progress.py",
        "> context.computes_us",
        "an estimate, which may be one microsecond less",
        becomes=">=",
    ),
    Known(
        "coordinator/group/consumer/progress.py",
        "subscribed = _Subscribed(group.subscriptions, group.resolved, changed=False)",
        "only a new group epoch depends on it, and none is made there",
        kind="constant",
    ),
    Known("coordinator/txn/ending.py", "AT_ONCE = ", "how many at once is a matter of speed"),
    Known("server/connection.py", "if not 0 <= size <= size_max:", "check_size decides", kind="constant"),
    Known("server/connection.py", "if not 0 <= size <= size_max:", "check_size decides", kind="comparison"),
    Known("server/connection.py", "if size > 1 and buffer", "a frame of so few bytes is no request", becomes="2"),
    Known(
        "server/connection.py",
        "take_up(peek=flow is IN_TURN)",
        "how much is received at a time is a matter of speed",
        kind="comparison",
    ),
    Known(
        "server/connection.py",
        "if len(ready) > 1 else ready[0]",
        "a short cut: joining one gives the same",
        becomes=">=",
    ),
    Known("server/connection.py", "if end > 5 and buffer", "a frame of so few bytes is no request", becomes=">="),
    Known(
        "server/connection.py",
        "queued, alike = 0, end - start <= size_max",
        "those that aren't handled together, though they might, are handled one by one",
        kind="arithmetic",
    ),
    Known(
        "server/connection.py",
        "queued, alike = 0, end - start <= size_max",
        "those that aren't handled together, though they might, are handled one by one",
        kind="comparison",
    ),
    Known(
        "server/connection.py",
        "end - stop > PRODUCE_BYTES_MIN",
        "a short cut: behind a request none is found where too few bytes are left",
        kind="arithmetic",
        becomes="+",
    ),
    Known(
        "server/connection.py",
        "end - stop > PRODUCE_BYTES_MIN",
        "a short cut: behind a request none is found where too few bytes are left",
        becomes=">=",
    ),
    Known(
        "server/connection.py",
        "if queued > late and (",
        "a short cut: where nothing was queued, nothing of what stands behind `and` came about",
        becomes=">=",
    ),
    Known(
        "server/receiver.py",
        "+ 4 == count <= self._frame_bytes_max:",
        "a short cut: whatever goes the general way is handled alike",
        becomes="<",
    ),
    Known(
        "server/receiver.py",
        "if count <= size <= self._frame_bytes_max and size > LARGE_FRAME_BYTES:",
        "a short cut: what is handed on instead is put together as well",
        kind="comparison",
    ),
    Known(
        "server/receiver.py",
        "self._began = None",
        "it is None already: only what is half there began",
        behind="if not self.half_frame:",
    ),
    Known(
        "server/receiver.py",
        "_read_size(buffer)[0] + 4 if count >= 4 else 0",
        "no large frame is as short as either",
        kind="constant",
        becomes="1",
    ),
    Known("server/answers.py", "if len(answers) == 1:", "a short cut: one by one the same bytes leave"),
    Known(
        "coordinator/group/classic/rebalance.py",
        "group.initial_left_ms = None",
        "it is None already: of a group that was empty every member's JoinGroup waits, so one of them leads",
        behind="no member joined in time",
    ),
    Known("coordinator/group/classic/join.py", "reason=(request.reason or", "a reason is only logged"),
    Known("coordinator/group/classic/join.py", 'what = "the leader joins again" if', "a reason is only logged"),
    Known(
        "apis/shared/txn_verification.py",
        "raise KafkaError(",
        "the coordinator, and the log, say the same of an epoch that is over",
        kind="left out",
        behind="if producer.epoch < known.epoch:",
    ),
    Known(
        "apis/shared/txn_verification.py",
        "raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)",
        "never reached: a request with records of two producers was refused as a whole before",
        kind="left out",
    ),
    Known(
        "apis/shared/txn_verification.py",
        "outcome.refuse(place, error)",
        "the only error there is of an epoch that is over, and the log says the same of it",
        behind="except KafkaError as error:",
    ),
    Known("log/recovery.py", "def note_cut(self", "a protocol's default: who implements it has its own"),
    Known("log/recovery.py", "def remove_segment(self", "a protocol's default: who implements it has its own"),
    Known("log/recovery.py", "delay_ms: int = 0) -> None:", "a file that goes a millisecond later is gone, too"),
    Known(
        "log/recovery.py",
        "ends, producers, start_moved = self._empty(), None, False",
        "its start is the one that was saved: saving it again writes nothing",
        kind="constant",
    ),
    Known(
        "log/recovery.py",
        "self._around.files.forget(segment)",
        "until all files are let go, before the log is served, the one that was replaced has the same bytes",
        behind="self._write_again(segment.path",
    ),
    Known(
        "log/recovery.py",
        "if len(head) == HEADER_BYTES else 0",
        "either is less than a header",
        kind="constant",
    ),
    Known("log/recovery.py", "count, records, last = 0, 0, -1", "told only where there is one", becomes="2"),
    Known("log/recovery.py", "if segment.base < next_offset:", "they aren't equal here", becomes="<="),
    Known(
        "log/recovery.py",
        "break",
        "the segment that was cut is the last one: it is read once more, and that ends it",
        behind="self._cut(segment, number, next_offset, bad)",
    ),
    Known(
        "log/recovery.py",
        "segment.size, check=False)",
        "these batches were just checked",
        kind="constant",
        becomes="True",
    ),
    Known("log/log.py", "if offset > self.log_start:", "it stays where it is, which is saved", becomes=">="),
    Known("log/log.py", "if start > self.log_start:", "it stays where it is", becomes=">="),
    Known(
        "log/log.py",
        "self._store.starts.moved(self)",
        "its only segment begins there, durably, and a start that was saved before fell with the recovery point",
        kind="left out",
        behind="self.ends.move_start(offset)",
    ),
    Known(
        "log/log.py",
        "segments.look(segment, number)",
        "whoever looks for a position measures the segment, and what is cut is learnt again",
        kind="left out",
    ),
    Known("log/log.py", "self.snapshots.cut(self._store.disk, self, -1)", "none is below 0", kind="constant"),
    Known("log/ends.py", "if end > self.synced_end:", "where they are equal it stays as it is", becomes=">="),
    Known("log/ends.py", "if end > self.recovery_point:", "where they are equal it stays as it is", becomes=">="),
    Known(
        "log/producers.py",
        "self._find_first_unstable()",
        "one that ended counts until its marker is below the high watermark",
        behind="producer.txn_first_offset = -1",
    ),
    Known("log/producers.py", "seen_ms: int = -1,", "no timestamp is below -1 either: the larger one counts"),
    Known("log/producers.py", "self.unread = ", "whatever is below 0 says that there are none", kind="constant"),
    Known("log/producers.py", "SEQUENCE_MAX // 2", "half of all sequences apart: either way", becomes="<="),
    Known("log/producers.py", "SEQUENCE_MAX // 2", "half of all sequences apart: either way", becomes="3"),
    Known("log/producers.py", "SEQUENCE_MAX // 2", "half of all sequences apart: either way", becomes="1"),
    Known(
        "spark/sink/decisions.py",
        'raise AssertionError("the last try returns or raises")',
        "never reached: with nothing left of its tries the loop above returns or raises",
        kind="left out",
    ),
    Known(
        "spark/sink/decisions.py",
        "return decision if last.older is None else replace(decision, heir=None)",
        "an heir is looked for under the older name only, and whoever was handed over there has another term as well",
        kind="comparison",
    ),
    Known(
        "spark/sink/decisions.py",
        "if self._standing(stable=False).batch < batch:",
        "one more look at what is seen already, of which nothing is made",
        becomes="<=",
    ),
)
