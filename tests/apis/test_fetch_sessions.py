"""Incremental fetch sessions (KIP-227): answers name only what is new, requests only what changed."""

from typing import Any

import pytest

from tests.apis.sim_broker import Asked, SimBroker, batch, produce_fields
from tests.batches import batches
from tidelog.apis.fetch.sessions import EPOCH_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

PLENTY = 1 << 20
FULL, NONE = 0, -1


class Consumer:
    """A client that fetches in a session: it keeps the epoch, the test says what changed."""

    def __init__(self, broker: SimBroker, version: int) -> None:
        self.broker = broker
        self.version = version
        self.id = 0
        self.epoch = FULL
        self.ids: dict[str, bytes] = {}

    def topic_id(self, name: str) -> bytes:
        image = self.broker.services.metadata.image.topics.get(name)
        return self.ids.setdefault(name, image.id if image else name.encode().ljust(16))

    def send(
        self,
        *parts: tuple[str, int, int],
        forget: tuple[tuple[str, int], ...] = (),
        epoch: int | None = None,
        session_id: int | None = None,
        **more: Any,
    ) -> Asked:
        """`parts` are (topic, partition, offset)."""
        topics = [
            {"topic": name, "topic_id": self.topic_id(name), "partitions": [part(index, offset)]}
            for name, index, offset in parts
        ]
        forgotten = [{"topic": name, "topic_id": self.topic_id(name), "partitions": [index]} for name, index in forget]
        return self.broker.send(
            ApiKey.FETCH,
            more.pop("version", self.version),
            {
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": PLENTY,
                "session_id": self.id if session_id is None else session_id,
                "session_epoch": self.epoch if epoch is None else epoch,
                "topics": topics,
                "forgotten_topics_data": forgotten,
                **more,
            },
        )

    def told(self, *parts: tuple[str, int, int], **more: Any) -> list[tuple[str, int, int, list[int]]]:
        """Fetch and go on: (topic, partition, error, base offsets) of what the answer names."""
        response = self.send(*parts, **more).response
        assert response.error_code == 0
        self.id, self.epoch = response.session_id, self.epoch + 1
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return [
            (
                topic.topic if self.version < 13 else names[topic.topic_id],
                found.partition_index,
                found.error_code,
                [one.base_offset for one in batches(bytes(found.records))],
            )
            for topic in response.responses
            for found in topic.partitions
        ]


def part(index: int, offset: int) -> dict[str, Any]:
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": PLENTY}


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker({"max.incremental.fetch.session.cache.slots": "3"})
    made.make_topic("tide", 3)
    made.make_topic("surf")
    return made


@pytest.fixture(params=[12, 16])
def consumer(request: pytest.FixtureRequest, broker: SimBroker) -> Consumer:
    return Consumer(broker, request.param)


def sessions(broker: SimBroker) -> int:
    return len(broker.services.fetch_sessions)


def test_a_full_fetch_opens_a_session_and_tells_of_every_partition(broker: SimBroker, consumer: Consumer) -> None:
    broker.append("tide", b"x", partition=1)
    assert consumer.told(("tide", 0, 0), ("tide", 1, 0), ("surf", 0, 0)) == [
        ("tide", 0, 0, []),
        ("tide", 1, 0, [0]),
        ("surf", 0, 0, []),
    ]
    assert consumer.id > 0
    assert sessions(broker) == 1


def test_afterwards_only_news_is_told(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0), ("tide", 1, 0), ("surf", 0, 0))
    assert consumer.told() == []
    broker.append("surf", b"x")
    assert consumer.told() == [("surf", 0, 0, [0])]
    assert consumer.told(("surf", 0, 1)) == []
    assert consumer.told(("surf", 0, 0)) == [("surf", 0, 0, [0])], "records are always news"


def test_a_moved_high_watermark_and_log_start_are_news(broker: SimBroker, consumer: Consumer) -> None:
    broker.append("tide", b"a", b"b")
    consumer.told(("tide", 0, 2))
    assert consumer.told() == []
    broker.delete_records("tide", 1)
    response = consumer.send().response
    consumer.epoch += 1
    assert [found.log_start_offset for found in response.responses[0].partitions] == [1]
    assert consumer.told() == []
    broker.hold_syncs()
    broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), acks=1))
    assert consumer.told() == []
    broker.let_sync()
    assert consumer.told(("tide", 0, 3)) == [("tide", 0, 0, [])]


