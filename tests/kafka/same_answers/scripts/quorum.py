"""What controllers say to each other, said by nobody who is one: to a voter whose peers are away, and to a leader.

The voter is node 1 of 1, 2 and 3, of which only it runs, with timeouts so long that nothing happens but by what it is
told. So its epochs are those of the script. The leader is the only voter of its cluster. What ends an Apache Kafka is
asked of a Tidelog alone.
"""

from collections.abc import Callable
from random import Random
from typing import Any, cast

from tests.kafka.same_answers.side import Side, versions
from tests.raw import fields_of, is_struct
from tidelog.raft.folder import METADATA_TOPIC_ID
from tidelog.wire.keys import ApiKey

TOPIC = "__cluster_metadata"
OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
OTHER_DIRECTORY = bytes([5] * 16)
OBSERVER = 77
FIRST_WITH_EPOCHS = 12
FIRST_WITH_DIRECTORIES = 17
FIRST_WITH_IDS = 13
FIRST_WITH_STATE = 15


class Asker:
    """Asks one node as another would. `epoch` is the newest that it was told of."""

    def __init__(self, side: Side, cluster_id: str, directory_of: Callable[[int], bytes]) -> None:
        self.side = side
        self.cluster_id = cluster_id
        self.directory_of = directory_of
        self.epoch = 0
        self.end: tuple[int, int] = (0, 0)
        """Epoch and offset of the log's end."""

    def vote(self, note: str, version: int = 2, **fields: Any) -> Any:
        """By candidate 2, whose log is as long, in the next epoch; but for what is given."""
        whole, part = fields.pop("whole", {}), fields
        candidate = part.get("replica_id", 2)
        epoch, offset = self.end
        default = {
            "replica_epoch": self.epoch + 1,
            "replica_id": candidate,
            "last_offset_epoch": epoch,
            "last_offset": offset,
        }
        if version >= 1:
            default |= {
                "replica_directory_id": self.directory_of(candidate),
                "voter_directory_id": self.directory_of(1),
            }
            whole = {"voter_id": 1} | whole
        return self._ask(ApiKey.VOTE, version, whole, default | part, note)

    def begin(self, note: str, version: int = 1, **fields: Any) -> Any:
        """By leader 2 of the next epoch."""
        whole, part = fields.pop("whole", {}), fields
        leader = part.get("leader_id", 2)
        default: dict[str, Any] = {"leader_id": leader, "leader_epoch": self.epoch + 1}
        if version >= 1:
            default["voter_directory_id"] = self.directory_of(1)
            endpoints = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}]
            whole = {"voter_id": 1, "leader_endpoints": endpoints} | whole
        return self._ask(ApiKey.BEGIN_QUORUM_EPOCH, version, whole, default | part, note)

    def finish(self, note: str, version: int = 1, **fields: Any) -> Any:
        """EndQuorumEpoch by leader 2 of the epoch that is. Who is not named as a successor waits longest."""
        whole, part = fields.pop("whole", {}), fields
        default: dict[str, Any] = {"leader_id": 2, "leader_epoch": self.epoch}
        if version >= 1:
            endpoints = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}]
            whole = {"leader_endpoints": endpoints} | whole
            default["preferred_candidates"] = [{"candidate_id": 1, "candidate_directory_id": self.directory_of(1)}]
        else:
            default["preferred_successors"] = [1]
        return self._ask(ApiKey.END_QUORUM_EPOCH, version, whole, default | part, note)

    def _ask(self, key: ApiKey, version: int, whole: dict[str, Any], part: dict[str, Any], note: str) -> Any:
        topics = [{"topic_name": TOPIC, "partitions": [{"partition_index": 0} | part]}]
        request = {"cluster_id": self.cluster_id, "topics": topics} | whole
        answer = self.side.ask(key, version, request, note)
        for topic in answer.topics if answer is not None else ():
            for partition in topic.partitions:
                self.epoch = max(self.epoch, partition.leader_epoch)
        return answer

    def fetch(self, note: str, version: int = 17, **fields: Any) -> Any:
        """By an observer that has nothing, in the epoch that is. Of records only how many bytes there are is told."""
        whole, part = fields.pop("whole", {}), fields
        replica = whole.pop("replica_id", OBSERVER)
        default: dict[str, Any] = {"current_leader_epoch": self.epoch, "partition_max_bytes": 1 << 20}
        if version >= FIRST_WITH_EPOCHS:
            default["last_fetched_epoch"] = 0
        named = {"topic_id": METADATA_TOPIC_ID} if version >= FIRST_WITH_IDS else {"topic": TOPIC}
        if version >= FIRST_WITH_STATE:
            request: dict[str, Any] = {"replica_state": {"replica_id": replica}}
        else:
            request = {"replica_id": replica}
        if version >= FIRST_WITH_DIRECTORIES:
            default["replica_directory_id"] = OTHER_DIRECTORY
        request |= {"cluster_id": self.cluster_id, "max_bytes": 1 << 20}
        request["topics"] = [named | {"partitions": [default | part]}]
        return self.noted(ApiKey.FETCH, version, request | whole, note)

    def snapshot(self, note: str, version: int = 1, **fields: Any) -> Any:
        """A piece of a checkpoint, for the same observer."""
        whole, part = fields.pop("whole", {}), fields
        default: dict[str, Any] = {
            "current_leader_epoch": self.epoch,
            "snapshot_id": {"end_offset": 0, "epoch": 0},
            "position": 0,
        }
        if version >= 1:
            default["replica_directory_id"] = OTHER_DIRECTORY
        request: dict[str, Any] = {"cluster_id": self.cluster_id, "replica_id": OBSERVER, "max_bytes": 1 << 20}
        request["topics"] = [{"name": TOPIC, "partitions": [default | part]}]
        return self.noted(ApiKey.FETCH_SNAPSHOT, version, request | whole, note)

    def noted(self, key: ApiKey, version: int, fields: dict[str, Any], note: str) -> Any:
        """Ask; of bytes only whether there are any is told."""
        before = len(self.side.transcript)
        answer = self.side.ask(key, version, fields, note)
        for step in self.side.transcript[before:]:
            if answer is not None:
                step.answer = plain(answer)
        return answer

    def where(self, note: str) -> None:
        """Who leads which epoch, as the node has it: a vote in an epoch that is past changes nothing."""
        self.vote(f"who leads {note}", replica_epoch=max(self.epoch - 1, 0), last_offset_epoch=0, last_offset=0)


