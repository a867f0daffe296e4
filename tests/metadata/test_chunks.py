"""A sequence that shares with the ones it was made from."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.chunks import CHUNK, Chunked, chunked

SIZES = st.sampled_from([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5])


class Item:
    """Counts how often any of them is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return self is other

    __hash__ = object.__hash__


@given(SIZES, st.data())
def test_is_the_list_that_the_same_changes_make(size: int, data: st.DataObject) -> None:
    expected = list(range(size))
    shared = chunked(expected)
    for _ in range(3):
        before, as_it_was = shared, list(expected)
        changes = data.draw(st.dictionaries(st.integers(0, len(expected) - 1), st.integers())) if expected else {}
        added = data.draw(st.lists(st.integers(), max_size=2 * CHUNK))
        shared = shared.changed(changes, added)
        for index, item in changes.items():
            expected[index] = item
        expected += added
        assert list(shared) == expected
        assert [shared[index] for index in range(-len(expected), len(expected))] == expected * 2
        assert shared == chunked(expected)
        assert hash(shared) == hash(chunked(expected))
        assert list(before) == as_it_was
        differing = [i for i in range(len(expected)) if i >= len(as_it_was) or expected[i] != as_it_was[i]]
        assert list(shared.differing(before)) == list(before.differing(shared)) == differing


def test_what_two_share_is_not_looked_at() -> None:
    before = chunked([Item() for _ in range(100 * CHUNK)])
    after = before.changed({5 * CHUNK: Item()})
    Item.compared = 0
    assert list(after.differing(before)) == [5 * CHUNK]
    assert Item.compared <= CHUNK


def test_ends_are_where_a_list_has_them() -> None:
    some = chunked(range(CHUNK))
    for index in (CHUNK, -CHUNK - 1):
        try:
            some[index]
        except IndexError:
            continue
        raise AssertionError(f"there is no item {index}")
    assert some[1:3] == (1, 2)
    assert not Chunked()
