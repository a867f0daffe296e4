"""The name of a sink: by which its decisions, its group and its transactional ids are known.

A stream is known by its query's id. A job by where it writes to, the query in whose `foreachBatch` it runs, and its
`jobId`, in this order: neither a topic nor a query's id holds a colon, so that no two of these make one name.
"""

from typing import NamedTuple

from tidelog.rpc.groups import OF_SPARK_SINKS

_JOB = "job:"
_OLDER_JOB = "job-"


class Job(NamedTuple):
    """A job's identity. `target` is empty where the rows say where to, `query` outside of queries."""

    target: str
    query: str
    job: str


def job_sink(job: Job) -> str:
    return f"{_JOB}{job.target}:{job.query}:{job.job}"


def job_of(sink: str) -> Job | None:
    """None where it is a stream's, one that an earlier version gave to a job, or no sink's at all."""
    parts = sink.removeprefix(_JOB).split(":", 2)
    return Job(*parts) if sink.startswith(_JOB) and len(parts) == len(Job._fields) else None


def older_name(sink: str) -> str | None:
    """What earlier versions called this sink: a job was known by its `jobId` alone. None where nothing has changed."""
    job = job_of(sink)
    return None if job is None else f"{_OLDER_JOB}{job.job}"


def group_of(sink: str) -> str:
    """The group that holds how far the sink is: whoever lists groups sees whose it is. Earlier versions gave it the
    bare name of a job."""
    return sink if sink.startswith(_OLDER_JOB) else f"{OF_SPARK_SINKS}{sink}"


def described(sink: str) -> str:
    """For people."""
    job = job_of(sink)
    if job is None:
        return f"query {sink}" if not sink.startswith(_OLDER_JOB) else f"job {sink.removeprefix(_OLDER_JOB)}"
    where = f" to topic {job.target}" if job.target else ""
    whose = f" of query {job.query}" if job.query else ""
    return f"job {job.job}{whose}{where}"
