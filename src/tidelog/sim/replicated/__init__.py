"""Replicated topics of a simulated cluster: who writes and reads them, what they were promised, and what goes wrong."""
