"""Pytest finds this module by its entry point once the package is installed."""
