"""DeleteGroups (key 42): forget groups that have no members, with their offsets. Each by itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.group.removal import delete_group
from tidelog.env.promise import Promise, gather
from tidelog.env.slices import Steps, distinct, mapped, settled
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

AT_ONCE = 512
"""Groups that are on their way to the log at once."""


def handle(context: Context, request: DeleteGroupsRequest) -> Steps[DeleteGroupsResponse]:
    results: list[DeletableGroupResult] = []
    asked = yield from distinct(request.groups_names)
    for start in range(0, len(asked), AT_ONCE):
        promises = yield from mapped(partial(_delete, context), asked[start : start + AT_ONCE], 1)
        yield from settled(gather(promises))
        results += [promise.result() for promise in promises]
    return DeleteGroupsResponse(results=results)


def _delete(context: Context, group_id: str) -> Promise[DeletableGroupResult]:
    def answer(promise: Promise[None]) -> DeletableGroupResult:
        error = promise.error
        if error is not None and not isinstance(error, KafkaError):
            raise error
        return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE if error is None else error.code)

    return context.services.env.loop.drive(delete_group(context.services.groups, group_id)).then(answer)
