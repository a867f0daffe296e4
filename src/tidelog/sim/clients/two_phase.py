"""Two-phase commit in the simulated world: batches of two transactions, decided elsewhere, by a driver that dies.

The driver writes each batch in two transactions with leases, one a partition of `batches`, prepares both, records that
the batch is decided, and commits them. Anywhere in between it may be gone, for longer than a lease; what it recorded is
all that it knows then. A decided batch must be there whole, each other try not at all; and what was left open and not
prepared must end by itself, or readers would wait for ever.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.leases import LEASED_MS, PREPARE, RENEW
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.record import Record

T = TypeVar("T")

BATCHES = "batches"
PARTS = 2
LEASE_MS = 1500
SETTINGS = {"transaction.two.phase.commit.enable": "true", "tidelog.transaction.lease.ms": str(LEASE_MS)}
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Ask again. Whatever else an end is refused with means that the transaction has ended the other way."""


class Written(NamedTuple):
    """A transaction of a batch: whose it is, and what is in it."""

    name: str
    producer: tuple[int, int]
    values: list[bytes]


class Driver(Client):
    """Writes batches one after the other; so many are done.

    `decided` are the values that must be there, by partition, in order.
    """

    def __init__(self, world: ClientWorld, name: str, random: SimRandom) -> None:
        self.decided: dict[int, list[bytes]] = {part: [] for part in range(PARTS)}
        self.stopping = False
        self.idle = False
        self._recorded: list[Written] = []  # decided, and to be committed: kept whatever happens to the driver
        self._prepared: list[Written] = []  # perhaps prepared, and not decided: nobody else ends it
        self._written: list[Written] = []
        self.batches = self._attempt = 0
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        """As when it is started anew: it finishes what is recorded, and what only it can end."""
        self._written = []
        if self._recorded:
            self._end(self._recorded, self._committed, commit=True)
        elif self._prepared:
            self._end(self._prepared, self._again, commit=False)
        elif self.stopping:
            self.idle = True
        else:
            self._attempt += 1
            self._begin_part()

    def _again(self) -> None:
        connection = self.connection
        if connection is not None:
            self.connected(connection)

    # -- a batch: two transactions

    def _begin_part(self) -> None:
        name = f"{self.name}-{self._attempt}-{len(self._written)}"
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        self._ask(request, FindCoordinatorResponse, 10, 4, lambda response: self._coordinator_known(name, response))

    def _coordinator_known(self, name: str, response: FindCoordinatorResponse) -> None:
        if not self._failed(response.coordinators[0].error_code):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=LEASED_MS, enable2_pc=True)
            self._ask(request, InitProducerIdResponse, 22, 6, lambda response: self._initialised(name, response))

    def _initialised(self, name: str, response: InitProducerIdResponse) -> None:
        if self._failed(response.error_code):
            return
        part, producer = len(self._written), (response.producer_id, response.producer_epoch)
        count = self.random.random_int(1, 3)
        values = [b"%s:%d.%d" % (name.encode(), self.batches, number) for number in range(count)]
        records = build(
            [Record(timestamp=self.world.timeline.now_ms(), value=value) for value in values],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=part, records=memoryview(records))
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=3000,
            topic_data=[TopicProduceData(name=BATCHES, partition_data=[data])],
        )

        def produced(response: ProduceResponse) -> None:
            if self._failed(response.responses[0].partition_responses[0].error_code):
                return
            self._written.append(Written(name, producer, values))
            if len(self._written) < PARTS:
                self._begin_part()
            else:
                self._wait()

        self._ask(request, ProduceResponse, 0, 12, produced)

    def _wait(self) -> None:
        """Others of the batch may take long: its transactions are renewed meanwhile, unless the driver is gone."""
        gone = self.random.chance(0.25)
        if gone:
            self._sleep(self._again if self.random.chance(0.5) else self._prepare)  # killed, or only asleep
            return
        self._hold(self._written, RENEW, self._prepare, self._again)

    def _sleep(self, then: Callable[[], None]) -> None:
        self.later(lambda _: then(), self.random.between(0.2, 2.0) * LEASE_MS / 1000)

    def _prepare(self) -> None:
        self._prepared = list(self._written)
        self._hold(self._written, PREPARE, self._decide_soon, self._again)

    def _decide_soon(self) -> None:
        if self.random.chance(0.1):
            self._sleep(self._decide)
        elif self.random.chance(0.1):
            self._again()  # killed before it could decide
        else:
            self._decide()

    def _decide(self) -> None:
        """The commit point: one write, wherever that is."""
        self._recorded, self._prepared = self._written, []
        for part, written in enumerate(self._recorded):
            self.decided[part] += written.values
        self.world.note(f"{self.name} decides {[written.name for written in self._recorded]}")
        if self.random.chance(0.15):
            self._sleep(self._again)
        else:
            self._again()

    def _committed(self) -> None:
        self._recorded = []
        self.batches += 1
        self.later(lambda _: self._again(), self.random.between(0.0, 0.3))

    # -- of several transactions one after the other

    def _end(self, left: list[Written], then: Callable[[], None], *, commit: bool) -> None:
        if not left:
            self._prepared = self._prepared if commit else []
            then()
            return
        name, (producer_id, epoch), _ = left[0]
        request = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit)

        def ended(response: EndTxnResponse) -> None:
            code = ErrorCode(response.error_code)
            if code in NOT_YET:
                self.later(lambda _: self._end(left, then, commit=commit), RETRY_S)
                return
            if code and commit:
                raise Violation(f"{name} is decided, and its commit is answered {code.name}")
            self._end(left[1:], then, commit=commit)

        self._ask(request, EndTxnResponse, 26, 5, ended)

    def _hold(self, left: list[Written], what: str, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        if not left:
            then()
            return
        name, (producer_id, epoch), _ = left[0]
        asked = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=what, partitions=[0])],
        )

        def held(response: AddPartitionsToTxnResponse) -> None:
            [answer] = response.results_by_transaction[0].topic_results[0].results_by_partition
            code = ErrorCode(answer.partition_error_code)
            if code in NOT_YET:
                self.later(lambda _: self._hold(left, what, then, otherwise), RETRY_S)
            elif code:
                self.world.note(f"{self.name}: {what} of {name} is answered {code.name}")
                otherwise()
            else:
                self._hold(left[1:], what, then, otherwise)

        self._ask(AddPartitionsToTxnRequest(transactions=[asked]), AddPartitionsToTxnResponse, 24, 5, held)

    # -- what may come in between

    def _ask(self, request: Any, response: type[T], key: int, version: int, answered: Callable[[T], None]) -> None:
        if self.connection is not None:
            self.connection.ask(request, response, key, version, answered)

    def _failed(self, code: int) -> bool:
        """Whether a part can't be written: then the batch is tried again, and what is open is left to its lease."""
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"{self.name} got UNKNOWN_SERVER_ERROR")
        if code:
            self.later(lambda _: self._again(), self.random.between(0.5, 3.0) * RETRY_S)
        return bool(code)
