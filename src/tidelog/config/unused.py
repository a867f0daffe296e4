"""Settings that Apache Kafka 4.3 has and Tidelog doesn't use; read only when one of them is given.

On a command line they are refused. In a settings file, which may be Kafka's own, they are passed over with a word, but
for those that somebody relies on: who may do what, who can listen in, where the data is.
"""

from collections.abc import Mapping

_NAMES = """
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name broker.id client.quota.callback.class
config.providers connection.failed.authentication.delay.ms connections.max.reauth.ms
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quota.window.num controller.quota.window.size.seconds
controller.socket.timeout.ms cordoned.log.dirs create.topic.policy.class.name delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests early.start.listeners fetch.purgatory.purge.interval.requests
follower.fetch.last.tiered.offset.enable group.coordinator.append.linger.ms group.coordinator.background.threads
group.coordinator.cached.buffer.max.bytes group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
group.share.min.session.timeout.ms group.share.partition.max.record.locks group.share.persister.class.name
group.share.record.lock.duration.ms group.share.session.timeout.ms group.streams.assignment.interval.ms
group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms num.io.threads num.network.threads num.replica.alter.log.dirs.threads num.replica.fetchers
principal.builder.class producer.purgatory.purge.interval.requests quota.window.num quota.window.size.seconds
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
replica.socket.receive.buffer.bytes replication.quota.window.num replication.quota.window.size.seconds
sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
sasl.server.max.receive.size security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
"""

UNUSED = frozenset(_NAMES.split())

_NO_AUTHENTICATION = "Tidelog can't authenticate or encrypt yet, and would serve everybody"
_NO_AUTHORIZATION = "Tidelog has no authorization yet, and would let everybody do everything"
_NO_POLICY = "Tidelog runs no Java classes, and would allow what the policy forbids"

_RELIED_ON: Mapping[str, str] = {
    "alter.config.policy.class.name": _NO_POLICY,
    "authorizer.class.name": _NO_AUTHORIZATION,
    "client.quota.callback.class": "Tidelog runs no Java classes, and would have no quotas",
    "config.providers": "Tidelog doesn't fetch values from elsewhere, and would take their place holders for them",
    "create.topic.policy.class.name": _NO_POLICY,
    "delegation.token.secret.key": _NO_AUTHENTICATION,
    "principal.builder.class": _NO_AUTHENTICATION,
    "super.users": _NO_AUTHORIZATION,
}


def why_refused(name: str, value: str) -> str | None:
    """Why a node that is given this can't just pass it over; None where it can, or where it isn't one of Kafka's."""
    plain = name.split(".", 3)[-1] if name.startswith("listener.name.") else name
    if not value.strip():
        return None
    if plain.startswith(("sasl.", "ssl.")):
        return _NO_AUTHENTICATION
    if plain == "remote.log.storage.system.enable":
        return "Tidelog has no tiered storage" if value.strip().lower() == "true" else None
    return _RELIED_ON.get(plain)
