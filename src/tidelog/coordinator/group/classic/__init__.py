"""Groups of the classic protocol: the members themselves assign, the coordinator calls them together and counts."""
