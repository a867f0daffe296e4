"""A shop on Tidelog and Spark: makes orders, payments and refunds, runs a pipeline, shows what came out."""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tidelog.client import Admin, Producer, read
from tidelog.testing import Broker

PRODUCTS = {"kelp": 3.5, "oysters": 18.0, "rope": 7.25, "charts": 24.0}
CUSTOMERS = ("ada", "bob", "cleo", "dan")
ORDERS = 5000
MINUTES = 20
SETTINGS = {"transaction.two.phase.commit.enable": True}
console = Console()


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("demo-shop.toml"), folder / "shop.toml")
    with Broker(SETTINGS) as broker:
        console.rule("1. A shop's orders, payments and refunds")
        expected = fill(broker.bootstrap)
        console.print(f"{expected['orders']} orders, {expected['refunds']} refunds, and 3 records that nobody can read")
        console.rule("2. The pipeline")
        console.print((folder / "shop.toml").read_text(), highlight=False, style="dim")
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(folder / "shop.toml"), "--once"]
        began = time.monotonic()
        done = subprocess.run([*command, "-b", broker.bootstrap], check=False)
        if done.returncode:
            return done.returncode
        console.print(f"It took {time.monotonic() - began:.0f} s, most of it to start Spark.")
        console.rule("3. What came out")
        minutes = newest(broker.bootstrap)
        letters = list(read(broker.bootstrap, "shop-dead", stop_at_end=True, isolation_level="read_committed"))
        page = show(folder, minutes, letters)
    counted = sum(row["orders"] for row in minutes)
    console.print(f"Orders in the topic of counts: {counted}; sent: {expected['orders']}; dead letters: {len(letters)}")
    console.print(f"The page: {page}\nThe lake: {folder / 'lake'}", highlight=False)
    if sys.stdout.isatty():
        webbrowser.open(page.as_uri())
    return 0 if counted == expected["orders"] and len(letters) == 3 else 1


def fill(bootstrap: str) -> dict[str, int]:
    admin = Admin(bootstrap)
    for topic in ("orders", "payments", "refunds"):
        admin.create_topic(topic, 2)
    chance = random.Random(6)
    refunds = 0
    with Producer(bootstrap) as producer:
        for number in range(ORDERS):
            product = chance.choice(list(PRODUCTS))
            amount = round(PRODUCTS[product] * chance.randint(1, 5), 2)
            second = number * MINUTES * 60 // ORDERS
            at = f"2026-01-31T12:{second // 60:02d}:{second % 60:02d}Z"
            who = chance.choice(CUSTOMERS)
            order = {"id": number, "customer": who, "product": product, "amount": amount, "at": at}
            paid = {"id": f"p{number}", "order_id": number, "amount": amount, "at": at}
            producer.send("orders", json.dumps(order).encode(), key=who.encode())
            producer.send("payments", json.dumps(paid).encode(), key=who.encode())
            if chance.random() < 0.05:
                refunds += 1
                producer.send("refunds", json.dumps({**paid, "id": f"r{number}"}).encode(), key=who.encode())
        for text in (b"{torn", b'{"id": "not a number", "amount": 1}', b"\xff\xfe"):
            producer.send("orders", text)
    return {"orders": ORDERS, "refunds": refunds}


def newest(bootstrap: str) -> list[dict[str, Any]]:
    """The last word on each minute and product."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for message in read(bootstrap, "orders-by-minute", stop_at_end=True, isolation_level="read_committed"):
        row = json.loads(message.value or b"{}")
        found[row["minute"], row["product"]] = row
    return [found[place] for place in sorted(found)]


def show(folder: Path, minutes: list[dict[str, Any]], letters: list[Any]) -> Path:
    products = {product: [row for row in minutes if row["product"] == product] for product in PRODUCTS}
    table = Table("product", "orders", "worth")
    for product, rows in products.items():
        table.add_row(product, str(sum(row["orders"] for row in rows)), f"{sum(row['worth'] for row in rows):,.2f}")
    console.print(table)
    for letter in letters:
        reason = dict(letter.headers).get("tidelog.reason") or b""
        console.print(f"dead letter: {letter.value!r}: {reason.decode()[:60]}", highlight=False)
    page = folder / "shop.html"
    page.write_text(html(products))
    return page


def html(products: dict[str, list[dict[str, Any]]]) -> str:
    """Worth by minute as stacked bars, and a table."""
    colours = dict(zip(products, ("#2a6f97", "#61a5c2", "#a9d6e5", "#f4a261"), strict=True))
    starts = sorted({row["minute"] for rows in products.values() for row in rows})
    most = max(sum(r["worth"] for rows in products.values() for r in rows if r["minute"] == at) for at in starts)
    bars: list[str] = []
    for index, at in enumerate(starts):
        y = 220.0
        for product, rows in products.items():
            height = 200 * sum(row["worth"] for row in rows if row["minute"] == at) / most
            y -= height
            bars.append(
                f'<rect x="{40 + index * 30}" y="{y:.1f}" width="24" height="{height:.1f}" fill="{colours[product]}"/>'
            )
        bars.append(f'<text x="{52 + index * 30}" y="236" font-size="10" text-anchor="middle">{at[14:16]}</text>')
    rows = "".join(
        f'<tr><td style="color:{colours[product]}">&#9632; {product}</td><td>{sum(r["orders"] for r in each)}</td>'
        f"<td>{sum(r['worth'] for r in each):,.2f}</td></tr>"
        for product, each in products.items()
    )
    return (
        '<!doctype html><meta charset="utf-8"><title>The shop</title>'
        "<style>body{font:16px sans-serif;margin:2em}td,th{padding:.2em 1em;text-align:right}"
        "td:first-child{text-align:left}</style><h1>Orders by minute</h1>"
        f'<svg width="{60 + 30 * len(starts)}" height="250">{"".join(bars)}</svg>'
        f"<table><tr><th>product</th><th>orders</th><th>worth</th></tr>{rows}</table>"
        "<p>Minutes past noon; worth of orders, as the pipeline counted it into the topic orders-by-minute.</p>"
    )


if __name__ == "__main__":
    sys.exit(main())
