"""The whole job on one screen: compile a pod, start it, ask its agents, and show what their runners saw and did not see.

    make demo        (or: python pods/trading-desk/demo.py)

With OPENAI_API_KEY set it asks the real provider (OPENAI_MODEL, default gpt-4.1-mini), else the SCRIPTED model beside this
file. The status is 0 only if every check passes. No process and no file is left behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import httpx2
from evidence import (
    Check,
    Evidence,
    Json,
    analyst_checks,
    audit_checks,
    executor_checks,
    hidden_calls,
    leak_checks,
)
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from stage import Stage, StageError, free_ports

DESK = Path(__file__).resolve().parent
PROJECT = DESK.parent.parent
BIN = Path(sys.executable).parent
COMMAND_SECONDS = 30.0
RUNNER_SECONDS = 300.0
PROMPTS = {
    "analyst": ["What is my balance?", "Buy 10 NVDA."],
    "executor": ["Buy 10 NVDA.", "Get a quote for MSFT and write a note of it, at once.", "Show my orders."],
}


class Screen:
    """Print headings, lines, tables and checks: in colour on a terminal, as plain text elsewhere."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=118)
        self.failed: list[str] = []

    def heading(self, text: str) -> None:
        self._console.print(Text(f"\n== {text}", style="bold cyan"))

    def line(self, text: str, style: str = "") -> None:
        self._console.print(Text(f"   {text}", style=style), soft_wrap=True)

    def checks(self, checks: Iterable[Check]) -> None:
        for holds, text in checks:
            self.failed += [] if holds else [text]
            self.line(f"{'ok' if holds else 'FAIL':4}  {text}", "green" if holds else "bold red")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
        table = Table(*columns, box=box.SQUARE, title=Text(title, style="bold"), title_justify="left", show_lines=True)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)


