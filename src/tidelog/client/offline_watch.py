"""Why a reader waits: partitions that are offline, a coordinator that isn't available. The library tries for ever."""

import time
from collections.abc import Callable, Sequence

from tidelog.client.cluster import connected
from tidelog.client.errors import ClientError
from tidelog.client.offline import Offline, offline_partitions
from tidelog.rpc.groups import coordinator
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.topic_partition import TopicPartition

LOOK_AFTER_S = 3.0
LOOK_EVERY_S = 5.0
UNAVAILABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def refuse(each: Offline) -> None:
    """What a reader does who wants all of a topic or nothing."""
    raise ClientError(each.message, "`tidelog status` says what to do")


class OfflineWatch:
    """Partitions of these topics that were found offline. Each is told once; asked for now and then."""

    def __init__(self, bootstrap: str, topics: Sequence[str], tell: Callable[[Offline], None]) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._tell = tell
        self._look_at = time.monotonic() + LOOK_AFTER_S
        self.places: set[TopicPartition] = set()

    def look(self, partitions: Sequence[int] | None = None) -> None:
        """Only at these partitions, where they are named. A broker that doesn't answer now may do so later."""
        try:
            with connected(self._bootstrap, f"read {', '.join(self._topics)}") as cluster:
                offline = offline_partitions(cluster, self._topics)
        except ClientError:
            return
        for each in offline:
            place = (each.topic, each.partition)
            if place not in self.places and (not partitions or each.partition in partitions):
                self.places.add(place)
                self._tell(each)

    @property
    def due(self) -> bool:
        """Whether it is time to look again; the next time is later."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + LOOK_EVERY_S
        return True


def unavailable(bootstrap: str, group: str) -> ClientError | None:
    """Why the group can't be joined, where its coordinator says so."""
    request = DescribeGroupsRequest(groups=[group])
    try:
        with connected(bootstrap, f"ask for group {group}") as cluster:
            try:
                description = coordinator(cluster, group).ask(request, DescribeGroupsResponse).groups[0]
            except KafkaError as error:
                code = error.code
            else:
                code = description.error_code
    except ClientError as error:
        return error
    if code not in UNAVAILABLE:
        return None
    return ClientError(
        f"the coordinator of group {group} is not available: {ErrorCode(code).name}", "`tidelog status` says why"
    )
