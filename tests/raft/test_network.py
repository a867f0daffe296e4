"""Quorums of one, three and five that crash, forget, are split and time out; and that find together again."""

import pytest

from tests.raft.network import HEALED_IN_MS, Network
from tidelog.raft.events import Resigned


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(12))
def test_nothing_committed_is_lost_and_no_epoch_has_two_leaders(seed: int, count: int) -> None:
    network = Network(seed, count)
    network.suffer(60_000)
    network.heal(dead=seed % ((count + 1) // 2))
    network.assert_stable()


def test_resigned_leader_with_the_longest_log_leads_again_where_a_voter_is_dead() -> None:
    """The other one can't be elected: its log lacks the tail. Nobody but the resigned one can lead."""
    network, leader, (other, dead) = led(1, 3)
    network.blocked = {(leader, other), (leader, dead)}  # what it writes from now on nobody gets
    network.write()
    network.sync(leader)
    network.crash(dead)
    network.deliver(leader, Resigned())
    network.blocked = set()
    before = len(network.committed)
    assert network.run(network.now_ms + HEALED_IN_MS, lambda: len(network.committed) > before + 5)
    assert network.leading() == [leader]


def led(seed: int, count: int) -> tuple[Network, int, list[int]]:
    """A quorum that commits, its leader, and the others."""
    network = Network(seed, count)
    assert network.run(HEALED_IN_MS, lambda: len(network.committed) > 5)
    (leader,) = network.leading()
    return network, leader, [id for id in network.replicas if id != leader]


@pytest.mark.parametrize("count", [3, 5])
def test_who_alone_lost_its_leader_unseats_it_neither_then_nor_when_it_is_back(count: int) -> None:
    network, leader, (lonely, *_) = led(3, count)
    network.blocked = {(leader, lonely), (lonely, leader)}
    network.assert_stable()
    assert network.epoch(lonely) == network.epoch(leader)
    network.blocked = set()
    network.assert_stable()
    before = network.high_watermark(lonely)
    assert network.run(network.now_ms + 5000, lambda: network.high_watermark(lonely) > before)


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("deaf", [True, False])
def test_leader_that_is_cut_off_one_way_is_replaced(count: int, deaf: bool) -> None:
    network, leader, others = led(4, count)
    network.blocked = {(other, leader) if deaf else (leader, other) for other in others}
    before = len(network.committed)
    assert network.run(network.now_ms + HEALED_IN_MS, lambda: len(network.committed) > before + 5)
    assert network.run(network.now_ms + HEALED_IN_MS, lambda: leader not in network.leading())


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("gone", [True, False])
def test_successor_leads_when_the_leader_resigns_without_a_timeout(count: int, gone: bool) -> None:
    network, leader, _ = led(5, count)
    before_ms = network.now_ms
    network.deliver(leader, Resigned())
    if gone:
        network.crash(leader)
    assert network.run(before_ms + HEALED_IN_MS, lambda: bool(network.leading()))
    assert network.now_ms - before_ms < network.settings.election_timeout_ms
