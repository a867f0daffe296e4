"""BeginQuorumEpoch (key 53): somebody leads the metadata log from now on, and says so (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.leader_endpoints import told_in

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse


def handle(context: Context, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
    return told_in(context.version, context.services.raft.server.begin_epoch(request))
