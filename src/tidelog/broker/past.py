"""What a broker may claim of its past when it registers: that its replicas hold all that they were known to hold.

Who claims it keeps its place in the ISR, or among the eligible leader replicas (KIP-966), and may lead at once; who
doesn't has to copy first. The claim is the epoch of the broker's former self, `previous_broker_epoch`: the controllers
compare it with that self's registration. After a clean stop it stands in `.kafka_cleanshutdown`, as Kafka's does. After
any other it is taken from a note in each data folder:

    NONE --registered, nothing that may be lost counts--> WRITING --in all folders, durably--> KEPT
      \\                                                      \\                                  |
       `------------------------ something that may be lost counts, or a log failed -------------+--> WITHDRAWN

What others are told of a replica is its durable end, and with `tidelog.durability=fsync` that is on stable storage, in
the segments or in the journal. So nothing needs to be opened for the claim: it is true for as long as the note is
there. The note goes, durably, before that ends: when a log here begins to count the page cache, when one that has other
replicas lies in memory, and when one fails. The note is of this life and of these folders: it names the epoch, all
directory ids, and the very file `meta.properties` beside it, which in a copy is another one
([why](../../../docs/decisions/0034-a-brokers-past.md)).

A log that is opened later, and turns out to be less than what was claimed, isn't served (`Recoveries.shortfall`).
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.topic import STORAGE
from tidelog.env.promise import Promise
from tidelog.metadata.broker_replicas import replicas_of
from tidelog.metadata.image import BROKER_RESOURCE
from tidelog.raft.folder import META
from tidelog.wire.uuids import uuid_bytes, uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.slices import Steps
    from tidelog.log.reading import ReadableLog
    from tidelog.log.store import Store
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import ClusterImage
    from tidelog.wire.topic_partition import TopicPartition

log = logging.getLogger("tidelog.broker")

NOTE = "tidelog-broker-epoch"
NO_EPOCH = -1
DURABILITY = "tidelog.durability"
AGAIN_S = 1.0
"""After so long a note that couldn't be removed is tried again."""
LOOKS_A_STEP = 256
_VERSION = 0


class NoClaimError(Exception):
    """Why nothing is claimed."""


