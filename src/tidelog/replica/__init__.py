"""A partition as a replica: who leads it, how far it is committed, and who waits for it."""
