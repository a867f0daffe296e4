"""What a chaos run is made of: the deck of faults, gaps, diaries, which packets are lost, and what the report says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.chaos.checker import Finding
from tools.chaos.clients.diary import Pen
from tools.chaos.crowded import FULL
from tools.chaos.disks import Quotas
from tools.chaos.faults import Fault, Kind, Split, deal
from tools.chaos.final import compare_replicas
from tools.chaos.gaps import Gap, Gaps, acked_times, gaps_after, longest_gap
from tools.chaos.history import Acked, Diary, Given, Moved, Read, Sent, Source, Taken, event_of, read_diary
from tools.chaos.load import last_acked
from tools.chaos.network import CLIENTS, lost_ways
from tools.chaos.report import Happened, Setting, never_ran, told

from tests.nodes import BOTH, Node


def faults(seed: int, count: int) -> list[Fault]:
    dealt = deal(seed, 9.0)
    return [next(dealt) for _ in range(count)]


def test_every_kind_has_its_turn_before_any_comes_again() -> None:
    for seed in range(20):
        kinds = [fault.kind for fault in faults(seed, 3 * len(Kind))]
        for round in range(3):
            assert set(kinds[round * len(Kind) :][: len(Kind)]) == set(Kind)


def test_a_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert faults(7, 30) == faults(7, 30)
    assert faults(7, 30) != faults(8, 30)


def test_what_is_cut_off_stays_so_for_longer_than_its_session_and_for_shorter() -> None:
    frozen = [fault.lasts_s for seed in range(30) for fault in faults(seed, 7) if fault.kind is Kind.FREEZE]
    assert {lasts_s > 9.0 for lasts_s in frozen} == {True, False}


def test_splits_of_every_way_come() -> None:
    drawn = {(fault.kind, fault.split) for seed in range(30) for fault in faults(seed, 7) if fault.split}
    assert drawn == {
        (Kind.SPLIT_BOTH, Split.BOTH),
        (Kind.SPLIT_BOTH, Split.ALL),
        (Kind.SPLIT_ONE_WAY, Split.OUT),
        (Kind.SPLIT_ONE_WAY, Split.IN),
    }


@pytest.mark.parametrize(
    ("how", "ways"),
    [
        (Split.OUT, [(1, 2), (1, 3)]),
        (Split.IN, [(2, 1), (3, 1)]),
        (Split.BOTH, [(1, 2), (1, 3), (2, 1), (3, 1)]),
        (Split.ALL, [(1, 2), (1, 3), (1, CLIENTS), (2, 1), (3, 1), (CLIENTS, 1)]),
    ],
    ids=str,
)
def test_a_split_loses_the_packets_that_it_says(how: Split, ways: list[tuple[int, int]]) -> None:
    assert sorted(lost_ways(1, how, (1, 2, 3))) == sorted(ways)


def test_a_gap_belongs_to_the_fault_after_which_it_began() -> None:
    times = [0.0, 1.0, 4.0, 4.5, 9.0, 9.1]
    assert longest_gap(times, 1.2, 4.9, 9.5) == Gap(4.5, 4.5)
    assert longest_gap(times, 1.2, 4.7, 9.5) == Gap(1.0, 3.0)
    assert longest_gap(times, 5.0, 9.2, 9.5) == Gap(5.0, 0.0)
    assert longest_gap(times, 1.5, 4.2, 9.5) == Gap(1.5, 0.0)


def test_what_never_came_back_counts_up_to_the_end() -> None:
    assert longest_gap([1.0], 1.1, 2.0, 6.0) == Gap(1.0, 5.0)
    assert longest_gap([1.0], 2.0, 6.0, 6.0) == Gap(2.0, 0.0)
    assert longest_gap([], 2.0, 6.0, 6.0) == Gap(2.0, 0.0)


def test_the_worst_partition_is_told_beside_all_together() -> None:
    acks = [
        Acked(at_s, ("t", partition), 0, "") for partition, at_s in [(0, 1.0), (0, 2.0), (0, 3.0), (1, 1.5), (1, 3.5)]
    ]
    times = acked_times(
        [Diary("steady", events=[*acks]), Diary("other", events=[Acked(2.5, ("t", 1), 0, "")])], "steady"
    )
    assert gaps_after(times, 1.2, 3.0, 3.6) == Gaps(Gap(2.0, 1.0), Gap(1.5, 2.0), ("t", 1))


def test_a_diary_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "one.diary"
    with Pen(str(path), "one", group="g", read_committed=True) as pen:
        pen.sent("t", 1, "v")
        pen.sent("t", 1, "w", transaction=3, source=["s", 2, 7])
        pen.acked("t", 1, None, "v")
        pen.given([("t", 1)])
        pen.read("t", 1, 5, "v")
        pen.moved({("t", 1): 6})
        pen.taken([("t", 1)])
    diary = read_diary(path)
    assert (diary.name, diary.group, diary.read_committed) == ("one", "g", True)
    times = [event.at_s for event in diary.events]
    assert times == sorted(times)
    assert [event._replace(at_s=0.0) for event in diary.events] == [
        Sent(0.0, ("t", 1), "v"),
        Sent(0.0, ("t", 1), "w", 3, Source("s", 2, 7)),
        Acked(0.0, ("t", 1), -1, "v"),
        Given(0.0, (("t", 1),)),
        Read(0.0, ("t", 1), 5, "v"),
        Moved(0.0, ((("t", 1), 6),)),
        Taken(0.0, (("t", 1),)),
    ]


def test_the_end_of_a_diary_tells_when_each_partition_was_acknowledged_last(tmp_path: Path) -> None:
    path = tmp_path / "steady.diary"
    with Pen(str(path), "steady") as pen:
        for number in range(3000):
            pen.sent("t", number % 2, f"v{number}")
            pen.acked("t", number % 2, number, f"v{number}")
        pen.sent("t", 2, "on its way")
    acked = [event for event in read_diary(path).events if isinstance(event, Acked)]
    assert last_acked(path) == {("t", 0): acked[-2].at_s, ("t", 1): acked[-1].at_s}


def test_a_torn_line_is_passed_over_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "torn.diary"
    path.write_text('{"client": "torn"}\n{"is": "given", "at": 1.0, "places": []}\n{"is": "giv')
    assert read_diary(path).events == [Given(1.0, ())]
    with pytest.raises(ValueError, match="'slept'"):
        event_of(json.loads('{"is": "slept", "at": 1.0}'))


def test_a_client_that_ends_with_an_error_says_so_in_its_diary(tmp_path: Path) -> None:
    path = tmp_path / "dies.diary"
    with pytest.raises(KeyError), Pen(str(path), "dies"):
        raise KeyError("gone")
    assert [event.why for event in read_diary(path).events if hasattr(event, "why")] == ["KeyError('gone')"]


def replicas(folder: Path, *logs: list[bytes]) -> dict[int, Path]:
    folders = {}
    for id, segments in enumerate(logs, 1):
        folders[id] = folder / str(id)
        (folders[id] / "t-0").mkdir(parents=True)
        for number, segment in enumerate(segments):
            (folders[id] / "t-0" / f"{number:020}.log").write_bytes(segment)
    return folders


def test_replicas_are_the_same_wherever_their_segments_begin(tmp_path: Path) -> None:
    assert compare_replicas(replicas(tmp_path, [b"abc", b"def"], [b"abcdef"], [b"ab", b"cdef"]), [("t", 0)]) == []


def test_replicas_that_differ_are_found(tmp_path: Path) -> None:
    found = compare_replicas(replicas(tmp_path, [b"abcdef"], [b"abcdef"], [b"abcxef"]), [("t", 0)])
    assert found == [Finding("replicas", "t-0", "differ from byte 3 on; they have {1: 6, 2: 6, 3: 6} bytes")]


def test_a_replica_that_is_shorter_is_found(tmp_path: Path) -> None:
    found = compare_replicas(replicas(tmp_path, [b"abcdef"], [b"abc"]), [("t", 0)])
    assert found == [Finding("replicas", "t-0", "are not of one length: {1: 6, 2: 3} bytes")]


def happened(kind: Kind, length_s: float, *, was_controller: bool = False) -> Happened:
    gaps = Gaps(Gap(1.0, length_s / 2), Gap(1.0, length_s), ("steady", 2))
    return Happened(Fault(kind, 1.0, 0.0), 3, was_controller, 10.0, 11.0, 12.0, gaps)


def test_the_report_has_every_gap_beside_its_target_and_kills_of_the_active_controller_apart() -> None:
    some = [
        happened(Kind.KILL_LEADER, 2.9),
        happened(Kind.KILL_LEADER, 3.1),
        happened(Kind.KILL_LEADER, 4.9, was_controller=True),
        happened(Kind.STOP, 0.1),
        happened(Kind.FREEZE, 12.5),
    ]
    setting = Setting(7, 1.0, 9.0, "spaces", "mounts", "there")
    report = told(setting, some, [], ["all well"])
    rows = {line.split("  ")[1]: line for line in report.splitlines() if " times" in line}
    assert rows.keys() == {"kill -9 of a leader", "kill -9 of the active controller", "planned stop", "SIGSTOP"}
    assert rows["kill -9 of a leader"].endswith("target 3 s: 1 of 2 within it")
    assert rows["kill -9 of the active controller"].endswith("target 5 s: 1 of 1 within it")
    assert rows["planned stop"].endswith("target 0.2 s: 1 of 1 within it")
    assert rows["SIGSTOP"].endswith("target 12 s: 0 of 1 within it")
    assert report.count("OVER") == 2
    assert "the checker found nothing" in report
    worse = told(setting, some, [Finding("lost", "t-0", "one record")], [])
    assert "the checker found nothing" not in worse
    assert worse.endswith("lost: t-0: one record")


def test_a_kind_that_never_ran_is_told() -> None:
    assert never_ran([happened(kind, 1.0) for kind in Kind if kind is not Kind.DISK_FULL]) == [Kind.DISK_FULL]


def test_a_quota_is_felt_by_the_node_that_it_is_for(tmp_path: Path) -> None:
    node, quotas = Node(1, BOTH, tmp_path / "node-1", {}), Quotas()
    quotas.place(node)
    variable = next(word for word in node.prefix if word.startswith(f"{FULL}="))
    tried = "import os; from pathlib import Path; print(Path(os.environ['" + FULL + "']).exists())"

    def is_full() -> str:
        return subprocess.run(
            ["env", variable, sys.executable, "-c", tried], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert is_full() == "False"
    quotas.fill(node)
    assert is_full() == "True"
    quotas.clear(node)
    assert is_full() == "False"
