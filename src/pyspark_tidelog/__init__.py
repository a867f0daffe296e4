"""Where Spark looks for `format("tidelog")`: it imports every installed package named pyspark_* by itself."""

from tidelog.spark.source.data_source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
