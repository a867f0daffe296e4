"""OffsetForLeaderEpoch: where each leader's records end, known, unknown, newer and older epochs."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker, batch, produce_fields
from tidelog.broker.past import NOTE
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

UNDEFINED = (0, -1, -1)


@pytest.fixture
def broker() -> SimBroker:
    """Epoch 0 wrote offsets 0 and 1, epoch 3 wrote 2, epoch 5 wrote 3 and 4."""
    made = SimBroker()
    made.make_topic("tide", 2)
    partition = made.partition("tide")
    for epoch, count in ((0, 2), (3, 1), (5, 2)):
        partition.follow_image(partition.image._replace(leader_epoch=epoch))
        for _ in range(count):
            made.append("tide", b"x")
    return made


def ask(broker: SimBroker, epoch: int, version: int = 4, *, current: int = -1, **more: Any) -> tuple[int, int, int]:
    """(error, leader epoch, end offset)."""
    part = {"partition": more.pop("partition", 0), "current_leader_epoch": current, "leader_epoch": epoch}
    fields = {"replica_id": -1, "topics": [{"topic": more.pop("topic", "tide"), "partitions": [part]}], **more}
    found = broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, fields).topics[0].partitions[0]
    assert found.partition == part["partition"]
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, (0, 0, 2)),
        (1, (0, 0, 2)),  # nobody wrote in 1 and 2: the last one before them did
        (2, (0, 0, 2)),
        (3, (0, 3, 3)),
        (4, (0, 3, 3)),
        (5, (0, 5, 5)),
        (6, UNDEFINED),
        (-1, UNDEFINED),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(
    broker: SimBroker, version: int, epoch: int, expected: tuple[int, int, int]
) -> None:
    assert ask(broker, epoch, version) == expected


def test_the_current_epoch_ends_at_the_logs_end_which_needn_t_be_durable(broker: SimBroker) -> None:
    broker.hold_syncs()
    broker.send(ApiKey.PRODUCE, 9, produce_fields("tide", batch(), acks=1))
    assert ask(broker, 5) == (0, 5, 6)


def test_an_epoch_whose_records_were_deleted_ends_where_the_log_begins(broker: SimBroker) -> None:
    broker.delete_records("tide", 3)
    assert ask(broker, 3) == (0, 3, 3)
    assert ask(broker, 0) == (0, 0, 3)


def test_an_empty_log_knows_the_epoch_it_is_led_in(broker: SimBroker) -> None:
    assert ask(broker, 0, partition=1) == (0, 0, 0)
    assert ask(broker, 1, partition=1) == UNDEFINED


@pytest.mark.parametrize(
    ("current", "code"),
    [(-1, 0), (5, 0), (4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_the_clients_own_epoch_is_checked(broker: SimBroker, current: int, code: int) -> None:
    assert ask(broker, 0, current=current) == ((code, -1, -1) if code else (0, 0, 2))


@pytest.mark.parametrize("wrong", [{"topic": "nobody"}, {"partition": 2}, {"partition": -1}])
def test_an_unknown_partition_is_told(broker: SimBroker, wrong: dict[str, Any]) -> None:
    assert ask(broker, 0, **wrong) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_who_does_not_lead_and_who_is_offline_say_so(broker: SimBroker) -> None:
    partition = broker.partition("tide")
    partition.log.go_offline("a test")
    assert ask(broker, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    partition.follow_image(partition.image._replace(leader=2, leader_epoch=6))
    assert ask(broker, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


def test_epochs_are_known_after_a_clean_stop() -> None:
    made = SimBroker()
    made.make_topic("tide")
    made.append("tide", b"x")
    made.wait(made.broker.stop())
    again = SimBroker(disk=made.kill())
    assert again.partition("tide").leader_epoch == 0, "what was written is there, so that nothing new begins"
    assert ask(again, 0) == (0, 0, 1)


def test_after_a_kill_a_new_epoch_begins_where_the_log_was_found_to_end() -> None:
    broker = SimBroker()
    broker.make_topic("tide")
    broker.append("tide", b"x")
    disk = broker.kill()
    disk.remove(f"/data/{NOTE}")  # it would say that nothing was lost: then nothing new begins
    again = SimBroker(disk=disk)
    epoch = again.partition("tide").leader_epoch
    assert epoch > 0
    assert ask(again, 0) == (0, 0, 1)
    again.append("tide", b"y")
    assert ask(again, 0) == (0, 0, 1)
    assert ask(again, epoch) == (0, epoch, 2)
