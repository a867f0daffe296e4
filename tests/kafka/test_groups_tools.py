"""Apache Kafka's command-line tool for groups works against Tidelog, for groups of both protocols."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.apache import tool
from tests.served import Tidelog
from tests.stories.groups.band import QUICK_GROUPS, Band


@pytest.fixture(scope="module")
def tidelog(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    with Tidelog(tmp_path_factory.mktemp("group-tools") / "data", QUICK_GROUPS) as broker:
        yield broker


def groups(tidelog: Tidelog, *args: str) -> str:
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    done = tool(command, "--bootstrap-server", tidelog.bootstrap, "--timeout", "30000", *args)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("client", [pytest.param("confluent-classic", marks=pytest.mark.long), "confluent-consumer"])
def test_groups_are_listed_described_reset_and_deleted(tidelog: Tidelog, client: str) -> None:
    kind = client.rpartition("-")[2]
    with Band(tidelog.bootstrap, client, partitions=2) as band:
        band.write(20)
        member = band.join("member")
        band.settle(member)
        band.processed()
        listed = [line.split() for line in groups(tidelog, "--list", "--state", "--type").splitlines()]
        assert [band.group, kind.capitalize(), "Stable"] in [row[:3] for row in listed]
        described = [line.split() for line in groups(tidelog, "--describe", "--group", band.group).splitlines()]
        rows = [(row[2], row[3], row[4], row[5]) for row in described if row[:1] == [band.group]]
        assert sorted(rows) == [("0", "10", "10", "0"), ("1", "10", "10", "0")]
        members = groups(tidelog, "--describe", "--group", band.group, "--members", "--verbose")
        assert band.topic in members
        state = groups(tidelog, "--describe", "--group", band.group, "--state")
        assert "Stable" in state
        member.leave()
        reset = ("--reset-offsets", "--group", band.group, "--topic", band.topic, "--to-offset", "3", "--execute")
        groups(tidelog, *reset)
        described = [line.split() for line in groups(tidelog, "--describe", "--group", band.group).splitlines()]
        assert {row[3] for row in described if row[:1] == [band.group]} == {"3"}
        groups(tidelog, "--delete-offsets", "--group", band.group, "--topic", f"{band.topic}:1")
        assert "successful" in groups(tidelog, "--delete", "--group", band.group)
        assert band.group not in groups(tidelog, "--list")
