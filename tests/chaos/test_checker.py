"""Histories that are wrong in one way each: the checker finds that and nothing else, and of a right one nothing."""

from collections.abc import Callable

import pytest
from tools.chaos.checker import Account, Finding, check_records
from tools.chaos.exactly_once import check_exactly_once
from tools.chaos.history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Acked,
    Diary,
    Ended,
    Ending,
    Event,
    Failed,
    Final,
    GaveUp,
    Given,
    Moved,
    Place,
    Read,
    Sent,
    Source,
    Stored,
    Taken,
    Trouble,
)

PLAIN, PAID, COPIED = ("plain", 0), ("paid", 0), ("copied", 0)


class Story:
    """A right history, for a test to spoil: four records of an idempotent producer, which one group read and another
    copied, and a transaction that was committed between two that were aborted."""

    def __init__(self) -> None:
        self.producer = Diary("producer", events=[event for n in range(4) for event in plain(n, at_s=1.0 + n)])
        self.payer = Diary(
            "payer",
            events=[
                *paid(1, "a", 0, outcome=ABORTED, at_s=1.0),
                *paid(2, "b", 2, outcome=COMMITTED, at_s=2.0),
                *paid(3, "c", 5, outcome=ABORTED, at_s=3.0),
            ],
        )
        self.reader = Diary("reader", "readers", events=[Given(0.0, (PLAIN,)), *(read(n, n) for n in range(4))])
        self.reader.events.append(Moved(9.5, ((PLAIN, 4),)))
        self.auditor = Diary("auditor", read_committed=True, events=[Given(0.0, (PAID,))])
        self.auditor.events += [Read(9.0, PAID, 2, "b1"), Read(9.0, PAID, 3, "b2")]
        self.copier = Diary("copier", "copiers", read_committed=True, events=[Given(0.0, (PLAIN,))])
        self.copier.events += [event for n in (0, 2) for event in copied(n, at_s=10.0 + n)]
        self.plain = [(n, f"p{n}") for n in range(4)]
        self.paid = [(0, "a1"), (1, "a2"), (2, "b1"), (3, "b2"), (5, "c1"), (6, "c2")]
        self.paid_committed = [(2, "b1"), (3, "b2")]
        self.copied = [(0, "c:0"), (1, "c:1"), (3, "c:2"), (4, "c:3")]
        self.offsets = {"readers": {PLAIN: 4}, "copiers": {PLAIN: 4}}

    def findings(self) -> list[Finding]:
        final = Final(
            {
                PLAIN: Stored(self.plain, self.plain),
                PAID: Stored(self.paid, self.paid_committed),
                COPIED: Stored(self.copied, self.copied),
            },
            self.offsets,
        )
        account = Account([self.producer, self.payer, self.reader, self.auditor, self.copier], final)
        return [*check_records(account), *check_exactly_once(account, {"copiers": "copied"})]

    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings()]


def plain(number: int, at_s: float) -> list[Event]:
    value = f"p{number}"
    return [Sent(at_s, PLAIN, value), Acked(at_s + 0.1, PLAIN, number, value)]


def read(offset: int, number: int, place: Place = PLAIN) -> Read:
    return Read(8.0 + number / 10, place, offset, f"p{number}")


def paid(number: int, name: str, offset: int, *, outcome: str, at_s: float) -> list[Event]:
    values = [f"{name}1", f"{name}2"]
    events: list[Event] = [Sent(at_s, PAID, value, number) for value in values]
    events += [Acked(at_s + 0.1, PAID, offset + place, value) for place, value in enumerate(values)]
    return [*events, Ending(at_s + 0.2, number, outcome == COMMITTED), Ended(at_s + 0.3, number, outcome)]


def copied(first: int, at_s: float) -> list[Event]:
    """Two records of the input in one transaction."""
    number, offset = first // 2 + 1, first // 2 * 3
    events: list[Event] = [Read(at_s, PLAIN, n, f"p{n}") for n in (first, first + 1)]
    for place, n in enumerate((first, first + 1)):
        events.append(Sent(at_s, COPIED, f"c:{n}", number, Source("plain", 0, n)))
        events.append(Acked(at_s + 0.1, COPIED, offset + place, f"c:{n}"))
    events += [Ending(at_s + 0.2, number, True), Ended(at_s + 0.3, number, COMMITTED)]
    return [*events, Moved(at_s + 0.3, ((PLAIN, first + 2),))]


