"""Log compaction: of each key the last value stays.

`clean.py` is what is done aside, in a child process (`__main__.py`) or, in the simulator, in small steps beside the
loop: it reads segments and writes others. On the loop's side `cleaner.py` says which log is due, and `running.py` puts
the new segments in the place of the old ones.
"""
