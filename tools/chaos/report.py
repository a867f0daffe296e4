"""What a run tells: which faults there were, how long acknowledgements stood still after each, what was found. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tools.chaos.checker import Finding, name_of
from tools.chaos.faults import Fault, Kind
from tools.chaos.gaps import Gaps

KILLED_S, CONTROLLER_KILLED_S, STOPPED_S = 3.0, 5.0, 0.2
BEYOND_SESSION_S = 3.0
FINDINGS_SHOWN = 30


class Happened(NamedTuple):
    """One fault of the run, in seconds of the machine's clock: until it was undone, until all replicas were in sync."""

    fault: Fault
    node: int
    was_controller: bool
    began_s: float
    undone_s: float
    healed_s: float
    gaps: Gaps | None = None


class Setting(NamedTuple):
    """What a run was, and how it was brought about."""

    seed: int
    minutes: float
    session_s: float
    network: str
    disks: str
    java: str


def target_s(happened: Happened, session_s: float) -> float | None:
    """How long acknowledgements may stand still after it."""
    match happened.fault.kind:
        case Kind.KILL_LEADER | Kind.KILL_CONTROLLER:
            return CONTROLLER_KILLED_S if happened.was_controller else KILLED_S
        case Kind.FREEZE | Kind.SPLIT_BOTH | Kind.SPLIT_ONE_WAY:
            return session_s + BEYOND_SESSION_S
        case Kind.STOP:
            return STOPPED_S
        case Kind.DISK_FULL:
            return None


def never_ran(happened: Iterable[Happened]) -> list[Kind]:
    counts = Counter(one.fault.kind for one in happened)
    return [kind for kind in Kind if not counts[kind]]


def told(setting: Setting, happened: Sequence[Happened], findings: Sequence[Finding], facts: Sequence[str]) -> str:
    """The report; a run without a fault has only findings."""
    lines = [
        f"seed {setting.seed}, {setting.minutes:.1f} minutes, session timeout {setting.session_s:g} s",
        f"network: {setting.network}",
        f"disks: {setting.disks}",
        f"Java client: {setting.java}",
        *facts,
        "",
        "faults, and the longest time without an acknowledgement (in all partitions; in the one that waited longest):",
        *(_line(one, setting.session_s, happened[0].began_s) for one in happened),
        "",
        *_summary(happened, setting.session_s),
        "",
    ]
    lines += [str(finding) for finding in findings[:FINDINGS_SHOWN]]
    if len(findings) > FINDINGS_SHOWN:
        counts = Counter(finding.kind for finding in findings)
        lines.append("of all: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    if not findings:
        lines.append("the checker found nothing")
    return "\n".join(lines)


def _line(one: Happened, session_s: float, start_s: float) -> str:
    what = one.fault.kind.value + (f" ({one.fault.split.value})" if one.fault.split else "")
    role = f"node {one.node}" + (", active controller" if one.was_controller else "")
    when = f"{one.began_s - start_s:7.1f} s  {what}, {one.undone_s - one.began_s:.1f} s, {role}"
    line = f"  {when:<100} in sync after {one.healed_s - one.undone_s:5.1f} s"
    if one.gaps is None:
        return line
    line += f"   gap {one.gaps.overall.length_s:6.2f} s; {one.gaps.worst.length_s:6.2f} s ({name_of(one.gaps.place)})"
    target = target_s(one, session_s)
    return line + (f"  OVER {target:g} s" if target is not None and one.gaps.worst.length_s > target else "")


def _summary(happened: Sequence[Happened], session_s: float) -> list[str]:
    """Of each kind of fault how often it ran, and the worst gap beside its target."""
    rows: dict[tuple[str, float | None], list[Happened]] = {}
    for one in happened:
        kill = one.fault.kind in (Kind.KILL_LEADER, Kind.KILL_CONTROLLER)
        kind = Kind.KILL_CONTROLLER if kill and one.was_controller else one.fault.kind
        rows.setdefault((kind.value, target_s(one, session_s)), []).append(one)
    lines: list[str] = []
    for (kind, target), some in sorted(rows.items(), key=lambda row: row[0][0]):
        gaps = [one.gaps for one in some if one.gaps is not None]
        line = f"  {kind:<34} {len(some):3} times"
        if gaps:
            overall = max(one.overall.length_s for one in gaps)
            worst = max(one.worst.length_s for one in gaps)
            line += f", worst gap {overall:6.2f} s in all, {worst:6.2f} s in one partition"
            if target is not None:
                within = sum(one.worst.length_s <= target for one in gaps)
                line += f"; target {target:g} s: {within} of {len(gaps)} within it"
        lines.append(line)
    return lines
