"""What waits for a batch that was refused, and what doesn't."""

from hypothesis import given
from hypothesis import strategies as st

from tests.batches import Batch, Producer
from tests.batches import Sent as SentRecord
from tidelog.replica.resends import KEPT_MS, PRODUCERS_MAX, Resends, Sent, is_sound, read_sent
from tidelog.wire.batch import SEQUENCE_MAX


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-6, 6)), min_size=1, max_size=6),
    st.integers(0, 1),
    st.integers(-8, 8),
)
def test_a_batch_waits_for_the_earliest_that_was_refused_in_its_epoch(
    refused: list[tuple[int, int]], epoch: int, place: int
) -> None:
    """Sequences around the one where they begin anew."""
    resends = Resends()
    for at_ms, (of_epoch, where) in enumerate(refused):
        resends.refuse(Sent(7, of_epoch, where & SEQUENCE_MAX), at_ms)
    newest = max(of_epoch for of_epoch, _ in refused)
    first = min(where for of_epoch, where in refused if of_epoch == newest)
    expected = first & SEQUENCE_MAX if epoch == newest and place > first else None
    assert resends.before(Sent(7, epoch, place & SEQUENCE_MAX)) == expected
    assert resends.before(Sent(8, epoch, place & SEQUENCE_MAX)) is None
    resends.take(7)
    assert not resends


def test_those_who_try_again_are_kept_and_those_who_do_not_are_forgotten() -> None:
    resends = Resends()
    resends.refuse(Sent(1, 0, 0), 0)
    resends.refuse(Sent(2, 0, 0), 0)
    resends.refuse(Sent(1, 0, 1), KEPT_MS - 1)
    resends.forget(KEPT_MS)
    assert resends.before(Sent(1, 0, 1)) == 0
    assert resends.before(Sent(2, 0, 1)) is None
    resends.forget(2 * KEPT_MS)
    assert not resends


def test_they_are_bounded() -> None:
    resends = Resends()
    for producer_id in range(2 * PRODUCERS_MAX + 5):
        resends.refuse(Sent(producer_id, 0, 0), 0)
        assert len(resends) <= PRODUCERS_MAX
    assert resends.before(Sent(PRODUCERS_MAX + 5, 0, 1)) == 0, "those that tried last are waited for"
    assert resends.before(Sent(PRODUCERS_MAX + 4, 0, 1)) is None


def test_only_a_sound_batch_of_a_producer_with_an_id_names_one() -> None:
    mine = memoryview(bytearray(Batch([SentRecord(b"a")], producer=Producer(7, 3, 11)).encode()))
    assert read_sent(mine, 0, len(mine)) == Sent(7, 3, 11)
    assert is_sound(mine, 0, len(mine))
    mine[50] ^= 1
    assert not is_sound(mine, 0, len(mine))
    assert read_sent(mine[:60], 0, 60) is None
    plain = memoryview(bytearray(Batch([SentRecord(b"a")]).encode()))
    assert read_sent(plain, 0, len(plain)) is None
    plain[16] = 1
    assert read_sent(plain, 0, len(plain)) is None
