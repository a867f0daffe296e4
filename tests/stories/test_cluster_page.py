"""docs/operating/cluster.md, "Three nodes on one machine": every command of it, as it stands, in one shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.launched import free_ports
from tests.nodes import metadata_of, wait_for

PAGE = Path(__file__).parents[2] / "docs/operating/cluster.md"
SECTION = "## Three nodes on one machine"
DONE = "-- done with code"


def commands() -> list[str]:
    section = PAGE.read_text().split(SECTION, 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


class Shell:
    """A shell of an operator who has `tidelog` on the path."""

    def __init__(self, folder: Path) -> None:
        command = folder / "bin" / "tidelog"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n')
        command.chmod(0o755)
        self.output = folder / "output"
        self.steps = 0
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        environment["PATH"] = f"{command.parent}:{environment['PATH']}"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                ["bash"], stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment
            )

    def run(self, command: str) -> None:
        """Wait until it is done; it ends with code 0."""
        self.steps += 1
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\necho '{DONE}' $?\n".encode())
        self.process.stdin.flush()
        wait_for(lambda: len(self.codes) == self.steps, f"the shell to be done with {command}", 60.0)
        assert self.codes[-1] == 0, self.said

    def wait_until_ready(self, nodes: int) -> None:
        wait_for(lambda: self.said.count("Tidelog is ready on") == nodes, f"{nodes} nodes to be ready")

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def codes(self) -> list[int]:
        return [int(code) for code in re.findall(rf"{DONE} (\d+)\n", self.said)]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"kill -9 $(jobs -p) 2>/dev/null; exit\n")
        self.process.stdin.close()
        self.process.wait(30.0)


def test_the_steps_on_the_page_form_a_cluster_that_loses_a_node(tmp_path: Path) -> None:
    named = ["9092", "9093", "9094", "19092", "19093", "19094"]
    ports = dict(zip(named, map(str, free_ports(6)), strict=True))
    shell = Shell(tmp_path)
    served = 0
    try:
        for command in commands():
            command = re.sub(r"localhost:(\d+)", lambda found: f"localhost:{ports[found[1]]}", command)
            shell.run(command.replace("/tmp/tide", str(tmp_path / "tide")))
            if "consume orders" in command:
                assert "hello, cluster" in shell.said.rsplit(DONE, 2)[1], "a record outlives its leader"
            if "kill -9" in command:  # whoever types the next one takes longer than that
                told_by = f"localhost:{ports['9093']}"
                wait_for(lambda at=told_by: len(metadata_of(at).brokers) == 2, "the first node to be fenced")
            if "create payments" in command:
                shell.run(f"tidelog status --bootstrap localhost:{ports['9093']} || true")
                assert "orders" not in re.findall(r"(\w+)-\d is offline", shell.said)
            if "serve" in command:
                served += 1
                shell.wait_until_ready(served)
            if served == 3:
                wait_for(lambda: all(f"node {id} is a voter" in shell.said for id in (2, 3)), "three voters")
        assert served == 4
        brokers = [metadata_of(f"localhost:{ports[port]}") for port in ("9092", "9093", "9094")]
        assert [{broker.node_id for broker in told.brokers} for told in brokers] == [{1, 2, 3}] * 3
        for told in brokers:
            assert {topic.name for topic in told.topics} >= {"orders", "payments"}
    finally:
        shell.close()
