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
    assert network.committed


def test_resigned_leader_with_the_longest_log_leads_again_where_a_voter_is_dead() -> None:
    """The other one can't be elected: its log lacks the tail. Nobody but the resigned one can lead."""
    network = Network(1, 3)
    assert network.run(HEALED_IN_MS, lambda: len(network.committed) > 5)
    (leader,) = network.leading()
    other, dead = (id for id in network.replicas if id != leader)
    network.blocked = {(leader, other), (leader, dead)}  # what it writes from now on nobody gets
    network.write()
    network.sync(leader)
    network.crash(dead)
    network.deliver(leader, Resigned())
    network.blocked = set()
    before = len(network.committed)
    assert network.run(network.now_ms + HEALED_IN_MS, lambda: len(network.committed) > before + 5)
    assert network.leading() == [leader]
