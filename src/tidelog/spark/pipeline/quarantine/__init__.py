"""Rows that a step fails on: found, noted, set aside, so that the query goes on without them."""
