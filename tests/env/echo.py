"""What test_real_worker.py asks: an echo that can also be told to end or to sleep."""

import os
import time


def answer(question: bytearray) -> bytearray:
    if question == b"who":
        return bytearray(b"%d" % os.getpid())
    if question == b"die":
        os._exit(3)
    if question == b"sleep":
        time.sleep(2)
    return question + b"!"
