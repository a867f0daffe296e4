"""`tidelog format`: what an operator types before a node's first start, and what the node then makes of it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.kafka.apache import tool
from tidelog.cli.app import app
from tidelog.testing import Broker

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
DISK = "JEXY6aqzQY-32P5TStzaFg"
CONTROLLERS = f"1@localhost:9093:{DISK},2@localhost:9193:MvDxzVmcRsaTz33bUuRU6A"
FIRST = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def tidelog(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def properties(folder: Path) -> dict[str, str]:
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_a_cluster_id_of_ones_own_is_what_clients_see(tmp_path: Path) -> None:
    said = tidelog("format", "--data", tmp_path / "data", "--cluster-id", CLUSTER)
    assert f"cluster {CLUSTER}, node 1" in said
    with Broker(data=tmp_path / "data") as broker:
        from confluent_kafka.admin import AdminClient

        assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).cluster_id == CLUSTER


def test_without_an_id_a_new_one_is_made_and_told(tmp_path: Path) -> None:
    said = tidelog("format", "--data", tmp_path / "data")
    assert f"cluster {properties(tmp_path / 'data')['cluster.id']}, node 1" in said


def test_what_is_formatted_is_never_formatted_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    tidelog("format", "--data", first, "--cluster-id", CLUSTER)
    before = {name: (first / name).read_bytes() for name in files(first)}
    assert f"for node 1 of cluster {CLUSTER}" in tidelog("format", "--data", first, code=1)
    both = f"log.dirs={first},{second}"
    said = tidelog("format", "--set", both, "--ignore-formatted")
    assert "formatted before and left as it was" in said
    assert {name: (first / name).read_bytes() for name in files(first)} == before
    assert files(second) == {"meta.properties"}
    assert properties(second)["cluster.id"] == CLUSTER
    other = tidelog("format", "--set", both, "--ignore-formatted", "--cluster-id", DISK, code=1)
    assert f"belongs to cluster {CLUSTER}, not to {DISK}" in other


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data"):
        assert "in use by a broker" in tidelog("format", "--data", tmp_path / "data", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--cluster-id", "mine"], 1, "the cluster id 'mine' is not a uuid"),
        (["--initial-controllers", "1@host"], 1, "'1@host' is no controller"),
        (["--initial-controllers", CONTROLLERS, "--set", "node.id=7"], 1, "controllers are 1, 2, and this node is 7"),
        (["--initial-controllers", CONTROLLERS, "--no-initial-controllers"], 2, "exclude each other"),
        (["--set", "nodeid=7"], 1, "nodeid"),
    ],
)
def test_mistakes_are_told_and_leave_no_identity(tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    assert told in tidelog("format", "--data", tmp_path / "data", *arguments, code=code)
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_a_node_for_a_larger_cluster_does_not_become_one_of_its_own(tmp_path: Path) -> None:
    """Nothing makes a second cluster by accident: what was formatted to join isn't begun anew, and no id is made up."""
    joins = ("--data", tmp_path / "joins")
    assert "--cluster-id" in tidelog("format", *joins, "--no-initial-controllers", code=1)
    tidelog("format", *joins, "--no-initial-controllers", "--cluster-id", CLUSTER)
    assert "formatted without controllers" in tidelog("serve", *joins, "--listen", "127.0.0.1:0", code=1)
    assert "formatted without controllers" in tidelog("serve", *joins, "--check", code=1)


BROKER = ["--set", "process.roles=broker", "--set", "controller.quorum.bootstrap.servers=localhost:9093"]
CONTROLLER = ["--set", "process.roles=controller", "--set", "listeners=CONTROLLER://localhost:9093"]
TOLD_OF_OTHERS = [*CONTROLLER, "--set", "controller.quorum.bootstrap.servers=localhost:9093,localhost:9193"]
VOTERS = [*CONTROLLER, "--set", "controller.quorum.voters=1@localhost:9093,2@localhost:9193"]
ID = ["--cluster-id", CLUSTER]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*BROKER, *ID, "--standalone"], "only a broker"),
        ([*BROKER, *ID, "--initial-controllers", CONTROLLERS], "only a broker"),
        (BROKER, "--cluster-id; or don't format it"),
        ([*TOLD_OF_OTHERS, *ID], "say whether this node begins a cluster alone"),
        ([*VOTERS, *ID, "--standalone"], "names the controllers already"),
        ([*VOTERS, *ID, "--no-initial-controllers"], "names the controllers already"),
        (VOTERS, "with --cluster-id"),
    ],
)
def test_who_begins_a_cluster_is_never_guessed(tmp_path: Path, arguments: list[str], told: str) -> None:
    assert told in tidelog("format", "--data", tmp_path / "data", *arguments, code=1)
    assert not (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ([], True),
        (CONTROLLER, True),
        ([*CONTROLLER, "--set", "controller.quorum.bootstrap.servers=localhost:9093"], True),
        ([*TOLD_OF_OTHERS, "--standalone"], True),
        ([*TOLD_OF_OTHERS, "--initial-controllers", CONTROLLERS], True),
        ([*TOLD_OF_OTHERS, *ID, "--no-initial-controllers"], False),
        ([*BROKER, *ID], False),
        ([*VOTERS, *ID], False),
    ],
)
def test_voters_are_written_where_a_cluster_begins(tmp_path: Path, arguments: list[str], begins: bool) -> None:
    tidelog("format", "--data", tmp_path / "data", *arguments)
    assert files(tmp_path / "data") == {"meta.properties", "bootstrap.checkpoint", *([FIRST] if begins else [])}


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize("flag", ["--initial-controllers", "--no-initial-controllers"])
def test_as_apache_kafka_formats_it(tmp_path: Path, flag: str) -> None:
    """The same files with the same records; and each takes the other's folder for formatted."""
    ours, theirs, config = tmp_path / "ours", tmp_path / "theirs", tmp_path / "server.properties"
    arguments = [flag, CONTROLLERS] if flag == "--initial-controllers" else [flag]
    text = (
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
    )
    config.write_text(f"{text}log.dirs={theirs}\n")
    done = tool("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    tidelog("format", "--data", ours, "--cluster-id", CLUSTER, *arguments)
    assert files(ours) == files(theirs)
    for name in files(ours) - {"meta.properties"}:
        assert dumped(ours / name) == dumped(theirs / name)
    assert properties(ours).keys() == properties(theirs).keys()
    if flag == "--initial-controllers":
        assert properties(ours) == properties(theirs)
    config.write_text(f"{text}log.dirs={ours}\n")
    again = tool(
        "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config), "--ignore-formatted", *arguments
    )
    assert "already formatted" in again.stdout, again.stdout + again.stderr


def dumped(path: Path) -> list[str]:
    """The records of a checkpoint, as `tidelog log dump` tells them, but for the times."""
    lines = tidelog("log", "dump", path).splitlines()
    return [line.partition(", type ")[2].partition(", last contained log timestamp")[0] for line in lines]
