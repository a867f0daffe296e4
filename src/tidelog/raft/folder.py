"""The identity of a data folder: `meta.properties` with cluster id, node id and directory id; and formatting a new one.

A folder is formatted once, by this broker's first start or by `kafka-storage format`, and never silently again: what it
says must agree with the settings, or the start is refused. So it is where a folder is missing that the broker had: the
metadata, or a file beside it, has the directory ids of its last start (decision 0020).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.config.broker import BrokerConfig
from tidelog.env import Environment
from tidelog.log.names import parse_partition_folder
from tidelog.log.partition_folders import FolderError
from tidelog.raft.snapshot import SnapshotId, encode_snapshot, read_snapshot, write_snapshot
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.wire.topic_partition import TopicPartition
from tidelog.wire.uuids import uuid_bytes, uuid_text

META = "meta.properties"
BOOTSTRAP = "bootstrap.checkpoint"
DIRECTORIES = "tidelog-log-dirs"
"""In the metadata's folder: the directory ids of the last start, where the metadata has no place for them."""
METADATA_FOLDER = "__cluster_metadata-0"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
CONTROLLER_LISTENER = "CONTROLLER"
DEFAULT_CONTROLLER_PORT = 9093

log = logging.getLogger("tidelog.broker")


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    cluster_id: str
    node_id: int
    directory_id: bytes


def encode_identity(identity: FolderIdentity) -> bytes:
    return (
        f"version=1\ncluster.id={identity.cluster_id}\nnode.id={identity.node_id}\n"
        f"directory.id={uuid_text(identity.directory_id)}\n"
    ).encode()


def read_identity(env: Environment, folder: str, *, write: bool = True) -> FolderIdentity | None:
    """What the folder says of itself; None where it isn't formatted. A directory id that is missing is given to it,
    for good unless `write` says otherwise."""
    path = f"{folder}/{META}"
    if not env.disk.exists(path):
        return None
    lines = env.disk.read_whole(path).decode("utf-8", "replace").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith(("#", "!")))
    properties = {name.strip(): value.strip().replace("\\", "") for name, value in pairs}
    if properties.get("version") != "1":
        raise FolderError(f"{path} has version {properties.get('version')}; this broker reads version 1 (KRaft)")
    try:
        cluster_id, node_id = properties["cluster.id"], int(properties["node.id"])
        directory = uuid_bytes(properties["directory.id"]) if "directory.id" in properties else None
    except (KeyError, ValueError) as error:
        raise FolderError(f"{path} lacks cluster.id or node.id, or they can't be read ({error})") from None
    if directory is not None:
        return FolderIdentity(cluster_id, node_id, directory)
    identity = FolderIdentity(cluster_id, node_id, env.random.uuid())
    if write:
        env.disk.write_whole(path, encode_identity(identity))
    return identity


def open_folders(
    env: Environment, folders: Sequence[str], node_id: int, cluster_id: str | None
) -> tuple[list[FolderIdentity], list[str]]:
    """The identities of the data folders, in order, and which of them are new. New ones join the cluster of the others.

    Refused where folders disagree with each other or with the settings.
    """
    for folder in folders:
        _make_durably(env, folder)
    known = read_identities(env, folders, node_id, cluster_id)
    cluster = next((identity.cluster_id for identity in known.values()), cluster_id) or uuid_text(env.random.uuid())
    identities = [known.get(folder) or FolderIdentity(cluster, node_id, env.random.uuid()) for folder in folders]
    return identities, [folder for folder in folders if folder not in known]


def read_identities(
    env: Environment, folders: Sequence[str], node_id: int, cluster_id: str | None, *, write: bool = True
) -> dict[str, FolderIdentity]:
    """Of the folders that are formatted. Refused where they disagree with each other or with the settings."""
    known: dict[str, FolderIdentity] = {}
    for folder in folders:
        identity = read_identity(env, folder, write=write)
        if identity is None:
            continue
        if identity.node_id != node_id:
            raise FolderError(f"{folder} belongs to node {identity.node_id}, but node.id is {node_id}")
        expected = cluster_id or next((other.cluster_id for other in known.values()), identity.cluster_id)
        if identity.cluster_id != expected:
            raise FolderError(f"{folder} belongs to cluster {identity.cluster_id}, not to {expected}")
        known[folder] = identity
    _check_distinct(known)
    return known


