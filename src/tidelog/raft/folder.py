"""The identity of a data folder: `meta.properties` with cluster id, node id and directory id; and formatting a new one.

A folder is formatted once, by this broker's first start or by `kafka-storage format`, and never silently again: what it
says must agree with the settings, or the start is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.env import Environment
from tidelog.raft.snapshot import SnapshotId, encode_snapshot, read_snapshot, write_snapshot
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.wire.uuids import uuid_bytes, uuid_text

META = "meta.properties"
BOOTSTRAP = "bootstrap.checkpoint"
METADATA_FOLDER = "__cluster_metadata-0"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
CONTROLLER_LISTENER = "CONTROLLER"
DEFAULT_CONTROLLER_PORT = 9093


class FolderError(ValueError):
    """The folder belongs to another node or cluster, or can't be read."""


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


def read_identity(env: Environment, folder: str) -> FolderIdentity | None:
    """What the folder says of itself; None where it isn't formatted. A directory id that is missing is given to it."""
    path = f"{folder}/{META}"
    if not env.disk.exists(path):
        return None
    lines = env.disk.read_whole(path).decode("utf-8", "replace").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith(("#", "!")))
    found = {name.strip(): value.strip().replace("\\", "") for name, value in pairs}
    if found.get("version") != "1":
        raise FolderError(f"{path} has version {found.get('version')}; this broker reads version 1 (KRaft)")
    try:
        cluster_id, node_id = found["cluster.id"], int(found["node.id"])
        directory = uuid_bytes(found["directory.id"]) if "directory.id" in found else None
    except (KeyError, ValueError) as error:
        raise FolderError(f"{path} lacks cluster.id or node.id, or they can't be read ({error})") from None
    if directory is not None:
        return FolderIdentity(cluster_id, node_id, directory)
    identity = FolderIdentity(cluster_id, node_id, env.random.uuid())
    env.disk.write_whole(path, encode_identity(identity))
    return identity


def open_folders(
    env: Environment, folders: Sequence[str], node_id: int, cluster_id: str | None
) -> tuple[list[FolderIdentity], list[str]]:
    """The identities of the data folders, in order, and which of them are new. New ones join the cluster of the others.

    Refused where folders disagree with each other or with the settings.
    """
    known: dict[str, FolderIdentity] = {}
    for folder in folders:
        _make_durably(env, folder)
        identity = read_identity(env, folder)
        if identity is None:
            continue
        if identity.node_id != node_id:
            raise FolderError(f"{folder} belongs to node {identity.node_id}, but node.id is {node_id}")
        expected = cluster_id or next((other.cluster_id for other in known.values()), identity.cluster_id)
        if identity.cluster_id != expected:
            raise FolderError(f"{folder} belongs to cluster {identity.cluster_id}, not to {expected}")
        known[folder] = identity
    cluster = next((identity.cluster_id for identity in known.values()), cluster_id) or uuid_text(env.random.uuid())
    identities = [known.get(folder) or FolderIdentity(cluster, node_id, env.random.uuid()) for folder in folders]
    return identities, [folder for folder in folders if folder not in known]


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


def format_metadata(
    env: Environment, folder: str, identity: FolderIdentity, bootstrap: Sequence[bytes], controller: Endpoint
) -> None:
    """Prepare the folder that will hold the metadata log: bootstrap records, and this node as the only voter."""
    now_ms = env.clock.now_ms()
    metadata = f"{folder}/{METADATA_FOLDER}"
    if env.disk.exists(metadata) and any(name.endswith(".log") for name in env.disk.list_folder(metadata)):
        raise FolderError(f"{folder} holds a metadata log but no {META}: restore that file, it names the cluster")
    write_snapshot(env.disk, folder, BOOTSTRAP, encode_snapshot(bootstrap, epoch=0, log_timestamp_ms=0, now_ms=now_ms))
    env.disk.make_folders(metadata)
    voters = VoterSet((Voter(ReplicaKey(identity.node_id, identity.directory_id), (controller,)),))
    first = encode_snapshot((), epoch=0, log_timestamp_ms=now_ms, now_ms=now_ms, kraft_version=1, voters=voters)
    write_snapshot(env.disk, metadata, SnapshotId(0, 0).file_name, first)
    env.disk.sync_folder(folder)


def check_metadata(env: Environment, folder: str, partitions: Sequence[tuple[str, int]]) -> None:
    """Refuse to begin a cluster anew beside partitions: without the metadata that named them, all would be strays.

    A folder of a partition is made when the metadata that names it is durable: there are records then, or a checkpoint
    of them. That of offset 0 is none: formatting makes it.
    """
    metadata = f"{folder}/{METADATA_FOLDER}"
    names = env.disk.list_folder(metadata) if env.disk.exists(metadata) else []
    if not partitions or any(_has_records(env, f"{metadata}/{name}", name) for name in names):
        return
    topic, index = partitions[0]
    raise FolderError(
        f"{metadata} has no records, but there are folders of {len(partitions)} partitions, such as {topic}-{index}: "
        f"restore the metadata log from a backup; to begin anew without these topics, move their folders away"
    )


def _has_records(env: Environment, path: str, name: str) -> bool:
    if name.endswith(".log"):
        return env.disk.size(path) > 0
    return name.endswith(".checkpoint") and name != SnapshotId(0, 0).file_name


def read_bootstrap(env: Environment, folder: str) -> list[bytes]:
    """The records that a new cluster starts with; none where there is no such file."""
    path = f"{folder}/{BOOTSTRAP}"
    return read_snapshot(env.disk, path).values if env.disk.exists(path) else []
