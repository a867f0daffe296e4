"""kill -9 in the middle of commits: no offset that was acknowledged goes back.

Each group's only member commits 0, 1, 2 and so on, and knows the last offset whose commit was answered. After every
restart the group has that one, or the next, whose answer was lost on the way.
"""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.raw import ClosedError, Connection
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

TOPIC = "logbook"
GROUPS = 12
KILLS = 4
SETTINGS = {"offsets.topic.num.partitions": "3"}
COME_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Group:
    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = -1
        self.acknowledged = -1

    def commit(self, connection: Connection) -> None:
        self.asked = self.acknowledged + 1
        partitions = [{"partition_index": index, "committed_offset": self.asked} for index in range(2)]
        fields = {"group_id": self.name, "topics": [{"name": TOPIC, "partitions": partitions}]}
        codes = {one.error_code for one in ask(connection, ApiKey.OFFSET_COMMIT, 8, fields).topics[0].partitions}
        assert codes == {0}, codes
        self.acknowledged = self.asked

    def check(self, connection: Connection) -> None:
        """Both partitions were committed together, so they have the same offset."""
        answer = ask(connection, ApiKey.OFFSET_FETCH, 7, {"group_id": self.name, "topics": None})
        found = {one.committed_offset for topic in answer.topics for one in topic.partitions} or {-1}
        assert len(found) == 1, f"{self.name} has {found}: half of a commit"
        assert self.acknowledged <= min(found) <= self.asked, (
            f"{self.name} has {found}, but {self.acknowledged} was acknowledged and {self.asked} asked for"
        )
        self.acknowledged = self.asked = found.pop()


def ask(connection: Connection, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    """Until the coordinator has read its log."""
    deadline = time.monotonic() + 20
    while True:
        answer = connection.ask(key, version, fields)
        code = answer.error_code if key == ApiKey.OFFSET_FETCH else answer.topics[0].partitions[0].error_code
        if code not in COME_AGAIN or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


def work(bootstrap: str, groups: list[Group]) -> None:
    """One commit after the other, until the broker is gone."""
    try:
        with Connection(bootstrap) as connection:
            while True:
                for group in groups:
                    group.commit(connection)
    except (ClosedError, OSError):
        return


@pytest.mark.timeout(120)
def test_no_committed_offset_goes_back_when_the_broker_is_killed(tmp_path: Path) -> None:
    choose = random.Random(20260)
    groups = [Group(f"crew-{number}") for number in range(GROUPS)]
    with Tidelog(tmp_path / "data", SETTINGS) as broker:
        with Connection(broker.bootstrap) as connection:
            asked = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
            connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [asked], "timeout_ms": 5000})
            found = connection.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["crew-0"]})
            assert found.coordinators[0].error_code == 0
        for _ in range(KILLS):
            hands = [
                threading.Thread(target=work, args=(broker.bootstrap, groups[number::3]), daemon=True)
                for number in range(3)
            ]
            for hand in hands:
                hand.start()
            before = sum(group.acknowledged for group in groups)
            deadline = time.monotonic() + 20
            while sum(group.acknowledged for group in groups) < before + 20 * GROUPS and time.monotonic() < deadline:
                time.sleep(choose.uniform(0.01, 0.1))
            broker.kill()
            for hand in hands:
                hand.join(20)
                assert not hand.is_alive()
            broker.start()
            with Connection(broker.bootstrap) as connection:
                for group in groups:
                    group.check(connection)
    assert min(group.acknowledged for group in groups) > KILLS, "hardly anything was committed"
