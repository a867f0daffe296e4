"""Before a Produce request appends: a look into the records of batches whose topics want one (log/record_check.py).

It comes before the transaction's coordinator is asked: between its word and the append no time may pass. Where a look
takes long it is done aside, and the request goes on when the last one is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog.env.promise import Promise, gather
from tidelog.log.validate import Admitted, Unlooked
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.replica.partition import Partition
    from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

IDS_FROM = 13

Admissions: TypeAlias = "dict[int, Admitted | KafkaError]"
"""What is appended in place of what was sent, or why nothing is; by the `id` of a partition's data in the request. One
that isn't in it needs no look."""


def look_ahead(context: Context, request: ProduceRequest) -> Admissions | Promise[Admissions]:
    """With a promise the request's records are copied: the frame's buffer isn't ours for so long."""
    services = context.services
    now_ms = services.env.clock.now_ms()
    admissions: Admissions = {}
    lengthy: list[tuple[PartitionProduceData, Unlooked]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = None if data.records is None else served(context, topic, data.index)
            if partition is None or data.records is None:
                continue
            view = memoryview(data.records)
            data.records = view = memoryview(bytearray(view)) if view.readonly else view
            try:
                admitted = partition.log.admit(view, now_ms)
            except KafkaError as error:
                admissions[id(data)] = error
                continue
            if isinstance(admitted, Unlooked):
                lengthy.append((data, admitted))
            elif admitted is not None:
                admissions[id(data)] = admitted
    if not lengthy:
        return admissions
    keep(request, admissions)

    def looked(done: list[Promise[Admitted]]) -> Admissions:
        for (data, _), look in zip(lengthy, done, strict=True):
            if isinstance(look.error, KafkaError):
                admissions[id(data)] = look.error
            else:
                admissions[id(data)] = look.result()
        return admissions

    return gather([services.store.looks.look(unlooked) for _, unlooked in lengthy]).map(looked)


def served(context: Context, topic: TopicProduceData, index: int) -> Partition | None:
    """None where there is nobody to append: that is told when it is tried."""
    replicas = context.services.replicas
    try:
        by_id = context.version >= IDS_FROM
        partition = replicas.by_id(topic.topic_id, index) if by_id else replicas.get(topic.name, index)
    except Exception:
        return None
    return partition if partition.is_served else None


def keep(request: ProduceRequest, admissions: Admissions) -> None:
    """Copy what lies in the frame's buffer."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is None:
                continue
            copy = memoryview(bytearray(data.records))
            known = admissions.get(id(data))
            if isinstance(known, Admitted) and known.buffer is data.records:
                admissions[id(data)] = known._replace(buffer=copy)
            data.records = copy
