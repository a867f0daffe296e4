"""What a broker does with its replicas beside serving clients: it copies what others lead, has the ISR changed of what
it leads, and tells the controllers where its replicas are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.replica.checkpoint import HighWatermarkCheckpoint
from tidelog.replica.directories import Directories
from tidelog.replica.fetchers import Fetchers
from tidelog.replica.in_sync import InSync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.apis.shared.context import Services
    from tidelog.broker.lifecycle import Lifecycle
    from tidelog.env.promise import Promise


class Replication:
    """Of one broker. `folders` are its data folders with their directory ids."""

    def __init__(
        self, services: Services, lifecycle: Lifecycle, folders: Mapping[str, bytes], give_up: Callable[[str], None]
    ) -> None:
        """`give_up` ends the node, which can do no good any more."""
        env, config, metadata, replicas = services.env, services.config, services.metadata, services.replicas

        def ask(request: object) -> Promise[Any]:
            return services.own_channel.ask(request, config.request_timeout_ms)

        def broker_epoch() -> int:
            return lifecycle.epoch

        self._metadata = metadata
        self._store = services.store
        self._in_sync = replicas.in_sync = InSync(
            env,
            config.node_id,
            lambda: metadata.image,
            replicas,
            ask,
            broker_epoch,
            lag_ms=config.replica_lag_time_max_ms,
        )
        self._directories = replicas.directories = Directories(
            env.loop,
            config.node_id,
            services.store,
            metadata,
            folders,
            ask,
            broker_epoch,
            failure_timeout_ms=config.log_dir_failure_timeout_ms,
            give_up=give_up,
        )
        self.fetchers = Fetchers(
            env, config.node_id, replicas, metadata, services.store.cuts, lambda: services.config, broker_epoch
        )
        self._checkpoint = HighWatermarkCheckpoint(
            env.loop,
            replicas,
            services.store.high_watermarks,
            config.replica_high_watermark_checkpoint_interval_ms,
        )
        metadata.subscribe(self._in_sync.brokers_changed)
        self._in_sync.start()

    def tell_directories(self) -> Promise[None]:
        """The broker is registered: resolved when the controllers know where its replicas are."""
        return self._directories.tell(self._store.unopened())

    def start(self) -> None:
        """From now on what others lead is copied."""
        self.fetchers.start()
        self._checkpoint.start()

    def stop(self) -> None:
        self._in_sync.stop()
        self._directories.stop()
        self.fetchers.stop()
        self._checkpoint.stop()
