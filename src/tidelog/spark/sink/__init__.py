"""Rows to topics, exactly once: what `df.write` and `df.writeStream` do with `format("tidelog")`."""
