"""Groups and topics that change: partitions are added, topics that a pattern matches appear, groups share a topic."""

import os
import time
from random import Random

import pytest

from tests.stories.groups.band import Band
from tests.stories.test_groups_members import SLOW, clients
from tidelog.client import Admin


@clients("confluent-classic", "confluent-consumer")
def test_two_groups_read_the_same_topic_and_do_not_disturb_each_other(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client) as calm, Band(groups_bootstrap, client, topic=calm.topic) as busy:
        member = calm.join("calm")
        calm.settle(member)
        seen = len(member.saw("assigned", "revoked", "lost"))
        first = busy.join("first")
        with calm.writing():
            busy.settle(first)
            second = busy.join("second")
            busy.settle(first, second, each=2)
            second.kill()
            busy.settle(first)
        busy.written = calm.written
        calm.processed()
        busy.processed()
        assert member.saw("assigned", "revoked", "lost")[seen:] == []
        member.leave()
        first.leave()
        calm.check(once=True)
        busy.check(once=False)


@clients("confluent-classic", "confluent-consumer")
def test_partitions_that_a_topic_gains_are_shared_out(groups_bootstrap: str, client: str) -> None:
    with Band(groups_bootstrap, client, partitions=2) as band:
        first, second = band.join("first"), band.join("second")
        band.settle(first, second, each=1)
        band.write(20)
        Admin(groups_bootstrap).add_partitions(band.topic, 4)
        band.partitions = 4
        band.settle(first, second, each=2)
        band.write(40)
        band.processed()
        first.leave()
        second.leave()
        band.check(once=True)


@pytest.mark.parametrize("client", ["confluent-classic", "confluent-consumer", pytest.param("aiokafka", marks=SLOW)])
def test_a_new_topic_that_the_pattern_matches_is_read(groups_bootstrap: str, client: str) -> None:
    tag = f"{os.getpid()}-{time.monotonic_ns()}"
    admin = Admin(groups_bootstrap)
    admin.create_topic(f"tide-{tag}-a", 2)
    admin.create_topic(f"other-{tag}-a", 2)
    with Band(groups_bootstrap, client, topic=f"^tide-{tag}-.*", partitions=2) as band:
        first, second = band.join("first"), band.join("second")
        band.settle(first, second)
        band.write(20, topic=f"tide-{tag}-a", partitions=2)
        admin.create_topic(f"tide-{tag}-b", 2)
        band.partitions = 4
        band.settle(first, second)
        band.write(20, topic=f"tide-{tag}-b", partitions=2)
        band.processed()
        first.leave()
        second.leave()
        band.check(once=True)


@SLOW
@pytest.mark.parametrize("client", ["confluent-classic", "confluent-consumer"])
def test_a_day_in_the_life_of_a_group(groups_bootstrap: str, client: str) -> None:
    """Everything at once, for a while: members come, leave and die at random while records are written."""
    random = Random(20260131)
    with Band(groups_bootstrap, client, partitions=8) as band:
        alive = [band.join(f"member-{number}") for number in range(3)]
        band.settle(*alive)
        with band.writing(0.02):
            for number in range(3, 15):
                if len(alive) < 2 or (len(alive) < 6 and random.random() < 0.5):
                    alive.append(band.join(f"member-{number}"))
                else:
                    gone = alive.pop(random.randrange(len(alive)))
                    (gone.kill if random.random() < 0.5 else gone.leave)()
                band.settle(*alive)
        band.processed()
        for member in alive:
            member.leave()
        band.check(once=False)
