"""Whether what clients were told is what the topics hold: the promises to producers, and to whoever reads.

Pure: diaries and the final content of every partition go in, findings come out. What transactions and groups are
promised stands in `exactly_once.py`. Promised here, of every record of an idempotent producer that waits for all
in-sync replicas:

- what was acknowledged is there, at the offset that was told;
- nothing is there twice, and nothing that nobody sent;
- of one producer and partition all is in the order in which it was sent;
- an offset has one value, whoever saw it, whenever;
- inside an assignment polls go on from one record to the next that the reader may see: never back, and over none.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tools.chaos.history import Acked, Diary, Failed, Final, GaveUp, Given, Place, Read, Sent, Taken

SHOWN = 3
"""How many examples a finding gives."""


class Finding(NamedTuple):
    """A promise that wasn't kept; `kind` is one of a few words, so that findings can be counted."""

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}"


class Account:
    """The diaries and the final content beside each other, looked up once."""

    def __init__(self, diaries: Sequence[Diary], final: Final) -> None:
        self.diaries = diaries
        self.final = final
        self.sent: dict[str, tuple[Diary, Sent]] = {}
        """Of each value, who sent it."""
        self.held: dict[Place, dict[int, str]] = {}
        """Of each partition everything, by offset."""
        self.committed: dict[Place, dict[int, str]] = {}
        """Of each partition what read_committed is shown, by offset."""
        for diary in diaries:
            for event in diary.events:
                if isinstance(event, Sent):
                    self.sent[event.value] = (diary, event)
        for place, stored in final.partitions.items():
            self.held[place] = dict(stored.everything)
            self.committed[place] = dict(stored.committed)

    def shown_to(self, diary: Diary, place: Place) -> dict[int, str]:
        return (self.committed if diary.read_committed else self.held).get(place, {})


def check_records(account: Account) -> list[Finding]:
    """All that is promised of single records."""
    checks = (gave_up, lost, strange, doubled, out_of_order, changed, wrong_polls)
    return [finding for check in checks for finding in check(account)]


def gave_up(account: Account) -> list[Finding]:
    """No client meets an error that it can't live through, and no library gives a record up (but in a transaction,
    which is aborted then)."""
    found: list[Finding] = []
    for diary in account.diaries:
        found += [Finding("gave up", diary.name, event.why) for event in diary.events if isinstance(event, GaveUp)]
        failed = [
            event
            for event in diary.events
            if isinstance(event, Failed) and account.sent[event.value][1].transaction is None
        ]
        if failed:
            first = failed[0]
            found.append(Finding("gave up", diary.name, f"{len(failed)} records, as {first.value}: {first.why}"))
    return found


def lost(account: Account) -> list[Finding]:
    """What was acknowledged is there, and where it was said to be."""
    found: list[Finding] = []
    everywhere = {place: set(held.values()) for place, held in account.held.items()}
    for diary in account.diaries:
        missing: dict[Place, list[Acked]] = defaultdict(list)
        for event in diary.events:
            if not isinstance(event, Acked):
                continue
            if event.offset < 0:
                is_there = event.value in everywhere.get(event.place, ())
            else:
                is_there = account.held.get(event.place, {}).get(event.offset) == event.value
            if not is_there:
                missing[event.place].append(event)
        for place, events in missing.items():
            told = ", ".join(f"{one.value} at offset {one.offset} ({one.at_s:.3f} s)" for one in events[:SHOWN])
            found.append(Finding("lost", name_of(place), f"{len(events)} acknowledged to {diary.name}: {told}"))
    return found


def strange(account: Account) -> list[Finding]:
    """Every record was sent by somebody, to where it is."""
    found: list[Finding] = []
    for place, held in account.held.items():
        wrong = [
            (offset, value)
            for offset, value in held.items()
            if value not in account.sent or account.sent[value][1].place != place
        ]
        if wrong:
            found.append(Finding("never sent", name_of(place), f"{len(wrong)} records, as {wrong[:SHOWN]}"))
    return found


