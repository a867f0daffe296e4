"""Bytes to messages and back: pure code, no input or output."""
