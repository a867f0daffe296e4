"""The wiring of one broker, and the order of its start and stop.

Start: lock and identify the data folders, recover the logs, load the metadata and lead its quorum, bind the listeners,
register with the controller, and only then accept connections. Stop is the reverse: accept nothing more, answer what
was accepted, tell the controller, make everything durable, mark the logs clean.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.apis.fetch.sessions import FetchSessions
from tidelog.apis.shared.bounded_wait import defaults_of
from tidelog.apis.shared.broker_facts import facts
from tidelog.apis.shared.context import Endpoint, Services
from tidelog.apis.shared.deadlines import Deadlines
from tidelog.apis.shared.producer_ids import ProducerIds
from tidelog.config.topic import TopicConfig, resolve_topic
from tidelog.controller import brokers, producer_ids
from tidelog.controller.activation import default_bootstrap
from tidelog.controller.controller import Controller
from tidelog.coordinator.group.coordinator import group_coordinator
from tidelog.env.promise import Promise
from tidelog.log.partition_folders import FolderError
from tidelog.log.store import Store
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import EndpointImage
from tidelog.metadata.versions import MV_3_7_IV2, SUPPORTED
from tidelog.raft import folder as folders
from tidelog.raft.driver import RaftDriver, RaftSettings
from tidelog.raft.store_log import METADATA_CONFIG, StoreLog
from tidelog.raft.voters import Endpoint as ControllerEndpoint
from tidelog.raft.voters import ReplicaKey, Voter
from tidelog.replica.replicas import BROKER_RESOURCE, Replicas
from tidelog.server.dispatch import Dispatch
from tidelog.server.server import Server
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import decode_record, encode_record

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.producer_ids import ProducerIdBlock
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.env import Environment
    from tidelog.metadata.image import ClusterImage
    from tidelog.raft.folder import FolderIdentity

log = logging.getLogger("tidelog.broker")

DRAIN_S = 5.0
"""How long a stop waits for clients to take the answers to what was accepted."""
DRAIN_LOOK_S = 0.005
OPEN_FOUND_AFTER_S = 1.0
"""Logs that nobody asked for are opened, and recovered after a crash, when clients that came back have had theirs."""


class Broker:
    """One broker process. `start` and `stop` answer with promises; in between everything happens on the loop."""

    def __init__(self, env: Environment, config: BrokerConfig) -> None:
        self.env = env
        self.config = config
        self.endpoints: dict[str, Endpoint] = {}
        """What clients are told, by listener."""
        self.addresses: dict[str, Endpoint] = {}
        """Where it listens, by listener; not what clients are told where `advertised.listeners` says otherwise."""
        self.services: Services
        self.ended: Promise[None] = Promise()
        """Fails when a broker that serves can't go on, with the reason: whoever runs it stops it then."""
        self._epoch = -1
        self._started_ms = 0
        self._directories: tuple[bytes, ...] = ()
        self._new: dict[str, FolderIdentity] = {}
        """Data folders that are formatted when it is known that none is missing."""
        self._locks: list[object] = []
        self._server: Server | None = None
        self._store: Store | None = None
        self._raft: RaftDriver | None = None

    # -- start

    def start(self) -> Promise[None]:
        """Resolves when clients are served. Raises, or fails, with what is wrong with folders or addresses."""
        env, config = self.env, self.config
        self._started_ms = env.clock.now_ms()
        store = Store(env, self._all_folders(), config)
        identity = self._open_folders(store)
        self._store = store
        follower = Follower()
        follower.subscribe(self._configs_changed)  # first: others read the settings that it puts in force
        raft = self._raft = self._make_raft(identity, store)
        bootstrap = [decode_record(value) for value in folders.read_bootstrap(env, config.metadata_folder)]
        controller = Controller(env, raft, follower, bootstrap or default_bootstrap(), defaults_of(config))
        controller.ended.on_done(self._end)
        replicas = Replicas(config.node_id, env.loop, store, follower, self._topic_config)
        producer_ids = ProducerIds(self._allocate_producer_ids)
        groups = group_coordinator(config.node_id, env, lambda: self.services.config, replicas, follower)
        self.services = Services(
            node_id=config.node_id,
            cluster_id=identity.cluster_id,
            directory_id=identity.directory_id,
            config=config,
            env=env,
            metadata=follower,
            controller=controller,
            producer_ids=producer_ids,
            replicas=replicas,
            store=store,
            quorum=raft,
            fetch_sessions=FetchSessions(
                env,
                slots=config.max_incremental_fetch_session_cache_slots,
                eviction_ms=FETCH_SESSION_EVICTION_MS,
            ),
            deadlines=Deadlines(env),
            endpoints=self.endpoints,
            groups=groups,
            make_transactions=self._make_transactions,
            facts=lambda: facts(store, self._started_ms, config.folders),
        )
        started: Promise[None] = Promise()

        def failing(promise: Promise[None]) -> bool:
            if promise.error is not None:
                started.fail(self._cause(promise.error))
            return promise.error is not None

        def registered(promise: Promise[None]) -> None:
            if not failing(promise):
                assert self._server is not None
                self._server.start()
                log.info("%s", self._told_of_start())
                started.resolve(None)
                self.env.loop.call_later(OPEN_FOUND_AFTER_S, replicas.open_found)
                self.env.loop.call_later(OPEN_FOUND_AFTER_S, self.services.groups.shards.load_rest)
                self.env.loop.call_later(OPEN_FOUND_AFTER_S, self.services.load_transactions)

        def leading(promise: Promise[None]) -> None:
            if failing(promise):
                return
            try:
                self._admit_folders(follower.image)
                replicas.put_strays_aside()
                self._listen()
            except BaseException as error:
                self._give_up(error, started)
                return
            self._register().on_done(registered)

        controller.start().on_done(leading)
        return started

    def _give_up(self, error: BaseException, started: Promise[None]) -> None:
        """A start that is refused before clients were served: folders that were clean are so again, by the epoch of
        the last stop, or the next start would tell of a crash."""
        assert self._store is not None
        assert self._raft is not None
        store, self._store = self._store, None
        if self._server is not None:
            self._server.stop_accepting()
            self._server = None
        self._raft.stop()
        epoch = -1 if store.broker_epoch is None else store.broker_epoch
        store.stop(broker_epoch=epoch).on_done(lambda _: started.fail(error))

    def _told_of_start(self) -> str:
        """Who serves, where, and what is known of the last stop."""
        services, recoveries = self.services, self.services.store.recoveries
        where = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in self.addresses.values())
        if not recoveries.unopened:
            last_stop = "there are no records yet"
        elif recoveries.clean:
            last_stop = "the last stop was clean"
        else:
            last_stop = (
                f"the last stop was not clean: {recoveries.unopened:,} partitions are checked when they are opened"
            )
        return f"broker {services.node_id} of cluster {services.cluster_id} serves on {where}; {last_stop}"

    def _cause(self, error: BaseException) -> BaseException:
        """Why the start failed: where the metadata log went offline, that, and not what followed from it."""
        reason = None if self._raft is None else self._raft.offline
        return error if reason is None else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _all_folders(self) -> list[str]:
        """The data folders, and the metadata's where it has one of its own."""
        return list(dict.fromkeys((*self.config.folders, self.config.metadata_folder)))

    def _open_folders(self, store: Store) -> FolderIdentity:
        """Read who the folders belong to, take them, and format the metadata's, if it is new. The identity of it."""
        env, config = self.env, self.config
        self._lock_folders()
        every = self._all_folders()
        identities, new = folders.open_folders(env, every, config.node_id, config.cluster_id)
        by_folder = dict(zip(every, identities, strict=True))
        metadata = by_folder[config.metadata_folder]
        self._directories = tuple(by_folder[folder].directory_id for folder in config.folders)
        self._new = {folder: by_folder[folder] for folder in new}
        others = [folder for folder in every if folder != config.metadata_folder]
        folders.check_metadata_folder(env, config.metadata_folder, others, new)
        store.look()
        folders.check_metadata(env, config.metadata_folder, store.unopened())
        store.admit(config.metadata_folder)
        if config.metadata_folder in new:
            values = [encode_record(record, 0) for record in default_bootstrap()]
            folders.format_metadata(env, config.metadata_folder, metadata, values, self._controller_endpoint())
            folders.format_folder(env, config.metadata_folder, self._new.pop(config.metadata_folder))
        return metadata

    def _admit_folders(self, image: ClusterImage) -> None:
        """Format the data folders that are new, unless one is missing that this broker had: it may be one of them."""
        known = image.brokers.get(self.config.node_id)
        registered = () if known is None else known.log_dirs
        registered = registered or folders.read_directories(self.env, self.config.metadata_folder)
        lost = self.config.tidelog_log_dirs_lost
        folders.check_directories(self.env, list(self._new), self._directories, registered, lost)
        for folder, identity in self._new.items():
            folders.format_folder(self.env, folder, identity)
        if image.metadata_version < MV_3_7_IV2:
            folders.write_directories(self.env, self.config.metadata_folder, self._directories)
        for folder in self.config.folders:
            self.services.store.admit(folder)

    def _lock_folders(self) -> None:
        """Before anything in them is read: two brokers on one folder would ruin it."""
        every = self._all_folders()
        for folder in every:
            try:
                self.env.disk.make_folders(folder)
                self._locks.append(self.env.disk.lock_folder(folder))
            except BlockingIOError:
                raise FolderError(
                    f"{folder} is in use by another broker: stop that one, or choose another folder with --data"
                ) from None
            except OSError as error:
                if len(every) == 1:
                    raise
                raise FolderError(
                    f"{folder}: {error.strerror}: mend it; the broker doesn't start without one of its data folders"
                ) from error

    def _controller_endpoint(self) -> ControllerEndpoint:
        """Where a controller of Apache Kafka would listen, were it started on this folder."""
        for listener in self.config.controller_listener_list:
            host = "localhost" if listener.is_wildcard else listener.host
            return ControllerEndpoint(listener.name, host, listener.port or folders.DEFAULT_CONTROLLER_PORT)
        return ControllerEndpoint(folders.CONTROLLER_LISTENER, "localhost", folders.DEFAULT_CONTROLLER_PORT)

    def _make_raft(self, identity: FolderIdentity, store: Store) -> RaftDriver:
        config = self.config
        key = ReplicaKey(identity.node_id, identity.directory_id)
        settings = RaftSettings(
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
        )
        metadata_log = StoreLog(store, self.env.clock, resolve_topic(METADATA_CONFIG, config), config.metadata_folder)
        folder = f"{config.metadata_folder}/{folders.METADATA_FOLDER}"
        return RaftDriver(self.env, folder, Voter(key, (self._controller_endpoint(),)), metadata_log, settings)

    @property
    def connections(self) -> int:
        """How many clients' connections are open."""
        return 0 if self._server is None else self._server.connections

    def _listen(self) -> None:
        """Bind every listener. Port 0 advertises the port that it got."""
        server = self._server = Server(self.services, Dispatch(self.services))
        advertised = {listener.name: listener for listener in self.config.advertised_list}
        for listener in self.config.listener_list:
            bound = server.listen(listener.name, listener.host, listener.port)
            public = advertised.get(listener.name, listener)
            self.endpoints[listener.name] = Endpoint(listener.name, public.host, public.port or bound.port)
            self.addresses[listener.name] = Endpoint(listener.name, listener.host, bound.port)

    def _register(self) -> Promise[None]:
        """Join the cluster, fenced, and then unfenced: from there on this broker leads."""
        services, controller = self.services, self.services.controller
        registration = brokers.Registration(
            broker_id=services.node_id,
            cluster_id=services.cluster_id,
            incarnation_id=self.env.random.uuid(),
            endpoints=tuple(
                EndpointImage(endpoint.name, endpoint.host, endpoint.port, endpoint.security_protocol)
                for endpoint in self.endpoints.values()
            ),
            features={name: (low, high) for name, (low, high) in SUPPORTED.items()},
            log_dirs=self._directories,
            rack=self.config.broker_rack,
            previous_epoch=-1 if services.store.broker_epoch is None else services.store.broker_epoch,
        )
        joined: Promise[None] = Promise()

        def unfenced(promise: Promise[None]) -> None:
            if promise.error is not None:
                joined.fail(promise.error)
            else:
                joined.resolve(None)

        def registered(promise: Promise[int]) -> None:
            if promise.error is not None:
                joined.fail(promise.error)
                return
            epoch = self._epoch = promise.result()
            controller.submit(
                lambda image, _: brokers.unfence(image, services.node_id, epoch, controller.defaults)
            ).on_done(unfenced)

        controller.submit(
            lambda image, _: brokers.register(image, registration, services.cluster_id, controller.defaults)
        ).on_done(registered)
        return joined

    # -- what the parts ask of each other

    def _allocate_producer_ids(self) -> Promise[ProducerIdBlock]:
        services = self.services
        return services.controller.submit(lambda image, _: producer_ids.allocate(image, services.node_id, self._epoch))

    def _make_transactions(self) -> TransactionCoordinator:
        from tidelog.coordinator.txn.coordinator import transaction_coordinator

        services = self.services
        return transaction_coordinator(
            services.node_id,
            self.env,
            lambda: services.config,
            services.replicas,
            services.metadata,
            services.producer_ids.next,
            services.groups.shards,
        )

    def _topic_config(self, topic: str) -> TopicConfig:
        return resolve_topic(self.services.metadata.image.topic_config(topic), self.services.config)

    def _configs_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: set[bytes], changed: set[tuple[int, str]]
    ) -> None:
        """Settings of brokers that were changed while they run."""
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            default = new.configs.get((BROKER_RESOURCE, ""), {})
            own = new.configs.get((BROKER_RESOURCE, str(self.config.node_id)), {})
            self.services.config = self.config.with_dynamic(default, own)

    def _end(self, promise: Promise[None]) -> None:
        assert promise.error is not None
        self.ended.fail(promise.error)

    # -- stop

    def stop(self) -> Promise[None]:
        """A clean stop: everything accepted is answered, everything written is durable and marked clean."""
        stopped: Promise[None] = Promise()
        server = self._server
        if server is None:
            self._close(stopped)
            return stopped
        server.stop_accepting()
        deadline = self.env.clock.monotonic() + DRAIN_S

        def left(promise: Promise[None]) -> None:
            if promise.error is not None:  # the next start registers anew, whatever the controller knows
                log.warning("the controller could not be told of the stop: %s", promise.error)
            self._close(stopped)

        def drain() -> None:
            for partition in list(self.services.replicas):
                partition.expire_fetches()
            if server.busy and self.env.clock.monotonic() < deadline:
                self.env.loop.call_later(DRAIN_LOOK_S, drain)
                return
            server.close()
            self.services.close_coordinators()
            self._leave().on_done(left)

        drain()
        return stopped

    def _leave(self) -> Promise[None]:
        """Tell the controller, so that others lead before this broker is gone."""
        services, controller = self.services, self.services.controller
        return controller.submit(
            lambda image, _: brokers.controlled_shutdown(image, services.node_id, self._epoch, controller.defaults)
        )

    def _close(self, stopped: Promise[None]) -> None:
        if self._raft is not None:
            self._raft.stop()
        if self._store is None:
            self._locks.clear()
            stopped.resolve(None)
            return

        def closed(promise: Promise[None]) -> None:
            self._locks.clear()
            if promise.error is not None:
                stopped.fail(promise.error)
            else:
                stopped.resolve(None)

        self._store.stop(broker_epoch=self._epoch).on_done(closed)


FETCH_SESSION_EVICTION_MS = 120_000
"""Kafka's own constant: a session idle for so long may make room for a new one."""
