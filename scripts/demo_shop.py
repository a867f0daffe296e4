"""The demo's shop: what is ordered, paid and refunded around noon, always the same; and what it should come to."""

import json
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tidelog.client import Admin, Producer

PRODUCTS = {"oysters": 18.0, "charts": 24.0, "rope": 7.25, "kelp": 3.5}
CUSTOMERS = ("ada", "bob", "cleo", "dan", "eve", "finn")
NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
MINUTES = 30
UNREADABLE = (b"{torn", b'{"id": "not a number", "amount": 1}', b"\xff\xfe")


@dataclass
class Sent:
    """What went into the topics, in cents, for comparison with what comes out of the pipeline."""

    orders: int = 0
    payments: int = 0
    refunds: int = 0
    ordered: dict[str, int] = field(default_factory=dict)
    paid: dict[str, int] = field(default_factory=dict)
    refunded: dict[str, int] = field(default_factory=dict)


def fill(bootstrap: str) -> Sent:
    """Half an hour of trade, busiest at a quarter past; 3 records are broken."""
    admin = Admin(bootstrap)
    for topic in ("orders", "payments", "refunds"):
        admin.create_topic(topic, 2)
    chance = random.Random(6)
    sent = Sent()
    with Producer(bootstrap) as producer:
        for minute in range(MINUTES):
            busy = 90 + round(160 * math.exp(-(((minute - 14) / 6) ** 2)) + chance.uniform(-15, 15))
            for second in sorted(chance.uniform(0, 60) for _ in range(busy)):
                _order(producer, chance, sent, NOON + timedelta(minutes=minute, seconds=second))
        for text in UNREADABLE:
            producer.send("orders", text)
    return sent


def _order(producer: Producer, chance: random.Random, sent: Sent, at: datetime) -> None:
    [product] = chance.choices(list(PRODUCTS), weights=(3, 1, 4, 5))
    customer = chance.choice(CUSTOMERS)
    cents = round(100 * PRODUCTS[product]) * chance.randint(1, 5)
    number = sent.orders
    sent.orders += 1
    order = {"id": number, "customer": customer, "product": product, "amount": cents / 100, "at": _text(at)}
    _send(producer, "orders", customer, order)
    sent.ordered[product] = sent.ordered.get(product, 0) + cents
    if chance.random() < 0.03:
        return  # never paid
    paid_at = at + timedelta(seconds=chance.uniform(5, 120))
    _send(producer, "payments", customer, {"order_id": number, "amount": cents / 100, "at": _text(paid_at)})
    sent.payments += 1
    sent.paid[product] = sent.paid.get(product, 0) + cents
    if chance.random() < (0.15 if product == "oysters" else 0.03):
        back_at = paid_at + timedelta(seconds=chance.uniform(60, 900))
        _send(producer, "refunds", customer, {"order_id": number, "amount": cents / 100, "at": _text(back_at)})
        sent.refunds += 1
        sent.refunded[product] = sent.refunded.get(product, 0) + cents


def _send(producer: Producer, topic: str, customer: str, row: dict[str, object]) -> None:
    producer.send(topic, json.dumps(row).encode(), key=customer.encode())


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
