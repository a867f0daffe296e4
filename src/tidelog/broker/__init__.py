"""One node of a cluster: the wiring of its parts, and the order of its start and stop."""

from tidelog.broker.broker import Broker
from tidelog.broker.lifecycle import NotRegisteredError

__all__ = ["Broker", "NotRegisteredError"]
