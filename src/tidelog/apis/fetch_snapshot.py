"""FetchSnapshot (key 59): a replica that is too far behind loads a checkpoint, piece by piece (KIP-630)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.shared.leader_endpoints import told_in

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


def handle(context: Context, request: FetchSnapshotRequest) -> Promise[FetchSnapshotResponse]:
    return context.services.raft.server.fetch_snapshot(request).map(partial(told_in, context.version))
