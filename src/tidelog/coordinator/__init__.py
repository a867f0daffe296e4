"""Coordinators: groups and transactions, each key's state on one partition of an internal topic, run on `machine`."""
