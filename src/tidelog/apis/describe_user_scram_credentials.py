"""DescribeUserScramCredentials (key 50): which SCRAM mechanisms users have credentials for; never the credentials.

Credentials can't be set through Tidelog yet, but may stand in metadata that Apache Kafka wrote; those are told. No
users, or null, means all. Only v0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.env.slices import CHEAP_A_STEP, Steps, mapped
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in context.services.metadata.image.scram.items():
        known.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    users = request.users or []
    asked: dict[str, int] = {}
    for start in range(0, len(users), CHEAP_A_STEP):
        for user in users[start : start + CHEAP_A_STEP]:
            asked[user.name] = asked.get(user.name, 0) + 1
        yield
    results = yield from mapped(
        lambda user: _result(user, known, twice=asked.get(user, 0) > 1), list(asked or sorted(known))
    )
    return DescribeUserScramCredentialsResponse(results=results)


def _result(user: str, known: dict[str, list[CredentialInfo]], *, twice: bool) -> DescribeUserScramCredentialsResult:
    if twice:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    if user not in known:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(user=user, credential_infos=known[user])
