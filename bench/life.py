"""Cases of a broker's life: starting, memory, many partitions, kill -9 under load."""

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic

from bench.brokers import ADMIN_TIMEOUT_S, KAFKA, TIDELOG, Broker
from bench.case import BOTH, Bench, Case, Metrics
from bench.process import memory_bytes, open_files

MANY = 10_000
LOADED_S = 3.0
BACK_WITHIN_S = {TIDELOG: 5.0, KAFKA: 20.0}


def start(bench: Bench, name: str) -> Metrics:
    """From the start of the process to the first answer, on a folder that was stopped cleanly and holds a little."""
    broker = bench.make(name)
    broker.start()
    topic = broker.create_topic("little", 8)
    bench.loads.rdkafka("produce", broker, topic, partitions=8, size=100, count=10_000)
    broker.stop()
    metrics = {"start_s": broker.start(), "memory_mb": memory_bytes(broker.pid) / 1e6}
    broker.remove()
    return metrics


def memory_after_load(bench: Bench, name: str) -> Metrics:
    """Memory of the broker that has lived through the other cases, right after one more load."""
    broker, count = bench.long_lived(name), bench.count(400_000)
    with broker.topic(8) as topic:
        bench.loads.rdkafka("produce", broker, topic, partitions=8, size=1000, count=count)
        bench.loads.rdkafka("consume", broker, topic, partitions=8, count=count)
        return {"memory_mb": memory_bytes(broker.pid) / 1e6, "open_files": float(open_files(broker.pid))}


def partitions_10k(bench: Bench, name: str) -> Metrics:
    """10,000 partitions in one topic by one request (Kafka refuses it: then by two), and a restart with them."""
    broker = bench.make(name)
    broker.start()
    requests, create_s = _create_many(broker)
    metrics = {"create_s": create_s, "requests": float(requests), "memory_mb": memory_bytes(broker.pid) / 1e6}
    metrics["stop_s"] = broker.stop()
    metrics["restart_s"] = broker.start()
    began = time.monotonic()
    broker.wait_for_leaders("many", MANY)
    metrics["restart_and_metadata_s"] = metrics["restart_s"] + time.monotonic() - began
    metrics["memory_restarted_mb"] = memory_bytes(broker.pid) / 1e6
    broker.remove()
    return metrics


def _create_many(broker: Broker) -> tuple[int, float]:
    began = time.monotonic()
    try:
        broker.admin.create_topics([NewTopic("many", MANY, 1)], operation_timeout=ADMIN_TIMEOUT_S)["many"].result()
        requests = 1
    except KafkaException:
        began = time.monotonic()
        half = [NewTopic("many", MANY // 2, 1)]
        broker.admin.create_topics(half, operation_timeout=ADMIN_TIMEOUT_S)["many"].result(ADMIN_TIMEOUT_S)
        rest = [NewPartitions("many", MANY)]
        broker.admin.create_partitions(rest, operation_timeout=ADMIN_TIMEOUT_S)["many"].result(ADMIN_TIMEOUT_S)
        requests = 2
    broker.wait_for_leaders("many", MANY)
    return requests, time.monotonic() - began


def partitions_100k(bench: Bench, name: str) -> Metrics:
    """100,000 partitions that hold nothing, in ten topics: memory, and the time to start again."""
    broker = bench.make(name)
    broker.start()
    began = time.monotonic()
    for index in range(10):
        new = NewTopic(f"idle-{index}", MANY, 1)
        broker.admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S)[new.topic].result(ADMIN_TIMEOUT_S)
    metrics = {"create_s": time.monotonic() - began, "memory_mb": memory_bytes(broker.pid) / 1e6}
    broker.stop()
    metrics["restart_s"] = broker.start()
    metrics["memory_restarted_mb"] = memory_bytes(broker.pid) / 1e6
    broker.remove()
    return metrics


def kill(bench: Bench, name: str) -> Metrics:
    """Killed -9 at full load and started again at once: how long its producer went without an ack."""
    broker = bench.make(name)
    broker.start()
    topic = broker.create_topic("load", 8)
    seconds = LOADED_S + BACK_WITHIN_S[name]
    load = bench.loads.start_rdkafka("survive", broker, topic, partitions=8, size=1000, seconds=seconds, queue=200_000)
    time.sleep(LOADED_S)
    killed = time.monotonic()
    broker.kill()
    start_s = broker.start()
    report = bench.loads.finish(load)
    broker.remove()
    served = report["gap_start"] <= killed + 0.5 and report["gap_end"] > killed
    return {
        "served_s": report["gap_end"] - killed if served else float("inf"),
        "start_s": start_s,
        "loaded_mb": report["messages"] / 1e3,
    }


CASES = (
    Case("memory", "memory after load", memory_after_load, BOTH, rounds=1, warm=False),
    Case("start", "start", start, BOTH, rounds=3, warm=False),
    Case("kill", "killed -9 under load", kill, BOTH, rounds=3, warm=False),
    Case("partitions-10k", "10,000 partitions in one topic", partitions_10k, BOTH, rounds=1, warm=False),
    Case("partitions-100k", "100,000 idle partitions", partitions_100k, (TIDELOG,), rounds=1, warm=False),
)
