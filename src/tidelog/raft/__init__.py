"""Consensus on one log, the metadata log: the way of a decision, between the controller's machine and the disk.

`quorum.py` decides and knows no clock, disk or network; `driver.py` is its shell. The rest is Kafka's files: the
folder's identity (`folder.py`), `quorum-state` (`election_file.py`), checkpoints (`snapshot.py`).
"""
