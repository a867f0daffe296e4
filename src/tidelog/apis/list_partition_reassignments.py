"""ListPartitionReassignments (key 46): partitions whose replicas are being moved (KIP-455).

No topics (null) means all. Only v0. Asked of the active controller: brokers pass it on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.reassignments import list_reassignments
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.slices import Steps


def handle(context: Context, request: ListPartitionReassignmentsRequest) -> Steps[ListPartitionReassignmentsResponse]:
    context.services.controller.check_active()
    return list_reassignments(context.services.metadata.image, request)
