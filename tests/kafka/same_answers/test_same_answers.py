"""Tidelog answers as Apache Kafka 4.3.1 does, but for what docs/differences.md lists and argues."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.apache import ApacheKafka
from tests.kafka.same_answers.allowed import ALLOWED, QUORUM
from tests.kafka.same_answers.compare import differences, play
from tests.kafka.same_answers.scripts import SCRIPTS, WALKING
from tests.kafka.same_answers.scripts.produce import but
from tests.kafka.same_answers.side import Side, Step, versions
from tests.served import Tidelog
from tidelog.apis.listeners import ListenerKind, served_on
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

DOCS = Path(__file__).parents[3] / "docs"
SETTINGS = {
    "node.id": "1",
    # Kafka's own default, so that ours (10 MB) doesn't show up everywhere.
    "message.max.bytes": "1048588",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
ALL = SCRIPTS | WALKING

Plays = Callable[[str, int], tuple[Side, list[Step]]]


@pytest.fixture(scope="module")
def tidelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    with Tidelog(tmp_path_factory.mktemp("tidelog") / "data", SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def walking_tidelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    """A Tidelog that looks into every record, as Kafka does."""
    settings = SETTINGS | {"tidelog.validate": "records"}
    with Tidelog(tmp_path_factory.mktemp("walking") / "data", settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafkas(apache_kafka: ApacheKafka) -> Plays:
    """Apache Kafka's part of a script, played once."""
    played: dict[tuple[str, int], tuple[Side, list[Step]]] = {}

    def play_once(name: str, seed: int) -> tuple[Side, list[Step]]:
        if (name, seed) not in played:
            side = Side("Kafka", apache_kafka.bootstrap)
            played[name, seed] = side, play(ALL[name], side, seed)
        return played[name, seed]

    return play_once


def compare(tidelog: Tidelog, kafkas: Plays, name: str, seed: int) -> None:
    _, theirs = kafkas(name, seed)
    ours = play(ALL[name], Side("Tidelog", tidelog.bootstrap), seed)
    found = differences(ours, theirs)
    told = "\n".join(map(str, found[:40]))
    assert not found, f"{len(found)} answers differ from Kafka's (seed {seed}):\n{told}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_tidelog_gives_the_same_answers(tidelog: Tidelog, kafkas: Plays, name: str) -> None:
    compare(tidelog, kafkas, name, 1)


@pytest.mark.parametrize("name", WALKING)
def test_tidelog_that_walks_the_records_refuses_what_kafka_refuses(
    walking_tidelog: Tidelog, kafkas: Plays, name: str
) -> None:
    compare(walking_tidelog, kafkas, name, 1)


def test_records_inside_a_batch_are_not_walked_unless_the_topic_asks_for_it(
    tidelog: Tidelog, walking_tidelog: Tidelog
) -> None:
    for broker, error in ((tidelog, 0), (walking_tidelog, ErrorCode.INVALID_RECORD)):
        side = Side("Tidelog", broker.bootstrap)
        topic = side.create("not-walked")
        answer = side.produce(topic, but(count=4, last_offset_delta=3))
        side.close()
        assert answer.error_code == error


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_tidelog_gives_the_same_answers_to_a_mix(tidelog: Tidelog, kafkas: Plays, seed: int) -> None:
    compare(tidelog, kafkas, "mixed: turns", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_tidelog_gives_the_same_answers_to_a_mix_of_group_requests(tidelog: Tidelog, kafkas: Plays, seed: int) -> None:
    compare(tidelog, kafkas, "group_mixed: turns", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_fetch_sessions_tell_the_same(tidelog: Tidelog, kafkas: Plays, seed: int) -> None:
    compare(tidelog, kafkas, "fetch_sessions: turns", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_transactions_end_the_same(tidelog: Tidelog, kafkas: Plays, seed: int) -> None:
    compare(tidelog, kafkas, "transactions_mixed: turns", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_pipelined_transactions_are_told_the_same(tidelog: Tidelog, kafkas: Plays, seed: int) -> None:
    compare(tidelog, kafkas, "transactions_pipelined: any order", seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_members_of_a_group_are_handed_the_same_partitions(tidelog: Tidelog, kafkas: Plays, seed: int) -> None:
    compare(tidelog, kafkas, "group_hands: turns", seed)


def test_every_served_api_is_asked_in_every_version(kafkas: Plays) -> None:
    asked: set[tuple[int, int]] = set()
    for name in SCRIPTS:
        side, _ = kafkas(name, 1)
        asked |= side.asked
    missing = [
        f"{ApiKey(key).name} v{v}"
        for key in sorted(served_on(ListenerKind.BROKER))
        for v in versions(ApiKey(key))
        if (key, v) not in asked
    ]
    assert not missing, f"no script asks {', '.join(missing)}"


@pytest.mark.parametrize("section", sorted({difference.section for difference in ALLOWED + QUORUM}))
def test_every_allowed_difference_is_argued(section: str) -> None:
    assert f"**{section}" in (DOCS / "differences.md").read_text(), f"docs/differences.md has no entry '**{section}'"
