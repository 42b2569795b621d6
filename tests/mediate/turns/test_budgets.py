"""Stored budgets: counted at admission, over restarts and between processes, and
reported in the dialect's form.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from claw_contract.metadata import Metadata
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import Cost
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns import budgets
from claw_mediate.turns.budgets import Admission, Budgets, FailMode, PriceList
from claw_state.sqlite.connection import Database
from claw_state.sqlite.spending import SqliteSpending
from tests.events import known
from tests.mediate.failing_reads import fail_reads
from tests.mediate.made import limits
from tests.waiting import DEADLINE

CHAT = Request("POST", "/v1/chat/completions", [], b"")
VIEW = RunnerRequest(b"{}", "m")
MESSAGES = Request("POST", "/v1/messages", [], b"")


def done[T](what: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as with a file that nobody else uses."""
    try:
        what.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("it waits")


class ClockedBudgets:
    """Budgets with a clock of their own."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.now = 1_000_000.0
        self.events: list[dict[str, Any]] = []
        self.log = EventLog(lambda line: self.events.append(known(line)))
        self.budgets = self.open()
        self.latest: Admission | None = None

    def open(self, fail_mode: FailMode = "open") -> Budgets:
        spending, prices = (
            SqliteSpending(Database(self.file), lambda: self.now),
            PriceList(Path(), self.log),
        )
        self.budgets = Budgets(spending, prices, self.log, fail_mode, lambda: self.now)
        return self.budgets

    def ask(self, agent: Agent, request: Request = CHAT) -> RunnerResponse | None:
        found = done(self.budgets.admit(agent, request, VIEW))
        self.latest = None if isinstance(found, RunnerResponse) else found
        return found if isinstance(found, RunnerResponse) else None

    def end(self, agent: Agent, cost: Cost) -> None:
        """End the latest request that was admitted."""
        self.budgets.settle(agent, "m", cost, self.latest)

    def admitted(self, agent: Agent, times: int) -> int:
        return sum(self.ask(agent) is None for _ in range(times))

    def interventions(self) -> list[str]:
        return [event["intervention"] for event in self.events if event["type"] == "intervention"]


def agent(name: str = "analyst", **budget: Any) -> Agent:
    made = {"window": "1h", **budget} if budget else None
    metadata = Metadata.model_validate(
        {"service": name, "pod": "p", "token": f"{name}:s", "budget": made}
    )
    return Agent(name, metadata, (), limits(), "d")


@pytest.fixture
def clocked() -> Any:
    made = ClockedBudgets()
    yield made
    done(made.budgets.close())


async def body(exchange: RunnerResponse) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(b"".join([chunk async for chunk in exchange.chunks]))
    return told


@pytest.mark.requirement("budget:max-requests")
async def test_a_request_too_many_is_429_in_openais_shape_with_the_time_to_wait(
    clocked: ClockedBudgets,
) -> None:
    poor = agent(max_requests=2, behavior="hard_stop")
    assert clocked.admitted(poor, 2) == 2
    clocked.now += 600
    refusal = clocked.ask(poor)
    assert refusal is not None
    told, headers = await body(refusal), dict(refusal.headers)
    assert refusal.status == 429
    assert 3000 <= int(headers["retry-after"]) <= 3060
    assert headers["x-should-retry"] == "false"
    assert (told["error"]["code"], told["error"]["type"]) == ("budget_exceeded", "rate_limit_error")
    assert told["error"]["message"].startswith(
        "the agent's budget is spent: 2 of 2 requests within 1h; try again in "
    )
    assert told["budget"] == {
        "behavior": "hard_stop",
        "window": "1h",
        "requests": 2,
        "reported_cost_usd": 0.0,
        "unknown_cost_requests": 0,
        "max_requests": 2,
    }
    assert clocked.interventions() == ["budget_exceeded"]
    clocked.now += int(headers["retry-after"])
    assert clocked.ask(poor) is None


@pytest.mark.requirement("budget:max-requests")
async def test_anthropics_shape_and_a_rate_limit(clocked: ClockedBudgets) -> None:
    slow = agent(max_requests=1, window="10s", behavior="rate_limit")
    assert clocked.ask(slow, MESSAGES) is None
    refusal = clocked.ask(slow, MESSAGES)
    assert refusal is not None
    told = await body(refusal)
    assert (refusal.status, told["type"], told["error"]["type"]) == (
        429,
        "error",
        "rate_limit_error",
    )
    assert 1 <= int(dict(refusal.headers)["retry-after"]) <= 11
    assert "x-should-retry" not in dict(refusal.headers)
    assert clocked.interventions() == ["rate_limited"]


@pytest.mark.requirement("budget:max-requests")
def test_each_agent_has_its_own_and_one_without_a_budget_has_none(clocked: ClockedBudgets) -> None:
    assert clocked.admitted(agent(max_requests=1), 3) == 1
    assert clocked.admitted(agent("other", max_requests=1), 3) == 1
    assert clocked.admitted(agent("free"), 50) == 50
    clocked.budgets.settle(agent("free"), "m", Cost(1e6))
    assert clocked.admitted(agent("free"), 1) == 1


@pytest.mark.requirement("budget:soft-alert")
def test_a_soft_alert_is_an_event_and_no_refusal(clocked: ClockedBudgets) -> None:
    soft = agent(max_requests=2, behavior="soft_alert")
    assert clocked.admitted(soft, 4) == 4
    assert clocked.interventions() == ["budget_soft_alert"] * 2
    assert clocked.events[-1]["requests"] == 3


@pytest.mark.requirement("budget:cost")
async def test_money_that_is_spent_closes_the_door_until_the_window_has_passed(
    clocked: ClockedBudgets,
) -> None:
    poor = agent(limit_usd=1.0)
    assert clocked.ask(poor) is None
    clocked.end(poor, Cost(0.6))
    assert clocked.ask(poor) is None
    clocked.end(poor, Cost(0.4))
    assert clocked.ask(poor) is not None
    clocked.now += 3660
    assert clocked.ask(poor) is None


@pytest.mark.requirement("budget:cost-unknown")
async def test_requests_of_unknown_cost_are_counted_and_told_once_a_window(
    clocked: ClockedBudgets,
) -> None:
    poor = agent(limit_usd=1.0, max_requests=3)
    for _ in range(3):
        assert clocked.ask(poor) is None
        clocked.end(poor, Cost(None))
    assert clocked.interventions() == ["budget_cost_unknown"]
    assert clocked.ask(poor) is not None
    assert clocked.events[-1]["unknown_cost_requests"] == 3
    clocked.now += 3600
    clocked.budgets.settle(poor, "m", Cost(None))
    assert clocked.interventions().count("budget_cost_unknown") == 2


@pytest.mark.requirement("budget:durable")
async def test_a_restart_forgets_nothing_and_the_file_is_private(tmp_path: Path) -> None:
    clocked = ClockedBudgets(str(tmp_path / "deep" / "state.db"))
    poor = agent(max_requests=3, limit_usd=2.0)
    for cost in (1.0, 0.5):
        assert clocked.ask(poor) is None
        clocked.end(poor, Cost(cost))
    done(clocked.budgets.close())
    clocked.open()
    assert clocked.ask(poor) is None
    clocked.end(poor, Cost(0.0))
    assert clocked.ask(poor) is not None
    assert clocked.events[-1]["reported_cost_usd"] == 1.5
    done(clocked.budgets.close())
    assert (tmp_path / "deep" / "state.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("budget:admission")
def test_requests_at_one_time_do_not_all_slip_under_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "claw_state.sqlite.connection._LOCK_SECONDS", DEADLINE
    )  # however slow the disk is
    file, poor = str(tmp_path / "state.db"), agent(max_requests=50)
    done(ClockedBudgets(file).budgets.close())

    async def one_proxy() -> int:
        clocked = ClockedBudgets(file)
        try:
            return sum([await clocked.budgets.admit(poor, CHAT, VIEW) is None for _ in range(40)])
        finally:
            await clocked.budgets.close()

    with ThreadPoolExecutor(4) as proxies:
        assert sum(proxies.map(lambda _: asyncio.run(one_proxy()), range(4))) == 50


@pytest.mark.requirement("budget:window")
def test_what_has_left_the_window_is_deleted(tmp_path: Path) -> None:
    clocked = ClockedBudgets(str(tmp_path / "state.db"))
    poor = agent(max_requests=1000, window="10m")
    for _ in range(100):
        clocked.ask(poor)
        clocked.now += 60
    with sqlite3.connect(clocked.file) as db:
        (rows,) = db.execute("SELECT COUNT(*) FROM spending").fetchone()
    db.close()
    assert rows <= 61
    done(clocked.budgets.close())


def drop(clocked: ClockedBudgets) -> None:
    with sqlite3.connect(clocked.file) as db:
        db.execute("DROP TABLE spending")
    db.close()


def lock(clocked: ClockedBudgets) -> sqlite3.Connection:
    db = sqlite3.connect(clocked.file, autocommit=True)
    db.execute("BEGIN EXCLUSIVE")
    return db


@pytest.mark.requirement("budget:fail-mode")
@pytest.mark.parametrize("spoil", [drop, lock])
@pytest.mark.usefixtures("brief_lock")
async def test_a_table_that_cannot_be_read_lets_pass_or_stops_as_it_was_said(
    tmp_path: Path, spoil: Callable[[ClockedBudgets], sqlite3.Connection | None]
) -> None:
    clocked = ClockedBudgets(str(tmp_path / "state.db"))
    poor = agent(max_requests=1, limit_usd=1.0)
    held = spoil(clocked)
    admission = await clocked.budgets.admit(poor, CHAT, VIEW)
    assert isinstance(admission, Admission)
    assert admission.reservation is None
    assert clocked.interventions() == ["budget_check_unavailable"]
    clocked.budgets.settle(poor, "m", Cost(1.0), admission)
    assert [event["error"] for event in clocked.events if event["type"] == "error"] == [
        "budget_not_written"
    ]
    await clocked.budgets.close()
    if held is not None:
        held.close()
        held = None
    clocked.open("closed")
    assert isinstance(await clocked.budgets.admit(poor, CHAT, VIEW), Admission)
    held = spoil(clocked)
    refusal = await clocked.budgets.admit(poor, CHAT, VIEW)
    assert isinstance(refusal, RunnerResponse)
    assert refusal.status == 503
    assert (await body(refusal))["error"]["code"] == "budget_unavailable"
    await clocked.budgets.close()
    if held is not None:
        held.close()


def test_a_file_that_cannot_be_opened_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ClockedBudgets(str(tmp_path / "file" / "s.db"))
    (tmp_path / "text.db").write_text("this is no database" * 100, encoding="utf-8")
    with pytest.raises(sqlite3.Error):
        ClockedBudgets(str(tmp_path / "text.db"))


@pytest.mark.requirement("agents:reload-after-error")
def test_the_last_prices_stay_in_force_through_an_error_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocked = ClockedBudgets()
    prices = PriceList(tmp_path, clocked.log)
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    file = tmp_path / "prices.json"
    found: list[float | None] = []
    for price in (2, 30, 400):
        clocked.events.clear()
        file.write_text(f'{{"openai/gpt": {{"input": {price}, "output": 4}}}}', encoding="utf-8")
        fail_reads(monkeypatch, budgets)
        during = {prices.cost("openai", "gpt-x", usage) for _ in range(3)}
        assert [event["error"] for event in clocked.events] == ["prices_not_read"]
        monkeypatch.undo()
        found += [*during, prices.cost("openai", "gpt-x", usage)]
    assert found == [None, 2.0, 2.0, 30.0, 30.0, 400.0]
    done(clocked.budgets.close())


@pytest.mark.requirement("budget:cost")
def test_the_price_list_is_read_again_when_it_changes_and_a_broken_one_is_none(
    tmp_path: Path,
) -> None:
    clocked = ClockedBudgets()
    prices = PriceList(tmp_path, clocked.log)
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    file = tmp_path / "prices.json"
    assert prices.cost("openai", "gpt-x", usage) is None
    file.write_text('{"openai/gpt": {"input": 2, "output": 4}}', encoding="utf-8")
    assert prices.cost("openai", "gpt-x", usage) == 2.0
    file.write_text('{"openai/gpt": {"input": -20000, "output": 4}}', encoding="utf-8")
    assert [prices.cost("openai", "gpt-x", usage) for _ in range(3)] == [None] * 3
    assert [(event["error"], event["reason"]) for event in clocked.events] == [
        ("prices_not_read", "openai/gpt.input: Input should be greater than or equal to 0")
    ]
    file.unlink()
    assert prices.cost("openai", "gpt-x", {**usage, "cost": 0.5}) == 0.5
    done(clocked.budgets.close())
