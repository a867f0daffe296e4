"""The differences from Apache Kafka that are meant. Each refers to a section of docs/differences.md that argues it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tidelog.apis.listeners import ListenerKind, served_on
from tidelog.wire.keys import ApiKey


class Found(Protocol):
    """A place where two answers differ; see `compare.Found`."""

    @property
    def label(self) -> str: ...
    @property
    def key(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def ours(self) -> Any: ...
    @property
    def theirs(self) -> Any: ...
    @property
    def theirs_failed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """One allowed difference: its section in docs/differences.md, and which places it covers."""

    section: str
    where: Callable[[Found], bool]

    def covers(self, found: Found) -> bool:
        return self.where(found)


def at(label: str, path: str = "") -> Callable[[Found], bool]:
    """Covers steps whose label, and places whose path, match these patterns."""
    return lambda found: bool(re.search(label, found.label) and re.search(path, found.path))


def config(*names: str) -> Callable[[Found], bool]:
    """Covers what is told of these settings."""
    pattern = rf"configs\[({'|'.join(names)})\]"
    return lambda found: found.key in CONFIG_APIS and bool(re.search(pattern, found.path))


def words(found: Found) -> bool:
    """Words where Kafka has none; none where Kafka has some for a success."""
    if not found.path.endswith("error_message"):
        return False
    return found.theirs is None or (found.key == ApiKey.UPDATE_FEATURES and found.ours is None)


def unserved(found: Found) -> bool:
    match = re.fullmatch(r"\.?api_keys\[(\d+)\]", found.path)
    if found.key != ApiKey.API_VERSIONS or match is None:
        return False
    return int(match[1]) not in served_on(ListenerKind.BROKER)


CONFIG_APIS = (ApiKey.DESCRIBE_CONFIGS, ApiKey.CREATE_TOPICS)


def found_further_on(found: Found) -> bool:
    """A record found where Kafka finds none."""
    return bool(re.search(r"timestamp \d+ after a deletion$", found.label)) and found.theirs == -1


def two_phase_commit(found: Found) -> bool:
    """InitProducerId v6: asked for, and told of."""
    told = found.key == ApiKey.API_VERSIONS and bool(re.search(r"api_keys\[22\].*max_version", found.path))
    return told or (found.key == ApiKey.INIT_PRODUCER_ID and " v6" in found.label)


def comes_again(found: Found) -> bool:
    """Behind a batch that was refused lately: NOT_ENOUGH_REPLICAS, and not yet OUT_OF_ORDER_SEQUENCE_NUMBER."""
    return found.key == ApiKey.PRODUCE and (found.ours, found.theirs) == (19, 45)


ALLOWED: tuple[Difference, ...] = (
    Difference("Errors come with words", words),
    Difference("InitProducerId is served in v6", two_phase_commit),
    Difference("Where Kafka fails inside, Tidelog answers", lambda found: found.theirs_failed),
    Difference("`max.message.bytes` and `message.max.bytes` are 10 MB by default", config(r"m\w+\.m\w+\.bytes")),
    Difference("Settings of its own begin with `tidelog.`", config(r"tidelog\.[\w.]+")),
    Difference("Settings without use here are unknown", config(r"num\.network\.threads", r"ssl\.\S+")),
    Difference(
        "`node.id`, `process.roles` and the controllers need not be set", config(r"node\.id", r"process\.roles")
    ),
    Difference("What is not served is not advertised", unserved),
    Difference("A topic that Metadata makes is in its answer", at(r"METADATA v\d+ to be made$")),
    Difference("A time is looked for in every segment", found_further_on),
    Difference("Strings are UTF-8", at("bytes that aren't UTF-8")),
    Difference("What comes behind a batch that couldn't be written waits until that one was sent again", comes_again),
)

QUORUM: tuple[Difference, ...] = (
    Difference(
        "A voter that gave up on its leader names none",
        at(r"^END_QUORUM|after the end$|after v\d$", r"leader_id|node_endpoints"),
    ),
    Difference("The last voter can't be removed", at(r"^REMOVE_RAFT_VOTER v0 removed: the last one$")),
)
"""Between controllers."""

CLUSTER: tuple[Difference, ...] = (
    Difference(
        "Metadata and DescribeCluster name the broker that is asked as the controller",
        at(r"^(METADATA|DESCRIBE_CLUSTER) v\d+ (of|none|broker)", r"^controller_id$"),
    ),
    Difference(
        "What is for the active controller is refused by the others",
        at(r"^LIST_PARTITION_REASSIGNMENTS v0 other|^ENVELOPE v0 other (well|v6)"),
    ),
)
"""Of several nodes."""
