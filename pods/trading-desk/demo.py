"""The whole job in one screen: a pod is compiled, started and asked; beside each answer stands what was hidden for it.

    make demo        (or: python pods/trading-desk/demo.py)

With OPENAI_API_KEY set it asks the real provider (OPENAI_MODEL, default gpt-4.1-mini), else the SCRIPTED model beside this
file. It ends with status 0 only if everything that it expects came true, and leaves no process and no file behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
from typing import Any

import evidence
import httpx2
from performance import Performance
from show import Screen
from stage import Stage, StageError


async def perform(desk: Performance) -> None:
    """The acts, in order; each prints as it happens."""
    if desk.scripted:
        desk.screen.fact("no OPENAI_API_KEY: using the SCRIPTED model of pods/trading-desk", "bold yellow")
    else:
        desk.screen.fact(f"OPENAI_API_KEY is set: asking the real provider for {desk.model_name}", "bold")
    await desk.compile()
    await desk.start()
    await analyst(desk)
    await executor(desk)
    database(desk)
    audit(desk)
    await leaks(desk)


def ran(entries: list[dict[str, Any]]) -> list[str]:
    """The managed tools that ran and succeeded."""
    return [call["name"] for _, call in evidence.calls(entries) if call["status"] == "ok"]


async def analyst(desk: Performance) -> None:
    desk.screen.title("the analyst: may look, may not trade")
    turn, entries = await desk.ask("analyst", "What is my balance?")
    desk.screen.expect(
        "trading-api.get_market_context" in ran(entries), "get_market_context ran, hidden from the runner"
    )
    desk.screen.expect("50,000" in turn["text"], "the runner reads the balance that the service holds, 50,000.00")
    before = len(await desk.model_saw())
    _, entries = await desk.ask("analyst", "Buy 10 NVDA.")
    offered = {name for entry in entries for name in evidence.offered(entry)}
    if desk.scripted:
        offered = {name for request in (await desk.model_saw())[before:] for name in request["tools"]}
    desk.screen.fact(f"the model was offered: {', '.join(sorted(offered))}")
    denied = bool(offered) and not any("execute_trade" in name for name in offered)
    desk.screen.expect(denied, "the analyst's model was never offered execute_trade")
    desk.screen.expect(evidence.orders(desk.database) == [], "SQLite holds no order")


async def executor(desk: Performance) -> None:
    desk.screen.title("the executor: may trade")
    _, entries = await desk.ask("executor", "Buy 10 NVDA.")
    desk.screen.expect("trading-api.execute_trade" in ran(entries), "execute_trade ran, hidden from the runner")
    turn, entries = await desk.ask("executor", "Get a quote for MSFT and write a note of it, at once.")
    desk.screen.expect("trading-api.get_quote" in ran(entries), "the managed quote ran inside the proxy")
    written = desk.notes("executor")
    native = [call["name"] for call in turn["native_calls"]]
    desk.screen.expect(
        native == ["write_note"] and written.exists(), "write_note went to the runner, which ran it once"
    )
    desk.screen.expect(all(name != "write_note" for name in ran(entries)), "the proxy ran no tool of the runner's")
    if desk.scripted and written.exists():
        text = written.read_text(encoding="utf-8")
        desk.screen.expect("431.17" in text, "the note holds the price that the hidden call found")
    turn, entries = await desk.ask("executor", "Show my orders.")
    desk.screen.expect("trading-api.get_order_history" in ran(entries), "get_order_history ran, hidden from the runner")
    desk.screen.expect("10 NVDA" in turn["text"] or not desk.scripted, "the runner reads its one order")


def database(desk: Performance) -> None:
    desk.screen.title("the database")
    found = evidence.orders(desk.database)
    for claw_id, side, symbol, quantity, status in found:
        desk.screen.fact(f"order of {claw_id}: {side} {quantity} {symbol}, {status}")
    desk.screen.expect(found == [("executor", "buy", "NVDA", 10, "filled")], "SQLite shows exactly one trade")


def audit(desk: Performance) -> None:
    """Every managed call, from the history that the proxy wrote; and what each agent may not do."""
    desk.screen.title("the audit")
    rows = [
        [agent, call["name"], str(number), call["status"], f"{call['latency_ms']} ms"]
        for agent, history in desk.histories.items()
        for number, call in evidence.calls(history.entries)
    ]
    desk.screen.table(["agent", "tool", "round", "status", "latency"], rows)
    grants = evidence.manifest_tools(desk.runtime)
    withheld = evidence.withheld_tools(grants)
    desk.screen.table(
        ["agent", "granted", "withheld"],
        [[agent, "\n".join(tools), "\n".join(withheld[agent]) or "nothing"] for agent, tools in grants.items()],
    )
    used = {(agent, name) for agent, name, *_ in rows}
    allowed = {(agent, name) for agent, tools in grants.items() for name in tools}
    desk.screen.expect(bool(used) and used <= allowed, "every call was granted to the agent that made it")


async def leaks(desk: Performance) -> None:
    """No secret where it does not belong, by value: in what the model received, the runner printed, the proxy wrote."""
    desk.screen.title("the leak check")
    agents = [token for whole in desk.tokens.values() for token in (whole, whole.rpartition(":")[2])]
    if desk.scripted:
        expected = hashlib.sha256(desk.key.encode()).hexdigest()
        credentials = {request["authorization_sha256"] for request in await desk.model_saw()}
        desk.screen.expect(credentials == {expected}, "the model was called with the provider's key and nothing else")
        received = desk.record.read_text(encoding="utf-8")
        clean = not any(secret in received for secret in [*agents, desk.tool_token])
        desk.screen.expect(clean, "no agent token and no tool token in any byte that the model received")
    printed = "".join(runner.printed for runner in desk.runners.values())
    clean = not any(secret in printed for secret in [desk.key, desk.tool_token])
    desk.screen.expect(clean, "no provider key and no tool token in anything that the runners printed")
    history = (desk.stage.root / "history").rglob("*.jsonl*")
    written = desk.stage.log("proxy") + "".join(file.read_text(encoding="utf-8") for file in history)
    clean = not any(secret in written for secret in [*agents, desk.key, desk.tool_token])
    desk.screen.expect(clean, "no secret at all in the proxy's log and history")


async def main() -> int:
    """0: all came true. 1: something did not, and the lines say what. 128 + n: stopped by signal n."""
    screen = Screen()
    stopped: list[signal.Signals] = []
    task = asyncio.current_task()

    def stop(sign: signal.Signals) -> None:
        if not stopped and task is not None:
            task.cancel()
        stopped.append(sign)

    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(sign, stop, sign)
    try:
        async with Stage() as stage:
            try:
                await perform(Performance(stage, screen))
            except (StageError, OSError, KeyError, ValueError, httpx2.HTTPError) as error:
                screen.expect(False, f"{type(error).__name__}: {error}")
            if screen.failed:
                screen.fact(stage.tails())
    except asyncio.CancelledError:
        if not stopped:
            raise
        screen.fact(f"stopped by {stopped[0].name}; everything that was started is gone")
        return 128 + stopped[0]
    screen.title("the demo failed" if screen.failed else "everything came true")
    for text in screen.failed:
        screen.fact(f"failed: {text}", "bold red")
    return 1 if screen.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
