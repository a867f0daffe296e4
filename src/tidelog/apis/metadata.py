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

from tidelog.apis.shared.administration import tell, topics_created
from tidelog.apis.shared.nodes import (
    CLUSTER_OPERATIONS,
    NOT_TOLD,
    TOPIC_OPERATIONS,
    PartitionView,
    any_alive,
    brokers_on,
    offline_here,
)
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.names import INTERNAL_TOPICS, why_invalid
from tidelog.env.slices import mapped, settled
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.metadata.image import ClusterImage, TopicImage
    from tidelog.wire.messages.create_topics import CreateTopicsResponse

log = logging.getLogger("tidelog.metadata")

FIRST_WITH_IDS = 12
NAMES_A_STEP = 256
TOPICS_A_STEP = 32
PARTITIONS_A_STEP = 64


def handle(context: Context, request: MetadataRequest) -> Steps[MetadataResponse]:
    wrong = yield from _wrong_topics(context, request)
    if wrong:
        return MetadataResponse(topics=wrong, error_code=ErrorCode.INVALID_REQUEST)
    names = yield from _names(context, request)
    missing = yield from _missing(context, request, names)
    if missing:
        made = yield from settled(_make(context, missing))
        _tell_refused(made)
        yield from tell(context, topics_created(context, request, made))
    return (yield from _answer(context, request, names))


def _tell_refused(response: CreateTopicsResponse) -> None:
    """One line, however many there are."""
    refused = [one for one in response.topics if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)]
    if refused:
        first, more = refused[0], len(refused) - 1
        others = f", nor could {more} others" if more else ""
        log.warning("topic %s could not be made on demand%s: %s", first.name, others, first.error_message)


def _make(context: Context, names: list[str]) -> Promise[CreateTopicsResponse]:
    from tidelog.apis.create_topics import make_topics
    from tidelog.apis.shared.internal_topics import creatable
    from tidelog.wire.messages.create_topics import CreateTopicsRequest

    services = context.services
    brokers = sum(1 for broker in services.metadata.image.brokers.values() if not broker.fenced)
    wanted = CreateTopicsRequest(
        topics=[creatable(name, services.config, brokers) for name in names],
        timeout_ms=services.config.request_timeout_ms,
    )
    return make_topics(services, wanted)


def _wrong_topics(context: Context, request: MetadataRequest) -> Steps[list[MetadataResponseTopic]]:
    """Topics without a name, or with an id in a version that has none: then all are answered with an error."""
    if context.version < 10 or not request.topics:
        return []
    if not (yield from _any_wrong(request.topics, ids=context.version >= FIRST_WITH_IDS)):
        return []
    answers: list[MetadataResponseTopic] = []
    for topic in request.topics:
        answers.append(
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
        )
        if not len(answers) % TOPICS_A_STEP:
            yield
    return answers


def _any_wrong(topics: list[MetadataRequestTopic], *, ids: bool) -> Steps[bool]:
    for number, topic in enumerate(topics, 1):
        unnamed, with_id = topic.name is None, topic.topic_id != ZERO_UUID
        if (unnamed and not with_id) if ids else (unnamed or with_id):
            return True
        if not number % NAMES_A_STEP:
            yield
    return False


def _is_all(context: Context, request: MetadataRequest) -> bool:
    return request.topics is None or (context.version == 0 and not request.topics)


def _names(context: Context, request: MetadataRequest) -> Steps[list[str]]:
    """The topics asked for, each once; by their ids where ids are given."""
    image = context.services.metadata.image
    if _is_all(context, request):
        return list(image.topics)
    names: dict[str, None] = {}
    by_id: dict[str, None] = {}
    any_id = False
    for number, topic in enumerate(request.topics or (), 1):
        if topic.topic_id != ZERO_UUID:
            any_id = True
            known = image.topics_by_id.get(topic.topic_id)
            if known is not None:
                by_id[known.name] = None
        elif topic.name is not None:
            names[topic.name] = None
        if not number % NAMES_A_STEP:
            yield
    return list(by_id if any_id else names)


def _missing(context: Context, request: MetadataRequest, names: list[str]) -> Steps[list[str]]:
    """Those to be made: none where they are more than one request may make, as in Kafka, which refuses them all."""
    if not (request.allow_auto_topic_creation and context.services.config.auto_create_topics_enable):
        return []
    topics = context.services.metadata.image.topics
    missing: list[str] = []
    for number, name in enumerate(names, 1):
        if name not in topics and why_invalid(name) is None:
            missing.append(name)
        if not number % NAMES_A_STEP:
            yield
    if len(missing) > CHANGES_MAX:
        log.warning(
            "%d topics, such as %s, were asked for and are not there: none of them is made, since one request may make"
            " %d",
            len(missing),
            missing[0],
            CHANGES_MAX,
        )
        return []
    return missing


def _topics(context: Context, request: MetadataRequest, names: list[str]) -> Steps[list[MetadataResponseTopic]]:
    image = context.services.metadata.image
    view = PartitionView(image, context.listener, context.version, here=offline_here(context.services))
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_TOLD
    answers = yield from mapped(_unknown_topic, (yield from _unknown_ids(request, image)))
    for number, name in enumerate(names, 1):
        topic = image.topics.get(name)
        answer = _missing_topic(name) if topic is None else (yield from _topic(topic, view))
        answer.topic_authorized_operations = operations
        answers.append(answer)
        if not number % TOPICS_A_STEP:
            yield
    return answers


def _unknown_topic(topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)


def _unknown_ids(request: MetadataRequest, image: ClusterImage) -> Steps[list[bytes]]:
    unknown: dict[bytes, None] = {}
    for number, topic in enumerate(request.topics or (), 1):
        if topic.topic_id != ZERO_UUID and topic.topic_id not in image.topics_by_id:
            unknown[topic.topic_id] = None
        if not number % NAMES_A_STEP:
            yield
    return list(unknown)


def _missing_topic(name: str) -> MetadataResponseTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(topic: TopicImage, view: PartitionView) -> Steps[MetadataResponseTopic]:
    partitions: list[MetadataResponsePartition] = []
    for index, partition in enumerate(topic.partitions):
        seen = view.see(partition, topic.name, index)
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
        if not len(partitions) % PARTITIONS_A_STEP:
            yield
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )


def _answer(context: Context, request: MetadataRequest, names: list[str]) -> Steps[MetadataResponse]:
    topics = yield from _topics(context, request, names)
    image = context.services.metadata.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in brokers_on(image, context.listener)
        ],
        cluster_id=context.services.cluster_id,
        controller_id=any_alive(image, context.services.node_id),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_TOLD
        ),
    )
