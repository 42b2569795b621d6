"""trading-api, the desk's service: HTTP with a bearer token in front of one SQLite file of orders.

Every route but /health needs `Authorization: Bearer $TRADING_API_TOKEN`.
The header `X-Claw-ID`, which the proxy sets from the authenticated agent, says who asks; a model
cannot choose it. Errors are `{"error": {"code", "message"}}`. Money is integer cents in the file
and a JSON number with two decimal places outside. Prices are a fixed table, so a limit order that
does not fill at once stays open until it is cancelled.

    TRADING_API_TOKEN=… TRADING_DB=desk.db uvicorn --factory trading_api:application --port 4000
"""

from __future__ import annotations

import hmac
import os
import sqlite3
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

STARTING_CENTS = 5_000_000
PRICES_CENTS = {
    "AAPL": 22_791,
    "GOOG": 17_853,
    "MSFT": 43_117,
    "NVDA": 13_525,
    "SPY": 59_420,
    "TSLA": 34_815,
}

# `cents` is the price of one share: that of the table if the order is filled, else its limit.
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, claw_id TEXT NOT NULL, symbol TEXT NOT NULL,
    side TEXT NOT NULL CHECK (side IN ('buy', 'sell')),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    cents INTEGER NOT NULL, status TEXT NOT NULL CHECK (status IN ('open', 'filled', 'cancelled')),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')),
    shares INTEGER AS (CASE side WHEN 'buy' THEN quantity ELSE -quantity END)
);
CREATE TABLE IF NOT EXISTS responses (
    claw_id TEXT NOT NULL, idempotency_key TEXT NOT NULL, request BLOB NOT NULL,
    status_code INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (claw_id, idempotency_key)
);
"""
SPENT = "SELECT TOTAL(cents * shares) FROM orders WHERE claw_id = ? AND status = 'filled'"
RESERVED = (
    "SELECT TOTAL(cents * shares) FROM orders WHERE claw_id = ? AND status = 'open' AND side "
    "= 'buy'"
)
POSITIONS = """SELECT symbol, SUM(shares) AS quantity FROM orders
    WHERE claw_id = ? AND status = 'filled'
    GROUP BY symbol HAVING SUM(shares) > 0 ORDER BY symbol"""
SELLABLE = """SELECT TOTAL(shares) FROM orders
    WHERE claw_id = ? AND symbol = ?
    AND (status = 'filled' OR (status = 'open' AND side = 'sell'))"""
INSERT = (
    "INSERT INTO orders (claw_id, symbol, side, quantity, cents, status) VALUES (?, ?, ?, ?, "
    "?, ?) RETURNING *"
)

POSITIVE_INTEGER = TypeAdapter(Annotated[int, Field(ge=1, le=2**53)])


class Order(BaseModel):
    """The body of POST /api/v1/trades; without a limit it is a market order and fills at once.

    A misspelt field is refused: it could be the limit price.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    symbol: Annotated[str, StringConstraints(to_upper=True)]
    side: Literal["buy", "sell"]
    quantity: Annotated[
        float, Field(ge=1, le=1_000_000, multiple_of=1)
    ]  # In JSON, 10.0 is the integer 10 too.
    limit_price: Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=2)] | None = None


