"""What the simulator runs: topics, clients and faults of each scenario, and whether every promise was kept."""