def plain(value: Any) -> Any:
    """An answer as dicts and lists. Records are told apart from none; ports, hosts and what is said for people are
    masked."""
    if is_struct(value):
        return {name: _field(name, part) for name, part in fields_of(value).items()}
    return [plain(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _field(name: str, value: Any) -> Any:
    if name in ("records", "unaligned_records"):
        return "<none>" if not value else "<some>"
    if name == "error_message":
        return "<words>"
    if name in ("host", "port"):
        return value if value in (None, "", 0) else "<there>"
    return plain(value)


Script = Callable[[Asker, Random], None]


# ---- to a voter whose peers are away ----


def votes_that_are_asked_for_wrongly(asker: Asker, rng: Random) -> None:
    for version in versions(ApiKey.VOTE):
        asker.vote("another cluster", version, whole={"cluster_id": OTHER_CLUSTER})
        asker.vote("no cluster", version, whole={"cluster_id": None})
        asker.vote("no topic", version, whole={"topics": []})
        for topic, index in (("other", 0), (TOPIC, 1)):
            partitions = [{"partition_index": index, "replica_epoch": asker.epoch + 1, "replica_id": 2}]
            asker.vote(f"{topic}-{index}", version, whole={"topics": [{"topic_name": topic, "partitions": partitions}]})
        asker.vote("an older epoch", version, replica_epoch=asker.epoch - 1)
        asker.vote("a log that ends in the epoch", version, last_offset_epoch=asker.epoch + 1)
        asker.vote("a log that ends in a later epoch", version, last_offset_epoch=asker.epoch + 2)
        asker.vote("a log that ends in no epoch", version, last_offset_epoch=-1)
        asker.vote("a log that ends below 0", version, last_offset=-1)
        asker.vote("a candidate below 0", version, replica_id=-1)
        asker.vote("who is no voter", version, replica_id=9)
        if version >= 1:
            asker.vote("another voter is meant", version, whole={"voter_id": 3})
            asker.vote("another disk is meant", version, voter_directory_id=OTHER_DIRECTORY)
            asker.vote("nobody is meant", version, whole={"voter_id": -1}, voter_directory_id=OTHER_DIRECTORY)
            asker.vote("a candidate of another disk", version, replica_directory_id=OTHER_DIRECTORY)
    asker.where("after all that")


def one_vote_an_epoch(asker: Asker, rng: Random) -> None:
    epoch = asker.epoch + 3
    asker.vote("the first", replica_epoch=epoch)
    asker.vote("again", replica_epoch=epoch)
    asker.vote("again, another disk", replica_epoch=epoch, replica_directory_id=OTHER_DIRECTORY)
    asker.vote("another one", replica_epoch=epoch, replica_id=3)
    asker.vote("another one, before", replica_epoch=epoch, replica_id=3, pre_vote=True)
    asker.vote("the same, before", replica_epoch=epoch, pre_vote=True)
    asker.vote("the next epoch, another one", replica_epoch=epoch + 1, replica_id=3)
    asker.vote("the epoch before", replica_epoch=epoch)
    asker.where("after the votes")


def pre_votes(asker: Asker, rng: Random) -> None:
    epoch = asker.epoch + 2
    asker.vote("before, a new epoch", replica_epoch=epoch, pre_vote=True)
    asker.vote("before, the same epoch", replica_epoch=epoch, pre_vote=True)
    asker.vote("before, another one", replica_epoch=epoch, replica_id=3, pre_vote=True)
    asker.vote("before, an older epoch", replica_epoch=epoch - 1, pre_vote=True)
    asker.vote("before, its log ends in the epoch", replica_epoch=epoch, last_offset_epoch=epoch, pre_vote=True)
    asker.vote("before, its log ends later", replica_epoch=epoch, last_offset_epoch=epoch + 1, pre_vote=True)
    asker.vote("before, who is no voter", replica_epoch=epoch, replica_id=9, pre_vote=True)
    asker.begin("who leads then", leader_epoch=epoch)
    asker.vote("before, a leader is known", replica_epoch=epoch, replica_id=3, pre_vote=True)
    asker.vote("a leader is known", replica_epoch=epoch, replica_id=3)
    asker.vote("before, by the leader", replica_epoch=epoch, pre_vote=True)
    asker.where("after the pre-votes")


def epochs_that_begin(asker: Asker, rng: Random) -> None:
    for version in versions(ApiKey.BEGIN_QUORUM_EPOCH):
        epoch = asker.epoch + 2
        asker.begin("another cluster", version, leader_epoch=epoch, whole={"cluster_id": OTHER_CLUSTER})
        asker.begin("no topic", version, whole={"topics": []})
        for topic, index in (("other", 0), (TOPIC, 1)):
            partitions = [{"partition_index": index, "leader_id": 2, "leader_epoch": epoch}]
            asker.begin(
                f"{topic}-{index}", version, whole={"topics": [{"topic_name": topic, "partitions": partitions}]}
            )
        asker.begin("a leader below 0", version, leader_epoch=epoch, leader_id=-1)
        asker.begin("a new epoch", version, leader_epoch=epoch)
        asker.begin("again", version, leader_epoch=epoch)
        asker.begin("an older epoch", version, leader_epoch=epoch - 1, leader_id=3)
        if version >= 1:
            asker.begin("a leader that is no voter", version, leader_epoch=epoch + 1, leader_id=9)
        asker.begin("no cluster", version, leader_epoch=epoch + 2, whole={"cluster_id": None})
        if version >= 1:
            asker.begin("another voter is meant", version, leader_epoch=epoch + 3, whole={"voter_id": 3})
            asker.begin("another disk is meant", version, leader_epoch=epoch + 4, voter_directory_id=OTHER_DIRECTORY)
            asker.begin("nowhere to be reached", version, leader_epoch=epoch + 5, whole={"leader_endpoints": []})
        asker.where(f"after v{version}")


def epochs_that_end(asker: Asker, rng: Random) -> None:
    for version in versions(ApiKey.END_QUORUM_EPOCH):
        epoch = asker.epoch + 2
        asker.begin("to be ended", leader_epoch=epoch)
        asker.finish("another cluster", version, whole={"cluster_id": OTHER_CLUSTER})
        asker.finish("no topic", version, whole={"topics": []})
        asker.finish("an older epoch", version, leader_epoch=epoch - 1)
        asker.finish("by a leader below 0", version, leader_id=-1)
        asker.finish("this one is to lead next", version)
        asker.vote("before, after the end", replica_epoch=epoch, replica_id=3, pre_vote=True)
        asker.finish("a later epoch", version, leader_epoch=epoch + 1)
        asker.where(f"after v{version}")


def fetches_from_who_does_not_lead(asker: Asker, rng: Random) -> None:
    asker.begin("a leader", leader_epoch=asker.epoch + 1)
    for version in range(12, 18):
        asker.fetch("a leader is known", version)
    asker.fetch("an older epoch", current_leader_epoch=asker.epoch - 1)
    asker.fetch("a later epoch", current_leader_epoch=asker.epoch + 1)
    asker.fetch("no epoch", current_leader_epoch=-1)
    asker.snapshot("a leader is known")
    asker.snapshot("a leader is known", 0)
    asker.snapshot("an older epoch", current_leader_epoch=asker.epoch - 1)
    asker.snapshot("a later epoch", current_leader_epoch=asker.epoch + 1)
    asker.vote("nobody leads")
    asker.fetch("nobody leads")
    asker.snapshot("nobody leads")


def voters_changed_by_who_does_not_lead(asker: Asker, rng: Random) -> None:
    asker.begin("a leader", leader_epoch=asker.epoch + 1)
    change_voters(asker)
    topics = [{"topic_name": TOPIC, "partitions": [{"partition_index": 0}]}]
    for version in versions(ApiKey.DESCRIBE_QUORUM):
        asker.noted(ApiKey.DESCRIBE_QUORUM, version, {"topics": topics}, "not the leader")


def change_voters(asker: Asker) -> None:
    """Changes that can't be: of nobody, of who isn't there, in epochs that aren't."""
    here = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}]
    elsewhere = [{"name": "ELSEWHERE", "host": "127.0.0.1", "port": 9}]
    own = asker.directory_of(1)
    wrong: dict[str, dict[str, Any]] = {
        "another cluster": {"cluster_id": OTHER_CLUSTER},
        "no cluster": {"cluster_id": None},
        "below 0": {"voter_id": -1},
        "no disk": {"voter_directory_id": bytes(16)},
        "nowhere": {"listeners": []},
        "another listener": {"listeners": elsewhere},
        "a voter already": {"voter_id": 1, "voter_directory_id": own},
        "a voter with another disk": {"voter_id": 1},
    }
    for note, fields in wrong.items():
        voter = {"cluster_id": asker.cluster_id, "voter_id": 8, "voter_directory_id": OTHER_DIRECTORY}
        voter |= {"listeners": here} | fields
        for version in versions(ApiKey.ADD_RAFT_VOTER):
            asker.noted(ApiKey.ADD_RAFT_VOTER, version, {"timeout_ms": 1000} | voter, f"added: {note}")
        if note == "a voter already":
            continue
        versions_known = {"kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1}}
        update = {"current_leader_epoch": asker.epoch} | versions_known | voter
        asker.noted(ApiKey.UPDATE_RAFT_VOTER, 0, update, f"updated: {note}")
        del voter["listeners"]
        asker.noted(ApiKey.REMOVE_RAFT_VOTER, 0, voter, f"removed: {note}")
    for note, fields in {
        "an older epoch": {"current_leader_epoch": asker.epoch - 1},
        "a later epoch": {"current_leader_epoch": asker.epoch + 1},
        "no kraft.version": {"kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 0}},
        "versions the wrong way round": {
            "kraft_version_feature": {"min_supported_version": 2, "max_supported_version": 1}
        },
    }.items():
        update = {
            "cluster_id": asker.cluster_id,
            "current_leader_epoch": asker.epoch,
            "voter_id": 1,
            "voter_directory_id": own,
            "listeners": here,
            "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
        }
        asker.noted(ApiKey.UPDATE_RAFT_VOTER, 0, update | fields, f"updated: {note}")


VOTER: tuple[Script, ...] = (
    votes_that_are_asked_for_wrongly,
    one_vote_an_epoch,
    pre_votes,
    epochs_that_begin,
    epochs_that_end,
    fetches_from_who_does_not_lead,
    voters_changed_by_who_does_not_lead,
)


def what_ends_an_apache_kafka(asker: Asker, rng: Random) -> None:
    """Requests after which Apache Kafka ends itself, though nobody but an attacker sends them."""
    asker.vote("itself", replica_id=1)
    asker.vote("itself, before", replica_id=1, pre_vote=True)
    epoch = asker.epoch + 1
    asker.begin("a leader", leader_epoch=epoch)
    asker.begin("another leader", leader_epoch=epoch, leader_id=3)
    asker.finish("by another leader", leader_epoch=epoch, leader_id=3)
    asker.begin("a leader that nobody knows where to find", 0, leader_epoch=epoch + 1, leader_id=9)
    asker.snapshot("no topic", whole={"topics": []})
    asker.where("after all that")


# ---- to a leader ----


def fetches_from_a_leader(asker: Asker, rng: Random) -> None:
    epoch, end = asker.end
    for version in range(4, 19):
        asker.fetch("from the start", version, fetch_offset=0)
    at_end = {"fetch_offset": end, "last_fetched_epoch": epoch}
    asker.fetch("from the end", **at_end)
    asker.fetch("behind the end", fetch_offset=end + 1, last_fetched_epoch=epoch)
    asker.fetch("below 0", fetch_offset=-1)
    asker.fetch("an older epoch", current_leader_epoch=asker.epoch - 1, **at_end)
    asker.fetch("a later epoch", current_leader_epoch=asker.epoch + 1, **at_end)
    asker.fetch("no epoch", current_leader_epoch=-1, **at_end)
    asker.fetch("fetched in a later epoch", fetch_offset=end, last_fetched_epoch=epoch + 1)
    asker.fetch("fetched in no epoch", fetch_offset=end, last_fetched_epoch=-1)
    asker.fetch("fetched in an epoch that wrote nothing", fetch_offset=1, last_fetched_epoch=0)
    asker.fetch("another cluster", whole={"cluster_id": OTHER_CLUSTER}, **at_end)
    asker.fetch("no cluster", whole={"cluster_id": None}, **at_end)
    asker.fetch("no replica", whole={"replica_id": -1}, **at_end)
    asker.fetch("as a debugger", whole={"replica_id": -2}, **at_end)
    asker.fetch("as the leader itself", whole={"replica_id": 1}, **at_end)
    asker.fetch("a negative wait", whole={"max_wait_ms": -1}, **at_end)
    asker.fetch("no byte", whole={"max_bytes": 0}, fetch_offset=0)
    asker.fetch("partition 1", partition=1, **at_end)
    asker.fetch("no topic", whole={"topics": []})
    unknown = [{"topic_id": bytes([3] * 16), "partitions": [{"partition": 0}]}]
    asker.fetch("another topic", whole={"topics": unknown})
    parts = [{"partition": 0, "current_leader_epoch": asker.epoch, "last_fetched_epoch": 0, "partition_max_bytes": 99}]
    asker.fetch("two topics", whole={"topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": parts}, *unknown]})
    asker.fetch("twice", whole={"topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": parts * 2}]})


