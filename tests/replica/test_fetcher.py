"""Followers under leaders that die, come back, and have other records than they: whole nodes on virtual time."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apis.sim_broker import batch, in_transaction
from tests.batches import Batch, Producer, Sent
from tests.replica.copied import NOW_MS, TOPIC, Copied
from tidelog.log.cutting import Cuts
from tidelog.replica.fetcher import State
from tidelog.replica.partition import Partition
from tidelog.wire.batch import iterate


def epochs_and_offsets(data: bytes) -> list[tuple[int, int]]:
    return [(header.leader_epoch, header.base_offset) for header in iterate(data)]


def test_followers_have_the_leaders_bytes_and_its_high_watermark() -> None:
    copied = Copied()
    for number in range(20):
        copied.append(b"%d" % number, b"x" * 100 * number)
    data = copied.copied()
    assert len(list(iterate(data))) == 20


def test_a_transaction_is_open_on_a_follower_until_its_end_is_committed() -> None:
    copied = Copied()
    copied.append_batch(in_transaction(b"x", producer_id=7))
    copied.append_batch(in_transaction(b"y", producer_id=8))
    copied.append_marker(7, commit=False)
    copied.copied()
    followers = [copied.partition(machine) for machine in copied.followers]
    assert [one.last_stable_offset for one in followers] == [1, 1]
    assert {one.log.segments.has_aborted for one in followers} == {True}
    copied.append_marker(8, commit=True)
    copied.copied()
    assert [one.last_stable_offset for one in followers] == [4, 4]


def test_a_follower_that_was_away_goes_on_where_it_was() -> None:
    copied = Copied()
    copied.append(b"before")
    copied.copied()
    away = copied.followers[0]
    copied.kill(away)
    copied.settle(5.0)
    copied.append(b"meanwhile")
    copied.start(away)
    assert [offset for _, offset in epochs_and_offsets(copied.copied())] == [0, 1]


def test_a_follower_that_lost_its_power_fetches_again_what_it_lost() -> None:
    copied = Copied()
    for number in range(30):
        copied.append(b"%d" % number)
    away = copied.followers[0]
    copied.kill(away, power=True)
    copied.settle(3.0)
    copied.append(b"meanwhile")
    copied.start(away)
    assert [offset for _, offset in epochs_and_offsets(copied.copied())] == list(range(31))


def test_segments_of_a_follower_are_its_own() -> None:
    copied = Copied({"segment.bytes": "1048576", "min.insync.replicas": "1"})
    for _ in range(8):
        copied.append(b"x" * 300_000)
    copied.copied()
    assert {len(copied.log(machine).segments) for machine in copied.machines.values()} == {3}


def test_two_failovers_in_a_row_leave_the_same_bytes_everywhere() -> None:
    """KIP-101's and KIP-279's case: each leader wrote what the next one hasn't got, and none is cut by what it took to
    be committed."""
    copied = Copied()
    copied.append(b"common")
    copied.copied()
    first = copied.leader
    second, third = copied.followers
    copied.kill(second)
    copied.kill(third)
    copied.settle(5.0)
    for number in range(5):
        copied.append(b"only the first has %d" % number)
    copied.settle(1.0)
    copied.kill(first)
    copied.start(second, third)
    later = copied.leader
    assert later is not first
    other = third if later is second else second
    copied.append(b"the second's own")
    copied.copied([second, third])
    copied.kill(other)
    copied.settle(5.0)
    copied.append(b"only the second has this")
    copied.settle(1.0)
    copied.kill(later)
    copied.start(other, first)
    copied.append(b"the last leader's")
    copied.settle(3.0)
    copied.start(later)
    copied.settle(5.0)
    data = copied.copied()
    assert [offset for _, offset in epochs_and_offsets(data)] == sorted(
        offset for _, offset in epochs_and_offsets(data)
    )
    entries = {tuple(copied.log(machine).epochs.entries()) for machine in copied.machines.values()}
    assert len(entries) == 1


def test_producers_are_known_on_followers_as_on_the_leader() -> None:
    copied = Copied()
    for sequence in range(7):
        copied.append(b"x", producer=Producer(42, 3, sequence))
    copied.copied()
    known = {tuple(copied.log(machine).producers.get(42).window) for machine in copied.machines.values()}  # pyright: ignore[reportOptionalMemberAccess]
    assert len(known) == 1
    assert [batch.first_sequence for batch in known.pop()] == [2, 3, 4, 5, 6]


def test_a_producer_of_old_records_is_known_to_the_next_leader() -> None:
    """How long a producer is idle isn't a matter of its records' timestamps: what it sends again is in the log."""
    copied = Copied(settings={"producer.id.expiration.check.interval.ms": "2000"})
    days_ago = NOW_MS - 3 * 24 * 3600 * 1000
    batches = [
        Batch([Sent(b"x")], base_timestamp=days_ago, producer=Producer(42, 3, sequence)).encode()
        for sequence in range(3)
    ]
    offsets = [copied.append_batch(batch) for batch in batches]
    copied.copied()
    copied.settle(5.0)
    copied.kill(copied.leader)
    copied.settle(5.0)
    assert [copied.append_batch(batch) for batch in batches] == offsets


def test_a_log_that_starts_behind_a_followers_end_is_begun_anew_there() -> None:
    copied = Copied({"segment.bytes": "1048576", "min.insync.replicas": "1"})
    copied.append(b"old")
    copied.copied()
    away = copied.followers[0]
    copied.kill(away)
    copied.settle(5.0)
    for _ in range(8):
        copied.append(b"x" * 300_000)
    copied.settle(1.0)
    leading = copied.partition(copied.leader)
    assert leading.log.delete_before(5) == 5
    leading.log.apply_retention(copied.services(copied.leader).env.clock.now_ms())
    copied.settle(2.0)
    copied.start(away)
    copied.copied()
    assert copied.log(away).log_start == 5


def test_followers_take_over_the_leaders_start() -> None:
    copied = Copied()
    for number in range(6):
        copied.append(b"%d" % number)
    copied.copied()
    assert copied.partition(copied.leader).log.delete_before(4) == 4
    copied.append(b"more")
    copied.copied()
    assert {copied.log(machine).log_start for machine in copied.machines.values()} == {4}


def test_a_full_disk_holds_up_its_follower_until_there_is_room() -> None:
    copied = Copied({"segment.bytes": "1048576", "min.insync.replicas": "1"})
    copied.append(b"x" * 1000)
    copied.copied()
    full, other = copied.followers
    full.disk.capacity = full.disk.used_bytes() + 100_000
    for _ in range(5):
        copied.append(b"x" * 100_000)
    copied.settle(3.0)
    assert copied.log(other).log_end == 6
    assert copied.log(full).log_end < 6
    full.disk.capacity = None
    copied.copied()


def test_a_clean_stop_writes_the_followers_high_watermark_down() -> None:
    copied = Copied()
    for number in range(4):
        copied.append(b"%d" % number)
    copied.copied()
    follower = copied.followers[0]
    copied.stop(follower)
    text = follower.disk.read_whole("/data/replication-offset-checkpoint").decode()
    assert f"{TOPIC} 0 4" in text.splitlines()
    assert follower.disk.exists("/data/.kafka_cleanshutdown")


def test_the_high_watermark_is_written_down_while_the_broker_runs() -> None:
    copied = Copied()
    for number in range(4):
        copied.append(b"%d" % number)
    copied.copied()
    copied.settle(6.0)
    follower = copied.followers[0]
    text = follower.disk.read_whole("/data/replication-offset-checkpoint").decode()
    assert f"{TOPIC} 0 4" in text.splitlines()
    copied.kill(follower)
    copied.start(follower)
    assert copied.partition(follower).high_watermark == 4


def test_a_topic_that_goes_is_copied_no_more_and_one_of_its_name_begins_anew() -> None:
    copied = Copied()
    copied.append(b"old")
    copied.copied()
    copied.delete(TOPIC)
    copied.settle(1.0)
    for machine in copied.machines.values():
        assert machine.running.broker.replication is not None
        assert not machine.running.broker.replication.fetchers.fetchers
    copied.create(TOPIC, 1, {"min.insync.replicas": "1"})
    copied.append(b"new")
    assert len(list(iterate(copied.copied()))) == 1


def test_many_partitions_have_one_session_a_leader() -> None:
    copied = Copied({"min.insync.replicas": "1"}, partitions=60)
    for index in range(0, 60, 7):
        copied.append(b"%d" % index, index=index)
    for index in range(0, 60, 7):
        copied.copied(index=index)
    for machine in copied.machines.values():
        fetchers = machine.running.broker.replication.fetchers
        assert fetchers is not None
        assert len(fetchers.fetchers) == 2
        assert sum(len(fetcher) for fetcher in fetchers.fetchers.values()) == 40
        for fetcher in fetchers.fetchers.values():
            assert {followed.state for followed in fetcher.followed.values()} == {State.FETCHED}


def test_what_comes_to_a_leader_is_copied_at_once_although_a_fetch_waits_there() -> None:
    copied = Copied(settings={"replica.fetch.wait.max.ms": "20000"})
    copied.append(b"x")
    copied.copied()
    copied.settle(1.0)
    leader = copied.leader.id
    copied.create("later", 1, {"min.insync.replicas": "1"}, replicas=[leader, *(one.id for one in copied.followers)])
    partition = copied.services(copied.leader).replicas.get("later", 0)
    view = memoryview(bytearray(batch(b"y")))
    partition.append(view, 0, len(view), 1, NOW_MS)
    followers = [copied.services(one).replicas.get("later", 0) for one in copied.followers]
    copied.wait(lambda: all(one.log.durable_end == 1 for one in followers), "the new topic to be copied", seconds=1.0)
    copied.append(b"z")
    copied.wait(lambda: all(copied.log(one).log_end == 2 for one in copied.followers), "the old one, too", seconds=1.0)


def test_a_cut_that_fails_in_whichever_way_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Copied()
    copied.append(b"common")
    copied.copied()
    first, (second, third) = copied.leader, copied.followers
    copied.kill(second, third)
    copied.settle(5.0)
    copied.append(b"only the first has this")
    copied.settle(1.0)
    copied.kill(first)
    copied.start(second, third)
    copied.append(b"the second's own")
    cut, failed = Cuts.cut, list[object]()

    def fail_once(cuts: Cuts, wanted: Any) -> Iterator[Any]:
        if not failed:
            failed.append(wanted)
            raise RuntimeError("no thread can be started")
        return (yield from cut(cuts, wanted))

    monkeypatch.setattr(Cuts, "cut", fail_once)
    copied.start(first)
    copied.copied()
    assert failed


def test_an_answer_that_cannot_be_taken_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Copied()
    begin, failed = Partition.begin_following, list[object]()

    def fail_once(partition: Partition) -> Any:
        if not failed:
            failed.append(partition)
            raise RuntimeError("no thread can be started")
        return begin(partition)

    monkeypatch.setattr(Partition, "begin_following", fail_once)
    copied.append(b"x")
    copied.copied()
    assert failed
