"""A real broker in a process of its own, for tests: started, stopped, paused and killed at will.

It is `tidelog serve` on a free port and a temporary folder, so what a test meets is what production runs. The process
dies with the one that started it, however that ends: it watches its standard input, which the kernel closes.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

SettingValue: TypeAlias = str | int | float | bool

LOG_TAIL_LINES = 30
READY = "ready on "


class BrokerError(RuntimeError):
    """The broker did not start or did not stop as it should; the message ends with the last lines of its log."""


class Broker:
    """An embedded broker.

    >>> with Broker() as broker:
    ...     producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

    Settings are Kafka's, as a mapping (`{"log.segment.bytes": 1048576}`) or by keyword with underscores
    (`log_segment_bytes=1048576`). Without `data` it lives in a temporary folder that is removed when the broker is
    closed. Unless a setting says otherwise an acknowledgement doesn't wait for the disk (`tidelog.durability=os`):
    what was acknowledged survives `kill()` all the same, only a power failure would lose it.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        timeout_s: float = 30.0,
        **named: SettingValue,
    ) -> None:
        self.settings: dict[str, SettingValue] = {"tidelog.durability": "os", **(settings or {})}
        self.settings.update({name.replace("_", "."): value for name, value in named.items()})
        self._own_folder = tempfile.mkdtemp(prefix="tidelog-") if data is None else None
        self.data = Path(data) if data is not None else Path(self._own_folder or "", "data")
        self._log = tempfile.TemporaryFile(prefix="tidelog-log-")  # noqa: SIM115 - open as long as the broker
        self._listen = listen
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def __enter__(self) -> "Broker":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def host(self) -> str:
        return self.bootstrap.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything the broker has written to its log so far, over all its starts."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def start(self) -> None:
        """Start the process and wait until it serves. After the first start it keeps its port."""
        assert not self.running, "the broker is running already"
        self._process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
        )
        try:
            self.bootstrap = self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise
        self._listen = self.bootstrap

    def stop(self) -> None:
        """Ask it to stop (SIGTERM) and wait; BrokerError where it exits with anything but 0."""
        process = self._running()
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            code = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(
                f"the broker did not stop within {self._timeout_s:g} s of SIGTERM{self._tail()}"
            ) from None
        self._let_go(process)
        if code:
            raise BrokerError(f"the broker stopped with exit code {code}{self._tail()}")

    def kill(self) -> None:
        """End it with kill -9: no goodbye, nothing flushed. Fine where it has ended already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._let_go(self._process)

    def restart(self) -> None:
        """Stop and start again, on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open and nothing answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it if it runs, and remove its temporary folder."""
        try:
            if self.running:
                self.stop()
        finally:
            self.kill()
            self._log.close()
            if self._own_folder is not None:
                shutil.rmtree(self._own_folder, ignore_errors=True)

    def command(self) -> list[str]:
        """The command line that `start` runs; -P keeps the current folder's modules from shadowing the broker's."""
        command = [sys.executable, "-P", "-m", "tidelog", "serve", "--exit-with-stdin"]
        command += ["--data", str(self.data), "--listen", self._listen]
        for name, value in self.settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        return command

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("the broker is not running: start() it, or use it in a `with` block")
        return self._process

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> str:
        """The address from the line that `tidelog serve` prints when it is ready."""
        assert process.stdout is not None
        deadline = time.monotonic() + self._timeout_s
        said = b""
        while b"\n" not in said:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                raise BrokerError(f"the broker was not ready after {self._timeout_s:g} s{self._tail()}")
            part = process.stdout.read(4096)
            if not part:
                code = process.wait()
                raise BrokerError(f"the broker ended with exit code {code} before it was ready{self._tail()}")
            said += part
        line = said.decode().partition("\n")[0]
        if READY not in line:
            raise BrokerError(f"the broker said {line!r} where its address was expected{self._tail()}")
        return line.rpartition(READY)[2].split(",")[0].strip()

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def _tail(self) -> str:
        lines = self.log.splitlines()[-LOG_TAIL_LINES:]
        return "; its log ends:\n" + "\n".join(lines) if lines else "; it logged nothing"
