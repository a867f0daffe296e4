"""`tidelog serve` in a process of its own, to stop, kill and start again on its folder."""

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.launched import Launched, free_ports

START_TIMEOUT_S = 30.0


class Tidelog(Launched):
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
        super().__init__("Tidelog", folder.parent / f"{folder.name}.log")
        self.flags = flags
        self.folder = folder
        self.module = module
        self.settings = dict(settings or {})
        self.port = port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

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

    def says(self, text: str, timeout_s: float = 30.0) -> str:
        """The first line with this text, as soon as it is written."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in self.said(10_000).splitlines():
                if text in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no line with {text!r} within {timeout_s:.0f} s; it said:\n{self.said()}")

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


def free_port() -> int:
    """A port nobody listens on just now."""
    return free_ports(1)[0]
