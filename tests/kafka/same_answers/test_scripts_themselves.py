"""The framework judged by itself: Apache Kafka gives the same answers as Apache Kafka."""

from collections.abc import Iterator

import pytest

from tests.kafka.apache import ApacheKafka
from tests.kafka.same_answers.compare import differences, play
from tests.kafka.same_answers.scripts import SCRIPTS, WALKING
from tests.kafka.same_answers.side import Side

ALL = SCRIPTS | WALKING


@pytest.fixture(scope="module")
def kafkas(
    apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ApacheKafka, ApacheKafka]]:
    """Two of their own, with the settings of the one that others use: there the scripts have been played."""
    folder = tmp_path_factory.mktemp("kafkas")
    with (
        ApacheKafka(folder / "first", apache_kafka.settings) as first,
        ApacheKafka(folder / "second", apache_kafka.settings) as second,
    ):
        yield first, second


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_two_kafkas_give_the_same_answers(kafkas: tuple[ApacheKafka, ApacheKafka], name: str) -> None:
    first, second = (Side(name, kafka.bootstrap) for name, kafka in zip(("first", "second"), kafkas, strict=True))
    ours, theirs = play(ALL[name], first, 1), play(ALL[name], second, 1)
    assert ours, "a script that asks nothing shows nothing"
    found = differences(ours, theirs, allowed=())
    assert not found, "\n".join(map(str, found[:20]))
