"""The connections that a Python process keeps between its tasks."""

import subprocess
import sys

import pytest

from tidelog.rpc import Options
from tidelog.rpc.connection import Lost
from tidelog.spark import connections
from tidelog.spark.connections import cluster_of
from tidelog.testing import Broker
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

PROCESS = """
import sys
from tidelog.rpc import Options
from tidelog.spark.connections import cluster_of
assert cluster_of(sys.argv[1], Options()).topics() == {}
"""


def test_they_are_closed_when_the_process_ends() -> None:
    with Broker() as other:
        command = [sys.executable, "-X", "dev", "-c", PROCESS, other.bootstrap]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "unclosed" not in ended.stderr


def test_they_are_used_again_and_those_of_a_cluster_that_is_not_are_closed() -> None:
    with Broker() as other:
        first = cluster_of(other.bootstrap, Options())
        [connection] = first.every()
        assert cluster_of(other.bootstrap, Options()) is first
        for number in range(connections.CLUSTERS_MAX):
            cluster_of(f"127.0.0.1:{number + 1}", Options())
        assert cluster_of(other.bootstrap, Options()) is not first
        with pytest.raises(Lost):
            connection.ask(MetadataRequest(topics=[]), MetadataResponse)
