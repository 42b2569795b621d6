"""trading-api: the desk's service, and the only process that holds its book.

Every route but /health wants `Authorization: Bearer $TRADING_API_TOKEN`. Who trades is the header `X-Claw-ID`, which
the proxy sets from the authenticated agent: it is never an argument that a model could choose. Errors are
`{"error": {"code", "message"}}`.

    TRADING_API_TOKEN=… TRADING_DB=desk.db python trading_api.py --port 4000
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import uvicorn
from answers import Answer, refuse
from book import Book, Order
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

CLAW_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
LARGEST_BODY = 64 * 1024
LARGEST_LIMIT = 500


def _whole(value: object) -> object:
    """JSON has one kind of number, so 10.0 is the integer 10; a string or a bool is not."""
    return int(value) if isinstance(value, Decimal) and abs(value) < 10**9 and value == int(value) else value


def _price(value: object) -> object:
    return Decimal(value) if type(value) is int else value


class TradeRequest(BaseModel):
    """The body of POST /api/v1/trades. A misspelt field is refused: it could be the limit price."""

    model_config = ConfigDict(extra="forbid", strict=True)

    symbol: Annotated[str, Field(min_length=1, max_length=12)]
    side: Literal["buy", "sell"]
    quantity: Annotated[int, BeforeValidator(_whole), Field(ge=1, le=1_000_000)]
    limit_price: Annotated[Decimal, BeforeValidator(_price), Field(gt=0, le=1_000_000, decimal_places=2)] | None = None

    def order(self) -> Order:
        limit_cents = None if self.limit_price is None else int(self.limit_price * 100)
        return Order(self.symbol.upper(), self.side, self.quantity, limit_cents)


class RequestError(Exception):
    """A request that is answered before the book is asked."""

    def __init__(self, status_code: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = refuse(status_code, code, message)


def _respond(answer: Answer) -> Response:
    return Response(answer.body, status_code=answer.status_code, media_type="application/json")


def _claw_id(request: Request, named: str | None = None) -> str:
    """The agent that asks; one that is named in the path or query must be the same."""
    header = request.headers.get("x-claw-id")
    claw_id = named if header is None else header
    if claw_id is None:
        raise RequestError(400, "identity_missing", "the X-Claw-ID header is missing")
    if not CLAW_ID.fullmatch(claw_id) or ".." in claw_id:
        raise RequestError(422, "invalid_request", "the agent id is not well-formed")
    if named is not None and named != claw_id:
        raise RequestError(403, "not_yours", "an agent sees its own account only")
    return claw_id


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= 255:
        raise RequestError(422, "invalid_request", "Idempotency-Key must have 1 to 255 characters")
    return key


def _integer(text: str, name: str, at_most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not 1 <= int(text) <= at_most:
        raise RequestError(422, "invalid_request", f"{name} must be an integer from 1 to {at_most}")
    return int(text)


async def _trade_request(request: Request) -> TradeRequest:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise RequestError(413, "body_too_large", f"a body has at most {LARGEST_BODY} bytes")
    try:
        return TradeRequest.model_validate(json.loads(body, parse_float=Decimal))
    except ValidationError as error:
        places = [f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors(include_url=False)]
        raise RequestError(422, "invalid_request", "; ".join(places)) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(422, "invalid_request", "the body is not JSON") from error


def routes(book: Book) -> list[Route]:
    """The HTTP surface; the book's short calls run in worker threads so that no request waits for another's disk."""

    async def market_context(request: Request) -> Response:
        claw_id = _claw_id(request, request.path_params["claw_id"])
        return _respond(await run_in_threadpool(book.market_context, claw_id))

    async def quote(request: Request) -> Response:
        return _respond(book.quote(request.path_params["symbol"].upper()))

    async def trade(request: Request) -> Response:
        claw_id, key = _claw_id(request), _idempotency_key(request)
        order = (await _trade_request(request)).order()
        return _respond(await run_in_threadpool(book.trade, claw_id, order, key))

    async def orders(request: Request) -> Response:
        claw_id = _claw_id(request, request.query_params.get("claw_id"))
        limit = _integer(request.query_params.get("limit", "20"), "limit", LARGEST_LIMIT)
        return _respond(await run_in_threadpool(book.orders, claw_id, limit))

    async def cancel(request: Request) -> Response:
        claw_id, key = _claw_id(request), _idempotency_key(request)
        order_id = _integer(request.path_params["order_id"], "order_id", 2**53)
        return _respond(await run_in_threadpool(book.cancel, claw_id, order_id, key))

    async def health(_request: Request) -> Response:
        return JSONResponse({"ok": True})

    return [
        Route("/health", health),
        Route("/api/v1/market_context/{claw_id}", market_context),
        Route("/api/v1/quotes/{symbol}", quote),
        Route("/api/v1/trades", trade, methods=["POST"]),
        Route("/api/v1/orders", orders),
        Route("/api/v1/orders/{order_id}/cancel", cancel, methods=["POST"]),
    ]


class BearerGate:
    """401 for whoever does not hold the token; no route, not even an unknown one, is reached without it."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/health" or self._admits(scope):
            await self._app(scope, receive, send)
            return
        refusal = _respond(refuse(401, "unauthorized", "a valid bearer token is required"))
        refusal.headers["WWW-Authenticate"] = "Bearer"
        await refusal(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


async def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return _respond(error.answer)
    if isinstance(error, HTTPException):
        return _respond(refuse(error.status_code, error.detail.lower().replace(" ", "_"), error.detail))
    return _respond(refuse(500, "internal_error", "the service failed; see its log"))


def application(book: Book, token: str) -> ASGIApp:
    handlers: dict[Any, Callable[..., Any]] = dict.fromkeys((RequestError, HTTPException, Exception), _refused)
    return BearerGate(Starlette(routes=routes(book), exception_handlers=handlers), token)


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
