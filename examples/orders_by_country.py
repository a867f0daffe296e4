"""A topic as a table: orders are produced as JSON, and Spark counts them by country.

python examples/orders_by_country.py [HOST:PORT]
"""

import json
import os
import sys

from confluent_kafka import Producer

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run with this Python: it has Tidelog

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as total

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = "examples.orders"

producer = Producer({"bootstrap.servers": bootstrap})
for number in range(1000):
    order = {"id": number, "country": ("FR", "GB", "NO")[number % 3], "amount": number % 50}
    producer.produce(TOPIC, json.dumps(order))
producer.flush(30)

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC).load()
orders = rows.select(from_json(col("value").cast("string"), "id long, country string, amount long").alias("order"))
for row in orders.groupBy("order.country").agg(total("order.amount").alias("amount")).orderBy("country").collect():
    print(row.country, row.amount)
spark.stop()
