"""How the SCRIPTED model puts a tool's result into words: only with numbers that the result holds."""

from __future__ import annotations

import json
from typing import Any

type Json = dict[str, Any]


def tell(tool: str, result: object) -> str:
    """One sentence for one result. Results of managed tools carry `ok`; a runner's own tool may answer anything."""
    if not isinstance(result, dict) or "ok" not in result:
        return f"{_plain(tool).capitalize()}: {result if isinstance(result, str) else json.dumps(result)}."
    if not result["ok"]:
        error = result.get("error", {})
        return f"{_plain(tool).capitalize()} failed: {_reason(error)} ({error.get('code', 'error')})."
    data = result.get("data")
    return _told(data) or f"{_plain(tool).capitalize()} answered: {json.dumps(data)}."


def _told(data: object) -> str | None:
    match data:
        case {"balance": balance, "buying_power": power, "positions": [*positions]}:
            held = ", ".join(f"{p['quantity']} {p['symbol']}" for p in positions) or "none"
            return f"Your balance is {_money(balance)}, your buying power {_money(power)}, your positions: {held}."
        case {"order_id": order, "side": side, "quantity": quantity, "symbol": symbol, "status": status, **rest}:
            priced = f" at {_money(rest['price'])}, {_money(rest['total'])} in all" if "total" in rest else ""
            return f"Order {order} is {status}: {side} {quantity} {symbol}{priced}."
        case {"symbol": symbol, "price": price}:
            return f"{symbol} is quoted at {_money(price)}."
        case {"orders": [*orders]}:
            listed = "; ".join(
                f"{o['order_id']}: {o['side']} {o['quantity']} {o['symbol']}, {o['status']}" for o in orders
            )
            return f"Your orders: {listed or 'none'}."
    return None


def _reason(error: Json) -> str:
    """A service's own message sits in the details of an `http_…` error; it says more than the status."""
    details = error.get("details")
    match details:
        case {"error": {"message": message}} | {"body": {"error": {"message": message}}}:
            return str(message)
    return str(error.get("message", "no reason given"))


def _money(amount: object) -> str:
    return f"${amount:,.2f}" if isinstance(amount, int | float) else str(amount)


def _plain(tool: str) -> str:
    return tool.rpartition("__")[2].replace("_", " ")
