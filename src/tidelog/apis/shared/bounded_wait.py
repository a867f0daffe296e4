"""Decisions that are waited for no longer than the client wants to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.apis.shared.internal_topics import unset_replication
from tidelog.controller.leaders import Defaults
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Services
    from tidelog.config.broker import BrokerConfig
    from tidelog.env.slices import Steps
    from tidelog.machine.decision import Decision
    from tidelog.metadata.image import ClusterImage

T = TypeVar("T")


def decide(
    services: Services,
    decision: Callable[[ClusterImage, int], Steps[Decision[Any, T]]],
    timeout_ms: int,
    failed: Callable[[KafkaError], T],
    *,
    to_its_end: bool = False,
) -> Promise[T]:
    """What the controller decides, or `failed(error)` where it can't or isn't done in time.

    A timeout of 0 or less is over at once and nothing is done, as in Kafka. After a timeout the decision may still be
    carried out: the client doesn't know, and must ask. One that isn't made by then is not made any more, as in Kafka,
    and what the request holds is not looked at again; with `to_its_end` that goes for one that wasn't begun.
    """
    answer: Promise[T] = Promise()
    if timeout_ms <= 0:
        answer.resolve(failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
        return answer

    def expire() -> None:
        if not answer.done:
            answer.resolve(failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

    def decided(promise: Promise[T]) -> None:
        timer.cancel()
        if answer.done:
            return
        error = promise.error
        if error is None:
            answer.resolve(promise.result())
        elif isinstance(error, KafkaError):
            answer.resolve(failed(error))
        else:
            answer.fail(error)

    def in_time(image: ClusterImage, now_ms: int) -> Steps[Decision[Any, T]]:
        steps, begun = decision(image, now_ms), False
        while not answer.done or (begun and to_its_end):
            begun = True
            try:
                waits = next(steps)
            except StopIteration as end:
                return end.value
            yield waits
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    timer = services.env.loop.call_later(timeout_ms / 1000, expire)
    services.controller.submit_steps(in_time).on_done(decided)
    return answer


def defaults_of(config: BrokerConfig) -> Defaults:
    """The settings that the controller's decisions fall back on."""
    return Defaults(
        num_partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        min_insync_replicas=config.min_insync_replicas,
        unclean_leader_election=config.unclean_leader_election_enable,
        internal_topics=unset_replication(config),
    )
