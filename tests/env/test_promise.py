"""Promises: settled once, whoever asks early or late hears the same."""

import pytest

from tidelog.env.promise import Promise, gather


def test_callbacks_before_and_after_it_is_settled_hear_the_same():
    heard = []
    promise: Promise[int] = Promise()
    promise.on_done(lambda p: heard.append(("early", p.result())))
    promise.resolve(7)
    promise.on_done(lambda p: heard.append(("late", p.result())))
    assert heard == [("early", 7), ("late", 7)]


def test_an_error_is_raised_where_the_result_is_asked_for():
    promise: Promise[int] = Promise.failed(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        promise.result()
    assert isinstance(promise.error, ValueError)


def test_it_is_settled_once():
    promise = Promise.resolved(1)
    with pytest.raises(AssertionError):
        promise.resolve(2)


def test_map_passes_values_and_errors_on():
    assert Promise.resolved(3).map(lambda value: value + 1).result() == 4
    assert isinstance(Promise.failed(OSError()).map(str).error, OSError)
    assert isinstance(Promise.resolved(0).map(lambda value: 1 // value).error, ZeroDivisionError)


def test_gather_waits_for_all_and_keeps_their_order():
    first: Promise[int] = Promise()
    second: Promise[int] = Promise()
    both = gather([first, second])
    second.fail(OSError())
    assert not both.done
    first.resolve(1)
    assert both.result() == [first, second]
    assert gather([]).result() == []
