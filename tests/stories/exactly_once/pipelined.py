"""Java's client writing numbered records in transactions, several batches on their way at once; and their account."""

import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.raw import Connection
from tests.reading import stored
from tests.served import Tidelog
from tidelog.coordinator.placement import TRANSACTION_STATE, partition_of
from tidelog.coordinator.txn.state import Status
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.coordinator import TRANSACTIONS_TOPIC, RecordTypes
from tidelog.wire.records.transactions import TransactionLogKey

TOPIC = "numbers"
TRANSACTIONAL_ID = "pipelined"
PARTITIONS = 3
READ_S = 120.0
KILL_DELAY_S = 0.05

_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
# Whatever a restart takes, the client asks again.
_PATIENT = ("delivery.timeout.ms=600000", "transaction.timeout.ms=600000", "max.block.ms=120000")


class Work(NamedTuple):
    """How many transactions, of how many records, of how many bytes each; and how often each is tried."""

    transactions: int
    records: int
    bytes: int
    tries: int = 1


class Outcome(NamedTuple):
    """Transactions that were committed, tries that failed (in the client's words), and kills of the broker."""

    committed: int
    failed: list[str]
    kills: int


def write(broker: Tidelog, jars: Path, work: Work, *settings: str, kills: int = 0, seed: int = 0) -> Outcome:
    """Let the program run to its end. The broker is killed -9 and started again so many times, evenly spread."""
    source = Path(__file__).with_name("Pipelined.java")
    numbers = (PARTITIONS, work.transactions, work.records, work.bytes, work.tries)
    arguments = [broker.bootstrap, TOPIC, *map(str, numbers), *_PATIENT, *settings]
    dice = random.Random(seed)
    committed, done, failed = 0, 0, []
    with (
        open(broker.folder.parent / "pipelined.log", "wb") as log,
        subprocess.Popen(
            ["java", *_JVM, "-cp", f"{jars}/*", str(source), *arguments], stdout=subprocess.PIPE, stderr=log, text=True
        ) as program,
    ):
        try:
            assert program.stdout is not None
            for line in program.stdout:
                kind, _, rest = line.strip().partition(" ")
                if kind == "failed":
                    failed.append(rest)
                committed += kind == "committed"
                if done < kills and committed >= work.transactions * (done + 1) // (kills + 1):
                    done += 1
                    time.sleep(dice.uniform(0, KILL_DELAY_S))
                    broker.kill()
                    broker.start()
            code = program.wait(READ_S)
        finally:
            program.kill()
    said = Path(log.name).read_text()[-2000:]
    assert code == 0, (
        f"the program ended with {code} after {committed} transactions; it said:\n{failed[-3:]}\n{said}\n"
        f"the coordinator wrote:\n{written(broker.bootstrap)}\nthe broker said:\n{broker.said()}"
    )
    return Outcome(committed, failed, done)


def written(bootstrap: str, last: int = 12) -> str:
    """The last records of the transactional id: who had it when, and what became of its transactions."""
    types = RecordTypes(TRANSACTIONS_TOPIC)
    key = types.encode_key(TransactionLogKey(transactional_id=TRANSACTIONAL_ID))
    try:
        with Connection(bootstrap) as connection:
            (topic,) = connection.ask(ApiKey.METADATA, 12, {"topics": [{"name": TRANSACTION_STATE}]}).topics
        records = stored(bootstrap, TRANSACTION_STATE, partition_of(TRANSACTIONAL_ID, len(topic.partitions)))
    except OSError as error:
        return f"that can't be read: {error}"
    lines: list[str] = []
    for offset, record in records:
        told = types.decode(key, record)
        if told is None or told[1] is None:
            lines.append(f"{offset}: gone")
            continue
        value = told[1]
        lines.append(
            f"{offset}: {Status(value.transaction_status).name} at {value.transaction_last_update_timestamp_ms}, "
            f"producer {value.producer_id} of epoch {value.producer_epoch}"
        )
    return "\n".join(lines[-last:])


def check(bootstrap: str, count: int) -> None:
    """A reader of committed records sees each number once, in order in its partition, and nothing else."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended = 0
    deadline = time.monotonic() + READ_S
    while ended < PARTITIONS:
        assert time.monotonic() < deadline, "the topic isn't read to its end: a transaction is open"
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
            else:
                found[message.partition() or 0].append(int((message.value() or b"").rstrip(b".")))
    consumer.close()
    for index, numbers in enumerate(found):
        wanted = range(index, count, PARTITIONS)
        wrong = next((pair for pair in zip(numbers, wanted, strict=False) if pair[0] != pair[1]), None)
        assert wrong is None, f"partition {index} has {wrong[0] if wrong else ''} where {wrong} was wanted"
        assert len(numbers) == len(wanted), f"partition {index} has {len(numbers)} records, not {len(wanted)}"
