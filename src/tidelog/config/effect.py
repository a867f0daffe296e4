"""Settings that are taken and told but change nothing, and why: said in the docs, kept honest by a test."""

from collections.abc import Mapping

_THROTTLED = "no effect: copying isn't throttled"
_TIERED = "no effect: Tidelog has no tiered storage"
_THREADS = "no effect: Tidelog works on one loop"

BROKER: Mapping[str, str] = {
    "background.threads": _THREADS,
    "controller.quorum.append.linger.ms": "no effect: records are written at once and synced together",
    "log.flush.start.offset.checkpoint.interval.ms": "no effect: a log's start is written down as it moves",
    "metadata.log.segment.bytes": "no effect: the metadata log rolls with each snapshot",
    "metadata.log.segment.ms": "no effect: the metadata log rolls with each snapshot",
    "metadata.max.idle.interval.ms": "no effect: an idle leader answers each fetch, which says as much",
    "num.recovery.threads.per.data.dir": "no effect: logs are opened when they are first needed, a few at a time",
    "offsets.load.buffer.size": "no effect: the topic is read in pieces that don't hold up the loop",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "no effect: each is aborted when its time is over",
    "transaction.state.log.load.buffer.size": "no effect: the topic is read in pieces that don't hold up the loop",
}

TOPIC: Mapping[str, str] = {
    "follower.replication.throttled.replicas": _THROTTLED,
    "leader.replication.throttled.replicas": _THROTTLED,
    "local.retention.bytes": _TIERED,
    "local.retention.ms": _TIERED,
    "preallocate": "no effect: segments grow as they are written",
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
}
