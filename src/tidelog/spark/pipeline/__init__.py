"""Pipelines: one TOML file each, from sources through SQL to sinks. docs/pipelines/ tells how to write one."""
