"""A broker whose clients ask the controller for more than it can do at once: it is alive, and stays in the cluster."""

from pathlib import Path
from threading import Event, Thread

from tests.nodes import BROKER, CONTROLLER, Nodes, metadata_of, wait_for
from tests.raw import ClosedError, Connection
from tidelog.wire.keys import ApiKey

CLIENTS = 12
SETTINGS = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "log.cleaner.enable": "false",
}
TOPICS = 2000
PARTITIONS = 1
HEARD_FOR_S = 6.0


def test_broker_is_heard_while_its_clients_keep_the_controller_busy(tmp_path: Path) -> None:
    with Nodes(tmp_path, {1: CONTROLLER, 2: BROKER}, SETTINGS) as nodes:
        broker = nodes[2]
        wait_for(lambda: len(metadata_of(broker.bootstrap).brokers) == 1, "the broker")
        over = Event()
        clients = [Thread(target=ask_for_much, args=(broker.bootstrap, over)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        over.wait(HEARD_FOR_S)
        over.set()
        for client in clients:
            client.join()
        assert "fell silent" not in nodes[1].said()
        assert "was fenced" not in broker.said()


def ask_for_much(bootstrap: str, over: Event) -> None:
    """What would be made, which is told and not done: a controller reckons for a quarter of a second each time."""
    topics = [{"name": f"topic-{n}", "num_partitions": PARTITIONS, "replication_factor": 1} for n in range(TOPICS)]
    with Connection(bootstrap, timeout_s=60.0) as connection:
        while not over.is_set():
            try:
                connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000, "validate_only": True})
            except (ClosedError, TimeoutError):
                return
