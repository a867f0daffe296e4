"""RemoveRaftVoter (key 81): a voter becomes an observer, whether it is there or not (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def handle(context: Context, request: RemoveRaftVoterRequest) -> Promise[RemoveRaftVoterResponse]:
    return context.services.raft.members.remove(request)
