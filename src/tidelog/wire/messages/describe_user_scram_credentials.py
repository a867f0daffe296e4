"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554).

Flexible from the first version. Null users mean all.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@struct
class UserName:
    name: str = ""


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = wire(factory=list)


@struct
class CredentialInfo:
    mechanism: i8 = 0
    iterations: i32 = 0


@struct
class DescribeUserScramCredentialsResult:
    user: str = ""
    error_code: i16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = wire(factory=list)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = wire(factory=list)
