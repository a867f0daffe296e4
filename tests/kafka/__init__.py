"""Tests that set Tidelog beside Apache Kafka 4.3.1 itself."""
