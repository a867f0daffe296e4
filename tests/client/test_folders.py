"""What brokers tell of their data folders, and of partitions that they can't serve."""

import pytest

from tidelog.client import Producer
from tidelog.client.cluster import connected
from tidelog.client.delivery_error import FULL_BELOW_BYTES, delivery_error, is_full
from tidelog.client.errors import ClientError
from tidelog.client.log_dirs import log_dirs, topic_bytes
from tidelog.client.offline import Offline, offline_partitions


def test_a_folder_tells_what_is_free_and_what_partitions_take(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, bytes(5000), partition=1)
    with connected(bootstrap, "look") as cluster:
        [folder] = [found for _, connection in cluster.brokers() for found in log_dirs(connection)]
        assert folder.error is None
        assert 0 < (folder.usable_bytes or 0) <= (folder.total_bytes or 0)
        assert folder.sizes[topic, 1] > 5000
        assert topic_bytes(cluster)[topic] == sum(size for (name, _), size in folder.sizes.items() if name == topic)


def test_a_healthy_broker_has_nothing_offline(bootstrap: str, topic: str) -> None:
    with connected(bootstrap, "look") as cluster:
        assert offline_partitions(cluster, [topic]) == []
        assert offline_partitions(cluster) == []
    assert Offline("tides", 3, None).place == "tides-3"


def test_a_question_to_nobody_says_what_it_was_about(nobody: str) -> None:
    with pytest.raises(ClientError, match=f"no broker answers at {nobody}"), connected(nobody, "look") as cluster:
        cluster.brokers()


def test_why_nobody_answered_for_a_record_is_told_as_far_as_brokers_tell(
    bootstrap: str, topic: str, nobody: str
) -> None:
    assert "answers, but did not acknowledge in time" in delivery_error(bootstrap, topic).message
    assert "no broker answers" in delivery_error(nobody, topic).message


def test_a_disk_is_full_where_no_batch_fits_and_unknown_is_not_full() -> None:
    sizes = (-1, 0, FULL_BELOW_BYTES - 1, FULL_BELOW_BYTES)
    assert [is_full(size) for size in sizes] == [False, True, True, False]
