"""DeleteGroups (key 42): forget groups that have no members, with their offsets. Each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.removal import delete_group
from tidelog.env.promise import Promise, gather
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tidelog.apis.context import Context


def handle(context: Context, request: DeleteGroupsRequest) -> Promise[DeleteGroupsResponse]:
    promises = [_delete(context, group_id) for group_id in dict.fromkeys(request.groups_names)]
    return gather(promises).map(lambda done: DeleteGroupsResponse(results=[promise.result() for promise in done]))


def _delete(context: Context, group_id: str) -> Promise[DeletableGroupResult]:
    def answer(promise: Promise[None]) -> DeletableGroupResult:
        error = promise.error
        if error is not None and not isinstance(error, KafkaError):
            raise error
        return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE if error is None else error.code)

    try:
        return delete_group(context.services.groups, group_id).then(answer)
    except KafkaError as error:
        return Promise[DeletableGroupResult].resolved(DeletableGroupResult(group_id=group_id, error_code=error.code))
