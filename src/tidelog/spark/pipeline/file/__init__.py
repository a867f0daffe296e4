"""A pipeline's TOML file: its shape, what it means, and the line that each error points at."""
