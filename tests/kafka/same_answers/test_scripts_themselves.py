"""The framework judged by itself: Apache Kafka gives the same answers as Apache Kafka."""

from collections.abc import Iterator

import pytest

from tests.kafka.apache import ApacheKafka
from tests.kafka.same_answers.compare import differences, play
from tests.kafka.same_answers.scripts import SCRIPTS, WALKING
from tests.kafka.same_answers.side import Side

ALL = SCRIPTS | WALKING


@pytest.fixture(scope="module")
def second_kafka(apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("second") / "data", apache_kafka.settings) as kafka:
        yield kafka


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_two_kafkas_give_the_same_answers(apache_kafka: ApacheKafka, second_kafka: ApacheKafka, name: str) -> None:
    first, second = Side("first", apache_kafka.bootstrap), Side("second", second_kafka.bootstrap)
    ours, theirs = play(ALL[name], first, 1), play(ALL[name], second, 1)
    assert ours, "a script that asks nothing shows nothing"
    found = differences(ours, theirs, allowed=())
    assert not found, "\n".join(map(str, found[:20]))
