"""Names with line breaks and terminal sequences, sent by whoever can connect: none of them forges a line of the log."""

import re
import struct
from pathlib import Path

from tests.group_requests import find_coordinator, join_alone
from tests.raw import ClosedError, Connection
from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.wire.keys import ApiKey

FORGED = "2026-01-01 00:00:00,000 ERROR tidelog: the disk is on fire"
HOSTILE = f"name\n{FORGED}\r\n\x1b[2J\x1b[31m\u2028{FORGED}\u202e\x9b\x00end"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) tidelog[.\w]*: ")


def test_names_reach_the_log_as_one_line_each(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with Tidelog(tmp_path / "data", settings) as broker:
        create_topic(broker.bootstrap, "tide")
        with Connection(broker.bootstrap, client_id=HOSTILE) as connection:
            find_coordinator(connection, HOSTILE)
            member, _ = join_alone(connection, HOSTILE, "tide", 0)
            leaving = {"member_id": member, "reason": HOSTILE}
            left = connection.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": HOSTILE, "members": [leaving]})
            assert left.error_code == 0
            topics = {"topics": [{"name": HOSTILE}], "allow_auto_topic_creation": True}
            connection.ask(ApiKey.METADATA, 12, topics)
            wrong = {"topics": [{"name": HOSTILE, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000}
            connection.ask(ApiKey.CREATE_TOPICS, 7, wrong)
        for frame in (struct.pack(">hhi", ApiKey.METADATA, 999, 1), struct.pack(">hhi", ApiKey.METADATA, 12, 1)):
            hang_up(broker.bootstrap, frame)
    lines = broker.output.read_text().split("\n")[:-1]
    for line in lines:
        assert LINE.match(line) or line.startswith("    "), repr(line)
        assert not line.startswith(FORGED)
        assert line.isprintable(), repr(line)
    said = "\n".join(lines)
    assert f"group name\\n{FORGED}\\r\\n\\x1b[2J" in said, "it is told of, by its name"
    assert "leaves, reason: name\\n" in said


def hang_up(bootstrap: str, start: bytes) -> None:
    """A request that can't be understood, from a client of that name."""
    name = HOSTILE.encode()
    with Connection(bootstrap) as connection:
        connection.send_frame(start + struct.pack(">h", len(name)) + name + b"\0garbage")
        try:
            connection.read_frame()
        except ClosedError:
            return
