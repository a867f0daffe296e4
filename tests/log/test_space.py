"""How fast a disk fills up: unknown until some minutes are known, then at the rate of the last day."""

from typing import Any, cast

from tidelog.log.space import APART_S, DAY_S, KNOWN_AFTER_S, FreeSpace

HOUR_S = 3600.0


class Disk:
    def __init__(self) -> None:
        self.free = 100_000_000
        self.now = 0.0
        self.asked = 0

    def free_bytes(self, path: str) -> int:
        self.asked += 1
        if self.free < 0:
            raise OSError("gone")
        return self.free

    def monotonic(self) -> float:
        return self.now


def space(disk: Disk) -> FreeSpace:
    return FreeSpace(cast(Any, disk), cast(Any, disk), ["/data"])


def test_a_rate_is_unknown_until_some_minutes_are_known() -> None:
    disk = Disk()
    looked = space(disk)
    assert looked.taken_per_day("/data") is None
    while disk.now < KNOWN_AFTER_S:
        looked.look()
        assert looked.taken_per_day("/data") is None
        disk.now += APART_S
        disk.free -= 1000
    looked.look()
    assert looked.taken_per_day("/data") == int(1000 / APART_S * DAY_S)
    assert looked.taken_per_day("/elsewhere") is None


def test_only_the_last_day_counts_and_little_is_kept() -> None:
    disk = Disk()
    looked = space(disk)
    before = 0
    for second in range(0, int(3 * DAY_S), 30):
        disk.now = float(second)
        if second == 2 * DAY_S:
            before = disk.asked
        disk.free += -10 if second < 2 * DAY_S else 1
        looked.look()
    assert looked.taken_per_day("/data") == -2880
    assert disk.asked - before <= DAY_S / APART_S + 1, "looks of a day, which are all that count"


def test_a_disk_that_does_not_answer_has_no_looks() -> None:
    disk = Disk()
    looked = space(disk)
    disk.free = -1
    looked.look()
    assert looked.taken_per_day("/data") is None
