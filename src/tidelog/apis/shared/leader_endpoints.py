"""Where the leader of the metadata log listens, told to who asks in a version that has a place for it (KIP-853)."""

from typing import Any, TypeVar

FIRST_VERSION = 1
"""Of Vote, BeginQuorumEpoch, EndQuorumEpoch and FetchSnapshot alike."""

Response = TypeVar("Response", bound=Any)


def told_in(version: int, response: Response) -> Response:
    """The response as this version can say it."""
    if version < FIRST_VERSION:
        response.node_endpoints = []
    return response
