"""The group coordinator: members, assignments and committed offsets, on the partitions of `__consumer_offsets`."""
