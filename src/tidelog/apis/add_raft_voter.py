"""AddRaftVoter (key 80): an observer of the metadata log that has caught up becomes a voter (KIP-853).

v1 may be answered as soon as the record is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle(context: Context, request: AddRaftVoterRequest) -> Promise[AddRaftVoterResponse]:
    return context.services.raft.members.add(request)