def checkpoints_that_are_not_there(asker: Asker, rng: Random) -> None:
    epoch, end = asker.end
    for version in versions(ApiKey.FETCH_SNAPSHOT):
        asker.snapshot("the one it was formatted with", version)
        asker.snapshot("one of the end", version, snapshot_id={"end_offset": end, "epoch": epoch})
        asker.snapshot("below 0", version, snapshot_id={"end_offset": -1, "epoch": -1})
        asker.snapshot("another cluster", version, whole={"cluster_id": OTHER_CLUSTER})
        asker.snapshot("no cluster", version, whole={"cluster_id": None})
        asker.snapshot("an older epoch", version, current_leader_epoch=asker.epoch - 1)
        asker.snapshot("a later epoch", version, current_leader_epoch=asker.epoch + 1)
        asker.snapshot("no epoch", version, current_leader_epoch=-1)
        asker.snapshot("partition 1", version, partition=1)
        part: dict[str, Any] = {"partition": 0, "current_leader_epoch": asker.epoch}
        asker.snapshot("another topic", version, whole={"topics": [{"name": "other", "partitions": [part]}]})
        twice = [{"name": TOPIC, "partitions": [part, part]}]
        asker.snapshot("twice", version, whole={"topics": twice})


def a_leader_is_told_of_others(asker: Asker, rng: Random) -> None:
    for pre_vote in (True, False):
        said = "before, " if pre_vote else ""
        asker.vote(f"{said}in its own epoch", replica_epoch=asker.epoch, pre_vote=pre_vote)
        asker.vote(f"{said}in an older one", replica_epoch=asker.epoch - 1, last_offset_epoch=0, pre_vote=pre_vote)
    asker.begin("by itself", leader_epoch=asker.epoch, leader_id=1)
    asker.finish("by itself", leader_epoch=asker.epoch, leader_id=1)
    asker.where("after all that")


