"""A cluster of whole nodes in one process: their machines, what happens to them, who uses them, and what is seen."""
