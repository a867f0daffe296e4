"""A node's folders are formatted for a cluster before its first start: alone, with voters it begins with, or to join.

As `kafka-storage format` does it. The metadata's folder is first, and each folder's `meta.properties` last: whatever
a crash leaves can be formatted again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.config.broker import BrokerConfig
from tidelog.env import Environment
from tidelog.raft import folder as folders
from tidelog.raft.folder import FolderError, FolderIdentity
from tidelog.raft.voters import VoterSet
from tidelog.wire.uuids import uuid_bytes, uuid_text


class Formatted(NamedTuple):
    """What is there now; `new` are the folders that were formatted just now."""

    identities: dict[str, FolderIdentity]
    new: list[str]
    voters: VoterSet | None


def check_cluster_id(cluster_id: str) -> None:
    """Kafka's tools take any text for one, its clients and Apache's own cluster ids are uuids: so must ours be."""
    try:
        uuid_bytes(cluster_id)
    except ValueError as error:
        raise FolderError(f"the cluster id {error}; leave it out, and one is made") from None


class Begins(NamedTuple):
    """What the operator says of the voters that the cluster begins with: this node alone, these, or, where it is to
    join a cluster, none. Nothing is said where it follows from the settings."""

    alone: bool = False
    initial: VoterSet | None = None
    joins: bool = False


AS_SETTINGS_SAY = Begins()


def check_begins(config: BrokerConfig, begins: Begins) -> None:
    """Refuse what would make a cluster beside the one that is meant: as `kafka-storage format` does, and where a
    cluster id would be made up that other nodes don't have."""
    named = begins.alone or begins.initial is not None
    if named and not config.is_controller:
        raise FolderError("a cluster begins with its controllers, and this node is only a broker: leave that out")
    if config.static_voters and (named or begins.joins):
        raise FolderError("controller.quorum.voters names the controllers already: leave out what names them here")
    if config.is_controller and config.other_controllers and not config.static_voters and not (named or begins.joins):
        raise FolderError(
            "controller.quorum.bootstrap.servers names other controllers: say whether this node begins a cluster alone "
            "(--standalone), with others (--initial-controllers), or joins theirs (--no-initial-controllers)"
        )
    if config.cluster_id is None and not named and _follows_others(config, begins):
        raise FolderError(
            "name the cluster that it belongs to with --cluster-id"
            + ("; or don't format it: `tidelog serve` learns the id by itself" if not config.static_voters else "")
        )


def _follows_others(config: BrokerConfig, begins: Begins) -> bool:
    """Whether the node is formatted without voters: it learns them from others, or from its settings."""
    return begins.joins or not config.is_controller or bool(config.static_voters)


def format_node(
    env: Environment,
    config: BrokerConfig,
    bootstrap: Sequence[bytes],
    *,
    begins: Begins = AS_SETTINGS_SAY,
    ignore_formatted: bool = False,
) -> Formatted:
    """Format the folders of `config`, with the voters that the operator says the cluster `begins` with.

    Refused where one is formatted already, unless those are to be left as they are; where they are another cluster's;
    where the voters don't name this node's id, which would never be one; and where `check_begins` refuses it.
    """
    check_begins(config, begins)
    initial = begins.initial
    every = list(dict.fromkeys((*config.folders, config.metadata_folder)))
    locks = [_locked(env, folder) for folder in every]
    identities, new = folders.open_folders(env, every, config.node_id, config.cluster_id)
    known = dict(zip(every, identities, strict=True))
    formatted = [folder for folder in every if folder not in new]
    if formatted and not ignore_formatted:
        identity = known[formatted[0]]
        raise FolderError(
            f"{formatted[0]} is formatted already, for node {identity.node_id} of cluster {identity.cluster_id}: "
            "--ignore-formatted leaves it as it is and formats the others; to begin anew, name another folder"
        )
    metadata = config.metadata_folder
    others = [folder for folder in every if folder != metadata]
    folders.check_metadata_folder(env, metadata, others, new)
    voters = None
    if metadata in new:
        if initial is not None:
            known[metadata] = _as_voter(known[metadata], initial)
        own = folders.alone(known[metadata], folders.controller_endpoint(config))
        voters = None if _follows_others(config, begins) else initial or own
        folders.format_metadata(env, metadata, bootstrap, voters)
    for folder in sorted(new, key=lambda folder: folder != metadata):
        folders.format_folder(env, folder, known[folder])
    locks.clear()
    return Formatted(known, new, voters)


def _locked(env: Environment, folder: str) -> object:
    env.disk.make_folders(folder)
    try:
        return env.disk.lock_folder(folder)
    except BlockingIOError:
        raise FolderError(f"{folder} is in use by a broker: it is formatted already") from None


def _as_voter(identity: FolderIdentity, initial: VoterSet) -> FolderIdentity:
    """The identity that the voters give to this node: the directory id that all others know of."""
    for voter in initial.voters:
        if voter.key.id == identity.node_id:
            return FolderIdentity(identity.cluster_id, identity.node_id, voter.key.directory_id)
    listed = ", ".join(str(id) for id in sorted(initial.ids))
    raise FolderError(
        f"the initial controllers are {listed}, and this node is {identity.node_id}: name it among them, or format it "
        f"with --no-initial-controllers and let it join ({uuid_text(identity.directory_id)} would be its directory id)"
    )
