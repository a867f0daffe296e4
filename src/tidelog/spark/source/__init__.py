"""Topics as tables and streams: what `spark.read` and `spark.readStream` do with `format("tidelog")`."""
