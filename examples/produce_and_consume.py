"""A producer and a consumer group: three greetings go in, three come out.

python examples/produce_and_consume.py [HOST:PORT]
"""

import sys

from confluent_kafka import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = "examples.greetings"

producer = Producer({"bootstrap.servers": bootstrap})
for name in ("Ada", "Grace", "Edsger"):
    producer.produce(TOPIC, key=name, value=f"hello, {name}")
if producer.flush(30):
    sys.exit("not all were acknowledged within 30 s")

consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "examples", "auto.offset.reset": "earliest"})
consumer.subscribe([TOPIC])
seen = 0
while seen < 3:
    message = consumer.poll(1.0)
    if message is None:
        continue
    if message.error():
        sys.exit(f"can't consume: {message.error()}")
    print(f"{message.partition()}:{message.offset()} {message.value().decode()}")
    seen += 1
consumer.close()  # commits, and leaves the group at once
