"""Sources and steps of a pipeline as tables of a Spark session."""
