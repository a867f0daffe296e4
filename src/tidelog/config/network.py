"""Settings of a broker's network side: listeners, connections, requests, and the bounds on them."""

from tidelog.config.listeners import PROTOCOLS
from tidelog.config.setting import INT_MAX, Settings, integer, long, names, optional_names, optional_text, text


class NetworkSettings(Settings):
    advertised_listeners = optional_names(
        "The addresses that clients are told to use; unset, those of `listeners`. Port 0 stands for the real port."
    )
    connections_max_idle_ms = long(600_000, "A connection that was silent for so long is closed.")
    fetch_max_bytes = integer(
        57_671_680, "The most bytes that one Fetch answers with, whatever it asks for.", at_least=1024
    )
    listener_security_protocol_map = text(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name; PLAINTEXT is the one that Tidelog serves so far.",
    )
    listeners = names(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses that the broker listens on, as NAME://host:port; port 0 takes a free one.",
        filled=True,
    )
    max_connection_creation_rate = integer(
        INT_MAX, "How many connections a second are accepted; more wait.", at_least=0, dynamic=True
    )
    max_connections = integer(
        INT_MAX, "How many connections may be open at once; more are closed.", at_least=0, dynamic=True
    )
    max_connections_per_ip = integer(
        INT_MAX, "How many connections one address may have open at once; more are closed.", at_least=0, dynamic=True
    )
    max_connections_per_ip_overrides = text(
        "", "`max.connections.per.ip` of single addresses, as `address:count,address:count`.", dynamic=True
    )
    max_incremental_fetch_session_cache_slots = integer(
        1000, "How many incremental fetch sessions are remembered; then the least used go.", at_least=0
    )
    max_request_partition_size_limit = integer(
        2000, "The most partitions that one DescribeTopicPartitions answers with.", at_least=1
    )
    queued_max_request_bytes = long(
        536_870_912, "The most bytes of large requests that may be arriving, over all connections; -1 is no limit."
    )
    queued_max_requests = integer(
        500, "How many requests of one connection may wait for their answer before it isn't read any more.", at_least=1
    )
    request_timeout_ms = integer(30_000, "How long a request to another broker may take.")
    socket_listen_backlog_size = integer(
        50, "How many new connections the operating system holds until they are accepted.", at_least=1
    )
    socket_receive_buffer_bytes = integer(
        102_400, "The size of a socket's receive buffer, where it is set; otherwise, and with -1, the system's default."
    )
    socket_request_max_bytes = integer(
        104_857_600, "The largest request, in bytes; who sends a larger one is disconnected.", at_least=1
    )
    socket_send_buffer_bytes = integer(102_400, "The size of a socket's send buffer; -1 is the system's default.")
    telemetry_max_bytes = integer(
        1_048_576, "The most bytes of metrics that a client is asked to push at once.", at_least=1
    )
    inter_broker_listener_name = optional_text(
        "The listener that other brokers connect to; unset, that of `security.inter.broker.protocol`, or the first."
    )
    security_inter_broker_protocol = text(
        "PLAINTEXT",
        "The name of the listener that other brokers connect to, where `inter.broker.listener.name` isn't set.",
        one_of=PROTOCOLS,
    )