def doubled(account: Account) -> list[Finding]:
    """No record is there twice."""
    found: list[Finding] = []
    for place, stored in account.final.partitions.items():
        times = Counter(value for _, value in stored.everything)
        twice = [value for value, count in times.items() if count > 1]
        if twice:
            where = [[offset for offset, value in stored.everything if value == one] for one in twice[:SHOWN]]
            what = f"{len(twice)} records, as {', '.join(map(str, twice[:SHOWN]))} at offsets {where}"
            found.append(Finding("twice", name_of(place), what))
    return found


def out_of_order(account: Account) -> list[Finding]:
    """Of one producer and partition what was sent first is first; offsets rise."""
    numbers = {
        event.value: number
        for diary in account.diaries
        for number, event in enumerate(diary.events)
        if isinstance(event, Sent)
    }
    found: list[Finding] = []
    for place, stored in account.final.partitions.items():
        offsets = [offset for offset, _ in stored.everything]
        if offsets != sorted(set(offsets)):
            found.append(Finding("order", name_of(place), "offsets don't rise"))
        last: dict[str, tuple[int, str]] = {}
        for offset, value in stored.everything:
            if value not in account.sent:
                continue
            producer = account.sent[value][0].name
            before = last.get(producer, (-1, ""))
            if numbers[value] < before[0]:
                what = f"{value} at offset {offset} was sent before {before[1]}, which stands before it"
                found.append(Finding("order", name_of(place), what))
            last[producer] = max(before, (numbers[value], value))
    return found


def changed(account: Account) -> list[Finding]:
    """An offset has one value: the one that was acknowledged, that anybody read, and that is there in the end."""
    seen: dict[tuple[Place, int], str] = {}
    found: list[Finding] = []
    for diary in account.diaries:
        for event in diary.events:
            if not isinstance(event, Read | Acked) or event.offset < 0:
                continue
            there = account.held.get(event.place, {}).get(event.offset)
            before = seen.setdefault((event.place, event.offset), event.value)
            how = "read by" if isinstance(event, Read) else "acknowledged to"
            what = f"offset {event.offset} was {event.value} as {how} {diary.name} at {event.at_s:.3f} s"
            if before != event.value:
                found.append(Finding("changed", name_of(event.place), f"{what}, and {before} to somebody else"))
            elif isinstance(event, Read) and there != event.value:
                found.append(Finding("changed", name_of(event.place), f"{what}, and is {there} in the end"))
    return found


def wrong_polls(account: Account) -> list[Finding]:
    """Inside an assignment a reader gets the next record that it may see, each time. Where it begins is another matter:
    a group's members may read again what was read and not committed."""
    visible = {place: sorted(held) for place, held in account.held.items()}
    visible_committed = {place: sorted(held) for place, held in account.committed.items()}
    found: list[Finding] = []
    for diary in account.diaries:
        shown = visible_committed if diary.read_committed else visible
        last: dict[Place, int] = {}
        for event in diary.events:
            if isinstance(event, Given | Taken):
                for place in event.places:
                    last.pop(place, None)
            elif isinstance(event, Read):
                before = last.get(event.place)
                if before is not None:
                    found += _wrong_step(diary, event, before, shown.get(event.place, []))
                last[event.place] = event.offset
    return found


def _wrong_step(diary: Diary, event: Read, before: int, offsets: list[int]) -> list[Finding]:
    if event.offset <= before:
        what = f"{diary.name} read offset {event.offset} behind {before} at {event.at_s:.3f} s"
        return [Finding("went back", name_of(event.place), what)]
    over = offsets[bisect_right(offsets, before) : bisect_left(offsets, event.offset)]
    if over:
        what = f"{diary.name} went from {before} to {event.offset} over {len(over)} records at {event.at_s:.3f} s"
        return [Finding("skipped", name_of(event.place), what)]
    return []


def name_of(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
