"""Whether transactions and groups kept what they promise. Pure, as `checker.py`.

- A reader with read_committed sees nothing of a transaction that was aborted, and nothing before its commit was asked
  for.
- A transaction is there as a whole or not at all: as a whole if its commit was acknowledged, not at all if it was
  aborted.
- What was consumed, transformed and produced in transactions with a group's offsets is there once for each record that
  the group has behind it, in their order, and for no other.
- What a group has behind it was read by one of its members; an offset whose commit was acknowledged doesn't go back.
"""

from collections import Counter, defaultdict

from tools.chaos.checker import SHOWN, Account, Finding, name_of
from tools.chaos.history import ABORTED, COMMITTED, Diary, Ended, Ending, Moved, Place, Read, Sent, Source

Transaction = tuple[str, int]
"""The producer's name, and its count."""


class Ends:
    """When transactions were asked to commit, and what became of them as far as their producers know."""

    def __init__(self, account: Account) -> None:
        self.asked_s: dict[Transaction, float] = {}
        self.outcome: dict[Transaction, str] = {}
        self.records: dict[Transaction, list[Sent]] = defaultdict(list)
        self._number: dict[str, Transaction] = {}
        for diary in account.diaries:
            for event in diary.events:
                if isinstance(event, Ending) and event.commit:
                    self.asked_s.setdefault((diary.name, event.transaction), event.at_s)
                elif isinstance(event, Ended):
                    self.outcome[diary.name, event.transaction] = event.outcome
                elif isinstance(event, Sent) and event.transaction is not None:
                    self.records[diary.name, event.transaction].append(event)
                    self._number[event.value] = (diary.name, event.transaction)

    def of(self, value: str) -> Transaction | None:
        """The transaction that it was sent in."""
        return self._number.get(value)


def check_exactly_once(account: Account, copiers: dict[str, str]) -> list[Finding]:
    """`copiers`: for each group that consumes, transforms and produces, the topic that it writes to."""
    ends = Ends(account)
    return [
        *wrong_reads(account, ends),
        *torn(account, ends),
        *wrong_copies(account, copiers),
        *unread(account),
        *gone_back(account),
    ]


def wrong_reads(account: Account, ends: Ends) -> list[Finding]:
    found: list[Finding] = []
    for diary in account.diaries:
        if not diary.read_committed:
            continue
        for event in diary.events:
            if not isinstance(event, Read):
                continue
            transaction = ends.of(event.value)
            if transaction is None:
                continue
            what = f"{diary.name} read {event.value} at offset {event.offset} at {event.at_s:.3f} s"
            if account.committed.get(event.place, {}).get(event.offset) != event.value:
                found.append(Finding("aborted read", name_of(event.place), f"{what}, which isn't committed"))
            elif transaction not in ends.asked_s or event.at_s < ends.asked_s[transaction]:
                found.append(Finding("early read", name_of(event.place), f"{what}, before its commit was asked for"))
    return found


def torn(account: Account, ends: Ends) -> list[Finding]:
    shown = {place: set(held.values()) for place, held in account.committed.items()}
    found: list[Finding] = []
    for transaction, records in ends.records.items():
        there = [record for record in records if record.value in shown.get(record.place, ())]
        outcome = ends.outcome.get(transaction)
        where = f"transaction {transaction[1]} of {transaction[0]}"
        count = f"{len(there)} of {len(records)} records are shown"
        if outcome == COMMITTED and len(there) < len(records):
            found.append(Finding("torn", where, f"{count} of what was acknowledged as committed"))
        elif outcome == ABORTED and there:
            found.append(Finding("torn", where, f"{count} of what was aborted"))
        elif there and transaction not in ends.asked_s:
            found.append(Finding("torn", where, f"{count}, though nobody asked for a commit"))
        elif 0 < len(there) < len(records):
            found.append(Finding("torn", where, count))
    return found


def wrong_copies(account: Account, copiers: dict[str, str]) -> list[Finding]:
    """Each record of the input once, up to what the group committed."""
    found: list[Finding] = []
    for group, topic in copiers.items():
        made: Counter[Source] = Counter()
        for place, stored in account.final.partitions.items():
            if place[0] != topic:
                continue
            last: dict[Place, int] = {}
            for offset, value in stored.committed:
                source = account.sent[value][1].source if value in account.sent else None
                if source is None:
                    continue
                made[source] += 1
                if source.offset < last.get(source[:2], -1):
                    what = f"{value} at offset {offset} is made of {source}, behind one of {last[source[:2]]}"
                    found.append(Finding("copies", name_of(place), f"out of order: {what}"))
                last[source[:2]] = source.offset
        done = account.final.offsets.get(group, {})
        wanted = {
            Source(*place, offset)
            for place, end in done.items()
            for offset in account.committed.get(place, {})
            if offset < end
        }
        missing = sorted(wanted - made.keys())
        twice = sorted(source for source, count in made.items() if count > 1)
        early = sorted(made.keys() - wanted)
        for sources, what in ((missing, "missing"), (twice, "twice"), (early, "there, and not committed as consumed")):
            if sources:
                examples = ", ".join(f"{name_of(one[:2])} at {one.offset}" for one in sources[:SHOWN])
                found.append(Finding("copies", group, f"{len(sources)} records {what}, as of {examples}"))
    return found


def unread(account: Account) -> list[Finding]:
    """What a group committed was read by somebody in it."""
    members: dict[str, list[Diary]] = defaultdict(list)
    for diary in account.diaries:
        if diary.group is not None:
            members[diary.group].append(diary)
    found: list[Finding] = []
    for group, diaries in members.items():
        read = {(event.place, event.offset) for diary in diaries for event in diary.events if isinstance(event, Read)}
        for place, end in account.final.offsets.get(group, {}).items():
            shown = account.shown_to(diaries[0], place)
            missing = sorted(offset for offset in shown if offset < end and (place, offset) not in read)
            if missing:
                what = f"{len(missing)} records before offset {end}, as {missing[:SHOWN]}, were read by no member"
                found.append(Finding("unread", f"{group} on {name_of(place)}", what))
    return found


def gone_back(account: Account) -> list[Finding]:
    """What was acknowledged as committed is what is found in the end, or less than that."""
    found: list[Finding] = []
    for diary in account.diaries:
        best: dict[Place, tuple[int, float]] = {}
        for event in diary.events:
            if isinstance(event, Moved):
                for place, offset in event.offsets:
                    best[place] = max(best.get(place, (-1, 0.0)), (offset, event.at_s))
        for place, (offset, at_s) in best.items():
            now = account.final.offsets.get(diary.group or "", {}).get(place, -1)
            if now < offset:
                what = f"{offset} was acknowledged to {diary.name} at {at_s:.3f} s, and it is {now} in the end"
                found.append(Finding("offsets", f"{diary.group} on {name_of(place)}", what))
    return found
