"""The demo: its shop is always the same, its page holds what it says, and the whole of it comes out to the cent."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S, java

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    import demo_page

    return demo_page.page


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps texts and bars."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.bars: list[float] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "rect":
            self.bars.append(float(dict(attrs)["height"] or 0))
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def row(product: str, orders: int, ordered: int, paid: int, refunded: int) -> dict[str, Any]:
    kept = paid - refunded
    return {
        "product": product,
        "orders": orders,
        "ordered": ordered,
        "paid": paid,
        "refunded": refunded,
        "kept": kept,
    }


def test_the_page_shows_each_minute_and_product_and_no_markup_of_others(page: Any) -> None:
    minutes = [
        {"minute": "2026-01-31T12:00:00.000Z", "product": "kelp", "orders": 2, "worth": 150.0},
        {"minute": "2026-01-31T12:01:00.000Z", "product": "kelp", "orders": 1, "worth": 75.0},
    ]
    products = [row("kelp", 3, 22500, 15000, 7500), row("all", 3, 22500, 15000, 7500)]
    letters = [{"place": "orders, partition 0, offset 7", "value": "<b>torn", "reason": "not JSON"}]
    read = Page()
    read.feed(page(minutes, products, letters))
    assert read.open == []
    bars = [height for height in read.bars if height]
    assert bars == pytest.approx([225.0, 112.5])  # 150 and 75 of an axis that ends at 200
    for text in ("12:00", "100 €", "200 €", "225.00 €", "75.00 €", "<b>torn", "not JSON", "kelp"):
        assert text in read.texts, text


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(2 * JVM_TIMEOUT_S)
@pytest.mark.skipif(java() is None, reason="Spark needs Java 17: apt-get install openjdk-17-jre-headless")
def test_what_comes_out_of_the_demo_is_what_went_in(tmp_path: Path) -> None:
    """The script itself compares every product's orders, payments and refunds with what it sent."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "demo_spark.py"), str(tmp_path)],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=2 * JVM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "came out are those that went in, to the cent" in done.stdout
    read = Page()
    read.feed((tmp_path / "shop.html").read_text())
    assert read.open == []
    assert len([height for height in read.bars if height]) >= 30 * 3
    assert "3 records that nobody could read" in read.texts
    for text in ("██ oysters  ▓▓ charts  ▒▒ rope  ░░ kelp", "What next", f"rm -r {tmp_path}", "(not JSON)"):
        assert text in done.stdout, text
    again = subprocess.run(
        [sys.executable, str(SCRIPTS / "demo_spark.py"), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (again.returncode, "is not empty: name another folder" in again.stdout) == (1, True)