def test_partitions_come_and_go(broker: SimBroker, consumer: Consumer) -> None:
    for index in range(3):
        broker.append("tide", b"x", partition=index)
    assert consumer.told(("tide", 0, 0)) == [("tide", 0, 0, [0])]
    assert consumer.told(("tide", 1, 0), forget=(("tide", 0),)) == [("tide", 1, 0, [0])]
    assert consumer.told(("tide", 0, 1), ("tide", 2, 0), forget=(("tide", 1), ("tide", 7))) == [
        ("tide", 0, 0, []),
        ("tide", 2, 0, [0]),
    ], "a partition that was forgotten and comes back is told of"


def test_a_session_without_partitions_is_closed(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0))
    response = consumer.send(forget=(("tide", 0),)).response
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert sessions(broker) == 0


def test_a_busy_partition_does_not_starve_the_others(broker: SimBroker, consumer: Consumer) -> None:
    size = len(batch(b"x"))
    for index in range(3):
        for _ in range(4):
            broker.append("tide", b"x", partition=index)
    positions = dict.fromkeys(range(3), 0)
    order: list[int] = []
    parts = [("tide", index, 0) for index in range(3)]
    for _ in range(9):
        for _, index, _, bases in consumer.told(*parts, max_bytes=size):
            if bases:
                order.append(index)
                positions[index] = bases[-1] + 1
                parts = [("tide", index, positions[index])]
    assert order == [0, 0, 1, 2, 0, 1, 2, 0, 1], "as in Kafka, the first answer moves nobody to the end"


@pytest.mark.parametrize("version", [12, 16])
def test_a_session_may_begin_with_nothing_and_forgets_nothing_then(broker: SimBroker, version: int) -> None:
    consumer = Consumer(broker, version)
    assert consumer.told() == []
    assert sessions(broker) == 1
    consumer = Consumer(broker, version)
    assert [index for _, index, _, _ in consumer.told(("tide", 1, 0), forget=(("tide", 1),))] == [1]


def test_errors_are_told_every_time_and_once_they_are_gone_the_state_is(broker: SimBroker, consumer: Consumer) -> None:
    broker.append("tide", b"x")
    broker.delete_records("tide", 1)
    assert consumer.told(("tide", 0, 0), ("tide", 1, 0)) == [
        ("tide", 0, ErrorCode.OFFSET_OUT_OF_RANGE, []),
        ("tide", 1, 0, []),
    ]
    for _ in range(2):
        assert consumer.told() == [("tide", 0, ErrorCode.OFFSET_OUT_OF_RANGE, [])]
    assert consumer.told(("tide", 0, 1)) == [("tide", 0, 0, [])]
    assert consumer.told() == []


def test_a_diverging_epoch_is_news(broker: SimBroker, consumer: Consumer) -> None:
    broker.append("tide", b"x")
    partition = broker.partition("tide")
    partition.follow_image(partition.image._replace(leader_epoch=3))
    broker.append("tide", b"y")
    consumer.told(("tide", 0, 2))
    wanted = {**part(0, 2), "last_fetched_epoch": 0}
    topics = [{"topic": "tide", "topic_id": consumer.topic_id("tide"), "partitions": [wanted]}]
    for _ in range(2):
        response = consumer.send(topics=topics).response
        consumer.epoch += 1
        assert response.responses[0].partitions[0].diverging_epoch.end_offset == 1


