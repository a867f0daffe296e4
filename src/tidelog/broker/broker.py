"""The wiring of one node, and the order of its start and stop.

A node is a controller, a broker, or both (`process.roles`). Every node has a replica of the metadata log: controllers
vote in its quorum, brokers follow it. Start: lock and identify the data folders, recover the logs, load the metadata,
serve other nodes if this is a controller, and wait until what is committed is known. A broker then binds its listeners,
registers with the active controller, catches up with its own registration, sets strays aside, is let in, and only then
accepts connections. Stop is the reverse: have the leaders moved, accept nothing more, answer what was accepted, make
everything durable, mark the logs clean.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelog.apis.fetch.replica_session import ReplicaSessions
from tidelog.apis.fetch.sessions import FetchSessions
from tidelog.apis.listeners import ListenerKind
from tidelog.apis.shared.bounded_wait import defaults_of
from tidelog.apis.shared.broker_facts import facts
from tidelog.apis.shared.context import Endpoint, Services
from tidelog.apis.shared.controller_channel import ControllerChannel
from tidelog.apis.shared.deadlines import Deadlines
from tidelog.apis.shared.local_call import call_here
from tidelog.apis.shared.producer_ids import ProducerIds
from tidelog.broker.broker_lines import BrokerLines
from tidelog.broker.cluster_id_lookup import ClusterIdLookup
from tidelog.broker.controller_registration import ControllerRegistration
from tidelog.broker.election_lines import ElectionLines
from tidelog.broker.folders import DataFolders
from tidelog.broker.host_record import tell_host
from tidelog.broker.lifecycle import Lifecycle, NotRegisteredError, State
from tidelog.broker.metadata_replica import metadata_replica
from tidelog.broker.past import Past
from tidelog.broker.registration import registration_request
from tidelog.broker.replication import Replication
from tidelog.broker.start_message import missing_vote, nobody_to_join, start_message
from tidelog.config.topic import TopicConfig, resolve_topic
from tidelog.controller.activation import default_bootstrap
from tidelog.controller.controller import Controller
from tidelog.controller.producer_ids import ProducerIdBlock
from tidelog.coordinator.group.coordinator import group_coordinator
from tidelog.coordinator.placement import TRANSACTION_STATE
from tidelog.env.promise import Promise
from tidelog.log.store import Store
from tidelog.metadata.follow import Follower
from tidelog.raft import folder as folders
from tidelog.raft.voters import Endpoint as VoterEndpoint
from tidelog.replica.replicas import BROKER_RESOURCE, Replicas
from tidelog.rpc.peer import Peers
from tidelog.server.dispatch import Dispatch
from tidelog.server.server import Server
from tidelog.wire.errors import ErrorCode, KafkaError, error_code
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.records.metadata import decode_record

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.env import Environment
    from tidelog.metadata.follow import ChangedTopics
    from tidelog.metadata.image import ClusterImage
    from tidelog.raft.folder import FolderIdentity
    from tidelog.raft.node import RaftNode

log = logging.getLogger("tidelog.broker")

DRAIN_S = 5.0
"""How long a stop waits for clients to take the answers to what was accepted."""
DRAIN_LOOK_S = 0.005
OPEN_FOUND_AFTER_S = 1.0
"""Logs that nobody asked for are opened, and recovered after a crash, when clients that came back have had theirs."""
FETCH_SESSION_EVICTION_MS = 120_000
"""Kafka's own constant: a session idle for so long may make room for a new one."""


