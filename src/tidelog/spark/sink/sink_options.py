"""The options of writing with `format("tidelog")`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidelog.rpc.options import Options
from tidelog.spark.source.options import NAMES as NAMES_OF_SOURCE
from tidelog.spark.source.options import OptionError, split_options
from tidelog.wire.compression import CODEC_NAMES

NAMES = (
    "topic",
    "delivery",
    "jobId",
    "jobBatch",
    "jobInput",
    "jobQuery",
    "repetition",
    "decisionsTopic",
    "includeHeaders",
)
OF_SPARK = ("checkpointLocation", "queryName", "path")
"""What Spark hands to every sink with the rest."""
KNOWN = {name.lower(): name for name in (*NAMES, *OF_SPARK)}
REFUSED = {name.lower(): "it is for reading" for name in NAMES_OF_SOURCE if name not in NAMES} | dict.fromkeys(
    ("subscribe", "subscribepattern", "assign"), "it is for reading; rows go to the option topic, or the column topic"
)
DECISIONS = "tidelog-spark-decisions"
BATCH_BYTES = 512 * 1024
"""What a partition gathers before it is sent: half of a topic's usual max.message.bytes."""
BATCH_BYTES_MAX = 64 * 1024 * 1024
BATCH_MAX = 2**63 - 1
JOB_BYTES_MAX = {"jobId": 30_000, "jobQuery": 300}
"""A transactional id has 32,767 bytes, and a topic, a run and a worker are in it, too."""

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
    input: str | None = None
    """What a job's batch is made from, where the caller says so: a repetition is known by it then, not by its rows."""
    query: str = ""
    """The query in whose `foreachBatch` a job runs, where Spark does not tell tasks."""
    checkpoint: str | None = None
    query_name: str = ""
    """What a stream's query is called, where it is."""
    keeps: bool = False
    """Whether a decided batch holds though it comes again with other rows."""
    leased: bool = False
    """Whether tasks' transactions may have leases: where the driver, which made this, prepares what it decides."""


def read_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """All options at once; OptionError names the first that is wrong."""
    options, kafka = split_options(given, KNOWN, REFUSED)
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
    for name in ("jobInput", "jobQuery"):
        if name.lower() in options and not job:
            raise OptionError(f"option {name}: it is of a batch under a jobId, and there is none")
    for name, most in JOB_BYTES_MAX.items():
        size = len(options.get(name.lower(), "").encode())
        if size > most:
            raise OptionError(f"option {name}: it has {size} bytes, at most {most} fit into a transactional id")
    if ":" in options.get("jobquery", ""):
        raise OptionError("option jobQuery: a query's id holds no colon")
    repetition = options.get("repetition", "checked").lower()
    if repetition not in ("checked", "kept"):
        raise OptionError(f"option repetition: {repetition!r} is neither checked nor kept")
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
        options.get("jobinput") or None,
        options.get("jobquery", ""),
        options.get("checkpointlocation") or None,
        options.get("queryname", ""),
        repetition == "kept",
        leased=True,
    )
