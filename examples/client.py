"""Topics, records and lag with tidelog.client: confluent-kafka with plain errors, for tools and one-off jobs.

python examples/client.py [HOST:PORT]
"""

import sys

from tidelog.client import Admin, ClientError, Producer, read

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = "examples.measurements"

admin = Admin(bootstrap)
admin.create_topic(TOPIC, partitions=3, configs={"retention.ms": "86400000"})
try:
    admin.create_topic(TOPIC)
except ClientError as error:
    print("refused:", error)

with Producer(bootstrap, compression_type="zstd") as producer:  # leaving the block waits for the acknowledgements
    for number in range(100):
        producer.send(TOPIC, b"%d" % number, key=b"sensor-%d" % (number % 4))
print("acknowledged:", producer.written)

values = [int(message.value or b"0") for message in read(bootstrap, TOPIC, stop_at_end=True)]
print("read:", len(values), "sum:", sum(values))
admin.delete_topic(TOPIC)
