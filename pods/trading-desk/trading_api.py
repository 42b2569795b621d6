"""trading-api, the desk's service: HTTP with a bearer token in front of one SQLite file of orders.

Every route but /health needs `Authorization: Bearer $TRADING_API_TOKEN`.
The header `X-Claw-ID`, which the proxy sets from the authenticated agent, says who trades; a model cannot choose it.
Errors are `{"error": {"code", "message"}}`.
Money is integer cents in the file and a JSON number with two decimal places outside.
Prices are a fixed table, so a limit order that does not fill at once stays open until it is cancelled.

    TRADING_API_TOKEN=… TRADING_DB=desk.db python trading_api.py --port 4000
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CLAW_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
MAX_BODY_BYTES = 64 * 1024
MAX_ORDERS = 500
STARTING_CENTS = 5_000_000
PRICES_CENTS = {"AAPL": 22_791, "GOOG": 17_853, "MSFT": 43_117, "NVDA": 13_525, "SPY": 59_420, "TSLA": 34_815}

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, claw_id TEXT NOT NULL, symbol TEXT NOT NULL,
    side TEXT NOT NULL CHECK (side IN ('buy', 'sell')), quantity INTEGER NOT NULL CHECK (quantity > 0),
    limit_cents INTEGER, fill_cents INTEGER,
    status TEXT NOT NULL CHECK (status IN ('open', 'filled', 'cancelled')), created_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS responses (
    claw_id TEXT NOT NULL, idempotency_key TEXT NOT NULL, request TEXT NOT NULL,
    status_code INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (claw_id, idempotency_key)
);
"""
SPENT = """SELECT TOTAL(CASE side WHEN 'buy' THEN fill_cents ELSE -fill_cents END * quantity)
    FROM orders WHERE claw_id = ? AND status = 'filled'"""
RESERVED = "SELECT TOTAL(limit_cents * quantity) FROM orders WHERE claw_id = ? AND side = 'buy' AND status = 'open'"
POSITIONS = """SELECT symbol, SUM(CASE side WHEN 'buy' THEN quantity ELSE -quantity END) AS quantity
    FROM orders WHERE claw_id = ? AND status = 'filled' GROUP BY symbol HAVING quantity > 0 ORDER BY symbol"""
SELLABLE = """SELECT TOTAL(CASE WHEN side = 'sell' THEN -quantity WHEN status = 'filled' THEN quantity ELSE 0 END)
    FROM orders WHERE claw_id = ? AND symbol = ? AND status <> 'cancelled'"""
INSERT = """INSERT INTO orders (claw_id, symbol, side, quantity, limit_cents, fill_cents, status, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *"""

_encode = msgspec.json.Encoder(decimal_format="number").encode


