"""After both brokers were stopped, or killed, and started again, they still give the same answers."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.batches import Batch, Producer, Sent
from tests.kafka.apache import ApacheKafka
from tests.kafka.same_answers.compare import differences
from tests.kafka.same_answers.scripts.mixed import Mix, play_turns
from tests.kafka.same_answers.side import Side, Step
from tests.kafka.same_answers.test_same_answers import SETTINGS
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey


def play_across_a_restart(broker: Any, name: str, end: str, seed: int) -> list[Step]:
    rng = Random(seed)
    side = Side(name, broker.bootstrap)
    mix = Mix(side, rng)
    play_turns(mix, trims=end != "kill")  # a killed Kafka may forget what was deleted
    side.close()
    getattr(broker, end)()
    broker.start()
    side.settle()
    side.transcript.clear()
    for topic in mix.topics:
        side.look(topic, 2, stamped=topic.startswith("stamped"))
    topic = mix.topics[0]
    for who, producer_id in enumerate(mix.ids):
        for partition in (0, 1):
            sequence = mix.next.get((who, topic, partition), 0)
            for note, at, epoch in (("a gap", sequence + 7, 0), ("on", sequence, 0), ("stale", sequence + 1, -1)):
                batch = Batch([Sent(b"after")], producer=Producer(producer_id, epoch, at))
                side.produce(topic, batch.encode(), partition=partition, note=f"producer {who} {note}")
    fields = {"topics": [{"name": topic, "partition_indexes": [0, 1]}]}
    side.ask(ApiKey.DESCRIBE_PRODUCERS, 0, fields)
    play_turns(mix)
    for topic in mix.topics:
        side.look(topic, 2, stamped=topic.startswith("stamped"))
    side.close()
    return side.transcript


def without_leader_epochs(value: Any) -> Any:
    """Each broker counts its restarts in its own way."""
    if isinstance(value, dict):
        return {key: without_leader_epochs(part) for key, part in value.items() if key != "leader_epoch"}
    return [without_leader_epochs(part) for part in value] if isinstance(value, list) else value


def knows_more(ours: list[Step], theirs: list[Step], step: int) -> bool:
    """A batch sent again after the restart: one of the last five, of which Kafka knows but the last."""
    if not ours[step].label.endswith(" again"):
        return False
    return error(ours[step]) == 0 and error(theirs[step]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def error(step: Step) -> int:
    return step.answer["responses"][0]["partition_responses"][0]["error_code"]


@pytest.mark.long
@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_the_same_after_a_restart(jars: Path, tmp_path: Path, end: str, seed: int) -> None:
    with Tidelog(tmp_path / "tidelog", SETTINGS) as tidelog:
        ours = play_across_a_restart(tidelog, "Tidelog", end, seed)
    with ApacheKafka(tmp_path / "kafka", {"message.max.bytes": "1048588"}) as kafka:
        theirs = play_across_a_restart(kafka, "Kafka", end, seed)
    for step in (*ours, *theirs):
        step.answer = without_leader_epochs(step.answer)
    found = [difference for difference in differences(ours, theirs) if not knows_more(ours, theirs, difference.step)]
    assert not found, f"{len(found)} answers differ:\n" + "\n".join(map(str, found[:30]))
