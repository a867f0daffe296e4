"""How a step's SQL finds the tables before it."""

from typing import Any

from pyspark.sql import functions as F


class Views:
    """As temporary views of the session, for as long as the tables are made: the next pipeline has its own."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._names: list[str] = []

    def add(self, name: str, rows: Any) -> None:
        rows.createOrReplaceTempView(name)
        self._names.append(name)

    def end(self) -> None:
        """Forget the views. Through Spark Connect queries still look for them when they start; its session is ours."""
        if hasattr(self._spark, "_jsparkSession"):
            for name in self._names:
                self._spark.catalog.dropTempView(name)

    def counted(self, name: str, rows: Any) -> Any:
        """Records of a stream, with the bytes of their keys and values summed up by micro-batch, for `status`."""
        sizes = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
        return rows.observe(f"read-{name}", F.sum(sizes).alias("bytes"))

    def sql(self, text: str) -> Any:
        rows = self._spark.sql(text)
        rows.columns  # noqa: B018  Spark Connect looks at a query only when it is asked something
        return rows
