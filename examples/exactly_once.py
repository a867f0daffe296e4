"""Read, compute, write, exactly once: results and offsets become visible together, or not at all.

python examples/exactly_once.py [HOST:PORT]
"""

import sys

from confluent_kafka import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
PAYMENTS, RECEIPTS, COUNT = "examples.payments", "examples.receipts", 20

payer = Producer({"bootstrap.servers": bootstrap})
for number in range(COUNT):
    payer.produce(PAYMENTS, str(number))
payer.flush(30)

# Whoever starts under this name fences the one before it, and aborts what that one left open.
cashier = Producer({"bootstrap.servers": bootstrap, "transactional.id": "examples-cashier"})
cashier.init_transactions(30)
committed = {"group.id": "examples-cashiers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
consumer = Consumer({"bootstrap.servers": bootstrap, **committed, "enable.auto.commit": False})
consumer.subscribe([PAYMENTS])
handled = 0
while handled < COUNT:
    messages = [message for message in consumer.consume(10, 1.0) if not message.error()]
    if not messages:
        continue
    cashier.begin_transaction()
    for message in messages:
        cashier.produce(RECEIPTS, b"paid " + message.value())
    cashier.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    cashier.commit_transaction()
    handled += len(messages)
consumer.close()

reader = Consumer({"bootstrap.servers": bootstrap, **committed, "group.id": "examples-readers"})
reader.subscribe([RECEIPTS])
receipts: list[bytes] = []
while len(receipts) < COUNT:
    message = reader.poll(1.0)
    if message is not None and not message.error():
        receipts.append(message.value())
reader.close()
print(f"{len(receipts)} receipts, {len(set(receipts))} different ones")
