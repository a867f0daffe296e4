"""Which topics a stream has read: by their ids, since offsets can't tell one that was deleted and made again."""

import json
from collections.abc import Mapping
from pathlib import Path

from tidelog.spark.progress import write_file

NONE = bytes(16).hex()
"""What brokers tell that give topics no ids."""


class TopicIds:
    """The ids that a stream knows, kept in a file beside its checkpoint; without a file, for as long as it runs."""

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else Path(path)
        self._known: dict[str, str] = {}
        if self._file is not None and self._file.exists():
            self._known = json.loads(self._file.read_text())

    def made_anew(self, ids: Mapping[str, str]) -> list[str]:
        """Those of the topics that were others when they were read; topics that weren't known are from now on."""
        told = {topic: id for topic, id in ids.items() if id != NONE}
        fresh = {topic: id for topic, id in told.items() if topic not in self._known}
        if fresh:
            self.learn(fresh)
        return sorted(topic for topic, id in told.items() if self._known[topic] != id)

    def learn(self, ids: Mapping[str, str]) -> None:
        """These are the topics that are read from now on."""
        self._known |= ids
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(self._known))
