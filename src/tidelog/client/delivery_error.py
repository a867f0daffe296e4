"""Why nobody answered for a record: the library only knows that its time is over, the brokers know more."""

from tidelog.client.cluster import reach
from tidelog.client.connect import CONNECT_TIMEOUT_S
from tidelog.client.errors import ClientError, nobody_answers
from tidelog.client.offline import offline_partitions
from tidelog.rpc.errors import Lost, Unreachable, Unsupported
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

FULL_BELOW_BYTES = 1 << 20


def delivery_error(bootstrap: str, topic: str, partition: int | None = None) -> ClientError:
    """What is the matter with the partition, or those of the topic, or the brokers, as far as they tell."""
    try:
        with reach(bootstrap, CONNECT_TIMEOUT_S) as cluster:
            offline = offline_partitions(cluster, [topic])
            for each in [each for each in offline if partition in (None, each.partition)]:
                return ClientError(each.message, "`tidelog status` says what to do")
            for _, connection in cluster.brokers():
                log_dirs = connection.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse)
                for folder in log_dirs.results:
                    if folder.error_code:
                        name = ErrorCode(folder.error_code).name
                        return ClientError(
                            f"the broker at {bootstrap} can't write to {folder.log_dir}: {name}", SEE_THE_LOG
                        )
                    if is_full(folder.usable_bytes):
                        return ClientError(
                            f"the broker at {bootstrap} doesn't acknowledge, and its disk is full: {folder.log_dir} "
                            f"has {_size(folder.usable_bytes)} left",
                            "make room there: the broker goes on by itself",
                        )
    except (Lost, Unreachable):
        return nobody_answers(bootstrap)
    except (KafkaError, Unsupported):
        pass  # it may not be asked, or doesn't know: what is known is that it answers
    return ClientError(f"the broker at {bootstrap} answers, but did not acknowledge in time", SEE_THE_LOG)


SEE_THE_LOG = "the broker's log says why"


def is_full(usable_bytes: int) -> bool:
    """Whether there is no room for a batch; -1 is unknown."""
    return 0 <= usable_bytes < FULL_BELOW_BYTES


def _size(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.0f} KB" if count < 1 << 20 else f"{count >> 20} MB"
