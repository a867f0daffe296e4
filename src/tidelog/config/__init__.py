"""Every setting once: typed, documented, bounded. `broker` for a broker's, `topic` for a topic's.

docs/settings.md lists them all and is written by `python -m tidelog.config`.
"""

from tidelog.config.broker import BrokerConfig
from tidelog.config.setting import ConfigError
from tidelog.config.topic import TopicConfig, resolve_topic

__all__ = ["BrokerConfig", "ConfigError", "TopicConfig", "resolve_topic"]
