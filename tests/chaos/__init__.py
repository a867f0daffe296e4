"""The chaos run's own parts: whether its checker would notice, and whether its faults do what they say."""
