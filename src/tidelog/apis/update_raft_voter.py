"""UpdateRaftVoter (key 82): a voter listens elsewhere (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse


def handle(context: Context, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    return context.services.raft.members.update(request)
