"""Where replicas of new partitions go: what an operator counts when a broker or a rack is gone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.metadata.images import broker, image_of
from tidelog.controller.placement import Placement, hosts_of
from tidelog.metadata.image import BrokerImage
from tidelog.wire.records.cluster import ConfigRecord


def brokers_in(*racks: str | None) -> dict[int, BrokerImage]:
    return {
        id: BrokerImage(id=id, epoch=1, incarnation_id=bytes(16), endpoints=(), features={}, rack=rack, fenced=False)
        for id, rack in enumerate(racks, 1)
    }


def hosted(brokers: Mapping[int, BrokerImage], *hosts: str) -> dict[int, str]:
    return dict(zip(brokers, hosts, strict=True))


def racks_of(replicas: tuple[int, ...], brokers: Mapping[int, BrokerImage]) -> Counter[str | None]:
    return Counter(brokers[replica].rack for replica in replicas)


def successors(placed: list[tuple[int, ...]], gone: int) -> Counter[int]:
    """Who leads next what `gone` leads: the next replica that is there."""
    return Counter(replicas[1] for replicas in placed if replicas[0] == gone)


def test_a_fenced_broker_holds_no_replica_while_there_are_enough_others() -> None:
    """A broker that died, and that nobody unregistered: new partitions began with one replica less."""
    brokers = brokers_in(*[None] * 4)
    brokers[2] = replace(brokers[2], fenced=True)
    assert all(2 not in replicas for replicas in Placement(brokers).place(0, 100, 3, 0))
    assert all(2 in replicas[1:] for replicas in Placement(brokers).place(0, 100, 4, 0))


def test_the_leaders_of_a_dead_broker_go_to_all_others() -> None:
    """Six brokers, three replicas: the 100 leaders of one went to its neighbour alone."""
    placed = Placement(brokers_in(*[None] * 6)).place(0, 600, 3, 0)
    assert successors(placed, gone=1) == {2: 20, 3: 20, 4: 20, 5: 20, 6: 20}
    assert Counter(replica for replicas in placed for replica in replicas) == dict.fromkeys(range(1, 7), 300)


def test_the_leaders_of_a_dead_broker_go_to_all_brokers_of_other_racks() -> None:
    placed = Placement(brokers_in(*"aabbcc")).place(0, 600, 3, 0)
    assert set(successors(placed, gone=1)) == {3, 4, 5, 6}
    assert max(successors(placed, gone=1).values()) <= 40


def test_topics_of_a_few_partitions_spread_too() -> None:
    """Each is placed by a change of its own, beginning where its id says."""
    random = Random(1)
    placed = [
        replicas
        for _ in range(600)
        for replicas in Placement(brokers_in(*[None] * 6)).place(0, 2, 3, random.getrandbits(32))
    ]
    assert set(successors(placed, gone=1)) == {2, 3, 4, 5, 6}
    assert max(successors(placed, gone=1).values()) <= 2 * min(successors(placed, gone=1).values())


def test_a_small_rack_takes_one_replica_of_each_and_the_large_one_shares_the_rest() -> None:
    brokers = brokers_in("a", "b", "b", "b", "b")
    placed = Placement(brokers).place(0, 500, 2, 0)
    assert all(set(racks_of(replicas, brokers)) == {"a", "b"} for replicas in placed)
    held = Counter(replica for replicas in placed for replica in replicas)
    assert held == {1: 500, 2: 125, 3: 125, 4: 125, 5: 125}


def test_more_partitions_go_on_where_the_others_ended() -> None:
    together = Placement(brokers_in(*[None] * 5)).place(0, 40, 3, 7)
    placement = Placement(brokers_in(*[None] * 5))
    assert placement.place(0, 13, 3, 7) + placement.place(13, 27, 3, 7) == together


def test_brokers_of_one_host_hold_no_two_replicas_of_a_partition() -> None:
    """Two machines with two brokers each; then three with as many as they have cores."""
    brokers = brokers_in(None, None, None, None)
    hosts = hosted(brokers, "a", "a", "b", "b")
    placed = Placement(brokers, hosts).place(0, 400, 2, 0)
    assert all({hosts[replica] for replica in replicas} == {"a", "b"} for replicas in placed)
    left = successors(placed, gone=1)
    assert set(left) == {3, 4}, "what a broker leaves goes to all of the other host"
    assert max(left.values()) <= 2 * min(left.values())
    brokers = brokers_in(*[None] * 12)
    hosts = hosted(brokers, *"aaaabbbbcccc")
    for replicas in Placement(brokers, hosts).place(0, 1200, 3, 5):
        assert {hosts[replica] for replica in replicas} == {"a", "b", "c"}


def test_brokers_that_are_all_on_one_machine_share_it() -> None:
    """As on a laptop, where three of them advertise 127.0.0.1."""
    brokers = brokers_in(None, None, None)
    placed = Placement(brokers, hosted(brokers, *["127.0.0.1"] * 3)).place(0, 300, 3, 0)
    assert all(set(replicas) == {1, 2, 3} for replicas in placed)
    assert Counter(replicas[:2] for replicas in placed) == {
        (first, second): 50 for first in (1, 2, 3) for second in (1, 2, 3) if first != second
    }


def test_racks_on_one_machine_are_used_though_it_is_one() -> None:
    brokers = brokers_in("a", "a", "b", "b")
    for replicas in Placement(brokers, hosted(brokers, *["127.0.0.1"] * 4)).place(0, 400, 2, 0):
        assert set(racks_of(replicas, brokers)) == {"a", "b"}


def test_a_host_counts_more_than_an_even_rack() -> None:
    """Four replicas, two racks, one of which is a single machine: two of them there would go together."""
    brokers = brokers_in("a", "a", "b", "b", "b")
    hosts = hosted(brokers, "one", "one", "two", "three", "four")
    for replicas in Placement(brokers, hosts).place(0, 100, 4, 0):
        assert {hosts[replica] for replica in replicas} == {"one", "two", "three", "four"}


def test_who_says_no_host_is_where_it_listens() -> None:
    said = ConfigRecord(resource_type=4, resource_name="2", name="tidelog.host", value="machine")
    image = image_of(broker(1), broker(2), broker(3), said)
    assert hosts_of(image) == {1: "localhost", 2: "machine", 3: "localhost"}


@given(
    machines=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), min_size=1, max_size=6),
    factor=st.integers(1, 6),
    start=st.integers(0, 2**32 - 1),
)
def test_any_machines_in_racks(machines: list[tuple[str, int]], factor: int, start: int) -> None:
    """Each machine stands in one rack, and runs some brokers. Hosts are used as evenly as they can be, which is each
    once where there are enough; and racks as evenly as that allows."""
    racks = [rack for rack, count in machines for _ in range(count)]
    brokers = brokers_in(*racks)
    hosts = hosted(brokers, *(f"host-{index}" for index, (_, count) in enumerate(machines) for _ in range(count)))
    factor = min(factor, len(brokers))
    machines_in, sizes = Counter(rack for rack, _ in machines), Counter(hosts.values())
    for replicas in Placement(brokers, hosts).place(0, 2 * len(brokers), factor, start):
        assert len(set(replicas)) == factor
        used = Counter(hosts[replica] for replica in replicas)
        assert len(used) == min(factor, len(machines)), replicas
        for host, count in used.items():
            assert all(count - used[other] <= 1 or used[other] == sizes[other] for other in sizes if other != host)
        if factor <= len(machines):
            in_racks = racks_of(replicas, brokers)
            for rack, count in in_racks.items():  # none has two more than another with a machine to spare
                others = [other for other in machines_in if other != rack]
                assert all(count - in_racks[other] <= 1 or in_racks[other] == machines_in[other] for other in others)


@given(
    racks=st.lists(st.sampled_from("abcd"), min_size=1, max_size=9),
    factor=st.integers(1, 4),
    start=st.integers(0, 2**32 - 1),
)
def test_any_brokers(racks: list[str], factor: int, start: int) -> None:
    """No broker twice, racks used as evenly as they can be, leaders even to one."""
    brokers = brokers_in(*racks)
    factor = min(factor, len(brokers))
    placed = Placement(brokers).place(0, 3 * len(brokers), factor, start)
    for replicas in placed:
        assert len(set(replicas)) == factor
        used, sizes = racks_of(replicas, brokers), Counter(racks)
        assert len(used) == min(factor, len(sizes)), replicas
        for rack, count in used.items():  # none has two more than another that has room for one
            assert all(count - used[other] <= 1 or used[other] == sizes[other] for other in sizes if other != rack)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}
