"""Groups in rows for people and in JSON for programs: members, progress, the changes of a reset."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.client.groups import Change, Group
    from tidelog.client.lag import Lag, Progress
    from tidelog.wire.topic_partition import TopicPartition

BEYOND_END_MAX = 5
"""Partitions that are told one by one."""
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def behind(lag: "Lag", partitions: int = 1) -> str:
    """`4,210 messages, 38 s behind`; what isn't known is said to be unknown."""
    if not partitions:
        return "how far behind it is, is unknown: nothing is committed, and no member has partitions"
    if lag.beyond_end:
        return "how far behind it is, is unknown: committed offsets are beyond the end"
    if lag.messages is None:
        return "how far behind it is, is unknown: partitions can't be reached (`unknown` below)"
    if not lag.messages:
        return "at the end: nothing is left to consume"
    if lag.behind_ms == 0:
        return f"at the end: nothing is left to consume (up to it {lag.messages:,} offsets hold no record)"
    messages = f"{'up to ' if lag.uncommitted else ''}{lag.messages:,} message{'' if lag.messages == 1 else 's'}, "
    return messages + (
        "for how long is unknown" if lag.behind_ms is None else f"{human_duration(lag.behind_ms)} behind"
    )


def notes(progress: Sequence["Progress"], lag: "Lag") -> list[str]:
    """What explains the lag, and what to do about it."""
    lines: list[str] = []
    if lag.uncommitted:
        count = f"{lag.uncommitted} partition{'' if lag.uncommitted == 1 else 's'}"
        lines.append(
            f"nothing is committed in {count}: all that is there counts, and the consumers' auto.offset.reset decides "
            "where they begin"
        )
    lines += [
        f"the committed offset {each.committed:,} of {each.topic}-{each.partition} is beyond its end, {each.end:,}: "
        "the log began anew, and consumers start where their auto.offset.reset says; `tidelog group reset` sets another"
        for each in [each for each in progress if each.beyond_end][:BEYOND_END_MAX]
    ]
    if lag.beyond_end > BEYOND_END_MAX:
        lines.append(f"{lag.beyond_end - BEYOND_END_MAX:,} more committed offsets are beyond the end")
    if lag.behind_open_transactions:
        topics = " ".join(sorted({each.topic for each in progress if each.behind_open_transaction}))
        count = lag.behind_open_transactions
        lines.append(
            f"{count:,} stand{'s' if count == 1 else ''} behind an open transaction: `tidelog txn hanging {topics} "
            "--open` shows whose"
        )
    return lines


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


def member_rows(group: "Group") -> list[Sequence[object]]:
    return [
        (member.id, member.client_id, member.host, member.instance_id or "-", places_text(member.partitions) or "none")
        for member in group.members
    ]


def places_text(places: Iterable["TopicPartition"]) -> str:
    """`orders 0-3,7; payments 1`."""
    parts: list[str] = []
    for topic, of_topic in groupby(sorted(places), key=lambda place: place[0]):
        parts.append(f"{topic} {ranges_text([partition for _, partition in of_topic])}")
    return "; ".join(parts)


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
        owner = owners.get(each.place)
        ends = ("gone", "", "") if each.gone else (_or_unknown(each.end), _or_unknown(each.lag), _age(each))
        rows.append((each.topic, each.partition, _number(each.committed), *ends, owner.id if owner else "-"))
    return rows


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _age(progress: "Progress") -> str:
    if progress.behind_ms is None:
        return "unknown"
    return human_duration(progress.behind_ms) if progress.behind_ms else ""


def change_rows(changes: Iterable["Change"]) -> list[Sequence[object]]:
    return [
        (c.topic, c.partition, _number(c.old), _number(c.new), "new" if c.old is None else f"{c.new - c.old:+,}")
        for c in changes
    ]


def change_to_json(change: "Change") -> dict[str, Any]:
    return {"topic": change.topic, "partition": change.partition, "old": change.old, "new": change.new}


def group_to_json(group: "Group", progress: Sequence["Progress"], lag: "Lag") -> dict[str, Any]:
    owners = {place: member.id for member in group.members for place in member.partitions}
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": lag.messages,
        "behind_ms": lag.behind_ms,
        "behind_open_transactions": lag.behind_open_transactions,
        "uncommitted": lag.uncommitted,
        "beyond_end": lag.beyond_end,
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
                "behind_open_transaction": each.behind_open_transaction,
                "gone": each.gone,
                "beyond_end": each.beyond_end,
                "member": owners.get(each.place),
            }
            for each in progress
        ],
    }


def _places_to_json(places: Iterable["TopicPartition"]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in places]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
