"""`tidelog serve` in a process of its own, to stop, kill and start again on its folder."""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class Tidelog:
    """One broker on `folder`, with Kafka's names for `settings`. The port is kept over a restart.

    Name the port where `advertised.listeners` is set: what the broker says when it is ready is what it advertises.
    `module` is the command `tidelog`, or one that is the same with something gone wrong; `flags` are more of `serve`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        module: str = "tidelog",
        flags: Sequence[str] = (),
    ) -> None:
        self.flags = flags
        self.folder = folder
        self.module = module
        self.settings = dict(settings or {})
        self.port = port
        self.output = folder.parent / f"{folder.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "Tidelog isn't started"
        return self.process.pid

    def __enter__(self) -> "Tidelog":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()

    def start(self) -> "Tidelog":
        """Start and return when it says that it is ready."""
        assert self.process is None, "Tidelog is started already"
        command = [sys.executable, "-m", self.module, "serve", "--data", str(self.folder), "--listen", self.bootstrap]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        command += self.flags
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, env=environment)
        try:
            ready = self._ready_line()
            if not self.port:
                self.port = int(ready.rpartition(":")[2])
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """SIGTERM: it answers what it accepted, flushes, marks the log clean and ends with code 0."""
        process = self._taken()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"Tidelog did not stop in {STOP_TIMEOUT_S:.0f} s; it said:\n{self.said()}") from None
        finally:
            _close(process)
        assert code == 0, f"Tidelog ended with code {code}; it said:\n{self.said()}"

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing marked."""
        process = self._taken()
        process.kill()
        process.wait()
        _close(process)

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def said(self, lines: int = 40) -> str:
        """The end of what it wrote to its log."""
        try:
            return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def says(self, text: str, timeout_s: float = 30.0) -> str:
        """The first line with this text, as soon as it is written."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in self.said(10_000).splitlines():
                if text in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no line with {text!r} within {timeout_s:.0f} s; it said:\n{self.said()}")

    def _taken(self) -> "subprocess.Popen[bytes]":
        process, self.process = self.process, None
        assert process is not None, "Tidelog isn't started"
        return process

    def _ready_line(self) -> str:
        process = self.process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(timeout=max(deadline - time.monotonic(), 0)):
                line = process.stdout.readline().decode(errors="replace").strip()
                if not line:
                    raise AssertionError(f"Tidelog ended before it was ready; it said:\n{self.said()}")
                if " is ready on " in line:
                    return line
        raise AssertionError(f"Tidelog was not ready in {START_TIMEOUT_S:.0f} s; it said:\n{self.said()}")


def _close(process: "subprocess.Popen[bytes]") -> None:
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
