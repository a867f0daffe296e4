"""Producer ids: each is given once, in order, and nobody waits for longer than a block takes."""

import pytest

from tidelog.apis.shared.producer_ids import REFILL_BELOW, ProducerIds
from tidelog.controller.producer_ids import ProducerIdBlock
from tidelog.env.promise import Promise


class Controller:
    """Hands out blocks when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Promise[ProducerIdBlock]] = []

    def allocate(self) -> Promise[ProducerIdBlock]:
        self.asked.append(Promise())
        return self.asked[-1]


def test_ids_come_in_order_and_the_next_block_is_asked_for_early():
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    first = ids.next()
    controller.asked[0].resolve(ProducerIdBlock(5000, 1000))
    given = [first.result()] + [ids.next().result() for _ in range(999 - REFILL_BELOW)]
    assert given == list(range(5000, 5900))
    assert len(controller.asked) == 1
    ids.next()
    assert len(controller.asked) == 2
    controller.asked[1].resolve(ProducerIdBlock(9000, 1000))
    assert [ids.next().result() for _ in range(101)] == [*range(5901, 6000), 9000, 9001]


def test_who_waits_for_a_block_that_does_not_come_hears_why_and_the_next_one_asks_again():
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    waiting = [ids.next(), ids.next()]
    controller.asked[0].fail(OSError("gone"))
    for promise in waiting:
        with pytest.raises(OSError, match="gone"):
            promise.result()
    after = ids.next()
    controller.asked[1].resolve(ProducerIdBlock(7, 1000))
    assert after.result() == 7
