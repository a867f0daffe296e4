"""The journals of a store, one in each data folder (journal.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.log.commit import sync_now
from tidelog.log.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidelog.env import Environment
    from tidelog.log.log import Log
    from tidelog.wire.topic_partition import TopicPartition


class Journals(Mapping[str, Journal]):
    """By the data folder. `settle` is told of logs whose segments should be durable."""

    def __init__(
        self,
        env: Environment,
        folders: list[str],
        size: int,
        report: Callable[[str], None],
        remove: Callable[[str], None],
        settle: Callable[[list[Log]], None],
    ) -> None:
        self._disk = env.disk
        self._unsettled: dict[Log, int] = {}  # opened, and up to there durable only in a journal of an earlier life
        self._by_root = {folder: Journal(env, folder, size, report, remove, settle) for folder in folders}

    def __getitem__(self, root: str) -> Journal:
        return self._by_root[root]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_root)

    def __len__(self) -> int:
        return len(self._by_root)

    def opened(self, log: Log) -> None:
        """The log has what the journals of earlier lives knew of it. They keep that until its segments have it durably:
        `flushed` tells."""
        if log.ends.stable_end > log.ends.synced_end:
            self._unsettled[log] = log.ends.stable_end
        else:
            self._settled(log)

    def flushed(self, log: Log) -> None:
        """The log's segments are durable up to its recovery point."""
        end = self._unsettled.get(log)
        if end is not None and log.ends.synced_end >= end:
            del self._unsettled[log]
            self._settled(log)

    def _settled(self, log: Log) -> None:
        try:
            for journal in self._by_root.values():
                journal.opened(log.key, log.topic_id, log.log_end)
        except OSError as error:
            log.go_offline(f"{log.folder}: what is left of it in the journal can't be made void: {error}")

    def deleted(self, log: Log) -> None:
        """Its topic is no more."""
        self._unsettled.pop(log, None)
        self.forget(log.key)

    def removed(self, keys: Iterable[TopicPartition]) -> None:
        """This broker has no replica of these any more: what journals have of them is void, durably."""
        some = set(keys)
        for journal in self._by_root.values():
            journal.void_all(some)

    def forget(self, key: TopicPartition) -> None:
        """No topic has this partition, or none that a journal of an earlier life knows of."""
        for journal in self._by_root.values():
            journal.forget(key)

    def has_rest(self, log: Log) -> bool:
        """Whether something of the log is durable in a journal only."""
        return log.ends.stable_end > log.ends.synced_end and any(one.holds(log) for one in self._by_root.values())

    def settle_now(self, log: Log) -> None:
        """What journals have of it becomes durable in its segments, here and now."""
        if self.has_rest(log):
            sync_now(self._disk, log)

    def void(self, logs: list[Log]) -> None:
        """These are about to be cut: durably, nothing counts any more that journals have of them. `settle_now` came
        first."""
        for journal in self._by_root.values():
            journal.void([log for log in logs if journal.holds(log)])
        for log in logs:
            if self._unsettled.pop(log, None) is not None:
                self.forget(log.key)
