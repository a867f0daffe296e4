"""A real Spark cluster for tests: a master and workers as processes of this machine, from pip's pyspark.

```python
with Standalone(tmp_path, workers=2, cores=1, memory="1g") as cluster:
    run(["tidelog", "pipeline", "run", "FILE", "--master", cluster.master_url], env=cluster.environment)
    cluster.kill_executor(cluster.executors()[0])
```

Worker 0 is at 127.0.0.1, worker 1 at 127.0.0.2: Spark takes them for two hosts, and starts a second attempt of a slow
task on another host only. Ports are those that the system chooses; everything that was started is ended by its id.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

START_S = 120  # a busy machine takes a minute to start a JVM
STOP_S = 20
EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON = ("pyspark.daemon", "pyspark/daemon", "pyspark.worker")
DAEMON_MEMORY = "256m"


class Standalone:
    """`workers` workers, each with its own folder, with `cores` and `memory` to give to executors."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self.folder = folder / "standalone"
        self.master_url = ""
        self._workers = workers
        self._offer = ("-c", str(cores), "-m", memory)
        self._running: list[subprocess.Popen[bytes]] = []
        self._seen: set[int] = set()

    @property
    def environment(self) -> dict[str, str]:
        """For whoever runs a driver: it finds this Python, and executors find their way back to it."""
        import pyspark

        return {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def __enter__(self) -> "Standalone":
        (self.folder / "local").mkdir(parents=True)
        try:
            master = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
            self.master_url = self._line_of("master", master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                name = f"worker-{number}"
                flags = (
                    "--host",
                    f"127.0.0.{number + 1}",
                    "--port",
                    "0",
                    *self._offer,
                    "-d",
                    str(self.folder / name),
                    self.master_url,
                )
                self._start(name, "worker.Worker", *flags)
            for number, process in enumerate(self._running[1:]):
                self._line_of(f"worker-{number}", process, r"Successfully registered with master (\S+)")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Workers and master are asked to go; what they leave behind is killed."""
        self._seen |= set(descendants([each.pid for each in self._running]))
        for process in reversed(self._running):
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            process.kill()
            process.wait()
        self._running.clear()
        for pid in self._seen:
            if self._is_ours(pid):
                kill(pid)

    def executors(self) -> list[int]:
        """The ids of the executors' JVMs, oldest first."""
        pids = descendants([each.pid for each in self._running[1:]])
        self._seen |= set(pids)
        return sorted(pid for pid in pids if EXECUTOR in command(pid) and " -cp " in command(pid))

    def python_workers(self) -> list[int]:
        """The ids of the Python processes that run tasks, daemons included."""
        pids = descendants(self.executors())
        self._seen |= set(pids)
        return sorted(pid for pid in pids if any(name in command(pid) for name in PYTHON))

    def wait_for_executors(self, count: int, patience_s: float = START_S) -> list[int]:
        """The ids of the executors, once there are so many."""
        deadline = time.monotonic() + patience_s
        while len(pids := self.executors()) < count:
            assert time.monotonic() < deadline, f"{len(pids)} executors, not {count}; see {self.folder}"
            time.sleep(0.1)
        return pids

    def kill_executor(self, pid: int) -> None:
        """kill -9; its Python workers, which lose their JVM by it, go too."""
        below = descendants([pid])
        for each in [pid, *below]:
            kill(each)

    def log(self, name: str) -> str:
        """What `master` or `worker-0` has said so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, kind: str, *flags: str) -> "subprocess.Popen[bytes]":
        spark_class = str(Path(self.environment["SPARK_HOME"], "bin", "spark-class"))
        command = [spark_class, f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *flags]
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
        self._running.append(process)
        return process

    def _line_of(self, name: str, process: "subprocess.Popen[bytes]", pattern: str) -> str:
        deadline = time.monotonic() + START_S
        while (match := re.search(pattern, self.log(name))) is None:
            assert process.poll() is None, f"the {name} ended: {self.log(name)[-2000:]}"
            assert time.monotonic() < deadline, f"the {name} does not come up: {self.log(name)[-2000:]}"
            time.sleep(0.1)
        return match[1]

    def _is_ours(self, pid: int) -> bool:
        """Whether the process that has this id now is one of the cluster's: ids are given again, folders aren't."""
        with contextlib.suppress(OSError):
            return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(self.folder.resolve())
        return False


def descendants(roots: list[int]) -> list[int]:
    """The ids of all processes below these."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    pids: list[int] = []
    left = list(roots)
    while left:
        below = children.get(left.pop(), [])
        pids += below
        left += below
    return pids


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