def _check_distinct(known: Mapping[str, FolderIdentity]) -> None:
    paths: dict[bytes, str] = {}
    for path, identity in known.items():
        other = paths.setdefault(identity.directory_id, path)
        if other != path:
            raise FolderError(
                f"{other} and {path} have the same directory.id, {uuid_text(identity.directory_id)}: one is a copy of "
                f"the other; take the copy out of log.dirs"
            )


def check_directories(
    env: Environment, new: Sequence[str], present: Sequence[bytes], registered: Sequence[bytes], lost: Sequence[str]
) -> None:
    """Refuse to go on without a data folder that this broker had at its last start: what is in it would begin anew.

    `new` are the folders without an identity, one of which may be where the missing one should be; `lost` the directory
    ids of which the operator says that they are gone for good.
    """
    missing = [uuid_text(directory) for directory in registered if directory not in present]
    refused = [directory for directory in missing if directory not in lost]
    for directory in missing:
        if directory in lost:
            log.warning("data folder %s is lost: partitions that were in it begin anew, at offset 0", directory)
    if not refused:
        return
    message = f"no folder of log.dirs has directory.id {', '.join(refused)}, which this broker had at its last start. "
    bare = [folder for folder in new if _has_partitions(env, folder)]
    if bare:
        message += f"{', '.join(bare)} holds partitions but no {META}: restore that file. "
    elif new:
        message += f"{', '.join(new)} is empty: if that is where it belongs, mount it. "
    else:
        message += "Name its path in log.dirs. "
    raise FolderError(
        f"{message}If it is gone for good, with all that was in it, start once with "
        f"tidelog.log.dirs.lost={','.join(refused)}"
    )


def read_directories(env: Environment, folder: str) -> tuple[bytes, ...]:
    """The directory ids that `write_directories` wrote; none where it didn't."""
    path = f"{folder}/{DIRECTORIES}"
    if not env.disk.exists(path):
        return ()
    try:
        return tuple(uuid_bytes(line) for line in env.disk.read_whole(path).decode().split())
    except ValueError:
        raise FolderError(
            f"{path} can't be read: it has the directory.id of each folder of log.dirs, one a line. Correct it, or "
            "remove it if all folders of log.dirs are there"
        ) from None


def write_directories(env: Environment, folder: str, directories: Sequence[bytes]) -> None:
    """Keep the directory ids: before metadata.version 3.7-IV2 a broker's registration has none."""
    if read_directories(env, folder) != tuple(directories):
        text = "".join(f"{uuid_text(directory)}\n" for directory in directories)
        env.disk.write_whole(f"{folder}/{DIRECTORIES}", text.encode())


def _has_partitions(env: Environment, folder: str) -> bool:
    names = env.disk.list_folder(folder) if env.disk.exists(folder) else []
    return any(parse_partition_folder(name) is not None for name in names)


def _make_durably(env: Environment, folder: str) -> None:
    """Make the folder, and have its name, and those of its parents that were missing, survive a loss of power."""
    missing: list[str] = []
    path = folder.rstrip("/")
    while path and not env.disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    env.disk.make_folders(folder)
    for made in reversed(missing):
        env.disk.sync_folder(made.rpartition("/")[0] or "/")


def format_folder(env: Environment, folder: str, identity: FolderIdentity) -> None:
    """Give the folder its identity: the last step of formatting, after which it counts as formatted."""
    env.disk.write_whole(f"{folder}/{META}", encode_identity(identity))
    log.info("%s is new: formatted as data folder %s", folder, uuid_text(identity.directory_id))


def format_metadata(env: Environment, folder: str, bootstrap: Sequence[bytes], voters: VoterSet | None) -> None:
    """Prepare the folder that will hold the metadata log: bootstrap records, and the voters that the cluster begins
    with; without them the node is to join a cluster, whose voters it learns from."""
    now_ms = env.clock.now_ms()
    metadata = f"{folder}/{METADATA_FOLDER}"
    if env.disk.exists(metadata) and any(name.endswith(".log") for name in env.disk.list_folder(metadata)):
        raise FolderError(f"{folder} holds a metadata log but no {META}: restore that file, it names the cluster")
    write_snapshot(env.disk, folder, BOOTSTRAP, encode_snapshot(bootstrap, epoch=0, log_timestamp_ms=0, now_ms=now_ms))
    if voters is not None:
        env.disk.make_folders(metadata)
        first = encode_snapshot((), epoch=0, log_timestamp_ms=now_ms, now_ms=now_ms, kraft_version=1, voters=voters)
        write_snapshot(env.disk, metadata, SnapshotId(0, 0).file_name, first)
    env.disk.sync_folder(folder)


