"""EndQuorumEpoch (key 54): the leader of the metadata log steps down, and names its successors (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.leader_endpoints import told_in

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


def handle(context: Context, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    return told_in(context.version, context.services.raft.server.end_epoch(request))
