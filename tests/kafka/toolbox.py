"""Apache Kafka's command-line tools in one JVM (`Toolbox.java`), which is started when the first one is needed."""

import atexit
import os
import selectors
import struct
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.kafka.jars import kafka_jars

SOURCE = Path(__file__).with_name("Toolbox.java")
# A small heap and the quick compiler: these JVMs live for seconds and share two cores with the test.
JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


class Toolbox:
    """The JVM. One that doesn't answer in time is killed, and the next command has a new one."""

    def __init__(self, classes: Path) -> None:
        self._classes = classes
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, main_class: str, *args: str, input: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        texts = [text.encode() for text in (input, main_class, *args)]
        command = b"".join(struct.pack(">i", len(text)) + text for text in texts)
        try:
            process.stdin.write(struct.pack(">i", len(texts)) + command)
            process.stdin.flush()
            deadline = time.monotonic() + timeout_s
            code = struct.unpack(">i", self._read(4, deadline))[0]
            said = [self._read(struct.unpack(">i", self._read(4, deadline))[0], deadline).decode() for _ in range(2)]
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise subprocess.TimeoutExpired([main_class, *args], timeout_s) from None
            raise
        return subprocess.CompletedProcess([main_class, *args], code, *said)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = ["java", *JVM, QUIET, "-cp", f"{self._classes}:{kafka_jars()}/*", "Toolbox"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def _read(self, count: int, deadline: float) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        data = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(data) < count:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError
                more = os.read(process.stdout.fileno(), count - len(data))
                assert more, f"the JVM of Kafka's tools ended with code {process.wait()}"
                data += more
        return bytes(data)


@cache
def toolbox() -> Toolbox | None:
    """The one of this test process; None where this Java has no compiler."""
    folder = tempfile.TemporaryDirectory(prefix="kafka-toolbox-")
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    path = ":".join(map(str, kafka_jars().glob("kafka-clients-*.jar")))
    done = subprocess.run([*compiler, "-cp", path, "-d", folder.name, str(SOURCE)], capture_output=True, text=True)
    if done.returncode:
        folder.cleanup()
        return None
    box = Toolbox(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(box.close)
    return box
