"""SIGTERM, kill -9 and SIGSTOP under load: what was acknowledged or shown is there afterwards, unchanged, once."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.batches import ANYONE, Batch, Producer, Sent
from tests.raw import ClosedError, Connection
from tests.reading import EARLIEST, LATEST, create_topic, fetch, list_offset, stored
from tests.served import Tidelog
from tests.stories.load import Sender, Watcher, account_for
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

PARTITIONS = 3


def wait_for(what: Callable[[], bool], why: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"{why} took over {timeout_s:.0f} s"
        time.sleep(0.005)


def more_acknowledged(sender: Sender, count: int) -> Callable[[], bool]:
    goal = len(sender.acknowledged) + count
    return lambda: len(sender.acknowledged) >= goal or bool(sender.failures)


@pytest.mark.parametrize(
    ("end", "times"),
    [
        pytest.param("kill", 20, id="killed 20 times"),
        pytest.param("stop", 4, id="stopped 4 times"),
        pytest.param("stop", 20, id="stopped 20 times", marks=pytest.mark.long),
    ],
)
def test_what_was_acknowledged_or_shown_outlives_the_broker(tidelog: Tidelog, end: str, times: int) -> None:
    create_topic(tidelog.bootstrap, "numbers", PARTITIONS, {"segment.bytes": "1048576"})
    sender = Sender(tidelog.bootstrap, "numbers", PARTITIONS).start()
    watcher = Watcher(tidelog.bootstrap, "numbers", PARTITIONS).start()
    for _ in range(times):
        wait_for(more_acknowledged(sender, 200), "200 acknowledgements")
        getattr(tidelog, end)()
        tidelog.start()
    wait_for(more_acknowledged(sender, 200), "200 acknowledgements")
    sender.finish()
    watcher.finish()
    account_for(tidelog.bootstrap, sender, watcher)
    tidelog.stop()
    tidelog.start()
    account_for(tidelog.bootstrap, sender, watcher)


def test_a_broker_that_stands_still_for_a_while_loses_and_doubles_nothing(tidelog: Tidelog) -> None:
    create_topic(tidelog.bootstrap, "numbers", PARTITIONS)
    sender = Sender(tidelog.bootstrap, "numbers", PARTITIONS, **{"socket.timeout.ms": 1000}).start()
    watcher = Watcher(tidelog.bootstrap, "numbers", PARTITIONS).start()
    for pause_s in (0.2, 1.5):
        wait_for(more_acknowledged(sender, 300), "300 acknowledgements")
        tidelog.freeze()
        time.sleep(pause_s)  # the pause itself: nobody is waited for
        tidelog.thaw()
    wait_for(more_acknowledged(sender, 300), "300 acknowledgements")
    sender.finish()
    watcher.finish()
    account_for(tidelog.bootstrap, sender, watcher)


def five_batches(producer_id: int, first: int) -> list[bytes]:
    """Five batches of one to three records, in sequence."""
    made: list[bytes] = []
    sequence = first
    for place in range(5):
        records = [Sent(b"%d" % (sequence + i)) for i in range(place % 3 + 1)]
        producer = Producer(producer_id, 0, sequence) if producer_id >= 0 else ANYONE
        made.append(Batch(records, producer=producer).encode())
        sequence += len(records)
    return made


def produce_fields(records: bytes) -> dict[str, object]:
    partition = {"index": 0, "records": records}
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": "five", "partition_data": [partition]}]}


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("answered", range(6))
def test_each_of_five_batches_is_known_again_after_a_restart(tidelog: Tidelog, end: str, answered: int) -> None:
    """Five in flight, some of them answered when the broker ends: resent, each is there once, at its first offset."""
    create_topic(tidelog.bootstrap, "five")
    with Connection(tidelog.bootstrap) as connection:
        who = {"transactional_id": None, "transaction_timeout_ms": 1000}
        producer_id = connection.ask(ApiKey.INIT_PRODUCER_ID, 4, who).producer_id
        assert producer_id >= 0
        batches = five_batches(producer_id, 0)
        asked = [connection.send(ApiKey.PRODUCE, 9, produce_fields(data)) for data in batches]
        firsts = [base_offset(connection.answer(ApiKey.PRODUCE, 9, correlation)) for correlation in asked[:answered]]
        getattr(tidelog, end)()
    tidelog.start()
    with Connection(tidelog.bootstrap) as connection:
        again = [base_offset(connection.ask(ApiKey.PRODUCE, 9, produce_fields(data))) for data in batches]
        assert again == [0, 1, 3, 6, 7]
        assert firsts == again[:answered]
        assert [base_offset(connection.ask(ApiKey.PRODUCE, 9, produce_fields(data))) for data in batches] == again
        onward = five_batches(producer_id, 9)
        assert [base_offset(connection.ask(ApiKey.PRODUCE, 9, produce_fields(data))) for data in onward] == [
            9 + offset for offset in again
        ]
    assert stored(tidelog.bootstrap, "five") == [(number, b"%d" % number) for number in range(18)]


def base_offset(answer: object) -> int:
    partition = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
    assert partition.error_code == 0, f"error {partition.error_code}"
    return partition.base_offset


def test_sigterm_answers_what_was_accepted(tidelog: Tidelog) -> None:
    """Answers come in order until the end, what was answered is there, and the mark says it was clean."""
    create_topic(tidelog.bootstrap, "five")
    answered = 0
    with Connection(tidelog.bootstrap) as connection:
        asked = [
            connection.send(ApiKey.PRODUCE, 9, produce_fields(Batch([Sent(b"%d" % number)]).encode()))
            for number in range(200)
        ]
        base_offset(connection.answer(ApiKey.PRODUCE, 9, asked[0]))
        tidelog.stop()
        answered = 1
        try:
            for correlation in asked[1:]:
                assert base_offset(connection.answer(ApiKey.PRODUCE, 9, correlation)) == answered
                answered += 1
        except ClosedError:
            pass
    assert (tidelog.folder / ".kafka_cleanshutdown").exists()
    tidelog.start()
    there = stored(tidelog.bootstrap, "five")
    assert len(there) >= answered
    assert there == [(number, b"%d" % number) for number in range(len(there))]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_torn_tail_is_cut_and_what_was_acknowledged_stays(tmp_path: Path, durability: str) -> None:
    """Killed under load, with rubbish behind the last batch of each log, as a power failure may leave it."""
    rng = Random(7)
    with Tidelog(tmp_path / "data", {"tidelog.durability": durability}) as broker:
        create_topic(broker.bootstrap, "numbers", PARTITIONS, {"segment.bytes": "1048576"})
        larger = {"batch.num.messages": 50, "queue.buffering.max.messages": 5000}
        sender = Sender(broker.bootstrap, "numbers", PARTITIONS, **larger).start()
        watcher = Watcher(broker.bootstrap, "numbers", PARTITIONS).start()
        for _ in range(4):
            wait_for(more_acknowledged(sender, rng.randint(500, 3000)), "some acknowledgements")
            broker.kill()
            for partition in range(PARTITIONS):
                tear(broker.folder / f"numbers-{partition}", rng)
            broker.start()
            wait_for(lambda: "cut" in broker.said(), "cutting the torn tails")
        sender.finish()
        watcher.finish()
        account_for(broker.bootstrap, sender, watcher)


def tear(folder: Path, rng: Random) -> None:
    """Zeroes, noise, a part of an old batch or the whole of it behind the end of the log."""
    last = max(folder.glob("*.log"))
    data = last.read_bytes()
    first = data[: 12 + int.from_bytes(data[8:12])]
    with open(last, "ab") as file:
        file.write(rng.choice([bytes(100), rng.randbytes(200), first[: len(first) // 2], first]))


def test_deleted_records_stay_deleted_after_a_kill(tidelog: Tidelog) -> None:
    create_topic(tidelog.bootstrap, "five")
    with Connection(tidelog.bootstrap) as connection:
        for data in five_batches(-1, -1):
            base_offset(connection.ask(ApiKey.PRODUCE, 9, produce_fields(data)))
        topics = [{"name": "five", "partitions": [{"partition_index": 0, "offset": 4}]}]
        asked = connection.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000})
        assert asked.topics[0].partitions[0].low_watermark == 4
    tidelog.kill()
    tidelog.start()
    with Connection(tidelog.bootstrap) as connection:
        assert list_offset(connection, "five", EARLIEST) == 4
        assert fetch(connection, "five", 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert fetch(connection, "five", 4).error_code == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_topic_in_memory_is_empty_after_a_restart_and_goes_on_behind_its_end(tidelog: Tidelog, end: str) -> None:
    create_topic(tidelog.bootstrap, "five", 1, {"tidelog.storage": "memory"})
    ends = [0]
    for _ in range(3):
        with Connection(tidelog.bootstrap) as connection:
            first = [base_offset(connection.ask(ApiKey.PRODUCE, 9, produce_fields(d))) for d in five_batches(-1, -1)]
            assert first[0] >= ends[-1]
            assert [offset - first[0] for offset in first] == [0, 1, 3, 6, 7]
            assert len(stored(tidelog.bootstrap, "five")) == 9
            ends.append(list_offset(connection, "five", LATEST))
        getattr(tidelog, end)()
        tidelog.start()
        with Connection(tidelog.bootstrap) as connection:
            assert list_offset(connection, "five", LATEST) >= ends[-1], "an end that was shown went away"
            assert stored(tidelog.bootstrap, "five") == []
            behind = fetch(connection, "five", ends[-1])
            assert behind.error_code in (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not list(tidelog.folder.glob("five-0/*.log"))


def test_a_second_broker_on_the_same_folder_is_refused(tidelog: Tidelog, tmp_path: Path) -> None:
    second = Tidelog(tidelog.folder)
    second.output = tmp_path / "second.log"
    with pytest.raises(AssertionError, match=r"ended before it was ready(.|\n)*another"):
        second.start()
    create_topic(tidelog.bootstrap, "still-served")
