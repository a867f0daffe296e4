"""Agreeing on versions: ApiVersions comes first on every connection, then the newest version that both sides know."""

from collections.abc import Mapping

from tidelog.rpc.errors import Unsupported
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = "tidelog"
FIRST_VERSION = 3
"""The version of ApiVersions that is tried first; who doesn't know it answers in version 0, and is asked in that."""

_UNSUPPORTED = b"\0\x23"


def greeting(version: int) -> bytes:
    """The body of an ApiVersions request."""
    request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version="1") if version else None
    return b"" if request is None else encoder(ApiVersionsRequest, version)(request)


def read_versions(frame: bytes | memoryview, pos: int, version: int) -> ApiVersionsResponse | None:
    """The answer to a greeting; None where that version of it isn't known. MalformedError where it is no answer."""
    if version and bytes(frame[pos : pos + 2]) == _UNSUPPORTED:  # an error is answered in v0
        return None
    return decoder(ApiVersionsResponse, version)(frame, pos)[0]


def agreed(served: Mapping[int, tuple[int, int]], key: int, where: object, at_most: int | None = None) -> int:
    """The newest version that both sides know; Unsupported, which names the other side, where there is none."""
    low, high = served.get(key, (0, -1))
    known = RANGES[key]
    best = min(high, known.max if at_most is None else min(at_most, known.max))
    if best < max(low, known.min):
        told = f"serves versions {low} to {high}" if high >= 0 else "does not serve it"
        raise Unsupported(
            f"{ApiKey(key).name}: the broker at {where} {told}, {known.min} to {known.max} are known here"
        )
    return best
