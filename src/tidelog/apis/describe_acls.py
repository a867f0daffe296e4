"""DescribeAcls (key 29): who may do what. Tidelog has no authorizer yet and answers as Kafka does without one.

v1 knows prefixed patterns, v2 is flexible, v3 knows user resources; the answer is the same in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