class Broker:
    """One process of a cluster. `start` and `stop` answer with promises; in between everything happens on the loop."""

    def __init__(self, env: Environment, config: BrokerConfig) -> None:
        self.env = env
        self.config = config
        self.endpoints: dict[str, Endpoint] = {}
        """What clients are told, by listener."""
        self.controller_addresses: dict[str, Endpoint] = {}
        """Where it listens as a controller."""
        self.addresses: dict[str, Endpoint] = {}
        """Where it listens, by listener; not what clients are told where `advertised.listeners` says otherwise."""
        self.services: Services
        self.ended: Promise[None] = Promise()
        """Fails when a node that serves can't go on, with the reason: whoever runs it stops it then."""
        self._started: Promise[None] = Promise()
        self._started_ms = 0
        self._folders = DataFolders(env, config)
        self._server: Server | None = None
        self._controller_server: Server | None = None
        self._store: Store | None = None
        self._raft: RaftNode | None = None
        self._lifecycle: Lifecycle | None = None
        self._past: Past | None = None
        self._channels: list[ControllerChannel] = []
        self.replication: Replication | None = None
        self._cluster_id_lookup: ClusterIdLookup | None = None
        self._is_let_in = False
        self._stopping = False

    # -- start

    def start(self) -> Promise[None]:
        """Resolves when clients are served; of a controller alone, when other nodes are and the metadata is known.
        Raises, or fails, with what is wrong with folders or addresses, and with why the cluster doesn't take it."""
        self._started_ms = self.env.clock.now_ms()
        is_newcomer = self._folders.lock()
        if self.config.is_broker:
            self._give_up_later()
        if not is_newcomer:
            self._begin(None)
        if self.config.other_controllers and self._starting:
            own_id = None if is_newcomer else self.services.cluster_id
            self._cluster_id_lookup = ClusterIdLookup(self.env, self.config)
            self._cluster_id_lookup.ask(own_id).on_done(self._cluster_id_learnt)
        return self._started

    def _cluster_id_learnt(self, learnt: Promise[str]) -> None:
        """The other controllers said which cluster they are."""
        if not self._starting:
            return
        if learnt.error is not None:
            self._give_up(learnt.error)
        elif self._raft is None:
            try:
                self._begin(learnt.result())
            except BaseException as error:
                self._give_up(error)

    def _give_up_later(self) -> None:
        """A broker that nobody registers ends, and says why, rather than to look as if it came."""
        timeout_ms = self.config.initial_broker_registration_timeout_ms

        def look() -> None:
            alone = self._raft is not None and self._raft.driver.voters.is_only(self.config.node_id)
            registered = self._lifecycle is not None and self._lifecycle.is_registered
            if not self._starting or alone or registered:
                return
            why = "none of the controllers could be reached" if self._lifecycle is None else self._lifecycle.waits_for
            self._give_up(
                NotRegisteredError(
                    f"broker {self.config.node_id} was not registered within {timeout_ms / 1000:g} s "
                    f"(initial.broker.registration.timeout.ms): {why}"
                )
            )

        self.env.loop.call_later(timeout_ms / 1000, look)

    def _begin(self, cluster_id: str | None) -> None:
        """Its cluster is known: `cluster_id`, the one that its folders name, or one of its own."""
        env, config = self.env, self.config
        store = Store(env, self._folders.every, config)
        identity = self._folders.take(store, cluster_id)
        self._store = store
        follower = Follower()
        follower.subscribe(self._configs_changed)  # first: others read the settings that it puts in force
        roots = dict(zip(config.folders, self._folders.directories, strict=True))
        if config.is_broker:  # before logs follow a change
            self._past = Past(env, config.node_id, roots, store, follower, lambda: self.services.config)
        raft = metadata_replica(env, config, identity, store, self._connection_broke)
        bootstrap = [decode_record(value) for value in folders.read_bootstrap(env, config.metadata_folder)]
        controller = Controller(
            env,
            raft.driver,
            follower,
            bootstrap or default_bootstrap(),
            defaults_of(config),
            config.broker_session_timeout_ms,
            config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None,
        )
        controller.ended.on_done(self._end)
        self.services = self._make_services(identity, store, follower, raft, controller)
        self._raft = raft
        if config.is_broker:
            heartbeats = self._channel("heartbeat", raft, controller)
            self._lifecycle = Lifecycle(
                env,
                heartbeats.ask,
                lambda: follower.image.offset,
                heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
                session_timeout_ms=config.broker_session_timeout_ms,
                controlled_shutdown=config.controlled_shutdown_enable,
            )
            self._lifecycle.ended.on_done(self._end)
            follower.subscribe(self._look)
            follower.subscribe(self._topics_changed)
            heartbeats.on_change = self._lifecycle.controller_changed
            self.replication = Replication(self.services, self._lifecycle, roots, self._can_go_on_no_longer)
        try:
            self._listen_as_controller()
        except BaseException as error:
            self._give_up(error)
            return
        raft.driver.watch(self._metadata_moved)
        if config.is_controller:
            ControllerRegistration(env, controller, follower, self.services.own_channel).start()
        ready = controller.start()
        raft.join()
        if self._controller_server is not None and self._starting:
            self._controller_server.start()
        ready.on_done(self._known)  # that may be now, where the folder knows all and the leader

    @property
    def _starting(self) -> bool:
        return not self._started.done and not self._stopping

    def _make_services(
        self, identity: FolderIdentity, store: Store, follower: Follower, raft: RaftNode, controller: Controller
    ) -> Services:
        env, config = self.env, self.config
        replicas = Replicas(config.node_id, env.loop, store, follower, self._topic_config)
        return Services(
            node_id=config.node_id,
            cluster_id=identity.cluster_id,
            directory_id=identity.directory_id,
            config=config,
            env=env,
            metadata=follower,
            controller=controller,
            channel=self._channel("forwarding", raft, controller),
            own_channel=self._channel("control", raft, controller),
            producer_ids=ProducerIds(self._allocate_producer_ids),
            replicas=replicas,
            store=store,
            quorum=raft.driver,
            raft=raft,
            fetch_sessions=FetchSessions(
                env,
                slots=config.max_incremental_fetch_session_cache_slots,
                eviction_ms=FETCH_SESSION_EVICTION_MS,
            ),
            replica_sessions=ReplicaSessions(env, lambda: follower.image),
            deadlines=Deadlines(env),
            endpoints=self.endpoints,
            groups=group_coordinator(config.node_id, env, lambda: self.services.config, replicas, follower),
            make_transactions=self._make_transactions,
            facts=lambda: facts(store, raft.driver, self._started_ms, config.folders),
        )

    def _channel(self, purpose: str, raft: RaftNode, controller: Controller) -> ControllerChannel:
        """One to the active controller, on a connection of its own: that this broker lives is heard, however many
        changes its clients ask for, and however slow those are."""
        env = self.env
        peers = Peers(env, purpose, client_id=f"broker-{self.config.node_id}")
        channel = ControllerChannel(
            env, raft, peers, lambda: controller.active, lambda request: call_here(self.services, request)
        )
        self._channels.append(channel)
        return channel

    def _known(self, ready: Promise[None]) -> None:
        """The metadata is known, or will not be."""
        if not self._starting or self._failed(ready):
            return
        try:
            controller = self.services.controller
            self.services.metadata.subscribe(BrokerLines(self.config.node_id, lambda: controller.active).look)
            self.services.metadata.subscribe(ElectionLines(lambda: controller.active).look)
            self._folders.admit(self.services.store, self.services.metadata.image)
            if self._lifecycle is None:
                self._serves()
                return
            self._listen()
        except BaseException as error:
            self._give_up(error)
            return
        assert self._past is not None
        incarnation, endpoints = self.env.random.uuid(), self.endpoints.values()
        directories, claim = self._folders.directories, self._past.claim()
        request = registration_request(self.services, incarnation, endpoints, directories, claim)
        self._lifecycle.join(request).on_done(self._registered)

    def _registered(self, joined: Promise[None]) -> None:
        """This node knows the metadata up to its own registration: what isn't in it now belongs to nobody."""
        if not self._starting or self._failed(joined):
            return
        assert self._lifecycle is not None
        try:
            self.services.replicas.put_strays_aside()
        except BaseException as error:
            self._give_up(error)
            return
        assert self._past is not None
        self._past.keep(self._lifecycle.epoch).on_done(self._noted)

    def _noted(self, _: object) -> None:
        if self._starting and self.replication is not None:
            self.replication.tell_directories().on_done(self._where_is_told)

    def _where_is_told(self, _: object) -> None:
        """The controllers know where this broker's replicas are: it may copy, and be let in."""
        if self._starting and self.replication is not None:
            self.replication.start()
            tell_host(self.services).on_done(self._ask_to_be_let_in)

    def _ask_to_be_let_in(self, _: object) -> None:
        assert self._lifecycle is not None
        if self._lifecycle.state is State.FENCED and self._starting:  # it wasn't stopped meanwhile
            self._lifecycle.serve().on_done(self._let_in)

    def _let_in(self, let_in: Promise[None]) -> None:
        if self._starting and not self._failed(let_in):
            self._is_let_in = True
            self._accept()

    def _accept(self) -> None:
        """It was told that it is let in; clients come when the metadata that it tells them says so, too."""
        own = self.services.metadata.image.brokers.get(self.config.node_id)
        if not self._is_let_in or not self._starting or own is None or own.fenced:
            return
        assert self._server is not None
        self._server.start()
        self._serves()
        services, loop = self.services, self.env.loop
        loop.call_later(OPEN_FOUND_AFTER_S, services.replicas.open_found)
        loop.call_later(OPEN_FOUND_AFTER_S, services.groups.shards.load_rest)
        loop.call_later(OPEN_FOUND_AFTER_S, services.load_transactions)

    def _serves(self) -> None:
        if self._cluster_id_lookup is not None:
            self._cluster_id_lookup.end()
        log.info("%s", start_message(self.services, self.addresses or self.controller_addresses))
        for warning in (missing_vote(self.services), nobody_to_join(self.config)):
            if warning is not None:
                log.warning("%s", warning)
        self._started.resolve(None)

    def _failed(self, promise: Promise[Any]) -> bool:
        if promise.error is not None:
            self._give_up(self._cause(promise.error))
        return promise.error is not None

    def _metadata_moved(self) -> None:
        """Where the metadata log can't be written, a start fails. A node among others ends then: it would go on as the
        cluster was, and not as it is. Alone, it serves what it leads."""
        assert self._raft is not None
        driver = self._raft.driver
        if driver.offline is None:
            return
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, driver.offline)
        if not self._started.done:
            self._started.fail(error)
        elif not driver.voters.is_only(driver.local.key.id) and not self.ended.done:
            log.critical(
                "%s. Among others this node can't go on without the metadata, and ends: see to the disk of %s, and "
                "start it again",
                driver.offline,
                self.config.metadata_folder,
            )
            self.ended.fail(error)

    def _look(self, *_: object) -> None:
        assert self._lifecycle is not None
        self._lifecycle.look()
        self._accept()

    def _topics_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        """Transactions came up in the cluster. What this broker comes to lead of them, perhaps because another one
        died, goes on by itself from there, though nobody asks."""
        if self._is_let_in and TRANSACTION_STATE in new.topics and TRANSACTION_STATE not in old.topics:
            self.env.loop.call_later(OPEN_FOUND_AFTER_S, self.services.load_transactions)

    def _give_up(self, error: BaseException) -> None:
        """A start that is refused before clients were served: folders that were clean are so again, or the next
        start would tell of a crash."""
        if not self._starting:
            return
        self._stopping = True
        for server in self._servers():
            server.stop_accepting()
        self._server = self._controller_server = None
        self._stop_asking()
        store, self._store = self._store, None

        def closed(_: object) -> None:
            self._folders.release()
            if self._raft is not None:
                self._raft.close()
            self._started.fail(error)

        if store is None:
            closed(None)
        else:
            store.stop(broker_epoch=self._stops_in).on_done(closed)

    def _cause(self, error: BaseException) -> BaseException:
        """Why the start failed: where the metadata log went offline, that, and not what followed from it."""
        reason = None if self._raft is None else self._raft.driver.offline
        return error if reason is None else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _connection_broke(self, node_id: int) -> None:
        if self._raft is not None:
            self._raft.connection_broke(node_id)

    @property
    def connections(self) -> int:
        """How many clients' connections are open."""
        return 0 if self._server is None else self._server.connections

    def _listen(self) -> None:
        """Bind every listener of clients. Port 0 advertises the port that it got."""
        server = self._server = Server(self.services, Dispatch(self.services))
        advertised = {listener.name: listener for listener in self.config.advertised_list}
        for listener in self.config.listener_list:
            bound = server.listen(listener.name, listener.host, listener.port)
            public = advertised.get(listener.name, listener)
            self.endpoints[listener.name] = Endpoint(listener.name, public.host, public.port or bound.port)
            self.addresses[listener.name] = Endpoint(listener.name, listener.host, bound.port)

    def _listen_as_controller(self) -> None:
        """Bind the controller's listeners that `listeners` names (`config/roles.py` says on which addresses), and have
        other nodes told where they are reached."""
        listeners = self.config.controller_listener_list if self.config.is_controller else ()
        if not listeners:
            return
        server = self._controller_server = Server(
            self.services,
            Dispatch(self.services, ListenerKind.CONTROLLER),
            on_broken=self.services.controller.connection_broken,
        )
        endpoints: list[VoterEndpoint] = []
        for listener, public in zip(listeners, self.config.advertised_controller_list, strict=True):
            bound = server.listen(listener.name, listener.host, listener.port)
            self.controller_addresses[listener.name] = Endpoint(listener.name, listener.host, bound.port)
            endpoints.append(VoterEndpoint(public.name, public.host, public.port or bound.port))
            log.info(
                "controller %d listens on %s://%s:%d", self.config.node_id, listener.name, listener.host, bound.port
            )
        assert self._raft is not None
        self._raft.driver.listens_at(tuple(endpoints))

    def _servers(self) -> list[Server]:
        return [server for server in (self._server, self._controller_server) if server is not None]

    # -- what the parts ask of each other

    def _allocate_producer_ids(self) -> Promise[ProducerIdBlock]:
        assert self._lifecycle is not None
        request = AllocateProducerIdsRequest(broker_id=self.config.node_id, broker_epoch=self._lifecycle.epoch)
        return self.services.own_channel.ask(request, self.config.request_timeout_ms).map(_block)

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
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        """Settings of brokers that were changed while they run."""
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            default = new.configs.get((BROKER_RESOURCE, ""), {})
            own = new.configs.get((BROKER_RESOURCE, str(self.config.node_id)), {})
            self.services.config = self.config.with_dynamic(default, own)

    def _can_go_on_no_longer(self, why: str) -> None:
        if not self.ended.done:
            log.critical("%s. This node ends, so that others come to lead", why)
            self.ended.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why))

    def _end(self, promise: Promise[None]) -> None:
        assert promise.error is not None
        if not self.ended.done:
            self.ended.fail(promise.error)

    # -- stop

    def stop(self) -> Promise[None]:
        """A clean stop: others lead what this broker led, everything accepted is answered, everything written is
        durable and marked clean."""
        stopped: Promise[None] = Promise()
        self._stopping = True
        if self._lifecycle is None:
            self._drain(stopped)
        else:
            self._lifecycle.leave().on_done(lambda _: self._drain(stopped))
        return stopped

    def _drain(self, stopped: Promise[None]) -> None:
        servers = self._servers()
        if not servers:
            self._close(stopped)
            return
        for server in servers:
            server.stop_accepting()
        deadline = self.env.clock.monotonic() + DRAIN_S

        def drain() -> None:
            for partition in list(self.services.replicas):
                partition.expire_fetches()
            self.services.replica_sessions.expire()
            if any(server.busy for server in servers) and self.env.clock.monotonic() < deadline:
                self.env.loop.call_later(DRAIN_LOOK_S, drain)
                return
            for server in servers:
                server.close()
            self.services.close_coordinators()
            self._close(stopped)

        drain()

    def _stop_asking(self) -> None:
        """Nothing more is said to other nodes, but that this one leads no longer; and nothing more is copied."""
        if self.replication is not None:
            self.replication.stop()
        if self._cluster_id_lookup is not None:
            self._cluster_id_lookup.end()
        if self._lifecycle is not None:
            self._lifecycle.stop()
        if self._raft is not None:
            self._raft.stop()
            for channel in self._channels:
                channel.close()

    def _close(self, stopped: Promise[None]) -> None:
        self._stop_asking()
        if self._store is None:
            self._folders.release()
            stopped.resolve(None)
            return

        def closed(promise: Promise[None]) -> None:
            self._folders.release()
            if self._raft is not None:
                self._raft.close()
            if promise.error is not None:
                stopped.fail(promise.error)
            else:
                stopped.resolve(None)

        self._store.stop(broker_epoch=self._stops_in).on_done(closed)

    @property
    def _stops_in(self) -> int | None:
        """The broker epoch that a clean stop marks: that in which the controllers know this broker. Where it wasn't
        registered in this life it is that of the last stop; nothing was written since."""
        registered = self._lifecycle is not None and self._lifecycle.is_registered
        return self._lifecycle.epoch if self._lifecycle is not None and registered else None


def _block(response: Any) -> ProducerIdBlock:
    if response.error_code:
        raise KafkaError(error_code(response.error_code), "the controller gives no producer ids")
    return ProducerIdBlock(response.producer_id_start, response.producer_id_len)
