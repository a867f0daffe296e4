"""A process that a test started, with a file that takes what it says: to stop, kill, freeze and start again."""

import os
import signal
import socket
import subprocess
from collections.abc import Collection
from pathlib import Path

STOP_TIMEOUT_S = 60.0


class Launched:
    """`process` is None while it doesn't run. `name` is what it is called where a test fails."""

    def __init__(self, name: str, output: Path) -> None:
        self.name = name
        self.output = output
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} isn't started"
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process is not None

    @property
    def clean_codes(self) -> Collection[int]:
        """What it ends with when it was asked to stop."""
        return (0,)

    def stop(self) -> None:
        """SIGTERM: it answers what it accepted, flushes, marks its logs clean and ends."""
        process = self._taken()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"{self.name} did not stop in {STOP_TIMEOUT_S:.0f} s; it said:\n{self.said()}"
            ) from None
        finally:
            _close(process)
        assert code in self.clean_codes, f"{self.name} ended with code {code}; it said:\n{self.said()}"

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing marked."""
        process = self._taken()
        process.kill()
        process.wait()
        _close(process)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def said(self, lines: int = 40) -> str:
        """The end of what it wrote to its log."""
        try:
            return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _taken(self) -> "subprocess.Popen[bytes]":
        process, self.process = self.process, None
        assert process is not None, f"{self.name} isn't started"
        return process


def _close(process: "subprocess.Popen[bytes]") -> None:
    if process.stdout is not None:
        process.stdout.close()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
