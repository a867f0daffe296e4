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
    for topic in mix.topics:
        for partition in (0, 1):  # of a log without any records Kafka forgets the producers: see below
            side.produce(topic, Batch([Sent(b"last", key=b"k")]).encode(), partition=partition)
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


def answers_after_all_was_deleted(broker: Any, name: str) -> list[tuple[int, int]]:
    """(error, base offset) of a batch with a gap before it, of the one that is due, and of that one again."""
    side = Side(name, broker.bootstrap)
    topic = side.create("deleted")
    fields = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    producer_id = side.ask(ApiKey.INIT_PRODUCER_ID, 4, fields).producer_id

    def send(sequence: int) -> tuple[int, int]:
        side.produce(topic, Batch([Sent(b"x")], producer=Producer(producer_id, 0, sequence)).encode())
        [partition] = side.transcript[-1].answer["responses"][0]["partition_responses"]
        return partition["error_code"], partition["base_offset"]

    assert [send(0), send(1)] == [(0, 0), (0, 1)]
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
    side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000})
    side.close()
    broker.stop()
    broker.start()
    side.settle()
    answers = [send(1), send(9), send(2)]
    side.close()
    return answers


@pytest.mark.long
def test_a_producer_whose_records_are_all_deleted_is_known_after_a_restart(jars: Path, tmp_path: Path) -> None:
    """What it sends again is in the log once; Kafka writes it twice, and takes any sequence for its first."""
    with Tidelog(tmp_path / "tidelog", SETTINGS) as tidelog:
        ours = answers_after_all_was_deleted(tidelog, "Tidelog")
    with ApacheKafka(tmp_path / "kafka", {}) as kafka:
        theirs = answers_after_all_was_deleted(kafka, "Kafka")
    out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert ours == [(0, 1), out_of_order, (0, 2)]
    assert theirs == [(0, 2), out_of_order, (0, 3)]