def voters_changed_by_a_leader(asker: Asker, rng: Random) -> None:
    change_voters(asker)
    last = {"cluster_id": asker.cluster_id, "voter_id": 1, "voter_directory_id": asker.directory_of(1)}
    asker.noted(ApiKey.REMOVE_RAFT_VOTER, 0, last, "removed: the last one")


def a_leader_hears_of_a_later_epoch(asker: Asker, rng: Random) -> None:
    """Last: it leads no longer then."""
    asker.vote("before, a later epoch", replica_epoch=asker.epoch + 1, pre_vote=True)
    asker.where("after a pre-vote")
    asker.begin("a later epoch", leader_epoch=asker.epoch + 3)
    asker.where("after an epoch began")


def what_ends_a_leading_apache_kafka(asker: Asker, rng: Random) -> None:
    asker.begin("another leader", leader_epoch=asker.epoch)
    asker.finish("by another leader", leader_epoch=asker.epoch)
    asker.where("after all that")


LEADER: tuple[Script, ...] = (
    fetches_from_a_leader,
    checkpoints_that_are_not_there,
    a_leader_is_told_of_others,
    voters_changed_by_a_leader,
    a_leader_hears_of_a_later_epoch,
)


FEWER_THAN_NONE = (("fewer than none", 0, -1),)
"""Ends an Apache Kafka, too."""


