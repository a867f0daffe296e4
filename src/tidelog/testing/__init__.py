"""A broker for tests: `with Broker() as broker: ...`, in a process of its own."""

from tidelog.testing.broker import Broker, BrokerError

__all__ = ["Broker", "BrokerError"]
