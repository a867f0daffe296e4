"""What a ConsumerGroupHeartbeat must look like, before its group is looked at."""

from collections.abc import Sequence

from tidelog.coordinator.bounds import SUBSCRIBED_NAMES_MAX
from tidelog.coordinator.group.consumer.state import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroup
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

OWN_IDS_VERSION = 1
"""From this version on members make their ids themselves."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if (version >= OWN_IDS_VERSION or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.subscribed_topic_names is not None and len(request.subscribed_topic_names) > SUBSCRIBED_NAMES_MAX:
        raise _invalid(f"SubscribedTopicNames has more than {SUBSCRIBED_NAMES_MAX} names: use SubscribedTopicRegex.")
    if epoch == JOIN_EPOCH:
        _check_joining(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, members_max: int) -> None:
    """GROUP_MAX_SIZE_REACHED, unless it is a member already, or takes the place of one."""
    if instance_id is not None and instance_id in group.static:
        return
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {members_max} members.",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
