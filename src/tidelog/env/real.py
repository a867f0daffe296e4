"""The real environment, made once a process by whoever starts a broker."""

import os
import random
import time

from tidelog.env import Environment
from tidelog.env.real_child_processes import RealChildProcesses
from tidelog.env.real_disk import RealDisk
from tidelog.env.real_loop import RealLoop
from tidelog.env.real_network import RealNetwork


class RealClock:
    def __init__(self) -> None:
        self.monotonic = time.monotonic

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RealRandom:
    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def random_int(self, low: int, high: int) -> int:
        return self._source.randint(low, high)

    def uuid(self) -> bytes:
        while True:
            drawn = bytearray(os.urandom(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if drawn[0] >> 2 != 62:  # 62 is '-' in url-safe base64, which a command line would take for an option
                return bytes(drawn)


def real_environment(loop: RealLoop) -> Environment:
    return Environment(
        clock=RealClock(),
        loop=loop,
        disk=RealDisk(),
        network=RealNetwork(),
        random=RealRandom(),
        child_processes=RealChildProcesses(loop),
    )
