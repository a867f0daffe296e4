"""Workers that copy a topic exactly once, each library in a program of its own, to be killed at any time."""
