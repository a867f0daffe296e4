"""Benchmarks: Tidelog beside a C floor and Apache Kafka, from one run. `python -m bench`; docs/benchmarks.md explains."""
