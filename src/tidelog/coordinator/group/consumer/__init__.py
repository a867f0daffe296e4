"""Groups of the consumer protocol (KIP-848): the broker assigns, members reconcile one heartbeat at a time."""
