"""Metadata (key 3): the brokers, and topics with their partitions' leaders.

Topics are asked for by name, from v12 on also by id; null (v0: none) means all. A topic that isn't there is made
where the client allows it (v4; before, always) and `auto.create.topics.enable` says so. Kafka answers
UNKNOWN_TOPIC_OR_PARTITION while it makes it and leaves the client to ask again; Tidelog answers when it is made.

v1 names a broker for the controller's requests, and internal topics; v2 the cluster; v5 offline replicas; v7 leader
epochs; v8 to v10 what the client may do; v10 ids. v13 has an error for the request as a whole.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.apis.nodes import (
    CLUSTER_OPERATIONS,
    NOT_TOLD,
    TOPIC_OPERATIONS,
    PartitionView,
    any_alive,
    brokers_on,
)
from tidelog.controller.names import INTERNAL_TOPICS, why_invalid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise
    from tidelog.metadata.image import TopicImage
    from tidelog.wire.messages.create_topics import CreateTopicsResponse

log = logging.getLogger("tidelog.metadata")

FIRST_WITH_IDS = 12


def handle(context: Context, request: MetadataRequest) -> MetadataResponse | Promise[MetadataResponse]:
    wrong = _wrong_topics(context, request)
    if wrong:
        return MetadataResponse(topics=wrong, error_code=ErrorCode.INVALID_REQUEST)
    names = _names(context, request)
    missing = _missing(context, request, names)
    if not missing:
        return _answer(context, request, _topics(context, request, names))

    def made(response: CreateTopicsResponse) -> MetadataResponse:
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.warning("topic %s could not be made on demand: %s", result.name, result.error_message)
        return _answer(context, request, _topics(context, request, names))

    return _make(context, missing).map(made)


def _make(context: Context, names: list[str]) -> Promise[CreateTopicsResponse]:
    from tidelog.apis.create_topics import make_topics
    from tidelog.apis.internal_topics import creatable
    from tidelog.wire.messages.create_topics import CreateTopicsRequest

    services = context.services
    brokers = sum(1 for broker in services.metadata.image.brokers.values() if not broker.fenced)
    wanted = CreateTopicsRequest(
        topics=[creatable(name, services.config, brokers) for name in names],
        timeout_ms=services.config.request_timeout_ms,
    )
    return make_topics(services, wanted)


def _wrong_topics(context: Context, request: MetadataRequest) -> list[MetadataResponseTopic]:
    """Topics without a name, or with an id in a version that has none: then all are answered with an error."""
    if context.version < 10 or not request.topics:
        return []
    wrong = any(topic.name is None and topic.topic_id == ZERO_UUID for topic in request.topics)
    if context.version < FIRST_WITH_IDS:
        wrong = any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics)
    if not wrong:
        return []
    return [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST,
            name=topic.name or "",
            topic_id=topic.topic_id,
        )
        for topic in request.topics
    ]


def _is_all(context: Context, request: MetadataRequest) -> bool:
    return request.topics is None or (context.version == 0 and not request.topics)


def _names(context: Context, request: MetadataRequest) -> list[str]:
    """The topics asked for, each once; by their ids where ids are given."""
    image = context.services.metadata.image
    if _is_all(context, request):
        return list(image.topics)
    asked = request.topics or []
    if any(topic.topic_id != ZERO_UUID for topic in asked):
        known = (image.topics_by_id.get(topic.topic_id) for topic in asked)
        return list(dict.fromkeys(topic.name for topic in known if topic is not None))
    return list(dict.fromkeys(topic.name for topic in asked if topic.name is not None))


def _missing(context: Context, request: MetadataRequest, names: list[str]) -> list[str]:
    """Those to be made."""
    if not (request.allow_auto_topic_creation and context.services.config.auto_create_topics_enable):
        return []
    topics = context.services.metadata.image.topics
    return [name for name in names if name not in topics and why_invalid(name) is None]


def _topics(context: Context, request: MetadataRequest, names: list[str]) -> list[MetadataResponseTopic]:
    image = context.services.metadata.image
    view = PartitionView(image, context.listener, context.version)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_TOLD
    answers = [
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        for topic_id in dict.fromkeys(topic.topic_id for topic in request.topics or ())
        if topic_id != ZERO_UUID and topic_id not in image.topics_by_id
    ]
    for name in names:
        topic = image.topics.get(name)
        answer = _missing_topic(name) if topic is None else _topic(topic, view)
        answer.topic_authorized_operations = operations
        answers.append(answer)
    return answers


def _missing_topic(name: str) -> MetadataResponseTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(topic: TopicImage, view: PartitionView) -> MetadataResponseTopic:
    partitions: list[MetadataResponsePartition] = []
    for index, partition in enumerate(topic.partitions):
        seen = view.see(partition)
        partitions.append(
            MetadataResponsePartition(
                error_code=seen.error,
                partition_index=index,
                leader_id=seen.leader,
                leader_epoch=seen.leader_epoch,
                replica_nodes=seen.replicas,
                isr_nodes=seen.isr,
                offline_replicas=seen.offline,
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )


def _answer(context: Context, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    image = context.services.metadata.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in brokers_on(image, context.listener)
        ],
        cluster_id=context.services.cluster_id,
        controller_id=any_alive(image),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_TOLD
        ),
    )
