"""`tidelog serve --check`: whether a start with these settings would work, found out without starting anything.

Nothing is made or changed: no folder, no file, no identity. A port is bound for a moment and let go of.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tidelog.cli.serve import explain, starting
from tidelog.cli.serve_flags import Given
from tidelog.cli.settings import gather
from tidelog.config.broker import BrokerConfig
from tidelog.config.setting import ConfigError
from tidelog.env import Disk, Environment
from tidelog.env.real import real_environment
from tidelog.env.real_disk import RealDisk
from tidelog.env.real_loop import RealLoop
from tidelog.env.real_network import RealNetwork
from tidelog.log.checkpoints import CLEAN_SHUTDOWN
from tidelog.log.names import METADATA_TOPIC, parse_partition_folder
from tidelog.raft import folder as folders
from tidelog.raft.control import data_values
from tidelog.raft.snapshot import SnapshotError, list_snapshots, read_snapshot
from tidelog.wire.batch import iterate
from tidelog.wire.errors import KafkaError, MalformedError
from tidelog.wire.records.metadata import decode_record
from tidelog.wire.records.nodes import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from tidelog.wire.topic_partition import TopicPartition

FREE_SHARE_MIN = 0.05


def check(given: Given) -> int:
    """Say what was found, a line each; the exit code: 0 where a start would work."""
    try:
        settings, warnings = gather(given, os.environ)
        config = BrokerConfig.parse(settings)
    except ConfigError as error:
        print(f"wrong: {error.message}", file=sys.stderr)
        return 1
    print(f"fine:  {starting(config)}")
    wrong = 0
    for warning in warnings:
        print(f"note:  {warning}")
    for is_fine, line in (*_folders(config), *_listeners(config)):
        wrong += not is_fine
        print(f"{'fine: ' if is_fine else 'wrong:'} {line}")
    print("A start would work." if not wrong else "A start would fail.")
    return 1 if wrong else 0


def _folders(config: BrokerConfig) -> Iterator[tuple[bool, str]]:
    every = list(dict.fromkeys((*config.folders, config.metadata_folder)))
    for folder in every:
        try:
            yield True, _folder(folder)
        except (folders.FolderError, OSError) as error:
            yield False, explain(error, config)
    loop = RealLoop()
    try:
        yield True, _together(real_environment(loop), every, config)
    except (folders.FolderError, OSError) as error:
        yield False, explain(error, config)
    finally:
        loop.close()


def _folder(folder: str) -> str:
    """What is there; raises as a start would."""
    disk = RealDisk()
    if not os.path.exists(folder):
        parent = folder
        while not os.path.exists(parent):
            parent = os.path.dirname(parent) or "."
        _check_access(parent)
        return f"{folder} will be made"
    _check_access(folder)
    if disk.exists(f"{folder}/.lock"):
        try:
            disk.lock_folder(folder)
        except BlockingIOError:
            raise folders.FolderError(f"{folder} is in use by another broker: stop that one first") from None
    partitions = _partitions(disk, folder)
    summary = f"{folder} has {len(partitions):,} partition{'' if len(partitions) == 1 else 's'}"
    if partitions and not disk.exists(f"{folder}/{CLEAN_SHUTDOWN}"):
        summary += ", the last stop was not clean: they will be checked"
    free, total = disk.free_bytes(folder), disk.total_bytes(folder)
    return f"{summary}, {free / total:.0%} of the disk is free" + (
        ": that is little" if free / total < FREE_SHARE_MIN else ""
    )


def _partitions(disk: Disk, folder: str) -> list[TopicPartition]:
    keys = [key for name in disk.list_folder(folder) if (key := parse_partition_folder(name)) is not None]
    return [key for key in keys if key[0] != METADATA_TOPIC]


def _together(env: Environment, every: Sequence[str], config: BrokerConfig) -> str:
    """Whose the folders are, and whether they can be one broker's; raises as a start would."""
    there = [folder for folder in every if env.disk.exists(folder)]
    known = folders.read_identities(env, there, config.node_id, config.cluster_id, write=False)
    others = [folder for folder in every if folder != config.metadata_folder]
    new = [folder for folder in every if folder not in known]
    folders.check_metadata_folder(env, config.metadata_folder, others, new)
    partitions = [key for folder in there for key in _partitions(env.disk, folder)]
    joins = config.other_controllers
    if not joins:
        folders.check_metadata(env, config.metadata_folder, partitions)
    if not known:
        return _newcomer(config)
    if config.metadata_folder in known and not joins:
        folders.check_has_voters(env, config.metadata_folder)
    present = [identity.directory_id for identity in known.values()]
    registered = _registered(env.disk, config.metadata_folder, config.node_id)
    registered = registered or folders.read_directories(env, config.metadata_folder)
    if not joins:
        folders.check_directories(env, new, present, registered, config.tidelog_log_dirs_lost)
    first = next(iter(known.values()))
    role = "broker" if config.is_broker else "controller"
    summary = f"{role} {first.node_id} of cluster {first.cluster_id}"
    if new and len(every) > 1:
        summary += f"; {', '.join(new)}: a further data folder"
    return summary


def _newcomer(config: BrokerConfig) -> str:
    if not config.other_controllers:
        return "a new cluster will be made"
    where = ", ".join(f"{host}:{port}" for host, port in config.other_controllers)
    if config.cluster_id is not None:
        return f"it will join cluster {config.cluster_id} by the controllers at {where}"
    return f"it will learn from the controllers at {where} which cluster it joins"


def _registered(disk: Disk, folder: str, node_id: int) -> tuple[bytes, ...]:
    """The directory ids of this broker's last start, as the metadata has them; () where it has none.

    Read as it lies there, without recovery: what can't be read is for a start to tell.
    """
    metadata = f"{folder}/{folders.METADATA_FOLDER}"
    if not disk.exists(metadata):
        return ()
    directories: tuple[bytes, ...] = ()
    with suppress(SnapshotError, KafkaError, MalformedError):
        for value in _metadata_values(disk, metadata):
            record = decode_record(value)
            tells = isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord)
            if tells and record.broker_id == node_id and record.log_dirs:
                directories = tuple(record.log_dirs)
    return directories


def _metadata_values(disk: Disk, metadata: str) -> Iterator[bytes]:
    """The records of the newest checkpoint, and those of the log."""
    for snapshot in list_snapshots(disk, metadata)[-1:]:
        yield from read_snapshot(disk, f"{metadata}/{snapshot.file_name}").values
    for name in sorted(disk.list_folder(metadata)):
        if name.endswith(".log"):
            data = disk.read_whole(f"{metadata}/{name}")
            for header in iterate(data):
                if not header.control:
                    yield from data_values(data, header)


def _check_access(path: str) -> None:
    if not os.path.isdir(path):
        raise NotADirectoryError(20, os.strerror(20), path)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(13, os.strerror(13), path)


def _listeners(config: BrokerConfig) -> Iterator[tuple[bool, str]]:
    for listener in (*config.listener_list, *config.controller_listener_list):
        try:
            RealNetwork().listen(listener.host, listener.port, 1).close()
        except OSError as error:
            yield False, explain(error, config)
        else:
            yield True, f"{listener} is free"
