"""Clients of the simulated world: what they ask for, and what they remember of the answers."""
