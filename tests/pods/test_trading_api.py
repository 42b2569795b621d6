"""The trading service as a real process, tested over HTTP."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.pods.processes import DESK, serving

TOKEN = "the-tool-token"


class TradingClients:
    """The clients of one test, and a view of the service's file.

    `me` and `other` are agents of this test only.
    """

    def __init__(self, url: str, database: Path, name: str) -> None:
        self.database, self.me, self.other = database, f"{name}-me", f"{name}-other"
        self.http = httpx2.Client(
            base_url=f"{url}/api/v1", headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False
        )

    def trade(self, agent: str, key: str | None = None, **order: object) -> httpx2.Response:
        headers = {"x-claw-id": agent} | ({"idempotency-key": key} if key else {})
        return self.http.post("/trades", json=order, headers=headers)

    def context(self) -> httpx2.Response:
        return self.http.get(f"/market_context/{self.me}", headers={"x-claw-id": self.me})

    def orders(self) -> list[tuple[object, ...]]:
        query = "SELECT side, symbol, quantity, status FROM orders WHERE claw_id = ? ORDER BY id"
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute(query, (self.me,)).fetchall()


def environment(database: Path) -> dict[str, str]:
    return {"TRADING_API_TOKEN": TOKEN, "TRADING_DB": str(database)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    database = tmp_path_factory.mktemp("desk") / "desk.db"
    with serving("trading_api", environment(database)) as (_, url):
        yield url, database


@pytest.fixture
def clients(service: tuple[str, Path], tmp_path: Path) -> Iterator[TradingClients]:
    client = TradingClients(*service, tmp_path.name.lower().replace("_", "-")[:50].strip("-"))
    with client.http:
        yield client


@pytest.mark.requirement("pods:service-bearer")
@pytest.mark.parametrize(
    "credential", [None, "Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"]
)
@pytest.mark.parametrize("path", ["/quotes/NVDA", "/orders", "/no-such-route"])
def test_no_route_is_reached_without_the_token(
    clients: TradingClients, credential: str | None, path: str
) -> None:
    headers = {"x-claw-id": clients.me} | ({"authorization": credential} if credential else {})
    refused = httpx2.get(f"{clients.http.base_url}{path}", headers=headers, trust_env=False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")


@pytest.mark.requirement("pods:service-money")
def test_money_is_exact_and_has_two_places(clients: TradingClients) -> None:
    body = clients.context().text
    assert '"balance":50000.00' in body
    assert clients.trade(clients.me, symbol="nvda", side="buy", quantity=10).status_code == 201
    body = clients.context().text
    assert '"balance":48647.50,"buying_power":48647.50' in body
    assert '{"symbol":"NVDA","quantity":10,"price":135.25,"market_value":1352.50}' in body


@pytest.mark.requirement("pods:service-identity")
def test_an_agent_sees_and_moves_its_own_account_only(clients: TradingClients) -> None:
    assert (
        clients.http.get(
            f"/market_context/{clients.me}", headers={"x-claw-id": clients.other}
        ).status_code
        == 403
    )
    order = clients.trade(clients.me, symbol="NVDA", side="buy", quantity=1, limit_price=100).json()
    assert clients.http.get("/orders", headers={"x-claw-id": clients.other}).json() == {
        "orders": []
    }
    cancel = clients.http.post(
        f"/orders/{order['order_id']}/cancel", headers={"x-claw-id": clients.other}
    )
    assert (cancel.status_code, cancel.json()["error"]["code"]) == (404, "unknown_order")
    assert (
        clients.http.post(
            "/trades", json={"symbol": "NVDA", "side": "buy", "quantity": 1}
        ).status_code
        == 400
    )


@pytest.mark.requirement("pods:service-idempotency")
def test_the_same_key_gives_the_same_answer_and_one_order(clients: TradingClients) -> None:
    first = clients.trade(clients.me, "key", symbol="NVDA", side="buy", quantity=10)
    again = clients.trade(clients.me, "key", symbol="NVDA", side="buy", quantity=10)
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    assert clients.orders() == [("buy", "NVDA", 10, "filled")]
    assert (
        clients.trade(clients.me, "key", symbol="NVDA", side="buy", quantity=11).status_code == 422
    )
    assert (
        clients.trade(clients.other, "key", symbol="NVDA", side="buy", quantity=10).status_code
        == 201
    ), "a key is an agent's own"


@pytest.mark.requirement("pods:service-idempotency")
def test_the_same_key_sixteen_times_at_once_is_one_order(clients: TradingClients) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(
                lambda _: clients.trade(clients.me, "key", symbol="SPY", side="buy", quantity=2),
                range(16),
            )
        )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert clients.orders() == [("buy", "SPY", 2, "filled")]


@pytest.mark.requirement("pods:service-idempotency")
def test_a_kill_loses_neither_the_order_nor_its_key(tmp_path: Path) -> None:
    database, answers = tmp_path / "desk.db", []
    for _ in range(2):
        with serving("trading_api", environment(database)) as (process, url):
            clients = TradingClients(url, database, "killed")
            with clients.http:
                answers.append(
                    clients.trade(clients.me, "key", symbol="NVDA", side="buy", quantity=10)
                )
            process.kill()
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
    assert clients.orders() == [("buy", "NVDA", 10, "filled")]


@pytest.mark.requirement("pods:service-concurrency")
def test_two_trades_at_once_cannot_spend_the_same_money(clients: TradingClients) -> None:
    def half_and_more(_: int) -> int:
        return clients.trade(clients.me, symbol="SPY", side="buy", quantity=50).status_code

    with ThreadPoolExecutor(2) as pool:
        statuses = sorted(pool.map(half_and_more, range(2)))
    assert statuses == [201, 409]
    assert clients.context().json()["balance"] == 20_290.00


@pytest.mark.requirement("pods:service-refusals")
@pytest.mark.parametrize(
    ("order", "status", "code"),
    [
        ({"symbol": "ZZZ", "side": "buy", "quantity": 1}, 422, "unknown_symbol"),
        ({"symbol": "NVDA", "side": "buy", "quantity": 1000}, 409, "insufficient_funds"),
        ({"symbol": "NVDA", "side": "sell", "quantity": 1}, 409, "insufficient_position"),
        ({"symbol": "NVDA", "side": "hold", "quantity": 1}, 422, "invalid_request"),
        ({"symbol": "NVDA", "side": "buy", "quantity": 0}, 422, "invalid_request"),
        ({"symbol": "NVDA", "side": "buy", "quantity": 1.5}, 422, "invalid_request"),
        ({"symbol": "NVDA", "side": "buy", "quantity": True}, 422, "invalid_request"),
        ({"symbol": "NVDA", "side": "buy", "quantity": "1"}, 422, "invalid_request"),
        (
            {"symbol": "NVDA", "side": "buy", "quantity": 1, "limit_prize": 3},
            422,
            "invalid_request",
        ),
        (
            {"symbol": "NVDA", "side": "buy", "quantity": 1, "limit_price": 0.001},
            422,
            "invalid_request",
        ),
        ({}, 422, "invalid_request"),
    ],
)
def test_a_refused_order_says_why_and_changes_nothing(
    clients: TradingClients, order: dict[str, object], status: int, code: str
) -> None:
    refused = clients.trade(clients.me, **order)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert clients.orders() == []
    assert clients.context().json()["balance"] == 50_000


@pytest.mark.requirement("pods:service-refusals")
@pytest.mark.parametrize(
    "body", [b"", b"[1", b"\xff", b"[]", b'{"quantity": 1e999999}', b"[" * 60_000, b"9" * 70_000]
)
def test_garbage_is_a_structured_error(clients: TradingClients, body: bytes) -> None:
    refused = clients.http.post("/trades", content=body, headers={"x-claw-id": clients.me})
    assert refused.status_code in {413, 422}
    assert refused.json()["error"]["message"]


@pytest.mark.requirement("pods:service-refusals")
def test_an_unknown_symbol_has_no_quote(clients: TradingClients) -> None:
    clients.http.headers["x-claw-id"] = clients.me
    missing = clients.http.get("/quotes/ZZZ")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_symbol")
    assert (
        clients.http.get("/quotes/nvda").text == '{"symbol":"NVDA","price":135.25,"currency":"USD"}'
    )


@pytest.mark.requirement("pods:service-open-orders")
def test_an_open_order_holds_money_back_until_it_is_cancelled(clients: TradingClients) -> None:
    order = clients.trade(
        clients.me, symbol="SPY", side="buy", quantity=80, limit_price=500.0
    ).json()
    assert order["status"] == "open"
    context = clients.context().json()
    assert (context["balance"], context["buying_power"]) == (50_000, 10_000)
    assert clients.trade(clients.me, symbol="NVDA", side="buy", quantity=100).status_code == 409
    path, headers = f"/orders/{order['order_id']}/cancel", {"x-claw-id": clients.me}
    assert clients.http.post(path, headers=headers).json()["status"] == "cancelled"
    again = clients.http.post(path, headers=headers)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "order_not_open")
    assert clients.context().json()["buying_power"] == 50_000


@pytest.mark.requirement("pods:service-descriptor")
def test_every_tool_of_the_descriptor_is_served_as_it_says(clients: TradingClients) -> None:
    descriptor = json.loads(
        (DESK / "descriptors" / "trading-api.claw-describe.json").read_text(encoding="utf-8")
    )
    assert clients.trade(clients.me, symbol="NVDA", side="buy", quantity=1).status_code == 201
    filled = clients.http.get("/orders", headers={"x-claw-id": clients.me}).json()["orders"][0][
        "order_id"
    ]
    known = {
        "claw_id": clients.me,
        "symbol": "NVDA",
        "side": "sell",
        "quantity": 1,
        "limit": 5,
        "order_id": filled,
    }
    statuses = {}
    for tool in descriptor["tools"]:
        method, path = tool["http"]["method"], tool["http"]["path"]
        values = {
            name: known[name]
            for name in tool["inputSchema"]["properties"]
            if f"{{{name}}}" not in path
        }
        sent = {"params": values} if method == "GET" else {"json": values}
        url = httpx2.URL(clients.http.base_url).join(path.format(**known))
        statuses[tool["name"]] = clients.http.request(
            method, url, headers={"x-claw-id": clients.me}, **sent
        ).status_code
    assert statuses == {
        "get_market_context": 200,
        "get_quote": 200,
        "execute_trade": 201,
        "get_order_history": 200,
        "cancel_order": 409,
    }
