"""Write docs/settings.md from the declarations: `python -m tidelog.config > docs/settings.md`."""

from collections.abc import Callable, Iterable, Mapping

from tidelog.config import effect
from tidelog.config.broker import BrokerConfig
from tidelog.config.setting import Setting
from tidelog.config.topic import BROKER_SYNONYMS, TopicConfig

INTRODUCTION = """# Settings

Written by `python -m tidelog.config > docs/settings.md`: change the declarations in `src/tidelog/config/`.

What Apache Kafka 4.3 has keeps Kafka's name, type and default, but for what [differences.md](differences.md) lists;
what is Tidelog's own is named `tidelog.*`. A setting is given by `tidelog serve --set name=value`, in the file of
`--config` (TOML, or a `server.properties` of Apache Kafka's), or in a variable: `TIDELOG_LOG_SEGMENT_BYTES` is
`log.segment.bytes`, `TIDELOG_DURABILITY` is `tidelog.durability`. Flags win over variables, variables over the file.

"""


def page() -> str:
    return (
        INTRODUCTION
        + "## The broker's settings\n\n"
        + 'Those marked * can also be changed while the broker runs, by AlterConfigs on the broker (`""`: on all).\n\n'
        + _table(BrokerConfig.SETTINGS.values(), _broker_name, effect.BROKER)
        + "\n## A topic's settings\n\n"
        + "Set when the topic is created or by AlterConfigs; unset, the broker's setting in brackets counts.\n\n"
        + _table(TopicConfig.SETTINGS.values(), _topic_name, effect.TOPIC)
    )


def _broker_name(setting: Setting) -> str:
    return f"`{setting.name}`" + (" *" if setting.dynamic else "")


def _topic_name(setting: Setting) -> str:
    synonym = BROKER_SYNONYMS.get(setting.name)
    return f"`{setting.name}`" + (f" (`{synonym}`)" if synonym else "")


def _table(settings: Iterable[Setting], name: Callable[[Setting], str], without_effect: Mapping[str, str]) -> str:
    lines = ["| setting | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for setting in sorted(settings, key=lambda setting: setting.name):
        default = setting.text(setting.default)
        shown = "" if default is None else f"`{default}`" if default else "(empty)"
        reason = without_effect.get(setting.name)
        meaning = setting.doc if reason is None else f"{setting.doc} ({reason[0].upper()}{reason[1:]}.)"
        lines.append(f"| {name(setting)} | {setting.type.name.lower()} | {shown} | {setting.allowed} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
