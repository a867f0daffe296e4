"""The Python SDK: confluent-kafka with plain errors and the few shapes that the command line and tests need.

from tidelog.client import Admin, Producer, read

with Producer("127.0.0.1:9092") as producer:
    producer.send("greetings", b"hello")
for message in read("127.0.0.1:9092", "greetings", stop_at_end=True):
    print(message.value)
"""

from tidelog.client.admin import Admin
from tidelog.client.connect import DEFAULT_BOOTSTRAP
from tidelog.client.consumer import Message, read
from tidelog.client.errors import ClientError
from tidelog.client.producer import Producer
from tidelog.client.start import Start

__all__ = ["DEFAULT_BOOTSTRAP", "Admin", "ClientError", "Message", "Producer", "Start", "read"]
