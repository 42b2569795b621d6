"""The desk's book: accounts, positions and orders in one SQLite file.

Money is integer cents in the file and `Decimal` with two places outside of it. Every change is one `BEGIN IMMEDIATE`
transaction that also records the answer under the caller's idempotency key, so an order and the proof that it was
placed are kept or lost together. Prices are a fixed table: they never move, so a limit order that does not fill at once
stays open until it is cancelled.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from answers import Answer, answer, dollars, refuse

STARTING_CENTS = 5_000_000

PRICES_CENTS = {
    "AAPL": 22_791,
    "AMZN": 21_906,
    "GOOG": 17_853,
    "META": 59_780,
    "MSFT": 43_117,
    "NVDA": 13_525,
    "SPY": 59_420,
    "TSLA": 34_815,
}

SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (claw_id TEXT PRIMARY KEY, cash_cents INTEGER NOT NULL CHECK (cash_cents >= 0));
CREATE TABLE IF NOT EXISTS positions (
    claw_id TEXT NOT NULL, symbol TEXT NOT NULL, quantity INTEGER NOT NULL CHECK (quantity >= 0),
    PRIMARY KEY (claw_id, symbol)
);
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, claw_id TEXT NOT NULL, symbol TEXT NOT NULL,
    side TEXT NOT NULL CHECK (side IN ('buy', 'sell')), quantity INTEGER NOT NULL CHECK (quantity > 0),
    limit_cents INTEGER, fill_cents INTEGER,
    status TEXT NOT NULL CHECK (status IN ('open', 'filled', 'cancelled')), created_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    claw_id TEXT NOT NULL, idempotency_key TEXT NOT NULL, request TEXT NOT NULL,
    status_code INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (claw_id, idempotency_key)
);
"""


@dataclass(frozen=True)
class Order:
    """What an agent asks for. Without a limit it is a market order and fills at once."""

    symbol: str
    side: str
    quantity: int
    limit_cents: int | None = None


def _order_row(row: sqlite3.Row) -> dict[str, Any]:
    order = {
        "order_id": row["id"],
        "symbol": row["symbol"],
        "side": row["side"],
        "quantity": row["quantity"],
        "status": row["status"],
        "created_at": row["created_at"],
    }
    if row["limit_cents"] is not None:
        order["limit_price"] = dollars(row["limit_cents"])
    if row["fill_cents"] is not None:
        order |= {"price": dollars(row["fill_cents"]), "total": dollars(row["fill_cents"] * row["quantity"])}
    return order


