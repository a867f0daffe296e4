"""What a pipeline writes: topics, a lake of Parquet files, databases, and what has no place in them."""
