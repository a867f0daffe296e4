"""TLS: the broker's certificate is checked, and what it doesn't prove is refused."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.rpc import Cluster, Options, Unreachable
from tidelog.testing import Broker


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate (Debian: openssl)")
    file = tmp_path_factory.mktemp("tls") / "broker.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file) + ".key", "-out", str(file)]
    subprocess.run([*request, *names], check=True, capture_output=True)
    return file


@pytest.fixture
def terminated(certificate: Path) -> Iterator[str]:
    """A broker behind TLS: until it speaks it itself, a relay does so for one connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, str(certificate) + ".key")
    with Broker() as broker, socket.create_server(("127.0.0.1", 0)) as listener:

        def relay() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                try:
                    secure = context.wrap_socket(client, server_side=True)
                except OSError:
                    client.close()
                    continue
                plain = socket.create_connection((broker.host, broker.port))
                for source, target in ((secure, plain), (plain, secure)):
                    threading.Thread(target=pump, args=(source, target), daemon=True).start()

        threading.Thread(target=relay, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    finally:
        source.close()
        target.close()


def options(**given: str) -> Options:
    quick = {"default.api.timeout.ms": "500", "socket.connection.setup.timeout.ms": "2000"}
    return Options.from_kafka({"security.protocol": "SSL", **quick, **given})


def test_a_trusted_certificate_is_let_in(terminated: str, certificate: Path) -> None:
    with Cluster(terminated, options(**{"ssl.ca.location": str(certificate)})) as cluster:
        assert cluster.topics() == {}


def test_a_certificate_that_nobody_vouches_for_is_refused(terminated: str) -> None:
    with Cluster(terminated, options()) as cluster, pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        cluster.topics()
