"""What groups have promised, gathered from every answer to their members, and whether it is kept.

Promised: a committed offset that was acknowledged doesn't go back, through whatever crash; at any time one living
member owns a partition; a former owner's commits are refused. Each commit takes the next number of its partition, so a
commit that went through out of its turn is known by sight.
"""

from dataclasses import dataclass

from tidelog.sim.scenarios.checkers import Violation

SESSION_S = 3.0
"""The members' session timeout. Who heard nothing for so long may have been put out without knowing."""


@dataclass(slots=True)
class Offsets:
    """What is known of a group's offset in one partition."""

    asked: int = 0
    """The greatest that anyone asked to commit."""
    acknowledged: int = 0


@dataclass(slots=True)
class Ownership:
    """Who was last told that a partition is his, and when."""

    member: str
    since: float
    heard_at: float
    """When its last request that was answered was sent: the broker heard it no sooner."""
    over: bool = False

    def holds(self, now: float) -> bool:
        return not self.over and now - self.heard_at < SESSION_S


class GroupHistory:
    """Everything that members of groups were told."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], Offsets] = {}
        self._owners: dict[tuple[str, int], Ownership] = {}
        self._generations: dict[tuple[str, int, int], str] = {}
        self.commits = 0
        self.refusals = 0
        self.handovers = 0

    def of(self, group: str, partition: int) -> Offsets:
        return self._offsets.setdefault((group, partition), Offsets())

    def owned(self, group: str, partitions: int) -> int:
        """How many partitions have an owner."""
        places = [self._owners.get((group, partition)) for partition in range(partitions)]
        return sum(owner is not None and not owner.over for owner in places)

    def saw_given(
        self, group: str, generation: int | None, partition: int, member: str, now: float, sent_at: float
    ) -> None:
        """`generation` where a partition has one owner in it for ever: in the classic protocol."""
        if generation is not None:
            first = self._generations.setdefault((group, generation, partition), member)
            if first != member:
                raise Violation(f"{group} gave {partition} to {first} and to {member}, both in generation {generation}")
        owner = self._owners.get((group, partition))
        if owner is not None and owner.member != member and owner.holds(now):
            raise Violation(f"{group} gave {partition} to {member} while it was {owner.member}'s")
        if owner is None or owner.member != member or owner.over:
            self.handovers += 1
            self._owners[group, partition] = Ownership(member, now, sent_at)

    def saw_alive(self, group: str, member: str, sent_at: float) -> None:
        """The broker answered what the member sent then: its session began anew."""
        for (name, _), owner in self._owners.items():
            if name == group and owner.member == member:
                owner.heard_at = sent_at

    def gave_back(self, group: str, member: str, partition: int | None = None) -> None:
        """The member stopped its work in a partition, or in all: from now on it may be another's."""
        for (name, place), owner in self._owners.items():
            if name == group and owner.member == member and partition in (None, place):
                owner.over = True

    def next_number(self, group: str, partition: int) -> int:
        offsets = self.of(group, partition)
        offsets.asked += 1
        return offsets.asked

    def saw_committed(self, group: str, partition: int, number: int, member: str, sent_at: float) -> None:
        owner = self._owners.get((group, partition))
        if owner is not None and owner.member != member and owner.since < sent_at:
            raise Violation(
                f"{group} let {member} commit {number} in {partition}, {owner.member}'s since {owner.since:.3f}"
            )
        offsets = self.of(group, partition)
        offsets.acknowledged = max(offsets.acknowledged, number)
        self.commits += 1

    def saw_fetched(self, group: str, partition: int, number: int, floor: int) -> None:
        """An answer to OffsetFetch; `floor` was acknowledged when it was asked."""
        offsets = self.of(group, partition)
        if number < floor:
            raise Violation(f"{group} went back to {number} in {partition}, after {floor} was acknowledged")
        if number > offsets.asked:
            raise Violation(f"{group} has {number} in {partition}, which nobody committed")
