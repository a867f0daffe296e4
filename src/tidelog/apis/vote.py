"""Vote (key 52): another voter asks for this node's vote, or whether it would give it (KIP-595, KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.leader_endpoints import told_in

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.wire.messages.vote import VoteRequest, VoteResponse


def handle(context: Context, request: VoteRequest) -> VoteResponse:
    return told_in(context.version, context.services.raft.server.vote(request))
