"""The options of writing with `format("tidelog")`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidelog.rpc.options import Options
from tidelog.spark.options import OptionError
from tidelog.wire.compression import CODEC_NAMES

NAMES = (
    "topic",
    "delivery",
    "jobId",
    "jobBatch",
    "checkpointLocation",
    "path",
    "decisionsTopic",
    "includeHeaders",
    "queryName",
)
DECISIONS = "tidelog-spark-decisions"
BATCH_BYTES = 512 * 1024
"""What a partition gathers before it is sent: half of a topic's usual max.message.bytes."""
BATCH_BYTES_MAX = 64 * 1024 * 1024
BATCH_MAX = 2**63 - 1

Delivery = Literal["exactly-once", "at-least-once"]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    rpc: Options
    topic: str | None
    delivery: Delivery
    job: str | None
    job_batch: int
    compression: int
    decisions: str
    batch_bytes: int


def read_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """All options at once; OptionError names the first that is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in NAMES}
    for name in options:
        if not name.startswith("kafka.") and name not in known:
            raise OptionError(f"unknown option {name}; there are {', '.join(NAMES)} and kafka.*")
    kafka = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
    if not kafka.get("bootstrap.servers"):
        raise OptionError("option kafka.bootstrap.servers: no broker's address is given")
    job = options.get("jobid")
    if job == "":
        raise OptionError("option jobId is empty: it is what a repetition is known by")
    default = "exactly-once" if streaming or job else "at-least-once"
    delivery = options.get("delivery", default).lower().replace("_", "-")
    if delivery not in ("exactly-once", "at-least-once"):
        raise OptionError(f"option delivery: {delivery!r} is neither exactly-once nor at-least-once")
    if not streaming and delivery == "exactly-once" and not job:
        raise OptionError("option delivery=exactly-once: a batch needs a jobId, by which its repetition is known")
    batch = options.get("jobbatch", "0")
    if not batch.isdecimal() or int(batch) > BATCH_MAX:
        raise OptionError(f"option jobBatch: {batch!r} is no number from 0 to {BATCH_MAX}")
    if "jobbatch" in options and not job:
        raise OptionError("option jobBatch: a batch has a number under a jobId, and there is none")
    codec = kafka.get("compression.type", "none")
    if codec not in CODEC_NAMES:
        raise OptionError(f"option kafka.compression.type: {codec!r} is not one of {', '.join(CODEC_NAMES)}")
    try:
        rpc = Options.from_kafka({"client.id": "tidelog-spark", **kafka})
    except ValueError as error:
        raise OptionError(f"option kafka.{error}") from None
    size = kafka.get("batch.size", str(BATCH_BYTES))
    if not size.isdecimal() or not 0 < int(size) <= BATCH_BYTES_MAX:
        raise OptionError(f"option kafka.batch.size: {size!r} is no number of bytes from 1 to {BATCH_BYTES_MAX}")
    return SinkOptions(
        kafka["bootstrap.servers"],
        rpc,
        options.get("topic") or None,
        delivery,
        job,
        int(batch),
        CODEC_NAMES[codec],
        options.get("decisionstopic", DECISIONS),
        int(size),
    )
