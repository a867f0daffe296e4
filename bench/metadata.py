"""What a change of metadata costs in a cluster of three nodes, each a broker and a controller, on one machine."""

import math
import re
import signal
import statistics
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.raw import ClosedError, Connection

from bench.brokers import KAFKA, TIDELOG, Topic
from bench.case import BOTH, Bench, Case, Metrics
from bench.cluster import NODES, Cluster, ClusterNode, wait_until
from bench.fsync_life import UNTOLD_MS
from bench.process import cpu_s
from bench.programs import BenchError
from bench.stalls import longest_turn_ms
from tidelog.wire.codec import decoder
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.metadata import MetadataResponse

PARTITIONS = 10_000
BESIDE_KAFKA = 1000
REPLICAS = 3
RESTS_S = 2.0
"""Between two things that are measured: what the one before left to do is done by then."""
IDLE_S = 10.0
KAFKA_SETTLES_S = 15.0
LOOK_S = 0.02
COMMITS = 400
WARM_COMMITS = 50
LOAD_PARTITIONS = 6
TIMEOUT_MS = 120_000
TOPIC_RESOURCE = 2
_TOOK = re.compile(r"fell silent and is fenced; that took ([\d.]+) s")


def create(bench: Bench, name: str, *, partitions: int) -> Metrics:
    """From the request until every node has shown all partitions with leader and ISR; then what idle nodes cost."""
    with _cluster(bench, name) as cluster:
        starts, controller = {node.id: node.output.stat().st_size for node in cluster}, cluster.controller()
        began = time.monotonic()
        spent = {node.id: cpu_s(node.pid) for node in cluster}
        shown = _Shown(cluster, partitions)
        _checked(_create(controller, "wide", partitions, REPLICAS, []), "the partitions could not be made")
        metrics = {"create_s": time.monotonic() - began, "shown_s": shown.wait() - began}
        metrics["cpu_s"] = sum(cpu_s(node.pid) - spent[node.id] for node in cluster)
        if name == TIDELOG:
            metrics["turn_ms"] = _longest_turn_ms(cluster, starts)
        time.sleep(RESTS_S if name == TIDELOG else KAFKA_SETTLES_S * bench.scale)
        spent = {node.id: cpu_s(node.pid) for node in cluster}
        time.sleep(IDLE_S)
        metrics["idle_percent"] = max(cpu_s(node.pid) - spent[node.id] for node in cluster) / IDLE_S * 100
        return metrics


def fence(bench: Bench, name: str, *, how: signal.Signals) -> Metrics:
    """A broker that leads all of 10,000 partitions dies, or falls silent: until both others show other leaders."""
    with _cluster(bench, name) as cluster:
        controller = cluster.controller()
        victim = next(node for node in cluster if node is not controller)
        _assign_all_to(controller, "wide", victim, cluster)
        time.sleep(RESTS_S)
        others = [node for node in cluster if node is not victim]
        starts = {node.id: node.output.stat().st_size for node in others}
        began = time.monotonic()
        victim.signal(how)
        for node in others:
            wait_until(partial(_is_gone, node, victim.id), f"broker {victim.id} to be fenced", 60.0)
        gone_s = time.monotonic() - began
        for node in others:
            _check_leaders(node, "wide", {one.id for one in others})
        return {
            "gone_s": gone_s,
            "fenced_s": _took(controller, starts[controller.id]),
            "turn_ms": _longest_turn_ms(others, starts),
        }


def commit(bench: Bench, name: str) -> Metrics:
    """A topic's setting is changed, again and again: alone, and beside a producer that sends all it can."""
    with _cluster(bench, name) as cluster:
        controller = cluster.controller()
        load = Topic("load", bytes(16))
        config = [{"name": "tidelog.durability", "value": "os"}] if name == TIDELOG else []
        for topic, settings in (("changed", []), (load.name, config)):
            _create(controller, topic, LOAD_PARTITIONS, 1, settings)
        time.sleep(RESTS_S)
        count = max(WARM_COMMITS, int(COMMITS * bench.scale))
        with Connection(controller.at) as connection:
            _commits(connection, WARM_COMMITS)
            alone = _commits(connection, count)
            seconds = max(4.0, 12.0 * bench.scale)
            process = bench.loads.start_rdkafka(
                "survive", controller, load, partitions=LOAD_PARTITIONS, size=1000, seconds=seconds, acks=1
            )
            time.sleep(1.0)
            beside: list[float] = []
            until = time.monotonic() + seconds - 2.0
            while time.monotonic() < until:
                beside += _commits(connection, 10)
            report = bench.loads.finish(process)
        return {
            "change_alone_p50_ms": _percentile(alone, 50),
            "change_alone_p99_ms": _percentile(alone, 99),
            "change_beside_p50_ms": _percentile(beside, 50),
            "change_beside_p99_ms": _percentile(beside, 99),
            "loaded_mb_per_s": report["messages"] / 1e3 / report["seconds"],
        }


# -- the cluster


@contextmanager
def _cluster(bench: Bench, name: str) -> Generator[Cluster]:
    folder = bench.work / f"cluster-{name}-{time.monotonic_ns()}"
    settings = dict(bench.settings) if name == TIDELOG else {}
    with Cluster(name, folder, bench.jars if name == KAFKA else None, settings) as cluster:
        time.sleep(RESTS_S)
        yield cluster


def _create(node: ClusterNode, topic: str, partitions: int, replicas: int, configs: list[dict[str, str]]) -> int:
    """The error code."""
    new = {"name": topic, "num_partitions": partitions, "replication_factor": replicas, "configs": configs}
    with Connection(node.at, timeout_s=TIMEOUT_MS / 1000) as connection:
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout_ms": TIMEOUT_MS})
    return answer.topics[0].error_code


