"""Offsets committed and fetched through the sim_broker: what tests of the group APIs share."""

from collections.abc import Mapping
from typing import Any

from tests.apis.sim_broker import SimBroker
from tidelog.coordinator.group.live import GroupLive
from tidelog.coordinator.group.state import GroupsState
from tidelog.coordinator.shard import Shard
from tidelog.wire.batch import iterate
from tidelog.wire.keys import ApiKey

TOPIC = "logbook"
GROUP = "crew"


def sim_broker(settings: Mapping[str, str] | None = None, partitions: int = 3, **more: Any) -> SimBroker:
    """A broker with a topic and a coordinator for groups."""
    made = SimBroker({"offsets.topic.num.partitions": "4", **(settings or {})}, **more)
    if TOPIC not in made.services.metadata.image.topics:
        made.make_topic(TOPIC, partitions)
    find(made, GROUP)
    return made


def find(sim_broker: SimBroker, group: str) -> None:
    answer = sim_broker.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
    assert answer.coordinators[0].error_code == 0


def shard(sim_broker: SimBroker, group: str = GROUP) -> Shard[GroupsState, GroupLive]:
    return sim_broker.services.groups.shards.of(group)


def commit_fields(group: str, offsets: Mapping[int, int], topic: str = TOPIC, **more: Any) -> dict[str, Any]:
    metadata = more.pop("metadata", None)
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        for index, offset in offsets.items()
    ]
    named = more.pop("named", {"name": topic})
    return {"group_id": group, "topics": [{**named, "partitions": partitions}], **more}


def commit(
    sim_broker: SimBroker, offsets: Mapping[int, int], group: str = GROUP, version: int = 8, **more: Any
) -> set[int]:
    """The error codes of all partitions."""
    answer = sim_broker.ask(ApiKey.OFFSET_COMMIT, version, commit_fields(group, offsets, **more))
    return {partition.error_code for topic in answer.topics for partition in topic.partitions}


def fetch(sim_broker: SimBroker, group: str = GROUP, *, require_stable: bool = False) -> dict[tuple[str, int], int]:
    """Everything that the group has committed; an unstable offset is its error code, negated."""
    fields = {"group_id": group, "topics": None, "require_stable": require_stable}
    answer = sim_broker.ask(ApiKey.OFFSET_FETCH, 7, fields)
    assert answer.error_code == 0, answer
    return {
        (topic.name, partition.partition_index): -partition.error_code or partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def committed(sim_broker: SimBroker, group: str = GROUP, topic: str = TOPIC) -> dict[int, int]:
    """The same of one topic, by partition."""
    return {partition: offset for (name, partition), offset in fetch(sim_broker, group).items() if name == topic}


def batches(sim_broker: SimBroker, group: str = GROUP) -> int:
    """How many batches the group's shard has in its log."""
    partition = shard(sim_broker, group).partition
    piece = partition.read(partition.log.log_start, 1 << 24, committed=False, at_least_one=True)
    return 0 if piece is None else sum(1 for _ in iterate(bytes(piece.view())))
