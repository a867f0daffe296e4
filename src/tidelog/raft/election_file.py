"""`quorum-state`: the election as Kafka keeps it, one line of JSON. Version 1 names the directory voted for; version 0
(kraft.version 0) doesn't."""

from tidelog.env.disk import Disk
from tidelog.raft.events import NO_LEADER, ElectionState
from tidelog.raft.voters import ReplicaKey, VoterSet
from tidelog.wire.uuids import ZERO_UUID, uuid_bytes, uuid_text

FILE_NAME = "quorum-state"


class ElectionFileError(ValueError):
    """The file is there and can't be believed. Guessing could mean voting twice in one epoch."""


def encode_election(election: ElectionState, kraft_version: int, voters: VoterSet) -> bytes:
    voted = election.voted
    voted_id = NO_LEADER if voted is None else voted.id
    if kraft_version == 0:
        ids = ",".join(f'{{"voterId":{id}}}' for id in sorted(voters.ids))
        return (
            f'{{"clusterId":"","leaderId":{election.leader_id},"leaderEpoch":{election.epoch},"votedId":{voted_id},'
            f'"appliedOffset":0,"currentVoters":[{ids}],"data_version":0}}'
        ).encode()
    directory = uuid_text(ZERO_UUID if voted is None else voted.directory_id)
    return (
        f'{{"leaderId":{election.leader_id},"leaderEpoch":{election.epoch},"votedId":{voted_id},'
        f'"votedDirectoryId":"{directory}","data_version":1}}'
    ).encode()


def decode_election(data: bytes, path: str) -> ElectionState:
    import json

    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise ElectionFileError(f"{path} has data_version {version}; 0 and 1 are known")
        voted_id = int(fields["votedId"])
        directory = uuid_bytes(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
        voted = None if voted_id == NO_LEADER else ReplicaKey(voted_id, directory)
        return ElectionState(int(fields["leaderEpoch"]), int(fields["leaderId"]), voted)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ElectionFileError):
            raise
        raise ElectionFileError(
            f"{path} is not a quorum-state file ({error!r}). Restore it; deleting it could let this node vote twice."
        ) from None


def read_election(disk: Disk, folder: str) -> ElectionState | None:
    """What was remembered; None where this replica never took part in an election."""
    path = f"{folder}/{FILE_NAME}"
    return decode_election(disk.read_whole(path), path) if disk.exists(path) else None


def write_election(disk: Disk, folder: str, election: ElectionState, kraft_version: int, voters: VoterSet) -> None:
    """Durable when this returns, and at no moment half written."""
    disk.write_whole(f"{folder}/{FILE_NAME}", encode_election(election, kraft_version, voters))
