"""Tales of a whole broker: what was promised holds through restarts, kills, lost answers and bad input."""
