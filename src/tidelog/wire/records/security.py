"""Metadata records of who may do what: access control, credentials, delegation tokens."""

from tidelog.wire.codec import i8, i32, i64, message, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    id: uuid = ZERO_UUID
    resource_type: i8 = 0
    resource_name: str = ""
    pattern_type: i8 = 0
    principal: str = ""
    host: str = ""
    operation: i8 = 0
    permission_type: i8 = 0


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: uuid = ZERO_UUID


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    name: str = ""
    mechanism: i8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: i32 = 0


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: str = ""
    mechanism: i8 = 0


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    owner: str = ""
    requester: str = ""
    renewers: list[str] = wire(factory=list)
    issue_timestamp: i64 = 0
    max_timestamp: i64 = 0
    expiration_timestamp: i64 = 0
    token_id: str = ""


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: str = ""