def alone(identity: FolderIdentity, controller: Endpoint) -> VoterSet:
    """This node as the only voter."""
    return VoterSet((Voter(ReplicaKey(identity.node_id, identity.directory_id), (controller,)),))


def controller_endpoint(config: BrokerConfig) -> Endpoint:
    """Where this node's controller is reached, or one of Apache Kafka would be, were it started on the folder."""
    for listener in config.advertised_controller_list:
        return Endpoint(listener.name, listener.host, listener.port or DEFAULT_CONTROLLER_PORT)
    return Endpoint(CONTROLLER_LISTENER, "localhost", DEFAULT_CONTROLLER_PORT)


def check_metadata_folder(env: Environment, folder: str, others: Sequence[str], new: Sequence[str]) -> None:
    """Refuse to begin a cluster anew in `folder` where one of the others shows that there is one already.

    The metadata's folder is formatted before all others.
    """
    names = [f"{other}/{METADATA_FOLDER}" for other in others]
    for other, metadata in zip(others, names, strict=True):
        if env.disk.exists(metadata) and _holds_records(env, metadata):
            raise FolderError(
                f"the metadata log is to be in {folder} (metadata.log.dir, or else the first of log.dirs), but "
                f"{metadata} is one: set metadata.log.dir={other}, or move that folder away if it is an old copy"
            )
    formatted = [other for other in others if other not in new]
    if folder in new and formatted and not env.disk.exists(f"{folder}/{METADATA_FOLDER}"):
        raise FolderError(
            f"{folder}, for the metadata log, is empty, but {formatted[0]} belongs to a cluster, whose metadata can't "
            f"be missing: mount {folder}, or restore it from a backup; to begin a new cluster, name new folders only"
        )


def check_has_voters(env: Environment, folder: str) -> None:
    """Refuse to begin a cluster in a folder that was formatted to join one: nobody is to vote there but those that it
    learns of. Formatted with voters there is a checkpoint that names them; whoever has joined has records."""
    metadata = f"{folder}/{METADATA_FOLDER}"
    names = env.disk.list_folder(metadata) if env.disk.exists(metadata) else []
    if not any(name.endswith(".checkpoint") or _has_records(env, f"{metadata}/{name}", name) for name in names):
        raise FolderError(
            f"{folder} was formatted without controllers (--no-initial-controllers, or for controller.quorum.voters), "
            "to join a cluster, and the settings name none of its controllers: set "
            "controller.quorum.bootstrap.servers; for a cluster of one start on an empty folder, or on one that "
            "`tidelog format` made"
        )


def check_metadata(env: Environment, folder: str, partitions: Sequence[TopicPartition]) -> None:
    """Refuse to begin a cluster anew beside partitions: without the metadata that named them, all would be strays.

    A folder of a partition is made when the metadata that names it is durable: there are records then, or a checkpoint
    of them. That of offset 0 is none: formatting makes it.
    """
    metadata = f"{folder}/{METADATA_FOLDER}"
    if not partitions or (env.disk.exists(metadata) and _holds_records(env, metadata)):
        return
    topic, index = partitions[0]
    raise FolderError(
        f"{metadata} has no records, but there are folders of {len(partitions)} partitions, such as {topic}-{index}: "
        f"restore the metadata log from a backup; to begin anew without these topics, move their folders away"
    )


def _holds_records(env: Environment, metadata: str) -> bool:
    return any(_has_records(env, f"{metadata}/{name}", name) for name in env.disk.list_folder(metadata))


def _has_records(env: Environment, path: str, name: str) -> bool:
    if name.endswith(".log"):
        return env.disk.size(path) > 0
    return name.endswith(".checkpoint") and name != SnapshotId(0, 0).file_name


def read_bootstrap(env: Environment, folder: str) -> list[bytes]:
    """The records that a new cluster starts with; none where there is no such file."""
    path = f"{folder}/{BOOTSTRAP}"
    return read_snapshot(env.disk, path).values if env.disk.exists(path) else []
