"""A shop on Tidelog and Spark: makes orders, payments and refunds, runs a pipeline, shows what came out."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Any

import pyarrow.parquet
from demo_page import COLOURS, euros, page
from demo_shop import UNREADABLE, Sent, fill
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog.client import read
from tidelog.testing import Broker

SETTINGS = {"transaction.two.phase.commit.enable": True}
WIDTH = 60
FILLS = dict(zip(COLOURS, "█▓▒░", strict=True))
"""Products are told apart without colours, too, of which a terminal may have eight or none."""
NEXT = """
[bold]What next[/]
  docs/pipelines/README.md explains the file that you saw; pipelines/ holds eight to copy.
  A broker that stays, and lets pipelines write exactly once:
    .venv/bin/tidelog serve --set transaction.two.phase.commit.enable=true
  Then, in another terminal, with names of your own in the file:
    .venv/bin/tidelog pipeline check pipelines/lake-append.toml
    .venv/bin/tidelog pipeline run pipelines/lake-append.toml
"""
console = Console(highlight=False)


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        console.print(f"{folder} is not empty: name another folder, or remove what is in it", soft_wrap=True)
        return 1
    try:
        return demonstrate(folder)
    except KeyboardInterrupt:
        console.print(f"Stopped. What it left: rm -r {folder}", soft_wrap=True)
        return 130


def demonstrate(folder: Path) -> int:
    file = folder / "shop.toml"
    shutil.copy(Path(__file__).with_name("demo-shop.toml"), file)
    with Broker(SETTINGS) as broker:
        console.rule("1. A shop's orders, payments and refunds, into topics")
        began = time.monotonic()
        sent = fill(broker.bootstrap)
        console.print(
            f"Sent {sent.orders:,} orders, {sent.payments:,} payments, {sent.refunds:,} refunds, "
            f"and {len(UNREADABLE)} records that nobody can read, in {time.monotonic() - began:.1f} s."
        )
        console.rule("2. The pipeline: one file")
        console.print(file.read_text(), style="dim", markup=False, soft_wrap=True)
        began = time.monotonic()
        if code := run(file, broker.bootstrap):
            return code
        console.print(f"It took {time.monotonic() - began:.0f} s, much of it to start Spark.")
        minutes = newest(broker.bootstrap)
        letters = unreadable(broker.bootstrap)
    console.rule("3. What came out")
    products = by_product(minutes, folder / "lake" / "sales")
    show(minutes, products, letters)
    result = folder / "shop.html"
    result.write_text(page(minutes, products, letters))
    right = same(sent, products, letters)
    console.print(f"\nThe same as a page: {result}\nThe lake:           {folder / 'lake' / 'sales'}", soft_wrap=True)
    console.print(f"To remove both:     rm -r {folder}", soft_wrap=True)
    console.print(NEXT, end="", soft_wrap=True)
    if sys.stdout.isatty() and has_screen():
        webbrowser.open(result.as_uri())
    return 0 if right else 1


def run(file: Path, bootstrap: str) -> int:
    """`tidelog pipeline run`, as a person would; Ctrl-C stops it, and then us."""
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--once", "-b", bootstrap]
    with subprocess.Popen(command) as running:
        try:
            return running.wait()
        except KeyboardInterrupt:
            running.wait()
            raise


def has_screen() -> bool:
    """Without one a browser would be opened in the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def newest(bootstrap: str) -> list[dict[str, Any]]:
    """The last word on each minute and product, of the topic that the pipeline writes."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for message in read(bootstrap, "orders-by-minute", stop_at_end=True, isolation_level="read_committed"):
        row = json.loads(message.value or b"{}")
        found[row["minute"], row["product"]] = row
    return [found[place] for place in sorted(found)]


def unreadable(bootstrap: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for message in read(bootstrap, "shop-dead", stop_at_end=True, isolation_level="read_committed"):
        told = {name: (value or b"").decode() for name, value in message.headers}
        place = f"{told['tidelog.topic']}, partition {told['tidelog.partition']}, offset {told['tidelog.offset']}"
        value = (message.value or b"").decode(errors="backslashreplace")
        found.append({"place": place, "value": value, "reason": told["tidelog.reason"]})
    return sorted(found, key=lambda each: each["place"])


def by_product(minutes: list[dict[str, Any]], lake: Path) -> list[dict[str, Any]]:
    """A row a product, money in cents: orders from the topic, payments and refunds from the lake; and all together."""
    rows = {name: {"product": name, "orders": 0, "ordered": 0, "paid": 0, "refunded": 0} for name in COLOURS}
    for row in minutes:
        rows[row["product"]]["orders"] += row["orders"]
        rows[row["product"]]["ordered"] += round(100 * row["worth"])
    for row in pyarrow.parquet.read_table(lake, columns=["product", "amount", "refund"]).to_pylist():
        rows[row["product"]]["refunded" if row["refund"] else "paid"] += round(100 * row["amount"])
    every: list[dict[str, Any]] = list(rows.values())
    total = {name: sum(row[name] for row in every) for name in ("orders", "ordered", "paid", "refunded")}
    every.append({"product": "all", **total})
    return [{**row, "kept": row["paid"] - row["refunded"]} for row in every]


def show(minutes: list[dict[str, Any]], products: list[dict[str, Any]], letters: list[dict[str, str]]) -> None:
    """Plot and table for a terminal."""
    starts = sorted({row["minute"] for row in minutes})
    worth = {(row["minute"], row["product"]): row["worth"] for row in minutes}
    most = max(sum(worth.get((at, product), 0) for product in COLOURS) for at in starts)
    console.print("[bold]Value of orders in each minute[/], read from the topic orders-by-minute")
    legend = ((f"{2 * FILLS[product]} {product}  ", colour) for product, colour in COLOURS.items())
    console.print(Text.assemble("UTC    ", *legend))
    for at in starts:
        line = Text(f"{at[11:16]}  ")
        for product, colour in COLOURS.items():
            line.append(FILLS[product] * round(WIDTH * worth.get((at, product), 0) / most), colour)
        console.print(line.append(f" {sum(worth.get((at, product), 0) for product in COLOURS):,.0f} €"))
    table = Table(title="Products: paid and refunded from the lake", title_justify="left", title_style="bold")
    table.add_column("Product")
    for name in ("Orders", "Ordered", "Paid", "Refunded", "Kept"):
        table.add_column(name, justify="right")
    for row in products:
        money = [euros(row[name]) for name in ("ordered", "paid", "refunded", "kept")]
        if row["product"] == "all":
            table.add_section()
        table.add_row(row["product"], f"{row['orders']:,}", *money, style="bold" if row["product"] == "all" else None)
    console.print()
    console.print(table)
    console.print(f"\n[bold]{len(letters)} records that nobody could read[/], kept in the topic shop-dead")
    for each in letters:
        console.print(f"  {each['place']}: {each['value']}  ({each['reason']})", style="dim", markup=False)


def same(sent: Sent, products: list[dict[str, Any]], letters: list[dict[str, str]]) -> bool:
    """Whether what came out is what went in, to the cent; said either way."""
    right = len(letters) == len(UNREADABLE) and products[-1]["orders"] == sent.orders
    for row in products[:-1]:
        name = row["product"]
        right &= row["ordered"] == sent.ordered[name] and row["paid"] == sent.paid[name]
        right &= row["refunded"] == sent.refunded[name]
    if right:
        console.print("\n[green]✓[/] Orders, payments and refunds that came out are those that went in, to the cent.")
    else:
        console.print(f"\n[red]✗[/] What came out differs from what went in: {sent}")
    return right


if __name__ == "__main__":
    sys.exit(main())