def test_a_right_history_has_no_findings() -> None:
    assert Story().findings() == []


def test_what_clients_lived_through_is_no_finding() -> None:
    story = Story()
    story.producer.events.append(Trouble(5.0, "a broker went away"))
    story.payer.events += [Sent(5.0, PAID, "d1", 4), Failed(5.1, "d1", "purged"), Ended(5.2, 4, ABORTED)]
    assert story.findings() == []


def lose_the_last(story: Story) -> None:
    story.plain.pop()
    story.reader.events.remove(read(3, 3))
    story.offsets["readers"] = {PLAIN: 3}
    story.reader.events[-1] = Moved(9.5, ((PLAIN, 3),))
    story.copier.events = story.copier.events[:8]
    story.copied = story.copied[:2]
    story.offsets["copiers"] = {PLAIN: 2}


def move_one(story: Story) -> None:
    """It is there, and not where it was said to be: nobody has read it yet."""
    lose_the_last(story)
    story.plain.append((4, "p3"))


def acknowledge_without_an_offset(story: Story) -> None:
    """As a broker that has the batch already, and nobody has it."""
    story.producer.events += [Sent(6.0, PLAIN, "p9"), Acked(6.1, PLAIN, -1, "p9")]


def double_one(story: Story) -> None:
    story.paid += [(8, "a1")]


def bring_a_stranger(story: Story) -> None:
    story.paid.append((8, "from another cluster"))


def bring_one_from_elsewhere(story: Story) -> None:
    story.paid.append((8, "p0"))


def swap_two(story: Story) -> None:
    """With offsets to match, so that only the order of sending tells."""
    story.producer.events = [*plain(1, 1.0), *plain(0, 2.0), *plain(2, 3.0), *plain(3, 4.0)]


def repeat_an_offset(story: Story) -> None:
    story.paid.insert(0, (0, "a1"))


def tell_another_value(story: Story) -> None:
    story.reader.events[2] = Read(8.1, PLAIN, 1, "p2")


def go_back(story: Story) -> None:
    story.reader.events[4:4] = [read(1, 1), read(2, 2)]


def read_one_twice(story: Story) -> None:
    story.reader.events.insert(3, read(1, 1))


def skip_one(story: Story) -> None:
    """Which another member read before."""
    del story.reader.events[2]
    story.reader.events = [Given(0.0, (PLAIN,)), read(1, 1), Taken(0.5, (PLAIN,)), *story.reader.events]


def read_what_was_aborted(story: Story) -> None:
    story.auditor.events.insert(1, Read(2.0, PAID, 0, "a1"))


def read_too_early(story: Story) -> None:
    story.auditor.events[1] = Read(2.15, PAID, 2, "b1")


def tear_what_was_committed(story: Story) -> None:
    story.paid_committed.pop()
    story.auditor.events.pop()


def forget_what_was_committed(story: Story) -> None:
    story.paid_committed.clear()
    del story.auditor.events[1:]


def commit_what_was_aborted(story: Story) -> None:
    story.paid_committed += [(5, "c1"), (6, "c2")]


def tear_what_nobody_knows_of(story: Story) -> None:
    story.payer.events += paid(4, "d", 8, outcome=COMMITTED, at_s=5.0)
    story.payer.events[-1] = Ended(5.3, 4, UNKNOWN)
    story.paid += [(8, "d1"), (9, "d2")]
    story.paid_committed.append((8, "d1"))


def commit_without_being_asked(story: Story) -> None:
    story.payer.events += paid(4, "d", 8, outcome=COMMITTED, at_s=5.0)[:-2]
    story.paid += [(8, "d1"), (9, "d2")]
    story.paid_committed += [(8, "d1"), (9, "d2")]


def copy_one_twice(story: Story) -> None:
    """In another transaction, of a member that should have been fenced."""
    story.copier.events += [
        Sent(20.0, COPIED, "again", 9, Source("plain", 0, 3)),
        Ending(20.1, 9, True),
        Ended(20.2, 9, COMMITTED),
    ]
    story.copied.append((6, "again"))


def copy_one_never(story: Story) -> None:
    """Its transaction was aborted, and the group's offsets were kept."""
    story.copier.events = [event for event in story.copier.events if isinstance(event, Given | Read) or event.at_s < 12]
    story.copied = story.copied[:2]


