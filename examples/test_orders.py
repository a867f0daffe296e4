"""A broker in your tests: the fixture `tidelog_broker` is there once tidelog is installed, with nothing to import.

pytest examples/test_orders.py
"""

from confluent_kafka import Consumer, Producer


def test_orders_arrive(tidelog_broker):
    producer = Producer({"bootstrap.servers": tidelog_broker.bootstrap})
    producer.produce("orders", b"one teapot")
    assert producer.flush(10) == 0

    settings = {"bootstrap.servers": tidelog_broker.bootstrap, "group.id": "shop", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    messages = consumer.consume(1, timeout=10)
    consumer.close()
    assert [message.value() for message in messages] == [b"one teapot"]
