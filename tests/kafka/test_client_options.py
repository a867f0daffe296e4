"""Every setting of Java's consumer and producer is known to the Spark source and sink, whatever they make of it."""

import re

import pytest

from tests.kafka.apache import tool
from tidelog.spark.client_options import REFUSED, SASL, TAKEN

CLIENTS = ("org.apache.kafka.clients.consumer.ConsumerConfig", "org.apache.kafka.clients.producer.ProducerConfig")


@pytest.mark.parametrize("config", CLIENTS)
def test_every_setting_of_javas_clients_is_known(config: str) -> None:
    page = tool(config).stdout  # their main method prints what documents them
    names = set(re.findall(r'<a id="([a-z0-9.]+)"', page))
    assert {"bootstrap.servers", "security.protocol"} <= names
    assert {name for name in names if not name.startswith(SASL)} - TAKEN - set(REFUSED) == set()