def test_an_unknown_topic_is_told_every_time_and_found_once_it_is_there(broker: SimBroker) -> None:
    consumer = Consumer(broker, 12)
    unknown = ("later", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert consumer.told(("later", 0, 0), ("tide", 0, 0)) == [unknown, ("tide", 0, 0, [])]
    assert consumer.told() == [unknown]
    broker.make_topic("later")
    broker.append("later", b"x")
    assert consumer.told() == [("later", 0, 0, [0])]


def test_an_unknown_partition_does_not_keep_the_others_from_waiting(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("nobody", 0, 0), ("tide", 0, 0))
    asked = consumer.send(max_wait_ms=500)
    assert not asked.done
    broker.pass_time(0.6)
    assert [len(topic.partitions) for topic in asked.response.responses] == [1]
    consumer.epoch += 1
    asked = consumer.send(forget=(("tide", 0),), max_wait_ms=500)
    assert asked.done, "there is nobody to wait for"


def test_a_topic_made_again_is_told_from_the_one_the_session_knew(broker: SimBroker) -> None:
    consumer = Consumer(broker, 16)
    consumer.told(("surf", 0, 0), ("tide", 0, 0))
    broker.delete_topic("surf")
    assert consumer.told() == [("surf", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])]
    broker.make_topic("surf")
    broker.append("surf", b"x")
    assert consumer.told() == [("surf", 0, ErrorCode.INCONSISTENT_TOPIC_ID, [])]
    old = consumer.ids.pop("surf")
    new = consumer.topic_id("surf")
    consumer.ids["old"] = old
    assert old != new
    assert consumer.told(("surf", 0, 0), forget=(("old", 0),)) == [("surf", 0, 0, [0])]


def test_by_name_a_topic_made_again_is_simply_read(broker: SimBroker) -> None:
    consumer = Consumer(broker, 12)
    consumer.told(("surf", 0, 0))
    broker.delete_topic("surf")
    broker.make_topic("surf")
    broker.append("surf", b"x")
    assert consumer.told() == [("surf", 0, 0, [0])]


def test_an_id_that_nobody_ever_had_is_unknown(broker: SimBroker) -> None:
    consumer = Consumer(broker, 16)
    assert consumer.told(("nobody", 0, 0)) == [("nobody", 0, ErrorCode.UNKNOWN_TOPIC_ID, [])]
    assert consumer.told() == [("nobody", 0, ErrorCode.UNKNOWN_TOPIC_ID, [])]


# -- epochs


def code(asked: Asked) -> ErrorCode:
    response = asked.response
    assert response.responses == []
    return ErrorCode(response.error_code)


def test_an_epoch_that_is_not_the_next_is_refused(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0))
    for epoch in (2, 5, EPOCH_MAX, -2):
        assert code(consumer.send(epoch=epoch)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert consumer.told() == [], "and the session goes on"


def test_a_session_that_is_not_there_is_refused(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0))
    asked = consumer.send(session_id=consumer.id ^ 1)
    assert code(asked) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert asked.response.session_id == 0


def test_after_the_largest_epoch_comes_1(
    broker: SimBroker, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EPOCH_MAX == 2**31 - 1, "Kafka's, which no test can wait for"
    monkeypatch.setattr("tidelog.apis.fetch.sessions.EPOCH_MAX", 3)
    consumer.told(("tide", 0, 0))
    for epoch in (1, 2, 3):
        assert consumer.epoch == epoch
        assert consumer.told() == []
    consumer.epoch = 1
    assert consumer.told() == []
    assert consumer.epoch == 2


@pytest.mark.parametrize(("opened", "resumed"), [(12, 13), (16, 12)])
def test_a_session_by_name_can_not_go_on_by_id_nor_the_other_way_round(
    broker: SimBroker, opened: int, resumed: int
) -> None:
    consumer = Consumer(broker, opened)
    consumer.told(("tide", 0, 0))
    assert code(consumer.send(version=resumed)) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_parked_fetch_of_an_epoch_that_is_over_tells_nothing(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0))
    parked = consumer.send(max_wait_ms=10_000)
    consumer.epoch += 1
    assert consumer.told() == []
    broker.append("tide", b"x")
    broker.settle()
    assert code(parked) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert consumer.told() == [("tide", 0, 0, [0])]


# -- opening and closing


def test_minus_one_fetches_without_a_session_and_closes_the_one_it_names(broker: SimBroker, consumer: Consumer) -> None:
    broker.append("tide", b"x")
    response = consumer.send(("tide", 0, 0), epoch=NONE).response
    assert (response.session_id, len(response.responses)) == (0, 1)
    assert sessions(broker) == 0
    consumer.told(("tide", 0, 0))
    response = consumer.send(epoch=NONE).response
    assert (response.error_code, response.session_id, response.responses) == (0, 0, [])
    assert sessions(broker) == 0
    assert code(consumer.send(("tide", 0, 0))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_that_names_a_session_replaces_it(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0), ("tide", 1, 0))
    old, consumer.epoch = consumer.id, FULL
    assert consumer.told(("tide", 1, 0)) == [("tide", 1, 0, [])]
    assert consumer.id != old
    assert sessions(broker) == 1


