"""A member through confluent-kafka, in the classic or the server-side protocol."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from tests.stories.groups.diary import Diary, Options
from tidelog.wire.topic_partition import TopicPartition

BATCH = 50
POLL_S = 0.05
AGAIN = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.ILLEGAL_GENERATION,  # of a member that joins the next one and keeps its partitions
)


def settings(options: Options) -> dict[str, object]:
    classic = {
        "partition.assignment.strategy": options.assignor,
        "session.timeout.ms": options.session_ms,
        "heartbeat.interval.ms": options.heartbeat_ms,
    }
    return {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.protocol": "consumer" if options.client == "confluent-consumer" else "classic",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": options.max_poll_ms,
        "topic.metadata.refresh.interval.ms": options.metadata_ms,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
        **(classic if options.client == "confluent-classic" else {}),
        **({"group.instance.id": options.instance} if options.instance else {}),
    }


def places(partitions: list[TopicPartition]) -> list[TopicPartition]:
    return [(each.topic, each.partition) for each in partitions]


class Member:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.diary = Diary()
        self.consumer = Consumer(settings(options))

    def run(self) -> None:
        self.consumer.subscribe(
            [self.options.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self.diary.tell("subscribed")
        while self.diary.order()[:1] != ["leave"]:
            for _ in range(BATCH):
                message = self.consumer.poll(POLL_S)
                if message is None:
                    break
                error = message.error()
                if error is None:
                    self.diary.record(
                        message.topic() or "", message.partition() or 0, message.offset() or 0, self.options.work_ms
                    )
                elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
                    self.diary.tell("too slow")
                else:
                    self.diary.tell("error", error=error.name(), text=error.str())
            self._commit(self.diary.pending)
        self.consumer.close()
        self.diary.tell("left")

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.diary.assigned(places(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        mine = set(places(partitions))
        self._commit({place: offset for place, offset in self.diary.pending.items() if place in mine})
        self.diary.revoked(mine)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.diary.revoked(places(partitions), "lost")

    def _commit(self, pending: dict[TopicPartition, int]) -> None:
        if not pending:
            return
        offsets, began = dict(pending), time.monotonic()
        try:
            answered = self.consumer.commit(
                offsets=[ConfluentPartition(*place, offset) for place, offset in offsets.items()], asynchronous=False
            )
        except KafkaException as failure:
            error = failure.args[0]
            self.diary.refused(offsets, began, error.name(), again=error.code() in AGAIN)
            return
        for each in answered or ():
            if each.error is not None:
                again = each.error.code() in AGAIN
                self.diary.refused({(each.topic, each.partition): each.offset}, began, each.error.name(), again=again)
                offsets.pop((each.topic, each.partition), None)
        if offsets:
            self.diary.committed(offsets, began)
