"""A real Apache Kafka, one combined KRaft node, on a folder of ours; and its command-line tools."""

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.kafka.jars import kafka_jars
from tests.kafka.toolbox import JVM, QUIET, toolbox
from tests.served import free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
TOOL_TIMEOUT_S = 60.0
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"

SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.append.linger.ms": "0",
    # A killed broker's old self is waited for this long before the new one is let in.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class ApacheKafka:
    """One broker and controller in one JVM. `folder` is its log.dirs; made and formatted where it isn't yet.

    `settings` go over `SETTINGS`, under Kafka's names. Ports are kept over a restart, so that clients come back.
    `node_id` and `controller_port` matter where the folder was written by another broker: both stand in it.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        node_id: int = 1,
        port: int | None = None,
        controller_port: int | None = None,
    ) -> None:
        self.folder = folder
        self.node_id = node_id
        self.port = port or free_port()
        self.controller_port = controller_port or free_port()
        self.settings = dict(settings or {})
        self.work = folder.parent / f"{folder.name}.kafka"
        self.output = self.work / "output"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "Kafka isn't started"
        return self.process.pid

    def __enter__(self) -> "ApacheKafka":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()

    def start(self) -> "ApacheKafka":
        """Format the folder where it is new, start, and return when clients are served."""
        assert self.process is None, "Kafka is started already"
        config = self.write_config()
        if not (self.folder / "meta.properties").exists():
            self._format(config)
        with open(self.output, "ab") as output:
            command = ["java", *JVM, "-cp", f"{kafka_jars()}/*", "kafka.Kafka", str(config)]
            self.process = subprocess.Popen(command, cwd=self.work, stdout=output, stderr=output)
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """A clean shutdown: SIGTERM, and wait for the end."""
        process = self._taken()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"Kafka did not stop in {STOP_TIMEOUT_S:.0f} s; it said:\n{self.said()}") from None

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing marked."""
        process = self._taken()
        process.kill()
        process.wait()

    def said(self, lines: int = 40) -> str:
        """The end of what it wrote to its log."""
        try:
            text = self.output.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _taken(self) -> "subprocess.Popen[bytes]":
        process, self.process = self.process, None
        assert process is not None, "Kafka isn't started"
        return process

    def write_config(self) -> Path:
        """The file with its settings, as `kafka-storage` and Kafka itself read it."""
        self.work.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **SETTINGS,
            "node.id": str(self.node_id),
            "log.dirs": str(self.folder),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            **self.settings,
        }
        path = self.work / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, config: Path) -> None:
        done = tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), "--standalone")
        assert done.returncode == 0, f"Kafka's folder could not be formatted: {done.stdout}{done.stderr}"

    def _wait_until_ready(self) -> None:
        process = self.process
        assert process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not serves(self.port):
            if process.poll() is not None:
                raise AssertionError(f"Kafka ended with code {process.returncode}; it said:\n{self.said()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"Kafka was not ready in {START_TIMEOUT_S:.0f} s; it said:\n{self.said()}")
            time.sleep(0.05)


def serves(port: int) -> bool:
    """Whether a broker on this port answers Metadata (v1, of no topic) with itself in the list."""
    request = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = b""
            while len(head) < 12:
                more = connection.recv(12 - len(head))
                if not more:
                    return False
                head += more
    except OSError:
        return False
    _, correlation_id, brokers = struct.unpack(">iii", head)
    return correlation_id == 7 and brokers > 0


def tool(
    main_class: str, *args: str, input: str | None = None, timeout_s: float = TOOL_TIMEOUT_S
) -> "subprocess.CompletedProcess[str]":
    """Run one of Kafka's command-line tools to its end; what it said comes back, whatever its exit code.

    A class without a package is one of `org.apache.kafka.tools`: `tool("TopicCommand", "--list", ...)`. All run in one
    JVM, one after the other, or in one each where this Java has no compiler.
    """
    if "." not in main_class:
        main_class = f"org.apache.kafka.tools.{main_class}"
    box = toolbox()
    if box is not None:
        return box.run(main_class, *args, input=input or "", timeout_s=timeout_s)
    command = ["java", *JVM, QUIET, "-cp", f"{kafka_jars()}/*", main_class, *args]
    return subprocess.run(command, input=input or "", capture_output=True, text=True, timeout=timeout_s)
