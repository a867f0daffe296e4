"""One partition on this broker, on the way of a message between `apis` and `log`.

A partition is a replica with a leader, a leader epoch and a set of in-sync replicas, as the metadata image says, and a
high watermark of its own: the least durable end in the ISR. Consumers read up to the high watermark only, so nothing
that anyone was shown goes away with the power. With one replica, that is the durable end of the log here; with several,
their leader knows how far each of them is (`leading.py`), and the high watermark goes no further while the ISR is below
min.insync.replicas. Followers read to the end of the log, and their sessions are told what changes (`FollowerReader`).

What is written is here, by producers and as another broker leads; what is known of it is in `replica.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.replica.following import Place, cut_at, whole_batches
from tidelog.replica.replica import Commit, Follower, Replica
from tidelog.replica.resends import SENT_AGAIN, Resends, Sent, read_sent
from tidelog.wire.batch import ATTRIBUTES_AT, CONTROL_FLAG, read_header
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.env.promise import Promise
    from tidelog.log.log import Log
    from tidelog.log.validate import Admitted

__all__ = ["Commit", "Follower", "Partition"]

_logger = logging.getLogger("tidelog.replica")


class Partition(Replica):
    """A replica that is written to."""

    __slots__ = ()

    # -- writing

    def append(
        self,
        buffer: memoryview,
        start: int,
        end: int,
        acks: int,
        now_ms: int,
        admission: Admitted | KafkaError | None = None,
    ) -> tuple[int, int, int]:
        """Append what a producer sent; (base offset, next offset, append time or -1). The caller waits for its acks.

        `admission`: what came of a look into its records that was made already (`Log.admit`). Without one, Lengthy is
        raised where that takes long.
        """
        log = self.log
        sent = self._in_turn(buffer, start, end, now_ms) if self._resends is not None else None
        try:
            if self.leader != self._node_id or log.offline is not None:
                self.check_leader()
            if acks == -1 and len(self.isr) < log.config.min_insync_replicas and self._is_below_min_isr():
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            if admission is None:
                appended = log.append(buffer, start, end, self.leader_epoch, now_ms)
            elif isinstance(admission, KafkaError):
                raise admission
            else:
                made, first, last, _ = admission
                appended = log.append(made, first, last, self.leader_epoch, now_ms, admitted=True)
        except KafkaError as error:
            if error.code in SENT_AGAIN:
                self.expect_again(buffer, start, end, now_ms)
            elif error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and sent is not None:
                raise self._out_of_turn(sent, error.message, now_ms) from error
            raise
        if sent is not None:
            self._took(sent)
        self._grew(log)
        return appended

    def append_together(self, buffer: memoryview, spans: list[tuple[int, int]], acks: int, now_ms: int) -> list[int]:
        """As `append`, with one write, as many from the first on as are plainly fine: none, perhaps.

        Returns their base offsets, and the log's end behind them.
        """
        log = self.log
        below_min_isr = acks == -1 and len(self.isr) < log.config.min_insync_replicas and self._is_below_min_isr()
        if self._resends is not None or not self.is_served or below_min_isr:
            return [log.log_end]
        offsets = log.append_together(buffer, spans, self.leader_epoch, now_ms)
        if len(offsets) > 1:
            self._grew(log)
        return offsets

    def _grew(self, log: Log) -> None:
        """Something was appended."""
        if self._readers is not None:
            for reader in self._readers:
                reader.grew()
        ends = log.ends
        durable_end = ends.durable_end
        if durable_end != ends.log_end and not log.unsynced.requested:
            self._commit.request(log)
        if durable_end != self.high_watermark:
            self.advance()

    def begin(self) -> Promise[None] | None:
        """Settled when the log was made ready for its first write, or that failed; None: there is nothing to do."""
        return self.log.begin() if self.leader == self._node_id else None

    def remember(self, buffer: memoryview, start: int, end: int) -> Promise[None] | None:
        """Settled when the log knows what it can of a batch that may have been sent before; None: it does already."""
        if not self.log.has_unread:
            return None
        sent = read_sent(buffer, start, end)
        return self.log.read_windows() if sent is not None and self.log.is_unread(*sent) else None

    def expect_again(self, buffer: memoryview, start: int, end: int, now_ms: int) -> None:
        """A producer's batch isn't taken now and will be sent again: what comes behind it must not come before it."""
        resends = self._resends or Resends()
        resends.refuse_sound(buffer, start, end, now_ms)
        self._resends = resends or None

    @property
    def expected_again(self) -> int:
        """Of how many producers a batch that was refused has to come before what they sent behind it."""
        return len(self._resends or ())

    def _in_turn(self, buffer: memoryview, start: int, end: int, now_ms: int) -> Sent | None:
        """Whose batch this is; raises where one that was refused has to come before it."""
        resends = self._resends
        assert resends is not None
        resends.forget(now_ms)
        if not resends:
            self._resends = None
            return None
        sent = read_sent(buffer, start, end)
        first = None if sent is None else resends.before(sent)
        if sent is not None and first is not None and self.is_served:
            known = self.log.producers.get(sent.producer_id)
            if known is None or known.epoch < sent.epoch:
                told = (
                    f"producer {sent.producer_id} sent sequence {sent.sequence} to {self.topic}-{self.index}, "
                    f"but tried {first} before, which was refused"
                )
                raise self._out_of_turn(sent, told, now_ms)
        return sent

    def _out_of_turn(self, sent: Sent, told: str | None, now_ms: int) -> KafkaError:
        """Of a batch that isn't the next one: if those before it are on their way again, so is this one soon."""
        awaited = self._resends is not None and self._resends.is_awaited(sent, now_ms)
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS if awaited else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, told)

    def _took(self, sent: Sent) -> None:
        assert self._resends is not None
        self._resends.take(sent.producer_id)
        if not self._resends:
            self._resends = None

    def append_own(self, data: memoryview, epoch: int, now_ms: int) -> int:
        """Append a batch of this broker's own, offsets and epoch set, while it leads in `epoch`; the next offset.

        A marker may be larger than what the topic takes: the transaction would never end.
        """
        log = self.log
        self.check_leader(epoch)
        if len(self.isr) < log.config.min_insync_replicas and self._is_below_min_isr():
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        if len(data) > log.config.max_message_bytes and not data[ATTRIBUTES_AT + 1] & CONTROL_FLAG:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{log.place}: a batch of {len(data)} bytes; max.message.bytes is {log.config.max_message_bytes}",
            )
        _, next_offset = log.append_records(data, 0, len(data), now_ms)
        self._grew(log)
        return next_offset

    # -- following

    @property
    def place(self) -> Place:
        """From where on the leader is to be asked: what is told there is durable here."""
        log = self.log
        return Place(
            self.leader_epoch, log.ends.durable_end, log.epochs.latest, log.ends.log_start, self.high_watermark
        )

    def follow(self, follower: Follower) -> None:
        """Another broker leads: what it has is copied. An epoch that was led here without a record leaves no trace."""
        self.follower = follower
        self.log.epochs.truncate_from_end(self.log.log_end)
        if self.log.durable_end < self.log.log_end:
            self._commit.request(self.log)

    def begin_following(self) -> Promise[None] | None:
        """As `begin`, for the first batches that the leader sends."""
        return None if self.log.segments else self.log.begin()

    def append_fetched(self, records: memoryview, asked: Place, now_ms: int) -> None:
        """Append what the leader answered to `asked`, as it is. Nothing where this broker is no longer where it was
        then: in another leader epoch, or with another log end. The batch that came cut is left out.

        KafkaError where a batch can't be taken; those before it were.
        """
        log = self.log
        if not self.is_fetched(asked):
            return
        end = whole_batches(records, 0, len(records))
        if not end:
            return
        if log.ends.log_start == log.ends.log_end:
            self._begin_inside(records, now_ms)
        try:
            log.append_records(records, 0, end, now_ms, epoch_max=asked.leader_epoch)
        finally:
            if log.ends.durable_end < log.ends.log_end:
                self._commit.request(log)

    def _begin_inside(self, records: memoryview, now_ms: int) -> None:
        """The leader's log may start inside of a batch: one that has nothing yet begins with the whole of it."""
        first = read_header(records)
        if first.base_offset < self.log.log_end <= first.last_offset:
            self.log.truncate_fully_and_start_at(first.base_offset, now_ms)

    def is_fetched(self, asked: Place) -> bool:
        """Whether an answer to what was asked there concerns this log as it is."""
        follows = self.leader_epoch == asked.leader_epoch and self.leader != self._node_id
        return follows and not self.deleted and self.log.ends.log_end == asked.offset and self.log.offline is None

    def learn(self, high_watermark: int, log_start: int) -> None:
        """What the leader says of its log. The high watermark rises here as far as the log is durable, and never falls;
        the log's start follows it."""
        self._leader_high_watermark = max(self._leader_high_watermark, high_watermark)
        self._leader_log_start = max(self._leader_log_start, log_start)
        self.follow_leader()

    def follow_leader(self) -> None:
        log = self.log
        high_watermark = min(self._leader_high_watermark, log.ends.durable_end)
        if high_watermark > self.high_watermark:
            self._rise(high_watermark)
        start = min(self._leader_log_start, self.high_watermark)
        if start > log.ends.log_start and log.offline is None:
            log.delete_before(start)

    def parts_at(self, epoch: int, end_offset: int) -> int:
        """Where this log and the leader's part, if the leader's ends an epoch there."""
        log = self.log
        return cut_at(log.epochs, log.log_end, epoch, end_offset)

    def expect_cut(self, offset: int) -> None:
        """The log is about to be cut there (`log/cutting.py`): what its leader doesn't have goes."""
        log, before = self.log, self.log.log_end
        if offset < min(self.high_watermark, before):
            _logger.error(
                "%s: cut to %d, below its high watermark %d, since its leader of epoch %d has no more: what was "
                "committed is lost, as an unclean election may have it",
                log.place,
                offset,
                self.high_watermark,
                self.leader_epoch,
            )
        elif offset < before:
            _logger.info("%s: cut from %d to %d, where its leader's log is another", log.place, before, offset)
        self._fall(min(self.high_watermark, offset))

    def start_anew(self, offset: int, now_ms: int) -> None:
        """The leader's log starts behind the end of this one: nothing of it is left."""
        log = self.log
        _logger.warning(
            "%s: begun anew at %d, where its leader's log starts; it had offsets %d to %d",
            log.place,
            offset,
            log.log_start,
            log.log_end,
        )
        log.truncate_fully_and_start_at(offset, now_ms)
        self._fall(offset)

    def _fall(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log.advance_high_watermark(high_watermark)
