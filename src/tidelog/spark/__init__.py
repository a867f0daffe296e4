"""Topics as tables, still and moving: the data source for Spark, and pipelines. Needs `pip install tidelog[spark]`."""