class Desk:
    """The routes' handlers and the file of orders, from which each agent's cash and
    positions follow.

    They run in one thread, and wait for nothing inside a transaction: two trades never overlap.
    """

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path)
        self._db.row_factory = sqlite3.Row
        self._db.executescript(SCHEMA)

    async def market_context(self, request: Request) -> Response:
        claw_id = request.headers["x-claw-id"]
        if request.path_params["claw_id"] != claw_id:
            return refusal(403, "not_yours", "an agent sees its own account only")
        balance = STARTING_CENTS - self._total(SPENT, claw_id)
        buying_power = balance - self._total(RESERVED, claw_id)
        priced = [
            (row, PRICES_CENTS[row["symbol"]]) for row in self._db.execute(POSITIONS, (claw_id,))
        ]
        positions = [
            {**row, "price": _dollars(price), "market_value": _dollars(price * row["quantity"])}
            for row, price in priced
        ]
        money = {
            "currency": "USD",
            "balance": _dollars(balance),
            "buying_power": _dollars(buying_power),
        }
        return respond(200, {"claw_id": claw_id, **money, "positions": positions})

    async def quote(self, request: Request) -> Response:
        symbol = request.path_params["symbol"].upper()
        if symbol not in PRICES_CENTS:
            return _unknown_symbol(404, symbol)
        return respond(
            200, {"symbol": symbol, "price": _dollars(PRICES_CENTS[symbol]), "currency": "USD"}
        )

    async def orders(self, request: Request) -> Response:
        """Return the agent's own orders, newest first."""
        limit = POSITIVE_INTEGER.validate_python(request.query_params.get("limit", "20"))
        query = "SELECT * FROM orders WHERE claw_id = ? ORDER BY id DESC LIMIT ?"
        rows = self._db.execute(query, (request.headers["x-claw-id"], limit))
        return respond(200, {"orders": [_order_json(row) for row in rows]})

    async def trade(self, request: Request) -> Response:
        order = Order.model_validate_json(await request.body())
        return await self._once(request, lambda claw_id: self._trade(claw_id, order))

    async def cancel(self, request: Request) -> Response:
        order_id = POSITIVE_INTEGER.validate_python(request.path_params["order_id"])
        return await self._once(request, lambda claw_id: self._cancel(claw_id, order_id))

    async def _once(self, request: Request, act: Callable[[str], Response]) -> Response:
        """Act and store the response in one transaction; return the stored response
        if the key is known.
        """
        claw_id, key = request.headers["x-claw-id"], request.headers.get("idempotency-key")
        content = f"{request.url.path}\n".encode() + await request.body()
        with self._db as db:
            query = "SELECT * FROM responses WHERE claw_id = ? AND idempotency_key = ?"
            stored = db.execute(query, (claw_id, key)).fetchone()
            if stored is None:
                response = act(claw_id)
                if key is not None:
                    values = (claw_id, key, content, response.status_code, response.body)
                    db.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", values)
                return response
        if stored["request"] != content:
            return refusal(
                422, "idempotency_key_reused", "this Idempotency-Key belongs to a different request"
            )
        return Response(stored["body"], stored["status_code"], media_type="application/json")

    def _trade(self, claw_id: str, order: Order) -> Response:
        symbol, side, quantity = order.symbol, order.side, int(order.quantity)
        price = PRICES_CENTS.get(symbol)
        if price is None:
            return _unknown_symbol(422, symbol)
        limit = price if order.limit_price is None else int(order.limit_price * 100)
        fills = price <= limit if side == "buy" else price >= limit
        cents = price if fills else limit
        buying_power = STARTING_CENTS - self._total(SPENT, claw_id) - self._total(RESERVED, claw_id)
        if side == "buy" and cents * quantity > buying_power:
            text = (
                f"the order costs {_dollars(cents * quantity):,} USD and the buying power is "
                f"{_dollars(buying_power):,} USD"
            )
            return refusal(409, "insufficient_funds", text)
        sellable = self._total(SELLABLE, claw_id, symbol)
        if side == "sell" and quantity > sellable:
            return refusal(
                409, "insufficient_position", f"{sellable} {symbol} can be sold, not {quantity}"
            )
        values = (claw_id, symbol, side, quantity, cents, "filled" if fills else "open")
        return respond(201, _order_json(self._db.execute(INSERT, values).fetchone()))

    def _cancel(self, claw_id: str, order_id: int) -> Response:
        row = self._db.execute(
            "SELECT status FROM orders WHERE id = ? AND claw_id = ?", (order_id, claw_id)
        ).fetchone()
        if row is None:
            return refusal(404, "unknown_order", f"you have no order {order_id}")
        if row["status"] != "open":
            return refusal(409, "order_not_open", f"order {order_id} is {row['status']}, not open")
        update = "UPDATE orders SET status = 'cancelled' WHERE id = ? RETURNING *"
        return respond(200, _order_json(self._db.execute(update, (order_id,)).fetchone()))

    def _total(self, query: str, *values: str) -> int:
        return int(self._db.execute(query, values).fetchone()[0])


def respond(status_code: int, content: object) -> Response:
    body = msgspec.json.Encoder(decimal_format="number").encode(content)
    return Response(body, status_code, media_type="application/json")


def refusal(status_code: int, code: str, message: str) -> Response:
    return respond(status_code, {"error": {"code": code, "message": message}})


def _unknown_symbol(status_code: int, symbol: str) -> Response:
    return refusal(
        status_code, "unknown_symbol", f"no quote for {symbol!r}; known: {', '.join(PRICES_CENTS)}"
    )


def _order_json(row: sqlite3.Row) -> dict[str, Any]:
    members = ("symbol", "side", "quantity", "status", "created_at")
    order = {"order_id": row["id"]} | {member: row[member] for member in members}
    if row["status"] != "filled":
        return order | {"limit_price": _dollars(row["cents"])}
    return order | {
        "price": _dollars(row["cents"]),
        "total": _dollars(row["cents"] * row["quantity"]),
    }


def _dollars(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


async def refuse_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    places = [
        f"{'.'.join(map(str, each['loc'])) or 'request'}: {each['msg']}" for each in error.errors()
    ]
    return refusal(422, "invalid_request", "; ".join(places))


def application() -> Starlette:
    desk, expected = Desk(os.environ["TRADING_DB"]), f"Bearer {os.environ['TRADING_API_TOKEN']}"

    async def check_caller(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if not hmac.compare_digest(
            request.headers.get("authorization", "").encode(), expected.encode()
        ):
            return refusal(401, "unauthorized", "a valid bearer token is required")
        if "x-claw-id" not in request.headers:
            return refusal(400, "identity_missing", "the X-Claw-ID header is missing")
        return await call_next(request)

    routes = [
        Route("/market_context/{claw_id}", desk.market_context),
        Route("/quotes/{symbol}", desk.quote),
        Route("/trades", desk.trade, methods=["POST"]),
        Route("/orders", desk.orders),
        Route("/orders/{order_id}/cancel", desk.cancel, methods=["POST"]),
    ]
    api = Mount(
        "/api/v1", routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=check_caller)]
    )
    health = Route("/health", lambda _: respond(200, {"ok": True}))
    return Starlette(routes=[health, api], exception_handlers={ValidationError: refuse_invalid})