def pieces(asker: Asker, snapshot: tuple[int, int], size: int, fewer: tuple[tuple[str, int, int], ...] = ()) -> None:
    """Pieces of a checkpoint that is there, told by how they lie in it: of two nodes it isn't equally long."""
    snapshot_id = {"end_offset": snapshot[0], "epoch": snapshot[1]}
    for note, position, most in (
        ("the first bytes", 0, 100),
        ("from the middle", size // 2, 1 << 20),
        ("the last byte", size - 1, 1 << 20),
        ("at the end", size, 1 << 20),
        ("behind the end", size + 1, 1 << 20),
        ("below 0", -1, 1 << 20),
        ("no byte", 0, 0),
        *fewer,
    ):
        answer = asker.snapshot(
            note, snapshot_id=snapshot_id, position=position, whole={"replica_id": OBSERVER, "max_bytes": most}
        )
        if answer is None:
            continue
        for topic in asker.side.transcript[-1].answer["topics"]:
            (part,) = topic["partitions"]
            part["size"] = "<all>" if part["size"] == size else part["size"]
            part["position"] = "<as asked>" if part["position"] == position else part["position"]
            if part["snapshot_id"] == snapshot_id:
                part["snapshot_id"] = "<as asked>"
            count = len(answer.topics[0].partitions[0].unaligned_records)
            part["unaligned_records"] = "<to the end>" if count == size - position else count
