"""Transactions over brokers of both kinds: coordinators of each work with leaders and groups of the other."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.clients import make_topic, write_in_transactions
from tests.kafka.mixed import Kind, MixedCluster, ask
from tests.nodes import BROKER, CONTROLLER
from tests.reading import committed
from tidelog.wire.keys import ApiKey

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

APACHE, TIDELOG = 4, 5
WAIT_S = 60.0


def name_at(cluster: MixedCluster, broker_id: int, key_type: int, prefix: str) -> str:
    """A transactional id (1) or a group (0) that this broker coordinates."""
    names = [f"{prefix}-{number}" for number in range(20)]

    def told() -> dict[str, int]:
        fields = {"key_type": key_type, "coordinator_keys": names}
        answer = ask(cluster[TIDELOG].bootstrap, ApiKey.FIND_COORDINATOR, 4, fields)
        return {} if answer is None else {one.key: one.node_id for one in answer.coordinators if not one.error_code}

    found = told()
    while broker_id not in found.values():
        assert set(found.values()) <= {-1}, f"all of them are at {set(found.values())}"
        found = told()
    return next(name for name in names if found.get(name) == broker_id)


@pytest.mark.parametrize("controller", list(Kind), ids=["apache-controller", "tidelog-controller"])
def test_coordinators_of_each_kind_work_with_leaders_of_the_other(jars: Path, tmp_path: Path, controller: Kind) -> None:
    members = {1: (controller, CONTROLLER), APACHE: (Kind.APACHE, BROKER), TIDELOG: (Kind.TIDELOG, BROKER)}
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with MixedCluster(tmp_path, members, settings) as cluster:
        cluster.start()
        bootstrap = cluster.bootstrap
        make_topic(bootstrap, "ledger", str(APACHE), str(TIDELOG))
        make_topic(bootstrap, "java", str(APACHE), str(TIDELOG))
        group_ids = [name_at(cluster, broker_id, 0, "readers") for broker_id in (APACHE, TIDELOG)]
        ids = [name_at(cluster, broker_id, 1, "bank") for broker_id in (APACHE, TIDELOG)]
        wanted: list[bytes] = []
        for name in ids:  # of the first version: AddPartitionsToTxn, verified before the append
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
            producer.init_transactions(WAIT_S)
            for number in range(6):
                value = f"{name}:{number}".encode()
                producer.begin_transaction()
                for index in (0, 1):
                    producer.produce("ledger", value, partition=index)
                for group in group_ids:
                    place = TopicPartition("ledger", 0, number + 1)
                    producer.send_offsets_to_transaction([place], _member_of(bootstrap, group), WAIT_S)
                if number % 2:
                    producer.commit_transaction(WAIT_S)
                    wanted.append(value)
                else:
                    producer.abort_transaction(WAIT_S)
        assert committed(bootstrap, "ledger", 2) == [wanted, wanted]
        for group in group_ids:
            assert _offset_of(bootstrap, group) == 6
        for name in ids:  # of the second: joined by producing
            write_in_transactions(bootstrap, "java", 100, name)
        found = committed(bootstrap, "java", 2)
        assert sum(map(len, found)) == 200
        assert all(found), "both have some of it"


def _member_of(bootstrap: str, group: str) -> object:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _offset_of(bootstrap: str, group: str) -> int:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer(settings)
    try:
        return consumer.committed([TopicPartition("ledger", 0)], WAIT_S)[0].offset
    finally:
        consumer.close()