def copy_more_than_is_committed(story: Story) -> None:
    """The offsets of the last transaction are lost, and nobody was told that they were committed."""
    story.offsets["copiers"] = {PLAIN: 2}
    story.copier.events.pop()


def copy_in_disorder(story: Story) -> None:
    story.copier.events = [*story.copier.events[:1], *copied(2, at_s=10.0), *copied(0, at_s=12.0)]
    story.copier.events = [
        event._replace(offset={0: 3, 1: 4, 3: 0, 4: 1}[event.offset]) if isinstance(event, Acked) else event
        for event in story.copier.events
        if not isinstance(event, Read)
    ]
    story.copier.events += [Given(15.0, (PLAIN,)), *(read(n, n) for n in range(4))]
    story.copied = [(0, "c:2"), (1, "c:3"), (3, "c:0"), (4, "c:1")]


def commit_unread(story: Story) -> None:
    story.reader.events.remove(read(3, 3))


def lose_a_committed_offset(story: Story) -> None:
    story.offsets["readers"] = {PLAIN: 3}


def lose_a_group(story: Story) -> None:
    del story.offsets["readers"]


def give_up_a_client(story: Story) -> None:
    story.payer.events.append(GaveUp(9.0, "fenced"))


def give_up_a_record(story: Story) -> None:
    story.producer.events += [Sent(6.0, PLAIN, "p9"), Failed(7.0, "p9", "timed out")]


@pytest.mark.parametrize(
    ("spoil", "kinds"),
    [
        (lose_the_last, ["lost"]),
        (move_one, ["lost"]),
        (acknowledge_without_an_offset, ["lost"]),
        (double_one, ["twice", "order"]),
        (bring_a_stranger, ["never sent"]),
        (bring_one_from_elsewhere, ["never sent"]),
        (swap_two, ["order"]),
        (repeat_an_offset, ["twice", "order"]),
        (tell_another_value, ["changed"]),
        (go_back, ["went back"]),
        (read_one_twice, ["went back"]),
        (skip_one, ["skipped"]),
        (read_what_was_aborted, ["aborted read"]),
        (read_too_early, ["early read"]),
        (tear_what_was_committed, ["torn"]),
        (forget_what_was_committed, ["torn"]),
        (commit_what_was_aborted, ["torn"]),
        (tear_what_nobody_knows_of, ["torn"]),
        (commit_without_being_asked, ["torn"]),
        (copy_one_twice, ["copies"]),
        (copy_one_never, ["copies"]),
        (copy_more_than_is_committed, ["copies"]),
        (copy_in_disorder, ["copies"]),
        (commit_unread, ["unread"]),
        (lose_a_committed_offset, ["offsets"]),
        (lose_a_group, ["offsets"]),
        (give_up_a_client, ["gave up"]),
        (give_up_a_record, ["gave up"]),
    ],
    ids=lambda spoil: getattr(spoil, "__name__", ""),
)
def test_what_is_wrong_in_one_way_is_found(spoil: Callable[[Story], None], kinds: list[str]) -> None:
    story = Story()
    spoil(story)
    assert list(dict.fromkeys(story.kinds())) == kinds, "\n".join(map(str, story.findings()))


def test_a_finding_tells_what_and_where() -> None:
    story = Story()
    lose_the_last(story)
    assert [str(finding) for finding in story.findings()] == [
        "lost: plain-0: 1 acknowledged to producer: p3 at offset 3 (4.100 s)"
    ]


def test_an_acknowledgement_without_an_offset_is_enough_where_the_record_is_there() -> None:
    story = Story()
    story.producer.events[-1] = Acked(4.1, PLAIN, -1, "p3")
    assert story.findings() == []


def test_a_member_may_begin_anew_where_it_was_given_a_partition_again() -> None:
    story = Story()
    story.reader.events[3:3] = [Taken(8.15, (PLAIN,)), Given(8.16, (PLAIN,)), read(0, 0), read(1, 1)]
    assert story.findings() == []


def test_an_unknown_transaction_may_be_there_as_a_whole_or_not_at_all() -> None:
    story = Story()
    story.payer.events += paid(4, "d", 8, outcome=COMMITTED, at_s=5.0)
    story.payer.events[-1] = Ended(5.3, 4, UNKNOWN)
    story.paid += [(8, "d1"), (9, "d2")]
    assert story.findings() == []
    story.paid_committed += [(8, "d1"), (9, "d2")]
    assert story.findings() == []
