"""Topics full of rows for the Spark cases: as fast as a topic can be filled, so that the run measures reading."""

import os
import time
from collections.abc import Callable
from typing import Any

from tidelog.rpc import Cluster
from tidelog.rpc.produce import produce
from tidelog.rpc.transactions import init_producer
from tidelog.wire.batch import build
from tidelog.wire.record import Record

BATCH_BYTES = 256 * 1024
KEYS = 100_000
CHUNK_ROWS = 500_000


def fill(bootstrap: str, topic: str, value_bytes: int, rows: int, partitions: int) -> None:
    """Batches that are built once and sent again and again: the broker gives each its offsets."""
    count = max(1, BATCH_BYTES // value_bytes)
    now_ms = int(time.time() * 1000)
    records = [Record(timestamp=now_ms, key=b"%012d" % index, value=os.urandom(value_bytes)) for index in range(count)]
    batch = build(records)
    with Cluster(bootstrap) as cluster:
        left, turn = rows, 0
        while left > 0:
            if left < count:
                batch = build(records[:left])
            produce(cluster, topic, turn % partitions, batch)
            left -= min(left, count)
            turn += 1


def fill_sequences(bootstrap: str, topic: str, rows: int, tell: Callable[[str], None]) -> None:
    """`{"seq": n}` with n growing by one for each of 100,000 keys: a topic that is whole."""
    import numpy
    import pyarrow.compute

    from tidelog.spark.sink.outbound import Outbound
    from tidelog.spark.sink.sink_options import read_sink_options

    arrow: Any = pyarrow
    options = read_sink_options({"kafka.bootstrap.servers": bootstrap, "topic": topic}, streaming=False)
    with Cluster(bootstrap) as cluster:
        outbound = Outbound(cluster, options, init_producer(cluster, None))
        for first in range(0, rows, CHUNK_ROWS):
            numbers = numpy.arange(first, min(rows, first + CHUNK_ROWS))
            keys = arrow.array(numbers % KEYS).cast(arrow.string())
            written = arrow.array(numbers // KEYS).cast(arrow.string())
            values = arrow.compute.binary_join_element_wise('{"seq":', written, "}", "")
            outbound.add(arrow.RecordBatch.from_arrays([keys, values], names=["key", "value"]))
            tell(f"{min(rows, first + CHUNK_ROWS) / 1e6:.1f} of {rows / 1e6:.1f} million rows written")
        outbound.flush()