class Order(BaseModel):
    """The body of POST /api/v1/trades; without a limit it is a market order and fills at once.

    A misspelt field is refused: it could be the limit price.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    symbol: Annotated[str, Field(min_length=1, max_length=12)]
    side: Literal["buy", "sell"]
    quantity: Annotated[Decimal, Field(ge=1, le=1_000_000, decimal_places=0)]
    limit_price: Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=2)] | None = None


class RequestError(Exception):
    """A request that is refused before the book is asked."""

    def __init__(self, status_code: int, code: str, message: str) -> None:
        super().__init__(message)
        self.response = refusal(status_code, code, message)


def respond(status_code: int, content: object) -> Response:
    return Response(_encode(content), status_code, media_type="application/json")


def refusal(status_code: int, code: str, message: str) -> Response:
    return respond(status_code, {"error": {"code": code, "message": message}})


class Book:
    """The orders, from which each agent's cash and positions follow; its methods run in worker threads.

    Every change is one transaction that also stores the response under the caller's idempotency key.
    """

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(SCHEMA)

    def market_context(self, claw_id: str) -> Response:
        with self._transaction() as db:
            balance, reserved = STARTING_CENTS - _total(db, SPENT, claw_id), _total(db, RESERVED, claw_id)
            rows = db.execute(POSITIONS, (claw_id,)).fetchall()
        money = {"currency": "USD", "balance": _dollars(balance), "buying_power": _dollars(balance - reserved)}
        priced = [(dict(row), PRICES_CENTS[row["symbol"]]) for row in rows]
        positions = [
            {**row, "price": _dollars(price), "market_value": _dollars(price * row["quantity"])} for row, price in priced
        ]
        return respond(200, {"claw_id": claw_id, **money, "positions": positions})

    def orders(self, claw_id: str, limit: int) -> Response:
        """Return the agent's own orders, newest first."""
        with self._transaction() as db:
            query = "SELECT * FROM orders WHERE claw_id = ? ORDER BY id DESC LIMIT ?"
            rows = db.execute(query, (claw_id, limit)).fetchall()
        return respond(200, {"orders": [_order_json(row) for row in rows]})

    def trade(self, claw_id: str, order: Order, key: str | None) -> Response:
        return self._once(claw_id, key, f"trade {order}", lambda db: _trade(db, claw_id, order))

    def cancel(self, claw_id: str, order_id: int, key: str | None) -> Response:
        return self._once(claw_id, key, f"cancel {order_id}", lambda db: _cancel(db, claw_id, order_id))

    def _once(self, claw_id: str, key: str | None, request: str, act: Callable[[sqlite3.Connection], Response]) -> Response:
        """Act and store the response in one transaction; return the stored response if the key is known."""
        with self._transaction() as db:
            query = "SELECT * FROM responses WHERE claw_id = ? AND idempotency_key = ?"
            stored = db.execute(query, (claw_id, key)).fetchone()
            if stored is None:
                response = act(db)
                if key is not None:
                    values = (claw_id, key, request, response.status_code, response.body)
                    db.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", values)
                return response
        if stored["request"] != request:
            return refusal(422, "idempotency_key_reused", "this Idempotency-Key belongs to a different request")
        return Response(stored["body"], stored["status_code"], media_type="application/json")

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


def _trade(db: sqlite3.Connection, claw_id: str, order: Order) -> Response:
    symbol, quantity = order.symbol.upper(), int(order.quantity)
    price = PRICES_CENTS.get(symbol)
    if price is None:
        return _unknown_symbol(422, symbol)
    limit = None if order.limit_price is None else int(order.limit_price * 100)
    fills = limit is None or (price <= limit if order.side == "buy" else price >= limit)
    unit = price if fills or limit is None else limit
    buying_power = STARTING_CENTS - _total(db, SPENT, claw_id) - _total(db, RESERVED, claw_id)
    sellable = _total(db, SELLABLE, claw_id, symbol)
    if order.side == "buy" and unit * quantity > buying_power:
        text = f"the order costs {_dollars(unit * quantity):,} USD and the buying power is {_dollars(buying_power):,} USD"
        return refusal(409, "insufficient_funds", text)
    if order.side == "sell" and quantity > sellable:
        return refusal(409, "insufficient_position", f"{sellable} {symbol} can be sold, not {quantity}")
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    outcome = (price if fills else None, "filled" if fills else "open", created)
    return respond(201, _order_json(db.execute(INSERT, (claw_id, symbol, order.side, quantity, limit, *outcome)).fetchone()))


def _cancel(db: sqlite3.Connection, claw_id: str, order_id: int) -> Response:
    row = db.execute("SELECT * FROM orders WHERE id = ? AND claw_id = ?", (order_id, claw_id)).fetchone()
    if row is None:
        return refusal(404, "unknown_order", f"you have no order {order_id}")
    if row["status"] != "open":
        return refusal(409, "order_not_open", f"order {order_id} is {row['status']}, not open")
    row = db.execute("UPDATE orders SET status = 'cancelled' WHERE id = ? RETURNING *", (order_id,)).fetchone()
    return respond(200, _order_json(row))


def _order_json(row: sqlite3.Row) -> dict[str, Any]:
    members = ("symbol", "side", "quantity", "status", "created_at")
    order = {"order_id": row["id"]} | {member: row[member] for member in members}
    if row["limit_cents"] is not None:
        order["limit_price"] = _dollars(row["limit_cents"])
    if row["fill_cents"] is not None:
        order |= {"price": _dollars(row["fill_cents"]), "total": _dollars(row["fill_cents"] * row["quantity"])}
    return order


def _total(db: sqlite3.Connection, query: str, *values: str) -> int:
    return int(db.execute(query, values).fetchone()[0])


def _dollars(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2).quantize(Decimal("0.01"))


def _unknown_symbol(status_code: int, symbol: str) -> Response:
    return refusal(status_code, "unknown_symbol", f"no quote for {symbol!r}; known: {', '.join(PRICES_CENTS)}")


