"""ElectLeaders: bring back the preferred leader, or any leader at all."""

from collections.abc import Iterable
from typing import Any

from tidelog.controller.changes import Changes
from tidelog.controller.leaders import Defaults
from tidelog.controller.partition_change import Election
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import NO_LEADER, ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

LOOKS_A_STEP = 64
_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, defaults: Defaults
) -> Steps[Decision[Any, ElectLeadersResponse]]:
    """For the partitions named; for all, where none are, and then those that need no election are left out."""
    election = _TYPES.get(request.election_type)
    if election is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}.")
    changes = Changes(image, defaults)
    results: list[ReplicaElectionResult] = []
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        wanted = ((topic.name, range(len(topic.partitions))) for topic in image.topics.values())
    else:
        wanted = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    looks = 0
    for name, indexes in wanted:
        answers: list[PartitionResult] = []
        looks += 1
        for index in indexes:
            looks += 1
            if looks >= LOOKS_A_STEP:
                looks = 0
                yield
            try:
                _elect(changes, image, name, index, election)
            except KafkaError as error:
                if request.topic_partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                    answers.append(
                        PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                    )
            else:
                answers.append(PartitionResult(partition_id=index, error_message=None))
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    return Decision(changes.records, ElectLeadersResponse(replica_election_results=results))


def _elect(changes: Changes, image: ClusterImage, name: str, index: int, election: Election) -> None:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    partition = changes.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}.")
    preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} has the leader it should have.")
    if changes.change(topic, index, election=election) is None:
        if preferred:
            leads = "nobody leads" if partition.leader == NO_LEADER else f"broker {partition.leader} leads on"
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"The preferred replica of {name}-{index}, on broker {partition.replicas[0]}, is not there or not in "
                f"sync; {leads}.",
            )
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No replica of {name}-{index} can be elected.")
