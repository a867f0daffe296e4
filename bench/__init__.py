"""Benchmarks: Tidelog beside a C floor and Apache Kafka, from one run of `python -m bench`; see docs/benchmarks.md."""
