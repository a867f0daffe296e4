"""Whatever is written, cleaned, cut short and restarted: a compacted log says of each key what a plain dict would."""

from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.batches import ANYONE, GZIP, LZ4, NONE, Producer
from tests.log.harness import LogHarness
from tests.log.keyed import clean, compacted, end, put, roll
from tests.log.test_compaction_crash import Cut, CuttingDisk
from tests.log.test_compaction_transactions import committed

from tidelog.log.log import Log
from tidelog.log.names import SNAPSHOT
from tidelog.sim.world.random import SimRandom

KEYS = [b"a", b"b", b"c" * 60]
PLAIN, TRANSACTIONAL = (10, 11), (20, 21)

pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([b"", b"v" * 30, None])), min_size=1, max_size=4)
writers = st.sampled_from([-1, *PLAIN, *TRANSACTIONAL, *TRANSACTIONAL])
puts = st.tuples(st.just("put"), writers, pairs, st.sampled_from([NONE, GZIP, LZ4]))
ends = st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans())
steps = st.one_of(
    puts,
    puts,
    puts,
    ends,
    ends,
    st.tuples(st.just("again"), st.sampled_from([*PLAIN, *TRANSACTIONAL])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 70.0])),
    st.tuples(st.just("cut"), st.integers(0, 40), st.sampled_from(["killed", "power loss", "snapshots lost"])),
    st.tuples(st.just("restart")),
)


@dataclass
class Model:
    """What was written, and what was made of it."""

    written: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    stable: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    open: dict[int, list[tuple[int, bytes, bytes | None]]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, list[tuple[bytes, bytes | None]]]] = field(default_factory=dict)

    def settle(self, records: list[tuple[int, bytes, bytes | None]]) -> None:
        for offset, key, value in records:
            if offset >= self.stable.get(key, (-1, None))[0]:
                self.stable[key] = offset, value


class Story:
    def __init__(self, seed: int) -> None:
        self.disk = CuttingDisk(SimRandom(seed))
        self.harness = LogHarness(self.disk)
        self.model = Model()
        self.log = self.open()

    def open(self) -> Log:
        log = compacted(self.harness, delete_retention_ms="60000", internal_segment_bytes="1500")
        assert log.offline is None, log.offline
        return log

    def put(self, writer: int, pairs: list[tuple[bytes, bytes | None]], codec: int) -> None:
        model, sequence = self.model, self.model.sequences.get(writer, 0)
        values = [
            (key, None if value is None else value + b"%d" % (self.log.log_end + n))
            for n, (key, value) in enumerate(pairs)
        ]
        producer = ANYONE if writer < 0 else Producer(writer, 0, sequence)
        transactional = writer in TRANSACTIONAL
        base = put(
            self.log, *values, producer=producer, codec=codec, transactional=transactional, now_ms=self.harness.now_ms()
        )
        model.sequences[writer] = sequence + len(values)
        model.last[writer] = base, values
        records = [(base + n, key, value) for n, (key, value) in enumerate(values)]
        model.written.update({offset: (key, value) for offset, key, value in records})
        if transactional:
            model.open.setdefault(writer, []).extend(records)
        else:
            model.settle(records)
        self.harness.commit(self.log)

    def end(self, writer: int, commit: bool) -> None:
        if writer in self.model.open:
            records = self.model.open.pop(writer)
            end(self.log, Producer(writer, 0), commit=commit, now_ms=self.harness.now_ms())
            self.harness.commit(self.log)
            if commit:
                self.model.settle(records)

    def again(self, writer: int) -> None:
        """The last batch is sent once more: it is known, whatever became of its records."""
        if writer in self.model.last and (writer not in TRANSACTIONAL or writer in self.model.open):
            base, values = self.model.last[writer]
            sequence = self.model.sequences[writer] - len(values)
            log_end = self.log.log_end
            found = put(
                self.log, *values, producer=Producer(writer, 0, sequence), transactional=writer in TRANSACTIONAL
            )
            assert found == base
            assert self.log.log_end == log_end

    def roll(self) -> None:
        roll(self.harness, self.log)

    def clean(self) -> None:
        self.roll()
        clean(self.harness, self.log)

    def wait(self, seconds: float) -> None:
        self.harness.settle(seconds)

    def cut(self, step: int, how: str) -> None:
        """The process ends in the middle of a cleaning, or the power goes; producers may be known from batches only."""
        self.disk.left = step
        with suppress(Cut):
            self.clean()
        self.disk.left = -1
        if how == "snapshots lost" and self.log.segments:
            for name in self.disk.list_folder(self.log.folder):
                if name.endswith(SNAPSHOT):
                    self.disk.remove(f"{self.log.folder}/{name}")
        if how == "power loss":
            self.harness.power_loss()
        else:
            self.harness.kill()
        self.log = self.open()

    def restart(self) -> None:
        self.harness.restart()
        self.log = self.open()

    def check(self) -> None:
        log, model = self.log, self.model
        log.producers.advance_high_watermark(log.durable_end)
        log.check_invariants()
        log.producers.check_invariants()
        found = committed(log)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        for offset, key, value in found:
            assert model.written[offset] == (key, value)
        limit = log.producers.first_unstable
        seen = {key: (offset, value) for offset, key, value in found}
        for key, (offset, value) in model.stable.items():
            if 0 <= limit <= offset:
                continue  # a reader of committed records doesn't see that far yet
            if value is None:
                assert seen.get(key, (offset, None)) == (offset, None)
            else:
                assert seen[key] == (offset, value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=60), st.integers(0, 1000))
def test_a_compacted_log_says_what_a_dict_would(story_steps: list[tuple[object, ...]], seed: int) -> None:
    story = Story(seed)
    for name, *args in story_steps:
        getattr(story, str(name))(*args)
        story.check()
    story.restart()
    story.clean()
    story.check()
