"""Stories of groups with Apache Kafka's own client, in both protocols: the history of its members shows the same."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.toolbox import JVM
from tests.served import Tidelog
from tests.stories.groups.band import QUICK_GROUPS, Band
from tests.stories.groups.diary import Options

SOURCE = Path(__file__).with_name("GroupMember.java")
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])

Command = Callable[[Options], list[str]]


@pytest.fixture(scope="module")
def bootstrap(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Tidelog(tmp_path_factory.mktemp("java-groups") / "data", QUICK_GROUPS) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def command(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command of a member; its class is compiled once."""
    classes = tmp_path_factory.mktemp("classes")
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    path = ":".join(map(str, jars.glob("kafka-clients-*.jar")))
    done = subprocess.run([*compiler, "-cp", path, "-d", str(classes), str(SOURCE)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no compiler in this Java: {done.stderr[:200]}")

    def command(options: Options) -> list[str]:
        protocol = options.client.rpartition("-")[2]
        classic = {
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{options.assignor}Assignor",
            "session.timeout.ms": str(options.session_ms),
            "heartbeat.interval.ms": str(options.heartbeat_ms),
        }
        settings = {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "max.poll.interval.ms": str(options.max_poll_ms),
            "metadata.max.age.ms": str(options.metadata_ms),
            "fetch.max.wait.ms": "50",
            **(classic if protocol == "classic" else {}),
            **({"group.instance.id": options.instance} if options.instance else {}),
        }
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        java = ["java", *JVM, quiet, "-cp", f"{classes}:{jars}/*", "GroupMember", options.topic]
        return [*java, *(f"{name}={value}" for name, value in settings.items())]

    return command


@PROTOCOLS
def test_members_join_leave_and_die(bootstrap: str, command: Command, protocol: str) -> None:
    with Band(bootstrap, f"java-{protocol}", command=command, assignor="CooperativeSticky") as band:
        band.write(100)
        first, second = band.join("first"), band.join("second")
        band.settle(first, second, each=2)
        band.write(100)
        third = band.join("third")
        band.settle(first, second, third)
        band.write(100)
        band.processed()
        first.leave()
        band.settle(second, third, each=2)
        band.write(100)
        band.processed()
        band.check(once=True)
        second.kill()
        band.settle(third)
        band.write(100)
        band.processed()
        third.leave()
        band.check(once=False)


@pytest.mark.long
@PROTOCOLS
def test_a_hung_member_is_replaced_and_comes_back(bootstrap: str, command: Command, protocol: str) -> None:
    with Band(bootstrap, f"java-{protocol}", command=command, assignor="Range", max_poll_ms=2500) as band:
        hung, other = band.join("hung"), band.join("other")
        band.settle(hung, other, each=2)
        hung.stop()
        band.settle(other)
        band.write(100)
        band.processed()
        hung.go_on()
        band.wait(lambda: hung.saw("lost") and hung.holds, "the member comes back")
        band.settle(hung, other, each=2)
        hung.tell("hang 6")
        band.wait(lambda: hung.saw("hangs"), "the member dawdles")
        band.settle(other)
        band.write(100)
        band.processed()
        band.wait(lambda: hung.saw("woke") and hung.holds, "the member comes back")
        hung.leave()
        other.leave()
        band.check(once=False)
