"""Names of environment variables: `TIDELOG_LOG_SEGMENT_BYTES` is `log.segment.bytes`, `TIDELOG_DURABILITY` is ours."""

from tidelog.config.broker import BrokerConfig

PREFIX = "TIDELOG_"


def environment_names() -> dict[str, str]:
    """The environment variable of each broker setting -> the setting's name."""
    names: dict[str, str] = {}
    for name, setting in BrokerConfig.SETTINGS.items():
        variable = setting.attribute.upper()
        names[variable if variable.startswith(PREFIX) else PREFIX + variable] = name
    return names
