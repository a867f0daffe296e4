"""`tidelog serve`: a broker on the real environment, from its settings to its exit code.

What it promises to whoever starts it: one line on stdout when clients are served, naming the address; errors on stderr
that say what to do; exit code 0 after SIGTERM or SIGINT, 1 where it can't start or can't go on, 2 where its flags or
settings are wrong. Imports are kept lean, since each start pays for them.
"""

import errno
import gc
import logging
import os
import resource
import signal
import sys
import threading

from tidelog import __version__
from tidelog.apis import preload
from tidelog.broker import Broker, NotRegisteredError
from tidelog.cli import garbage
from tidelog.cli.quiet import Quiet
from tidelog.cli.serve_flags import Given
from tidelog.cli.settings import gather
from tidelog.config.broker import BrokerConfig
from tidelog.config.setting import ConfigError
from tidelog.controller.controller import MetadataError
from tidelog.env.log_lines import JsonFormatter, LineFormatter
from tidelog.env.promise import Promise
from tidelog.env.real import real_environment
from tidelog.env.real_loop import RealLoop
from tidelog.log.checkpoints import CheckpointError
from tidelog.raft.election_file import ElectionFileError
from tidelog.raft.folder import FolderError
from tidelog.raft.snapshot import SnapshotError
from tidelog.wire.errors import KafkaError

FAILED = 1
WRONG_SETTINGS = 2
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = {"text": LineFormatter, "json": JsonFormatter}
PLACES = ("log.dir", "log.dirs", "listeners")
SECRET = ("password", "secret", "jaas", "credential")

log = logging.getLogger("tidelog")


def run(given: Given, log_format: str | None = None) -> int:
    """Serve until a signal asks to stop; the process's exit code."""
    if given.exit_with_stdin:
        threading.Thread(target=_exit_with_stdin, name="tidelog-stdin", daemon=True).start()
    try:
        _log_to_stderr(
            given.log_level or os.environ.get("TIDELOG_LOG_LEVEL") or "info",
            log_format or os.environ.get("TIDELOG_LOG_FORMAT") or "text",
        )
        settings, warnings = gather(given, os.environ)
        config = BrokerConfig.parse(settings)
    except ConfigError as error:
        return _refuse(error.message, WRONG_SETTINGS)
    for warning in warnings:
        log.warning(warning)
    _allow_many_files()
    log.info("%s", starting(config))
    loop = RealLoop()
    try:
        return _Serving(loop, config).run()
    finally:
        loop.close()
        gc.freeze()  # or the interpreter looks for garbage in all of it once more: with 10,000 logs half a second


class _Serving:
    """One broker's life: started, ready, asked to stop, stopped."""

    def __init__(self, loop: RealLoop, config: BrokerConfig) -> None:
        self._loop = loop
        self._config = config
        self._broker = Broker(real_environment(loop), config)
        self._stopping = False
        self._exit_code = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._asked_to_stop, number)
        self._loop.add_signal_handler(signal.SIGHUP, _hang_up)
        try:
            self._broker.start().on_done(self._started)
        except Exception as error:
            return _refuse(explain(error, self._config), _exit_code(error))
        self._loop.run_forever()
        return self._exit_code

    def _started(self, started: Promise[None]) -> None:
        if started.error is not None:
            self._exit_code = _refuse(explain(started.error, self._config), _exit_code(started.error))
            self._loop.stop()
            return
        self._broker.ended.on_done(self._ended)
        garbage.begin(self._loop)
        for line in overridden(self._broker.services.config):
            log.warning(line)
        print(f"Tidelog is ready on {', '.join(self._addresses())}", flush=True)
        self._loop.run_blocking(preload)  # or the first use of an API would hold the loop: some take 40 ms to import

    def _addresses(self) -> list[str]:
        """Where it listens, for clients if it is a broker; port 0 became a real one."""
        addresses = self._broker.addresses or self._broker.controller_addresses
        return [
            f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"
            for address in addresses.values()
        ]

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if self._stopping:
            log.warning("%s again: ending at once; the next start recovers as after a crash", number.name)
            os._exit(1)
        self._stopping = True
        log.info("%s: stopping", number.name)
        self._broker.stop().on_done(self._stopped)

    def _ended(self, ended: Promise[None]) -> None:
        """It can't go on, and said why: what clients wrote is made durable, as at any stop."""
        self._exit_code = FAILED
        if not self._stopping:
            self._stopping = True
            self._broker.stop().on_done(self._stopped)

    def _stopped(self, stopped: Promise[None]) -> None:
        if stopped.error is not None:
            log.error("the stop was not clean: %s", stopped.error, exc_info=stopped.error)
            self._exit_code = 1
        else:
            log.info("stopped")
        self._loop.stop()


