"""More partitions than a clean stop saves all of, each with transactions: what Kafka and its tools see of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.batches import NOW_MS, Batch, Producer, Sent
from tests.kafka.apache import tool
from tests.kafka.same_answers.scripts.transactions import READ_COMMITTED, SECOND, Txn
from tests.kafka.same_answers.side import Side
from tests.kafka.test_no_lock_in import Folder, last_epoch_end, new_producer, produce, wait_for_topics
from tests.kafka.test_transactions_take_turns import sides, take_over, wait
from tests.raw import Connection
from tests.reading import create_topic, list_offset
from tidelog.log.bounds import STOP_SAVED_MAX
from tidelog.wire.keys import ApiKey

__all__ = ["sides"]

COUNT = STOP_SAVED_MAX + 64
TOGETHER = 100


def nth(writer: int, number: int) -> bytes:
    return Batch([Sent(b"%d" % number)], producer=Producer(writer, 0, number), base_timestamp=NOW_MS + number).encode()


def write_all(connection: Connection, writer: int, number: int) -> None:
    assert {produce(connection, "many", index, nth(writer, number)) for index in range(COUNT)} == {number}


def open_in(txn: Txn, step: int) -> None:
    """A transaction with a record in every `step`th partition."""
    assert txn.init(timeout_ms=600_000).error_code == 0
    for index in range(0, COUNT, step):
        answer = txn.send("many", txn.name.encode(), partition=index)
        assert answer.responses[0].partition_responses[0].error_code == 0


def seen(bootstrap: str) -> dict[int, tuple[Any, ...]]:
    """Of each partition what a reader of committed records is told, its producers, times and leader epochs."""
    wait_for_topics(bootstrap, {"many"})
    with Connection(bootstrap) as connection:
        producers = {
            index: known for first in range(0, COUNT, TOGETHER) for index, known in known_in(connection, first)
        }
        return {
            index: (
                committed(connection, index),
                producers[index],
                list_offset(connection, "many", NOW_MS + 1, index),
                last_epoch_end(connection, "many", index),
            )
            for index in range(COUNT)
        }


def committed(connection: Connection, index: int) -> tuple[Any, ...]:
    part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": READ_COMMITTED,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "many", "partitions": [part]}],
        "forgotten_topics_data": [],
    }
    answer = connection.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]
    aborted = sorted((each.producer_id, each.first_offset) for each in answer.aborted_transactions or ())
    return (
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        aborted,
        bytes(answer.records or b""),
    )


def known_in(connection: Connection, first: int) -> list[tuple[int, list[tuple[int, ...]]]]:
    indexes = list(range(first, min(first + TOGETHER, COUNT)))
    fields = {"topics": [{"name": "many", "partition_indexes": indexes}]}
    partitions = connection.ask(ApiKey.DESCRIBE_PRODUCERS, 0, fields).topics[0].partitions
    return [
        (
            part.partition_index,
            sorted(
                (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
                for each in part.active_producers
            ),
        )
        for part in partitions
    ]


def dumped(data: Path, pattern: str, *flags: str) -> str:
    files = sorted(str(path) for path in data.glob(pattern))
    assert files, f"no file is {pattern}"
    done = tool("DumpLogSegments", *flags, "--files", ",".join(files))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:] + done.stderr
    assert "isvalid: false" not in done.stdout
    assert not [line for line in done.stdout.splitlines() if "ismatch" in line or "Exception" in line]
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafka_sees_what_tidelog_saw(jars: Path, tmp_path: Path, sides: Callable[[str, str], Side], end: str) -> None:
    """Kafka made the logs, so that they have a snapshot; most of what Tidelog writes then is in the batches only."""
    data = tmp_path / "data"
    folder = Folder(data, {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"})
    with folder.kafka("stop") as bootstrap, Connection(bootstrap) as connection:
        create_topic(bootstrap, "many", COUNT)
        wait_for_topics(bootstrap, {"many"})
        writer = new_producer(connection)
        write_all(connection, writer, 0)
    with folder.tidelog(end) as bootstrap, Connection(bootstrap) as connection:
        wait_for_topics(bootstrap, {"many"})
        write_all(connection, writer, 1)
        side = sides("tidelog", bootstrap)
        aborted, opened = Txn(side, "aborted", SECOND), Txn(side, "open", SECOND)
        open_in(aborted, 1)
        assert aborted.end(commit=False).error_code == 0
        open_in(opened, 2)
        before = seen(bootstrap)
    assert dumped(data, "many-*/*.log", "--deep-iteration").count("isvalid: true") == COUNT * 4 + COUNT // 2
    assert '"transactionalId":"open"' in dumped(data, "__transaction_state-*/*.log", "--transaction-log-decoder")
    for kind in ("index", "timeindex", "txnindex", "snapshot"):
        dumped(data, f"many-*/*.{kind}", *(("--index-sanity-check",) if kind == "index" else ()))
    with folder.kafka("kill") as bootstrap, Connection(bootstrap) as connection:
        found = seen(bootstrap)
        assert {index: found[index] for index in found if found[index] != before[index]} == {}
        txn = take_over(sides("kafka", bootstrap), opened)
        wait(lambda: txn.state() == "Ongoing", "the transaction is known")
        assert txn.end(commit=True).error_code == 0
        again = {produce(connection, "many", index, nth(writer, 1)) for index in range(COUNT)}
        assert again == {1}, "it was sent before"
