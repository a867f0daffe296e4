"""The real loop: blocking work runs elsewhere, and its outcome comes back to the loop's thread."""

import asyncio
import threading

from tidelog.env.real import RealRandom, real_environment


def run(scenario) -> None:
    loop = asyncio.new_event_loop()
    try:
        scenario(real_environment(loop), loop)
        loop.call_later(10, loop.stop)
        loop.run_forever()
    finally:
        loop.close()


def test_blocking_work_comes_back_on_the_loops_thread():
    seen = []

    def scenario(env, loop):
        def done(promise):
            seen.append((promise.result() != threading.get_ident(), threading.get_ident() == main))
            loop.stop()

        main = threading.get_ident()
        env.loop.run_blocking(threading.get_ident).on_done(done)

    run(scenario)
    assert seen == [(True, True)]


def test_an_error_of_blocking_work_comes_back_too():
    seen = []

    def scenario(env, loop):
        def done(promise):
            seen.append(type(promise.error))
            loop.stop()

        env.loop.run_blocking(lambda: 1 // 0).on_done(done)

    run(scenario)
    assert seen == [ZeroDivisionError]


def test_uuids_are_of_version_four_and_never_look_like_an_option():
    random = RealRandom()
    for _ in range(2000):
        drawn = random.uuid()
        assert (len(drawn), drawn[6] >> 4, drawn[8] >> 6) == (16, 4, 2)
        assert drawn[0] >> 2 != 62
