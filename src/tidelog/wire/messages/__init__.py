"""Requests and responses, one file an API, named as Kafka names them."""