class Demo:
    """One run of the pod on this machine, with secrets and ports of its own."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage, self.screen, self.root = stage, screen, stage.root
        real_keys = {name: os.environ[name] for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") if os.environ.get(name)}
        is_scripted = "OPENAI_API_KEY" not in real_keys
        scripted_key = f"scripted-{secrets.token_hex(24)}"
        self.keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), scripted_key) if is_scripted else real_keys
        self.run = Evidence(stage.root, is_scripted, set(self.keys.values()), tool_token=secrets.token_hex(24))
        self.api, self.model, self.proxy, self.forward = (f"127.0.0.1:{port}" for port in free_ports(4))

    async def perform(self) -> None:
        model = os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
        text = "OPENAI_API_KEY is not set. A SCRIPTED model (pods/trading-desk/scripted_model.py) answers, no language model."
        self.screen.line(text if self.run.is_scripted else f"The real provider answers, with {model}.", "bold yellow")
        await self.compile()
        await self.start()
        self.screen.heading("The analyst may read but not trade")
        await self.ask("analyst", "openai", "scripted-model" if self.run.is_scripted else model)
        self.screen.checks(analyst_checks(self.run))
        self.screen.heading("The executor may also trade")
        if "ANTHROPIC_API_KEY" in self.keys:
            await self.ask("executor", "anthropic", "scripted-model" if self.run.is_scripted else None)
        else:
            await self.ask("executor", "openai", model)
        self.screen.checks(executor_checks(self.run))
        self.screen.heading("Audit: what the proxy ran, and what each agent may not call")
        self.audit()
        self.screen.checks(audit_checks(self.run))
        self.screen.heading("Search for leaked secrets")
        self.screen.checks(leak_checks(self.run))

    async def compile(self) -> None:
        self.screen.heading("Compile the pod file: one directory for each agent")
        self.screen.line("claw compile pods/trading-desk/claw-pod.yml")
        env = {
            "CLAW_MASTER_SECRET": secrets.token_hex(32),
            "TRADING_API_TOKEN": self.run.tool_token,
            "TRADING_API_URL": f"http://{self.api}",
        }
        command = [BIN / "claw", "compile", DESK / "claw-pod.yml", "-o", self.root / "runtime"]
        await self.stage.run("compile", command, env, COMMAND_SECONDS)
        for agent, tools in self.run.granted_tools().items():
            self.screen.line(f"{agent} may call: {', '.join(tools)}")

    async def start(self) -> None:
        self.screen.heading("Start the service, the model and the proxy")
        env = {"TRADING_API_TOKEN": self.run.tool_token, "TRADING_DB": str(self.root / "desk.db")}
        await self.serve("trading-api", [*_script("trading_api.py"), "--port", _port(self.api)], env, self.api)
        names = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")
        urls = {name: os.environ[name] for name in names if os.environ.get(name)}
        if self.run.is_scripted:
            command = [*_script("scripted_model.py"), "--port", _port(self.model)]
            command += ["--record", self.root / "model-requests.jsonl"]
            await self.serve("scripted model", command, {"SCRIPTED_MODEL_KEY": self.keys["OPENAI_API_KEY"]}, self.model)
            urls = dict.fromkeys(names, f"http://{self.model}/v1")
        env = {
            "LISTEN_ADDR": self.proxy,
            "CLAW_PROXY_ADDR": self.forward,
            "CLAW_CONTEXT_ROOT": str(self.root / "runtime" / "context"),
            "CLAW_SESSION_HISTORY_DIR": str(self.root / "history"),
            "CLAW_STATE": str(self.root / "state.db"),
            "CLAW_POD": "trading-desk",
        }
        command = [BIN / "mitmdump", "-s", PROJECT / "addons" / "cllama.py"]
        await self.stage.serve("proxy", command, env | urls | self.keys, f"http://{self.proxy}/ready")
        self.screen.line(f"mitmdump -s addons/cllama.py is ready on http://{self.proxy}")

    async def serve(self, name: str, command: Sequence[str | Path], env: dict[str, str], address: str) -> None:
        await self.stage.serve(name, command, env, f"http://{address}/health")
        self.screen.line(f"{name} is ready on http://{address}")

    async def ask(self, agent: str, sdk: str, model: str | None) -> None:
        """Run the agent's runner with its prompts; print each turn beside the calls that were hidden from it."""
        run = self.run
        run.tokens[agent] = run.agent_environment(agent)["OPENAI_API_KEY"]
        env = {"OPENAI_API_KEY": run.tokens[agent], "OPENAI_BASE_URL": f"http://{self.proxy}/v1"}
        if sdk == "anthropic":
            env = {"ANTHROPIC_API_KEY": run.tokens[agent], "ANTHROPIC_BASE_URL": f"http://{self.proxy}"}
        command = [*_script("runner.py"), "--sdk", sdk, "--notes", self.root / f"notes-{agent}.txt", *PROMPTS[agent]]
        command += ["--model", model] if model else []
        output = await self.stage.run(f"runner-{agent}", command, env, RUNNER_SECONDS)
        run.turns[agent] = [json.loads(line) for line in output.splitlines() if line.startswith('{"prompt"')]
        requests = sum(turn["requests"] for turn in run.turns[agent])
        async with asyncio.timeout(COMMAND_SECONDS):  # The proxy writes history after it has answered.
            while len(entries := run.history_lines(agent)) < requests:
                await asyncio.sleep(0.02)
        run.history[agent] = entries
        for turn in run.turns[agent]:
            own, entries = entries[: turn["requests"]], entries[turn["requests"] :]
            hidden = [_call_text(number, call) for number, call in hidden_calls(own)]
            hidden += [f"intervention: {name}" for entry in own for name in run.interventions(entry["turn_id"])]
            columns = ("What the runner saw", "What was hidden from it")
            row = (_turn_text(turn), "\n".join(hidden) or "nothing")
            self.screen.table(columns, [row], f"{agent} ({sdk} SDK): {turn['prompt']}")

    def audit(self) -> None:
        calls = [(agent, *call) for agent, entries in self.run.history.items() for call in hidden_calls(entries)]
        rows = [(agent, c["name"], str(number), c["status"], f"{c['latency_ms']} ms") for agent, number, c in calls]
        self.screen.table(("agent", "tool", "round", "status", "latency"), rows)
        withheld = self.run.withheld_tools()
        granted = self.run.granted_tools().items()
        rows = [(agent, "\n".join(tools), "\n".join(withheld[agent]) or "nothing") for agent, tools in granted]
        self.screen.table(("agent", "granted", "withheld"), rows)


def _script(name: str) -> list[str | Path]:
    return [sys.executable, DESK / name]


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _turn_text(turn: Json) -> str:
    lines = [f"{call['name']}({call['arguments']}) -> {call['result']}" for call in turn["native_calls"]]
    lines += [f'"{turn["text"]}"'] if turn["text"] else []
    return "\n".join([*lines, f"({turn['requests']} HTTP request(s), {turn['events']} stream events)"])


def _call_text(number: int, call: Json) -> str:
    arguments, result = json.dumps(call["arguments"]), json.dumps(call["result"])
    return f"round {number}: {call['name']} {arguments}\n  -> {result[:240]}{' …' if len(result) > 240 else ''}"


async def main() -> int:
    """Return 0 if every check passed, 1 if one failed, 128 + n if signal n stopped the demo."""
    screen = Screen()
    signals: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None

    def stop(sign: signal.Signals) -> None:
        signals.append(sign)
        if len(signals) == 1:
            task.cancel()

    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(sign, stop, sign)
    try:
        async with Stage() as stage:
            try:
                await Demo(stage, screen).perform()
            except (StageError, TimeoutError, OSError, KeyError, ValueError, httpx2.HTTPError) as error:
                screen.checks([(False, f"{type(error).__name__}: {error}")])
            if screen.failed:
                screen.line(stage.log_ends())
    except asyncio.CancelledError:
        if not signals:
            raise
        screen.line(f"Stopped by {signals[0].name}. Every process has ended and every file is removed.")
        return 128 + signals[0]
    screen.heading("The demo failed:" if screen.failed else "Every check passed")
    for text in screen.failed:
        screen.line(text, "bold red")
    return 1 if screen.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
