"""Groups in rows for people and in JSON for programs: members, progress, the changes of a reset."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.groups import Change, Group, Place, Progress

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def behind(lag: int, behind_ms: int) -> str:
    """`4,210 messages, 38 s behind`."""
    if not lag:
        return "at the end: nothing is left to consume"
    return f"{lag:,} message{'' if lag == 1 else 's'}, {human_duration(behind_ms)} behind"


def human_duration(milliseconds: int) -> str:
    """The two largest units that matter: 38 s, 4 min 10 s, 3 h 5 min, 2 d 4 h."""
    seconds = milliseconds // 1000
    if seconds < 1:
        return f"{milliseconds} ms"
    for place, (unit, size) in enumerate(UNITS):
        if seconds >= size:
            below, below_size = UNITS[place + 1] if place + 1 < len(UNITS) else ("s", 1)
            rest = seconds % size // below_size
            return f"{seconds // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{seconds} s"


def total_lag(progress: Iterable["Progress"]) -> int:
    return sum(each.lag or 0 for each in progress)


def member_rows(group: "Group") -> list[Sequence[object]]:
    return [
        (member.id, member.client_id, member.host, member.instance_id or "-", places_text(member.partitions) or "none")
        for member in group.members
    ]


def places_text(places: Iterable["Place"]) -> str:
    """`orders 0-3,7; payments 1`."""
    told: list[str] = []
    for topic, of_topic in groupby(sorted(places), key=lambda place: place[0]):
        told.append(f"{topic} {ranges_text([partition for _, partition in of_topic])}")
    return "; ".join(told)


def ranges_text(numbers: Sequence[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def progress_rows(group: "Group", progress: Iterable["Progress"]) -> list[Sequence[object]]:
    owners = {place: member for member in group.members for place in member.partitions}
    rows: list[Sequence[object]] = []
    for each in progress:
        owner = owners.get((each.topic, each.partition))
        rows.append(
            (
                each.topic,
                each.partition,
                _number(each.committed),
                _number(each.end) if each.end is not None else "gone",
                _number(each.lag),
                "-" if each.behind_ms is None else "" if not each.lag else human_duration(each.behind_ms),
                owner.id if owner else "-",
            )
        )
    return rows


def change_rows(changes: Iterable["Change"]) -> list[Sequence[object]]:
    return [
        (c.topic, c.partition, _number(c.old), _number(c.new), "new" if c.old is None else f"{c.new - c.old:+,}")
        for c in changes
    ]


def change_to_json(change: "Change") -> dict[str, Any]:
    return {"topic": change.topic, "partition": change.partition, "old": change.old, "new": change.new}


def group_to_json(group: "Group", progress: Sequence["Progress"]) -> dict[str, Any]:
    owners = {place: member.id for member in group.members for place in member.partitions}
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": total_lag(progress),
        "behind_ms": max((each.behind_ms or 0 for each in progress), default=0),
        "members": [
            {
                "member": member.id,
                "client": member.client_id,
                "host": member.host,
                "instance": member.instance_id,
                "partitions": _places_to_json(member.partitions),
                **({} if member.target is None else {"target": _places_to_json(member.target)}),
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "behind_ms": each.behind_ms,
                "member": owners.get((each.topic, each.partition)),
            }
            for each in progress
        ],
    }


def _places_to_json(places: Iterable["Place"]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in places]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
