"""The data folders of a node at its start: taken, identified, and, where they are new, formatted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller.activation import default_bootstrap
from tidelog.log.partition_folders import FolderError
from tidelog.metadata.versions import MV_3_7_IV2
from tidelog.raft import folder as folders
from tidelog.wire.records.metadata import encode_record

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.log.store import Store
    from tidelog.metadata.image import ClusterImage
    from tidelog.raft.folder import FolderIdentity

log = logging.getLogger("tidelog.broker")


class DataFolders:
    """Those of one node, from `take` to `release`."""

    def __init__(self, env: Environment, config: BrokerConfig) -> None:
        self._env = env
        self._config = config
        self.directories: tuple[bytes, ...] = ()
        """The ids of `log.dirs`, in their order."""
        self._new: dict[str, FolderIdentity] = {}
        """Data folders that are formatted when it is known that none is missing."""
        self._locks: list[object] = []

    @property
    def every(self) -> list[str]:
        """The data folders, and the metadata's where it has one of its own."""
        return list(dict.fromkeys((*self._config.folders, self._config.metadata_folder)))

    def lock(self) -> bool:
        """Take the folders; whether it has to be learnt from other nodes which cluster this one belongs to."""
        env, config = self._env, self._config
        self._lock()
        known = folders.read_identities(env, self.every, config.node_id, config.cluster_id)
        return not known and config.cluster_id is None and bool(config.other_controllers)

    def take(self, store: Store, cluster_id: str | None) -> FolderIdentity:
        """Read who the folders belong to, and format the metadata's, if it is new. The identity of it.

        `cluster_id` is that of a cluster to join. A node that is told of nobody else makes a cluster of its own.
        """
        env, config = self._env, self._config
        every, joins = self.every, bool(config.other_controllers)
        identities, new = folders.open_folders(env, every, config.node_id, cluster_id or config.cluster_id)
        by_folder = dict(zip(every, identities, strict=True))
        metadata = by_folder[config.metadata_folder]
        self.directories = tuple(by_folder[folder].directory_id for folder in config.folders)
        self._new = {folder: by_folder[folder] for folder in new}
        others = [folder for folder in every if folder != config.metadata_folder]
        folders.check_metadata_folder(env, config.metadata_folder, others, new)
        store.look()
        if not joins:
            folders.check_metadata(env, config.metadata_folder, store.unopened())
        store.admit(config.metadata_folder)
        if config.metadata_folder in new:
            values = [encode_record(record, 0) for record in default_bootstrap()]
            voters = None if joins else folders.alone(metadata, folders.controller_endpoint(config))
            folders.format_metadata(env, config.metadata_folder, values, voters)
            folders.format_folder(env, config.metadata_folder, self._new.pop(config.metadata_folder))
        elif not joins:
            folders.check_has_voters(env, config.metadata_folder)
        return metadata

    def admit(self, store: Store, image: ClusterImage) -> None:
        """Format the data folders that are new, unless one is missing that this broker had: it may be one of them.

        Where there are other brokers, a folder that is gone is told to the controller, which has others lead what was
        in it; alone, what was in it would begin anew.
        """
        known = image.brokers.get(self._config.node_id)
        registered = () if known is None else known.log_dirs
        registered = registered or folders.read_directories(self._env, self._config.metadata_folder)
        lost = self._config.tidelog_log_dirs_lost
        if len(image.brokers) <= 1:
            folders.check_directories(self._env, list(self._new), self.directories, registered, lost)
        for folder, identity in self._new.items():
            folders.format_folder(self._env, folder, identity)
        if image.metadata_version < MV_3_7_IV2:
            folders.write_directories(self._env, self._config.metadata_folder, self.directories)
        for folder in self._config.folders:
            store.admit(folder)

    def release(self) -> None:
        self._locks.clear()

    def _lock(self) -> None:
        """Before anything in them is read: two brokers on one folder would ruin it."""
        every = self.every
        for folder in every:
            try:
                self._env.disk.make_folders(folder)
                self._locks.append(self._env.disk.lock_folder(folder))
            except BlockingIOError:
                raise FolderError(
                    f"{folder} is in use by another broker: stop that one, or choose another folder with --data"
                ) from None
            except OSError as error:
                if len(every) == 1:
                    raise
                raise FolderError(
                    f"{folder}: {error.strerror}: mend it; the broker doesn't start without one of its data folders"
                ) from error
