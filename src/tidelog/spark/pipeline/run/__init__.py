"""Running a pipeline: its Spark, its queries, what is shown of them, and how they are stopped."""