def _assign_all_to(node: ClusterNode, topic: str, leader: ClusterNode, cluster: Cluster) -> None:
    replicas = [leader.id, *(one.id for one in cluster if one is not leader)]
    assignments = [{"partition_index": index, "broker_ids": replicas} for index in range(PARTITIONS)]
    new = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": assignments, "configs": []}
    with Connection(node.at, timeout_s=TIMEOUT_MS / 1000) as connection:
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout_ms": TIMEOUT_MS})
    _checked(answer.topics[0].error_code, "the partitions could not be made")


def _checked(code: int, what: str) -> None:
    if code:
        raise BenchError(f"{what}: error {code}")


# -- what nodes show


class _Shown:
    """Looks at every node until it shows all partitions; when the last of them did."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self._partitions = partitions
        self._at: list[float] = []
        self._failed: list[str] = []
        self._threads = [threading.Thread(target=self._look, args=(node,)) for node in cluster]
        for thread in self._threads:
            thread.start()

    def _look(self, node: ClusterNode) -> None:
        """An answer is decoded when it is there: that is none of the cluster's time."""
        until = time.monotonic() + TIMEOUT_MS / 1000
        try:
            with Connection(node.at, timeout_s=TIMEOUT_MS / 1000) as connection:
                while time.monotonic() < until:
                    connection.send(ApiKey.METADATA, 12, _asks_for("wide"))
                    frame = connection.read_frame()
                    now = time.monotonic()
                    response, _ = decoder(MetadataResponse, 12)(frame, 5)
                    if _is_complete(response.topics[0], self._partitions):
                        self._at.append(now)
                        return
                    time.sleep(LOOK_S)
            self._failed.append(f"node {node.id} never showed all partitions")
        except (OSError, ClosedError) as error:
            self._failed.append(f"node {node.id} could not be asked: {error}")

    def wait(self) -> float:
        for thread in self._threads:
            thread.join()
        if self._failed or len(self._at) != NODES:
            raise BenchError(", ".join(self._failed))
        return max(self._at)


def _asks_for(topic: str) -> dict[str, Any]:
    return {"topics": [{"name": topic}], "allow_auto_topic_creation": False}


def _is_complete(topic: Any, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(
        one.leader_id >= 0 and len(one.isr_nodes) == REPLICAS for one in topic.partitions
    )


def _is_gone(node: ClusterNode, broker_id: int) -> bool:
    answer = node.ask(ApiKey.METADATA, 12, {"topics": []})
    return answer is not None and all(broker.node_id != broker_id for broker in answer.brokers)


def _check_leaders(node: ClusterNode, topic: str, others: set[int]) -> None:
    answer = node.ask(ApiKey.METADATA, 12, _asks_for(topic))
    leaders = {partition.leader_id for partition in answer.topics[0].partitions}
    if len(answer.topics[0].partitions) != PARTITIONS or not leaders <= others:
        raise BenchError(f"node {node.id} shows leaders {sorted(leaders)}, not among {sorted(others)}")


def _took(controller: ClusterNode, start: int) -> float:
    """How long it took from the decision to fence until that was published."""
    with open(controller.output, errors="replace") as file:
        file.seek(start)
        found = _TOOK.search(file.read())
    return float(found[1]) if found else math.nan


def _longest_turn_ms(nodes: "Cluster | list[ClusterNode]", starts: dict[int, int]) -> float:
    """The longest turn that any of them told of; they tell of those above `UNTOLD_MS`, so none was longer than this."""
    turns = [longest_turn_ms(node.output, starts[node.id]) for node in nodes]
    return max([UNTOLD_MS, *(turn for turn in turns if not math.isnan(turn))])


# -- changes, one after the other


def _commits(connection: Connection, count: int) -> list[float]:
    """The milliseconds of each."""
    took: list[float] = []
    for number in range(count):
        config = {"name": "retention.ms", "config_operation": 0, "value": str(3_600_000 + number)}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "changed", "configs": [config]}
        began = time.monotonic()
        answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        took.append((time.monotonic() - began) * 1000)
        _checked(answer.responses[0].error_code, "a setting could not be changed")
    return took


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _case(name: str, title: str, run: Callable[[Bench, str], Metrics], brokers: tuple[str, ...], **more: Any) -> Case:
    return Case(f"metadata-{name}", title, run, brokers, warm=False, each_round=True, **more)


CASES = (
    _case(
        "create",
        f"three nodes, {PARTITIONS:,} partitions of {REPLICAS} replicas",
        partial(create, partitions=PARTITIONS),
        (TIDELOG,),
        note="not measured with Apache Kafka, to keep the run short: its brokers make 30,000 folders for them",
    ),
    _case(
        "create-1000",
        f"three nodes, {BESIDE_KAFKA:,} partitions of {REPLICAS} replicas",
        partial(create, partitions=BESIDE_KAFKA),
        BOTH,
        kafka_rounds=1,
    ),
    _case(
        "fence-kill",
        f"a broker that leads {PARTITIONS:,} partitions is killed -9",
        partial(fence, how=signal.SIGKILL),
        (TIDELOG,),
    ),
    _case(
        "fence-silence",
        f"a broker that leads {PARTITIONS:,} partitions is frozen",
        partial(fence, how=signal.SIGSTOP),
        (TIDELOG,),
        rounds=1,
    ),
    _case("commit", "three nodes, changes of a setting one after the other", commit, BOTH, kafka_rounds=1),
)
