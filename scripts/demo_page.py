"""The demo's result as a page without anything from elsewhere: a plot of the minutes, a table of the products."""

from html import escape
from typing import Any

COLOURS = {"oysters": "#0072b2", "charts": "#e69f00", "rope": "#009e73", "kelp": "#cc79a7"}
"""Told apart by people who see colours differently, too (Okabe and Ito's)."""

LEFT, TOP, HEIGHT, BAR, GAP = 70, 20, 300, 18, 6
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 54em; padding: 0 1em; color: #222 }
h1 { font-size: 1.6em; margin-bottom: .2em } h2 { font-size: 1.15em; margin-top: 1.8em }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #444 }
table { border-collapse: collapse } td, th { padding: .3em 1.1em; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } tr.all td { font-weight: 600; border-top: 2px solid #888 }
table.words td, table.words th { text-align: left } code { background: #f2f2f2; padding: .1em .3em }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .5em } .note { color: #666 }
"""


def page(minutes: list[dict[str, Any]], products: list[dict[str, Any]], letters: list[dict[str, str]]) -> str:
    """`minutes` as the topic has them, `products` with cents from topic and lake, `letters` that nobody could read."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>The shop, on Tidelog</title>',
            f"<style>{STYLE}</style>",
            "<h1>What the shop sold around noon</h1>",
            '<p class="note">Orders, payments and refunds were written to topics of Tidelog. One pipeline, run by '
            "Spark, counted them by minute into another topic (the plot) and matched them into a lake of Parquet "
            "files (the table).</p>",
            "<h2>Value of orders in each minute, by product</h2>",
            plot(minutes),
            "<h2>Products</h2>",
            _products(products),
            '<p class="note">Ordered: counted from the topic <code>orders-by-minute</code>. Paid and refunded: from '
            "the lake <code>lake/sales</code>, where each payment stands beside its order. Kept is paid less refunded. "
            "Some orders were never paid.</p>",
            f"<h2>{len(letters)} records that nobody could read</h2>",
            _letters(letters),
            '<p class="note">They did not stop the pipeline and are not lost: they wait in the topic '
            "<code>shop-dead</code> with the reason, to be sent again after a fix.</p></html>",
        ]
    )


def plot(minutes: list[dict[str, Any]]) -> str:
    """Stacked bars, a minute each; axes with units, and a legend."""
    starts = sorted({row["minute"] for row in minutes})
    worth = {(row["minute"], row["product"]): row["worth"] for row in minutes}
    tallest = max(sum(worth.get((at, product), 0) for product in COLOURS) for at in starts)
    step = next(size for size in (100, 200, 500, 1000, 2000, 5000, 10000) if tallest / size <= 6)
    top = step * (int(tallest // step) + 1)
    right = LEFT + len(starts) * (BAR + GAP)
    bottom = TOP + HEIGHT
    parts: list[str] = []
    for value in range(0, top + 1, step):
        y = bottom - HEIGHT * value / top
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,} €</text>')
    for index, at in enumerate(starts):
        x, y = LEFT + index * (BAR + GAP) + GAP / 2, float(bottom)
        for product, colour in COLOURS.items():
            height = HEIGHT * worth.get((at, product), 0) / top
            y -= height
            told = f"{at[11:16]}, {product}: {worth.get((at, product), 0):,.2f} €"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{BAR}" height="{height:.1f}" fill="{colour}">'
                f"<title>{told}</title></rect>"
            )
        if int(at[14:16]) % 5 == 0:
            parts.append(f'<text x="{x + BAR / 2:.1f}" y="{bottom + 18}" text-anchor="middle">{at[11:16]}</text>')
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{bottom + 38}" text-anchor="middle">'
        f"time of the order, {starts[0][:10]} (UTC)</text>"
    )
    for index, (product, colour) in enumerate(reversed(COLOURS.items())):
        parts.append(f'<rect x="{right + 16}" y="{TOP + index * 22}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{right + 34}" y="{TOP + 10 + index * 22}">{product}</text>')
    size = f"0 0 {right + 100} {bottom + 48}"
    return f'<svg viewBox="{size}" role="img" aria-label="orders in euros by minute">{"".join(parts)}</svg>'


def _products(products: list[dict[str, Any]]) -> str:
    rows = ["<tr><th>Product</th><th>Orders</th><th>Ordered</th><th>Paid</th><th>Refunded</th><th>Kept</th></tr>"]
    for row in products:
        colour = COLOURS.get(row["product"])
        swatch = f'<span class="swatch" style="background:{colour}"></span>' if colour else ""
        money = "".join(f"<td>{euros(row[name])}</td>" for name in ("ordered", "paid", "refunded", "kept"))
        kind = "" if colour else ' class="all"'
        rows.append(f"<tr{kind}><td>{swatch}{row['product']}</td><td>{row['orders']:,}</td>{money}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _letters(letters: list[dict[str, str]]) -> str:
    rows = ["<tr><th>Where it stood</th><th>What it says</th><th>Why it can't be used</th></tr>"]
    rows += [
        f"<tr><td>{escape(each['place'])}</td><td><code>{escape(each['value'])}</code></td>"
        f"<td>{escape(each['reason'])}</td></tr>"
        for each in letters
    ]
    return f'<table class="words">{"".join(rows)}</table>'


def euros(cents: int) -> str:
    return f"{cents / 100:,.2f} €"