def _claw_id(request: Request, argument: str | None = None) -> str:
    """Return the agent that asks; an agent id in the path or query must be the same."""
    claw_id = request.headers.get("x-claw-id", argument)
    if claw_id is None:
        raise RequestError(400, "identity_missing", "the X-Claw-ID header is missing")
    if not CLAW_ID.fullmatch(claw_id) or ".." in claw_id:
        raise RequestError(422, "invalid_request", "the agent id is not well-formed")
    if argument not in {None, claw_id}:
        raise RequestError(403, "not_yours", "an agent sees its own account only")
    return claw_id


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= 255:
        raise RequestError(422, "invalid_request", "Idempotency-Key must have 1 to 255 characters")
    return key


def _integer(text: str, name: str, maximum: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not 1 <= int(text) <= maximum:
        raise RequestError(422, "invalid_request", f"{name} must be an integer from 1 to {maximum}")
    return int(text)


async def _read_order(request: Request) -> Order:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(413, "body_too_large", f"a body has at most {MAX_BODY_BYTES} bytes")
    try:
        # Numbers are read as Decimal: 10.0 is the integer 10 in JSON, and a price keeps its exact digits.
        return Order.model_validate(json.loads(body, parse_int=Decimal, parse_float=Decimal))
    except ValidationError as error:
        places = [f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors(include_url=False)]
        raise RequestError(422, "invalid_request", "; ".join(places)) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(422, "invalid_request", "the body is not JSON") from error


def routes(book: Book) -> list[Route]:
    """Return the HTTP routes; Starlette runs those that are plain functions in worker threads."""

    def market_context(request: Request) -> Response:
        return book.market_context(_claw_id(request, request.path_params["claw_id"]))

    def quote(request: Request) -> Response:
        symbol = request.path_params["symbol"].upper()
        if symbol not in PRICES_CENTS:
            return _unknown_symbol(404, symbol)
        return respond(200, {"symbol": symbol, "price": _dollars(PRICES_CENTS[symbol]), "currency": "USD"})

    async def trade(request: Request) -> Response:
        claw_id, key, order = _claw_id(request), _idempotency_key(request), await _read_order(request)
        return await run_in_threadpool(book.trade, claw_id, order, key)

    def orders(request: Request) -> Response:
        claw_id = _claw_id(request, request.query_params.get("claw_id"))
        return book.orders(claw_id, _integer(request.query_params.get("limit", "20"), "limit", MAX_ORDERS))

    def cancel(request: Request) -> Response:
        claw_id, order_id = _claw_id(request), _integer(request.path_params["order_id"], "order_id", 2**53)
        return book.cancel(claw_id, order_id, _idempotency_key(request))

    return [
        Route("/health", lambda _: JSONResponse({"ok": True})),
        Route("/api/v1/market_context/{claw_id}", market_context),
        Route("/api/v1/quotes/{symbol}", quote),
        Route("/api/v1/trades", trade, methods=["POST"]),
        Route("/api/v1/orders", orders),
        Route("/api/v1/orders/{order_id}/cancel", cancel, methods=["POST"]),
    ]


async def _error_response(_request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return error.response
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail.lower().replace(" ", "_"), error.detail)
    return refusal(500, "internal_error", "the service failed; see its log")


def application(book: Book, token: str) -> Starlette:
    async def require_token(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        credential = ", ".join(request.headers.getlist("authorization")).encode()
        if request.url.path == "/health" or hmac.compare_digest(credential, f"Bearer {token}".encode()):
            return await call_next(request)
        response = refusal(401, "unauthorized", "a valid bearer token is required")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    handlers: dict[Any, Any] = dict.fromkeys((RequestError, HTTPException, Exception), _error_response)
    middleware = [Middleware(BaseHTTPMiddleware, dispatch=require_token)]
    return Starlette(routes=routes(book), middleware=middleware, exception_handlers=handlers)


def main() -> None:
    parser = argparse.ArgumentParser(description="The trading desk's service.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4000)
    options = parser.parse_args()
    token, path = os.environ.get("TRADING_API_TOKEN"), os.environ.get("TRADING_DB")
    if not token or not path:
        sys.exit("trading_api: TRADING_API_TOKEN and TRADING_DB must be set")
    uvicorn.run(application(Book(path), token), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