def test_versions_before_sessions_have_none(broker: SimBroker) -> None:
    consumer = Consumer(broker, 6)
    fields = {"max_wait_ms": 0, "topics": [{"topic": "tide", "partitions": [part(0, 0)]}]}
    assert broker.send(ApiKey.FETCH, consumer.version, fields).response.responses
    assert sessions(broker) == 0


def test_sessions_are_bounded_and_an_idle_one_makes_room(broker: SimBroker, consumer: Consumer) -> None:
    others = [Consumer(broker, consumer.version) for _ in range(3)]
    for other in others:
        other.told(("tide", 0, 0))
    consumer.told(("tide", 0, 0))
    assert consumer.id == 0, "no room: the fetch goes without"
    assert sessions(broker) == 3
    broker.pass_time(119)
    for other in others[1:]:
        other.told()
    broker.pass_time(2)
    consumer.epoch = FULL
    consumer.told(("tide", 0, 0))
    assert consumer.id > 0
    assert sessions(broker) == 3
    assert code(others[0].send()) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert others[1].told() == []


def test_partitions_in_all_sessions_are_bounded(
    broker: SimBroker, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.apis.fetch.sessions.SESSIONS_PARTITIONS_MAX", 4)
    other = Consumer(broker, consumer.version)
    other.told(("tide", 0, 0), ("tide", 1, 0))
    consumer.told(("tide", 0, 0))
    consumer.told(("tide", 1, 0))
    assert code(consumer.send(("tide", 2, 0))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    consumer.epoch, consumer.id = FULL, 0
    assert len(consumer.told(("tide", 0, 0), ("tide", 1, 0), ("surf", 0, 0))) == 3
    assert consumer.id == 0, "no room: the fetch goes without"
    assert other.told(forget=(("tide", 0),)) == []
    consumer.epoch = FULL
    consumer.told(("tide", 0, 0), ("tide", 1, 0), ("surf", 0, 0))
    assert consumer.id > 0


def test_a_parked_fetch_in_a_session_wakes_with_its_news_only(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0), ("tide", 1, 0), ("surf", 0, 0))
    asked = consumer.send(max_wait_ms=10_000)
    broker.append("tide", b"x", partition=1)
    broker.settle()
    found = [one.partition_index for topic in asked.response.responses for one in topic.partitions]
    assert found == [1]


def test_what_an_abandoned_fetch_would_have_told_is_still_news(broker: SimBroker, consumer: Consumer) -> None:
    consumer.told(("tide", 0, 0))
    parked = consumer.send(max_wait_ms=10_000)
    parked.late.abandon()
    broker.append("tide", b"x")
    consumer.epoch += 1
    assert consumer.told(("tide", 0, 1)) == [("tide", 0, 0, [])]


def test_who_names_much_can_not_keep_others_from_having_a_session(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.apis.fetch.sessions.SESSIONS_PARTITIONS_MAX", 30)
    greedy = [Consumer(broker, 16) for _ in range(2)]
    for each in greedy:
        each.told(*((f"made-up-{number}", 0, 0) for number in range(15)))
    assert sessions(broker) == 2
    polite = Consumer(broker, 16)
    polite.told(("tide", 0, 0))
    assert polite.id != 0, "the largest one made room"
    assert sessions(broker) == 2
    broker.append("tide", b"news")
    assert [name for name, *_ in polite.told()] == ["tide"]


def test_a_request_for_very_many_partitions_goes_without_a_session(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.apis.fetch.sessions.SESSION_PARTITIONS_MAX", 5)
    greedy = Consumer(broker, 16)
    assert greedy.send(*((f"made-up-{number}", 0, 0) for number in range(6))).response.session_id == 0
    assert sessions(broker) == 0
    polite = Consumer(broker, 16)
    polite.told(*((f"made-up-{number}", 0, 0) for number in range(5)))
    assert code(polite.send(("one-more", 0, 0))) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