def _hang_up() -> None:
    """A terminal that was closed, or a habit of other servers: by default it would end the process uncleanly."""
    log.info("SIGHUP: nothing is read anew on it; the broker goes on")


def explain(error: BaseException, config: BrokerConfig) -> str:
    """Why the broker did not start, and what to do about it; what nobody foresaw comes with its traceback."""
    if isinstance(error, ConfigError | FolderError | CheckpointError | NotRegisteredError):
        return str(error)
    if isinstance(error, ElectionFileError | KafkaError | MetadataError | SnapshotError):
        return (
            f"{error}. The broker doesn't start without its metadata: where the disk failed, see to it and start "
            "again; where a file is damaged or lost, restore it from a backup"
        )
    if not isinstance(error, OSError):
        log.error("the broker did not start", exc_info=error)
        return f"the broker did not start: {type(error).__name__}: {error}"
    where = ", ".join(map(str, (*config.listener_list, *config.controller_listener_list)))
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where}: the port is in use: stop what listens there, or choose another with --listen (0: any free one)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine has no such address: choose one of its own with --listen"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename is not None:
        return f"{error.filename}: {error.strerror}: give this user the folder, or choose another with --data"
    if error.errno == errno.EACCES:
        return f"{where}: not allowed to listen there: ports below 1024 need root; choose another with --listen"
    if error.errno == errno.ENOSPC:
        return (
            f"{error.filename or config.folders[0]}: no space left, and a start has to write a little: remove other "
            "files there, or move the folder of a partition to another disk and name that in log.dirs, too"
        )
    if error.filename is None and error.errno is not None and error.errno < 0:  # the resolver's own numbers
        return f"{where}: the host name is not known here ({error.strerror}): check --listen"
    return f"the broker did not start: {error}"


def _refuse(message: str, code: int) -> int:
    print(f"tidelog: {message}", file=sys.stderr, flush=True)
    return code


def _exit_code(error: BaseException) -> int:
    return WRONG_SETTINGS if isinstance(error, ConfigError) else FAILED


def starting(config: BrokerConfig) -> str:
    """What is about to be started: the version, where, and the settings that somebody chose; never a secret."""
    chosen = [
        name if any(word in name for word in SECRET) else f"{name}={value}"
        for name, value in sorted(config.static.items())
        if name not in PLACES and config.SETTINGS[name].parse(value) != config.SETTINGS[name].default
    ]
    where = ", ".join(map(str, (*config.listener_list, *config.controller_listener_list)))
    return f"Tidelog {__version__} starts on {', '.join(config.folders)}, to listen on {where}; " + (
        f"settings: {', '.join(chosen)}" if chosen else "all settings are defaults"
    )


def overridden(config: BrokerConfig) -> list[str]:
    """Settings of the start that don't hold, since others were set while the broker ran; never a secret."""
    warnings: list[str] = []
    for name, value in sorted(config.static.items()):
        for dynamic, whose in ((config.dynamic_own, str(config.node_id)), (config.dynamic_default, "all")):
            if name not in dynamic:
                continue
            if dynamic[name] != value:
                shown = f" ({dynamic[name]})" if not any(word in name for word in SECRET) else ""
                warnings.append(
                    f"{name} of the start doesn't hold: what was set for broker {whose} goes before it{shown}; "
                    f"`tidelog config set broker {whose} --unset {name}` takes that back"
                )
            break
    return warnings


def _log_to_stderr(level: str, style: str) -> None:
    if level.lower() not in LOG_LEVELS:
        raise ConfigError("log-level", f"--log-level {level}: expected one of {', '.join(LOG_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    if style not in LOG_FORMATS:
        raise ConfigError("log-format", f"--log-format {style}: expected one of {', '.join(LOG_FORMATS)}")
    handler.setFormatter(LOG_FORMATS[style]())
    handler.addFilter(Quiet())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _allow_many_files() -> None:
    """Connections and segments are files: take as many as the machine lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _exit_with_stdin() -> None:
    """End as kill -9 would once nobody holds the other end of standard input any more."""
    while os.read(0, 4096):
        pass
    os._exit(1)
