"""Committed offsets, transactions' too, on a folder that Tidelog and Apache Kafka take turns on: the same for both."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.apache import tool
from tests.kafka.test_no_lock_in import Folder
from tests.raw import Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

TOPIC = "logbook"
GROUPS = [f"crew-{number}" for number in range(8)]
DAY_MS = 86_400_000
LATER = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Offsets:
    """Commits and looks, wherever the groups are coordinated."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = Connection(bootstrap)
        for key_type, keys in ((0, GROUPS), (1, ["scenario_run"])):
            self.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": keys})

    def __enter__(self) -> "Offsets":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """Until nobody says that it comes too early; no error is left."""
        deadline = time.monotonic() + 30
        while True:
            answer = self.connection.ask(key, version, fields)
            codes = set(_codes(answer))
            if not codes & set(LATER) or time.monotonic() > deadline:
                assert codes <= {0}, (key, [ErrorCode(code) for code in codes])
                return answer
            time.sleep(0.02)

    def commit(self, group: str, offsets: dict[int, int], version: int = 8, **more: Any) -> None:
        self.ask(ApiKey.OFFSET_COMMIT, version, {"group_id": group, "topics": [_topic(offsets)], **more})

    def seen(self) -> dict[str, Any]:
        """What each group has, and which groups there are."""
        found: dict[str, Any] = {}
        for group in GROUPS:
            answer = self.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None})
            found[group] = {
                one.partition_index: (one.committed_offset, one.committed_leader_epoch, one.metadata)
                for topic in answer.topics
                for one in topic.partitions
            }
        listed = self.ask(ApiKey.LIST_GROUPS, 5, {}).groups
        found["groups"] = {one.group_id: (one.group_state, one.group_type, one.protocol_type) for one in listed}
        return found

    def begin(self) -> dict[str, Any]:
        """A transaction with offsets of a group in it, left open."""
        fields = {"transactional_id": "scenario_run", "transaction_timeout_ms": 600_000}
        producer = self.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
        who = {
            "transactional_id": "scenario_run",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        self.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, {**who, "group_id": GROUPS[0]})
        self.ask(ApiKey.TXN_OFFSET_COMMIT, 3, {**who, "group_id": GROUPS[0], "topics": [_topic({0: 500, 2: 502})]})
        return who

    def end(self, who: dict[str, Any], committed: bool) -> None:
        self.ask(ApiKey.END_TXN, 3, {**who, "committed": committed})


def _codes(answer: Any) -> list[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        return [code for one in answer for code in _codes(one)]
    fields = getattr(answer, "__dataclass_fields__", {})
    own = [answer.error_code] if "error_code" in fields else []
    return own + [code for name in fields if name != "error_code" for code in _codes(getattr(answer, name))]


def _topic(offsets: dict[int, int]) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": f"at {offset}",
        }
        for index, offset in offsets.items()
    ]
    return {"name": TOPIC, "partitions": partitions}


def fill(bootstrap: str) -> None:
    create_topic(bootstrap, TOPIC, 3)
    with Offsets(bootstrap) as offsets:
        for number, group in enumerate(GROUPS):
            offsets.commit(group, {0: number, 1: number + 1, 2: number + 2})
            offsets.commit(group, {1: number + 10}, 8)
        offsets.commit(GROUPS[1], {0: 77}, 2, retention_time_ms=DAY_MS)
        topics = [{"name": TOPIC, "partitions": [{"partition_index": 2}]}]
        offsets.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": GROUPS[2], "topics": topics})
        offsets.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUPS[3]]})


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("first", ["tidelog", "kafka"])
def test_offsets_are_the_same_whoever_has_the_folder(jars: Path, tmp_path: Path, first: str, end: str) -> None:
    folder = Folder(tmp_path / "data")
    second = "kafka" if first == "tidelog" else "tidelog"
    with getattr(folder, first)(end) as bootstrap:
        fill(bootstrap)
        with Offsets(bootstrap) as offsets:
            before = offsets.seen()
            who = offsets.begin()
            assert offsets.seen() == before
    assert before["groups"].keys() == set(GROUPS) - {GROUPS[3]}
    assert before[GROUPS[1]] == {0: (77, -1, "at 77"), 1: (11, 0, "at 11"), 2: (3, 0, "at 3")}
    for turn, committed in ((second, True), (first, False)):
        with getattr(folder, turn)(end) as bootstrap, Offsets(bootstrap) as offsets:
            assert offsets.seen() == before
            offsets.end(who, committed)
            if committed:
                before[GROUPS[0]] |= {0: (500, 0, "at 500"), 2: (502, 0, "at 502")}
            _wait_for(offsets, before)
            offsets.commit(GROUPS[4], {0: 1000 + committed})
            before[GROUPS[4]][0] = (1000 + committed, 0, f"at {1000 + committed}")
            who = offsets.begin()
    with getattr(folder, second)(end) as bootstrap, Offsets(bootstrap) as offsets:
        assert offsets.seen() == before


def _wait_for(offsets: Offsets, expected: dict[str, Any]) -> None:
    """Until the marker is written: EndTxn is answered before."""
    deadline = time.monotonic() + 15
    while offsets.seen() != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert offsets.seen() == expected


def test_kafkas_own_decoder_reads_the_offsets(jars: Path, tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data", {"node.id": "1", "offsets.topic.num.partitions": "1"}) as broker:
        fill(broker.bootstrap)
        with Offsets(broker.bootstrap) as offsets:
            offsets.end(offsets.begin(), True)
            time.sleep(0.2)
        broker.stop()
    (log,) = (tmp_path / "data" / "__consumer_offsets-0").glob("*.log")
    said = tool("DumpLogSegments", "--offsets-decoder", "--deep-iteration", "--files", str(log))
    assert said.returncode == 0, said.stderr
    assert '"offset":500,"leaderEpoch":0,"metadata":"at 500"' in said.stdout
    assert '{"type":"1","data":{"group":"crew-1","topic":"logbook","partition":0}}' in said.stdout
    assert '"version":"1"' in said.stdout, "an offset with an expiry of its own"
    assert "endTxnMarker: COMMIT" in said.stdout
    assert 'key: {"type":"2","data":{"group":"crew-3"}} payload: <DELETE>' in said.stdout
