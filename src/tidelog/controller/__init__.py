"""Decides what the cluster is to be: pure functions `(image, request, ...) -> (records, response)`, on `Controller`.

The way of a decision: an API submits it, it sees the newest image, its records go through raft, and the answer leaves
when they are committed and published.
"""