class Book:
    """One connection behind one lock: calls are short, and run in worker threads of the service."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(SCHEMA)

    def market_context(self, claw_id: str) -> Answer:
        with self._transaction() as db:
            cash = self._cash(db, claw_id)
            held = db.execute(
                "SELECT symbol, quantity FROM positions WHERE claw_id = ? AND quantity > 0 ORDER BY symbol", (claw_id,)
            ).fetchall()
            positions = [
                {
                    "symbol": row["symbol"],
                    "quantity": row["quantity"],
                    "price": dollars(PRICES_CENTS[row["symbol"]]),
                    "market_value": dollars(PRICES_CENTS[row["symbol"]] * row["quantity"]),
                }
                for row in held
            ]
            return answer(
                200,
                {
                    "claw_id": claw_id,
                    "currency": "USD",
                    "balance": dollars(cash),
                    "buying_power": dollars(cash - self._reserved_cash(db, claw_id)),
                    "positions": positions,
                },
            )

    def quote(self, symbol: str) -> Answer:
        if symbol not in PRICES_CENTS:
            return _unknown_symbol(404, symbol)
        return answer(200, {"symbol": symbol, "price": dollars(PRICES_CENTS[symbol]), "currency": "USD"})

    def orders(self, claw_id: str, limit: int) -> Answer:
        """The agent's own orders, newest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT * FROM orders WHERE claw_id = ? ORDER BY id DESC LIMIT ?", (claw_id, limit)
            ).fetchall()
        return answer(200, {"orders": [_order_row(row) for row in rows]})

    def trade(self, claw_id: str, order: Order, idempotency_key: str | None) -> Answer:
        return self._once(claw_id, idempotency_key, f"trade {order}", lambda db: self._trade(db, claw_id, order))

    def cancel(self, claw_id: str, order_id: int, idempotency_key: str | None) -> Answer:
        return self._once(claw_id, idempotency_key, f"cancel {order_id}", lambda db: _cancel(db, claw_id, order_id))

    def _once(self, claw_id: str, key: str | None, request: str, act: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Does it and records the answer in the same transaction; under a known key, gives the recorded answer."""
        with self._transaction() as db:
            if key is None:
                return act(db)
            known = db.execute(
                "SELECT * FROM answers WHERE claw_id = ? AND idempotency_key = ?", (claw_id, key)
            ).fetchone()
            if known is None:
                given = act(db)
                db.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (claw_id, key, request, given.status_code, given.body)
                )
                return given
            if known["request"] != request:
                return refuse(422, "idempotency_key_reused", "this Idempotency-Key belongs to a different request")
            return Answer(known["status_code"], known["body"])

    def _trade(self, db: sqlite3.Connection, claw_id: str, order: Order) -> Answer:
        price = PRICES_CENTS.get(order.symbol)
        if price is None:
            return _unknown_symbol(422, order.symbol)
        fills = order.limit_cents is None or (
            price <= order.limit_cents if order.side == "buy" else price >= order.limit_cents
        )
        unit_cents = price if fills or order.limit_cents is None else order.limit_cents
        short = self._shortfall(db, claw_id, order, unit_cents)
        if short is not None:
            return short
        if fills:
            self._settle(db, claw_id, order, price)
        created = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = db.execute(
            "INSERT INTO orders (claw_id, symbol, side, quantity, limit_cents, fill_cents, status, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
            (
                *(claw_id, order.symbol, order.side, order.quantity, order.limit_cents),
                *(price if fills else None, "filled" if fills else "open", created),
            ),
        ).fetchone()
        return answer(201, _order_row(row))

    def _shortfall(self, db: sqlite3.Connection, claw_id: str, order: Order, unit_cents: int) -> Answer | None:
        """Why the agent cannot cover the order, counting what its open orders hold back."""
        if order.side == "buy":
            needed = unit_cents * order.quantity
            free = self._cash(db, claw_id) - self._reserved_cash(db, claw_id)
            if needed > free:
                text = f"the order costs {dollars(needed):,} USD and the buying power is {dollars(free):,} USD"
                return refuse(409, "insufficient_funds", text)
            return None
        held = db.execute(
            "SELECT quantity FROM positions WHERE claw_id = ? AND symbol = ?", (claw_id, order.symbol)
        ).fetchone()
        offered = db.execute(
            "SELECT COALESCE(SUM(quantity), 0) FROM orders"
            " WHERE claw_id = ? AND symbol = ? AND side = 'sell' AND status = 'open'",
            (claw_id, order.symbol),
        ).fetchone()[0]
        free = (held["quantity"] if held else 0) - offered
        if order.quantity > free:
            return refuse(409, "insufficient_position", f"{free} {order.symbol} can be sold, not {order.quantity}")
        return None

    def _settle(self, db: sqlite3.Connection, claw_id: str, order: Order, price: int) -> None:
        shares = order.quantity if order.side == "buy" else -order.quantity
        db.execute("INSERT OR IGNORE INTO accounts VALUES (?, ?)", (claw_id, STARTING_CENTS))
        db.execute("UPDATE accounts SET cash_cents = cash_cents - ? WHERE claw_id = ?", (shares * price, claw_id))
        db.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, 0)", (claw_id, order.symbol))
        db.execute(
            "UPDATE positions SET quantity = quantity + ? WHERE claw_id = ? AND symbol = ?",
            (shares, claw_id, order.symbol),
        )

    def _cash(self, db: sqlite3.Connection, claw_id: str) -> int:
        row = db.execute("SELECT cash_cents FROM accounts WHERE claw_id = ?", (claw_id,)).fetchone()
        return int(row["cash_cents"]) if row else STARTING_CENTS

    def _reserved_cash(self, db: sqlite3.Connection, claw_id: str) -> int:
        total = db.execute(
            "SELECT COALESCE(SUM(limit_cents * quantity), 0) FROM orders"
            " WHERE claw_id = ? AND side = 'buy' AND status = 'open'",
            (claw_id,),
        ).fetchone()[0]
        return int(total)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _cancel(db: sqlite3.Connection, claw_id: str, order_id: int) -> Answer:
    row = db.execute("SELECT * FROM orders WHERE id = ? AND claw_id = ?", (order_id, claw_id)).fetchone()
    if row is None:
        return refuse(404, "unknown_order", f"you have no order {order_id}")
    if row["status"] != "open":
        return refuse(409, "order_not_open", f"order {order_id} is {row['status']}, not open")
    row = db.execute("UPDATE orders SET status = 'cancelled' WHERE id = ? RETURNING *", (order_id,)).fetchone()
    return answer(200, _order_row(row))


def _unknown_symbol(status_code: int, symbol: str) -> Answer:
    return refuse(status_code, "unknown_symbol", f"no quote for {symbol!r}; known: {', '.join(PRICES_CENTS)}")
