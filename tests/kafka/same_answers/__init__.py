"""The same requests to Tidelog and to Apache Kafka give the same answers."""