class Note(NamedTuple):
    """What stands in one data folder: the broker's epoch, the folder's directory id and those of all folders, and
    which file the folder's `meta.properties` is."""

    epoch: int
    directory: bytes
    directories: frozenset[bytes]
    identity: str

    def encode(self) -> bytes:
        import json

        return json.dumps(
            {
                "version": _VERSION,
                "brokerEpoch": self.epoch,
                "directory": uuid_text(self.directory),
                "directories": sorted(map(uuid_text, self.directories)),
                "identity": self.identity,
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Note:
        """Raises ValueError where that is none."""
        import json

        try:
            fields = json.loads(data)
            if fields["version"] != _VERSION:
                raise ValueError(f"version {fields['version']} isn't known")
            directories = frozenset(uuid_bytes(text) for text in fields["directories"])
            return cls(int(fields["brokerEpoch"]), uuid_bytes(fields["directory"]), directories, fields["identity"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{error!r}") from None


class State(Enum):
    NONE = "no note of this life"
    WRITING = "being written"
    KEPT = "the claim holds"
    WITHDRAWN = "nothing is claimed of this life"


class Past:
    """Of one broker. `folders` are its data folders with their directory ids; `claimed`: it claims to hold all that it
    held, after a stop that wasn't clean."""

    def __init__(
        self,
        env: Environment,
        node_id: int,
        folders: Mapping[str, bytes],
        store: Store,
        metadata: Follower,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self.state = State.NONE
        self.claimed = False
        self._env = env
        self._node_id = node_id
        self._folders = folders
        self._store = store
        self._metadata = metadata
        self._config = config
        store.recoveries.must_be_whole = self._must_be_whole
        store.on_offline.append(self._log_failed)
        metadata.subscribe(self._image_changed)

    # -- a start

    def claim(self) -> int:
        """The epoch of the former self whose replicas are all here; -1: some of what they held may be lost."""
        epoch = self._store.broker_epoch
        if epoch is not None and epoch >= 0:
            return epoch
        try:
            epoch = self._noted_epoch()
            self._check_all_there(epoch)
        except NoClaimError as why:
            if self._has_others and self._node_id in self._metadata.image.brokers:
                log.info("this broker doesn't claim to have all that its replicas had: %s", why)
            return NO_EPOCH
        self.claimed = True
        if self._has_others:
            log.info(
                "the last stop wasn't clean, and this broker has all that its replicas of epoch %d were known for",
                epoch,
            )
        return epoch

    @property
    def _has_others(self) -> bool:
        return len(self._metadata.image.brokers) > 1

    def _noted_epoch(self) -> int:
        """Of the notes, which have to agree. A folder that they don't know is new: nothing was in it."""
        present = frozenset(self._folders.values())
        notes = {root: note for root in self._folders if (note := self._read(root)) is not None}
        if not notes:
            raise NoClaimError(f"{NOTE} isn't there")
        first = next(iter(notes.values()))
        if any((note.epoch, note.directories) != (first.epoch, first.directories) for note in notes.values()):
            raise NoClaimError(f"each data folder has another {NOTE}")
        if not first.directories <= present:
            missing = ", ".join(map(uuid_text, first.directories - present))
            raise NoClaimError(f"no data folder has directory.id {missing}, which it had")
        for root, directory in self._folders.items():
            if directory in first.directories and root not in notes:
                raise NoClaimError(f"{root} has no {NOTE}")
        return first.epoch

    def _read(self, root: str) -> Note | None:
        disk, path = self._env.disk, f"{root}/{NOTE}"
        try:
            if not disk.exists(path):
                return None
            note = Note.decode(disk.read_whole(path))
            identity = disk.identity(f"{root}/{META}")
        except (OSError, ValueError) as error:
            raise NoClaimError(f"{path} can't be read: {error}") from None
        if note.directory != self._folders[root]:
            raise NoClaimError(f"{path} is of directory.id {uuid_text(note.directory)}")
        if note.identity != identity:
            raise NoClaimError(f"{root} is a copy, perhaps an older one")
        return note

    def _check_all_there(self, epoch: int) -> None:
        image = self._metadata.image
        known = image.brokers.get(self._node_id)
        if known is None or known.epoch != epoch:
            now = "isn't registered" if known is None else f"was registered again, with epoch {known.epoch}"
            raise NoClaimError(f"{NOTE} has epoch {epoch}, but this broker {now}")
        for root, doubt in self._store.data_folders.doubts.items():
            if self._env.disk.exists(f"{root}/{NOTE}"):
                raise NoClaimError(doubt)
        for topic, index in sorted(self._store.data_folders.missing):
            partition = image.partition(topic, index)
            if partition is not None and self._node_id in partition.replicas:
                raise NoClaimError(f"the folder of {topic}-{index} isn't there, and held records")

    def _must_be_whole(self, key: TopicPartition) -> bool:
        partition = self._metadata.image.partition(*key) if self.claimed else None
        return partition is not None and len(partition.replicas) > 1

    # -- this life

    def keep(self, epoch: int) -> Promise[None]:
        """The broker is registered under this epoch, and does nothing with its replicas yet: note it. Done when that
        was tried; it never fails."""
        assert self.state is State.NONE, f"a broker of which it is {self.state.value}"
        kept: Promise[None] = Promise()
        why = self._reason_against(name for name, _ in replicas_of(self._metadata.image, self._node_id))
        if why is None and self._store.offline:
            why = "a log can't be served"
        if why is not None:
            self._withdraw(why)
            kept.resolve(None)
            return kept
        self.state = State.WRITING

        def written(done: Promise[None]) -> None:
            if done.error is not None:
                log.warning("%s can't be written: %s; after a kill this broker has to copy first", NOTE, done.error)
            if self.state is State.WRITING:
                self.state = State.KEPT
            elif self.state is State.WITHDRAWN:
                self._remove(list(self._folders))
            kept.resolve(None)

        self._env.loop.run_blocking(partial(self._write, epoch)).on_done(written)
        return kept

    def _write(self, epoch: int) -> None:
        """Off the loop."""
        disk, directories = self._env.disk, frozenset(self._folders.values())
        for root, directory in self._folders.items():
            note = Note(epoch, directory, directories, disk.identity(f"{root}/{META}"))
            disk.write_whole(f"{root}/{NOTE}", note.encode())

    def _image_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> Steps[None]:
        """Before the change is followed by logs: something may be about to count that can be lost."""
        if self.state not in (State.WRITING, State.KEPT):
            return
        names = {name for kind, name in changed if kind != BROKER_RESOURCE}
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            names |= {name for name, _ in replicas_of(new, self._node_id)}
        names |= {new.topics_by_id[topic_id].name for topic_id in changed_topics if topic_id in new.topics_by_id}
        some = list(names)
        for start in range(0, len(some), LOOKS_A_STEP):
            why = self._reason_against(some[start : start + LOOKS_A_STEP])
            if why is not None:
                self._withdraw(why)
                return
            yield

    def _reason_against(self, topics: Iterable[str]) -> str | None:
        """Which of these topics, of which this broker has replicas, has records that count and may be lost."""
        image, config = self._metadata.image, self._config()
        mine: Mapping[bytes, int] = image.broker_replicas.get(self._node_id) or {}
        for name in topics:
            topic = image.topics.get(name)
            if topic is None or topic.id not in mine:
                continue
            settings = image.topic_config(name)
            if settings.get(STORAGE) == "memory":
                if any(len(partition.replicas) > 1 for partition in topic.partitions):
                    return f"topic {name} has several replicas, in memory"
            elif settings.get(DURABILITY, config.tidelog_durability) == "os":
                return f"of topic {name} records count that are in the page cache ({DURABILITY}=os)"
        return None

    def _log_failed(self, failed: ReadableLog) -> None:
        if self.state in (State.WRITING, State.KEPT):
            self._withdraw(f"the log of {failed.place} failed")

    def _withdraw(self, why: str) -> None:
        """At once, and durably: what made it untrue counts from now on. It is once in a life."""
        if self.state is not State.NONE and self._has_others:
            log.info("after a kill this broker has to copy from others before it may lead: %s", why)
        self.state = State.WITHDRAWN
        self._remove([root for root in self._folders if self._env.disk.exists(f"{root}/{NOTE}")])

    def _remove(self, roots: list[str]) -> None:
        disk = self._env.disk
        for root in roots:
            path = f"{root}/{NOTE}"
            try:
                if disk.exists(path):
                    disk.remove(path)
                disk.sync_folder(root)
            except OSError as error:
                log.error("%s can't be removed: %s; it is tried again", path, error)
                self._env.loop.call_later(AGAIN_S, self._remove, [root])
