"""The whole job on one screen: compile a pod, start it, ask its agents, and show what their runners saw and did not see.

    make demo        (or: python pods/trading-desk/demo.py)

With OPENAI_API_KEY set it asks the real provider (OPENAI_MODEL, default gpt-4.1-mini), else the SCRIPTED model beside this
file. The status is 0 only if every check passes. No process and no file is left behind.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import evidence
from evidence import Check, Evidence, Json, hidden_calls
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from stage import Command, Stage, StageError, free_ports

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
            self.line(f"ok    {text}" if holds else f"FAIL  {text}", "green" if holds else "bold red")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
        table = Table(*columns, box=box.SQUARE, title=Text(title, style="bold"), title_justify="left")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)


class Demo:
    """One run of the pod on this machine, with secrets and ports of its own."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage, self.screen, self.root = stage, screen, stage.root
        names = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
        self.keys = {name: os.environ[name] for name in names if os.environ.get(name)}
        is_scripted = "OPENAI_API_KEY" not in self.keys
        if is_scripted:
            self.keys = dict.fromkeys(names, f"scripted-{secrets.token_hex(24)}")
        self.run = Evidence(stage.root, is_scripted, set(self.keys.values()), tool_token=secrets.token_hex(24))
        self.model_name = "scripted-model" if is_scripted else os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
        self.api, self.model, self.proxy, self.forward = (f"127.0.0.1:{port}" for port in free_ports(4))

    def perform(self) -> None:
        screen, run = self.screen, self.run
        text = "OPENAI_API_KEY is not set, so a SCRIPTED model answers (pods/trading-desk/scripted_model.py)."
        screen.line(text if run.is_scripted else f"The real provider answers with {self.model_name}.", "bold yellow")
        screen.heading("Compile the pod file into one directory for each agent")
        self.compile()
        screen.heading("Start the service, the model and the proxy")
        self.start()
        screen.heading("The analyst may read but not trade")
        self.ask("analyst", "openai")
        screen.checks(evidence.analyst_checks(run))
        screen.heading("The executor may also trade")
        self.ask("executor", "anthropic" if "ANTHROPIC_API_KEY" in self.keys else "openai")
        screen.checks(evidence.executor_checks(run))
        screen.heading("Audit: the calls that the proxy made, and the tools that it withheld")
        self.audit()
        screen.checks(evidence.audit_checks(run))
        screen.heading("Search for leaked secrets")
        screen.checks(evidence.leak_checks(run))

    def compile(self) -> None:
        env = {"CLAW_MASTER_SECRET": secrets.token_hex(32), "TRADING_API_URL": f"http://{self.api}"}
        env["TRADING_API_TOKEN"] = self.run.tool_token
        command: Command = [BIN / "claw", "compile", DESK / "claw-pod.yml", "-o", self.root / "runtime"]
        self.screen.line("claw compile pods/trading-desk/claw-pod.yml")
        self.stage.run("compile", command, env, COMMAND_SECONDS)
        for agent, tools in self.run.granted_tools().items():
            self.screen.line(f"{agent} may call: {', '.join(tools)}")

    def start(self) -> None:
        env = {"TRADING_API_TOKEN": self.run.tool_token, "TRADING_DB": str(self.root / "desk.db")}
        self.serve("trading_api", self.api, env)
        names = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")
        urls = {name: os.environ[name] for name in names if os.environ.get(name)}
        if self.run.is_scripted:
            env = {"SCRIPTED_MODEL_KEY": self.keys["OPENAI_API_KEY"]}
            env["SCRIPTED_MODEL_RECORD"] = str(self.root / "model-requests.jsonl")
            self.serve("scripted_model", self.model, env)
            urls = dict.fromkeys(names, f"http://{self.model}/v1")
        env = {
            "LISTEN_ADDR": self.proxy,
            "CLAW_PROXY_ADDR": self.forward,
            "CLAW_CONTEXT_ROOT": str(self.root / "runtime" / "context"),
            "CLAW_SESSION_HISTORY_DIR": str(self.root / "history"),
            "CLAW_STATE": str(self.root / "state.db"),
            "CLAW_POD": "trading-desk",
        }
        command: Command = [BIN / "mitmdump", "-s", PROJECT / "addons" / "cllama.py"]
        self.stage.serve("proxy", command, env | urls | self.keys, f"http://{self.proxy}/ready")
        self.screen.line(f"mitmdump -s addons/cllama.py is ready on http://{self.proxy}")

    def serve(self, name: str, address: str, env: dict[str, str]) -> None:
        command: Command = [BIN / "uvicorn", "--factory", f"{name}:application", "--app-dir", DESK, "--log-level", "warning"]
        command = [*command, "--port", address.rpartition(":")[2]]
        self.stage.serve(name, command, env, f"http://{address}/health")
        self.screen.line(f"{name}.py is ready on http://{address}")

    def ask(self, agent: str, sdk: str) -> None:
        """Run the agent's runner with its prompts; print each turn beside the calls that were hidden from it."""
        run = self.run
        run.tokens[agent] = run.agent_environment(agent)["OPENAI_API_KEY"]
        env = {"OPENAI_API_KEY": run.tokens[agent], "OPENAI_BASE_URL": f"http://{self.proxy}/v1"}
        if sdk == "anthropic":
            env = {"ANTHROPIC_API_KEY": run.tokens[agent], "ANTHROPIC_BASE_URL": f"http://{self.proxy}"}
        command: list[str | Path] = [
            sys.executable,
            DESK / "runner.py",
            "--sdk",
            sdk,
            "--notes",
            self.root / f"notes-{agent}.txt",
        ]
        command += ["--model", self.model_name] if run.is_scripted or sdk == "openai" else []
        output = self.stage.run(f"runner-{agent}", [*command, *PROMPTS[agent]], env, RUNNER_SECONDS)
        turns = [json.loads(line) for line in output.splitlines() if line.startswith('{"prompt"')]
        requests = sum(turn["requests"] for turn in turns)
        text = f"history has {requests} lines"  # The proxy writes them after it has answered.
        self.stage.wait_until(lambda: len(run.read_history(agent)) >= requests, COMMAND_SECONDS, text)
        run.turns[agent], run.history[agent] = turns, run.read_history(agent)
        entries = iter(run.history[agent])
        for turn in turns:
            hidden = run.hidden_lines([next(entries) for _ in range(turn["requests"])])
            row = ("\n".join(_turn_lines(turn)), "\n".join(hidden) or "nothing")
            title = f"{agent} ({sdk} SDK): {turn['prompt']}"
            self.screen.table(("What the runner saw", "What was hidden from it"), [row], title)

    def audit(self) -> None:
        calls = [(agent, *call) for agent, entries in self.run.history.items() for call in hidden_calls(entries)]
        rows = [(agent, c["name"], str(number), c["status"], f"{c['latency_ms']} ms") for agent, number, c in calls]
        self.screen.table(("agent", "tool", "round", "status", "latency"), rows)
        for agent, tools in self.run.withheld_tools().items():
            self.screen.line(f"{agent} may not call: {', '.join(tools)}" if tools else f"{agent} may call every tool")
        for claw_id, side, symbol, quantity, status in self.run.orders():
            self.screen.line(f"order in the database: {claw_id}, {side} {quantity} {symbol}, {status}")


def _turn_lines(turn: Json) -> list[str]:
    lines = [f"{call['name']}({call['arguments']}) -> {call['result']}" for call in turn["native_calls"]]
    lines += [f'"{turn["text"]}"'] if turn["text"] else []
    return [*lines, f"(HTTP requests: {turn['requests']}, stream events: {turn['events']})"]


def main() -> int:
    """Return 0 if every check passed, 1 if one failed, 128 + n if signal n stopped the demo."""
    screen = Screen()
    with Stage() as stage:
        try:
            Demo(stage, screen).perform()
        except (StageError, OSError, LookupError, ValueError) as error:
            if stage.stopped_by is None:
                screen.checks([(False, f"{type(error).__name__}: {error}")])
        if screen.failed:
            screen.line(evidence.log_ends(stage.root))
    if stage.stopped_by is not None:
        screen.line(f"Stopped by {stage.stopped_by.name}. Every process has ended, and every file is removed.")
        return 128 + stage.stopped_by
    screen.heading("The demo failed:" if screen.failed else "Every check passed")
    for text in screen.failed:
        screen.line(text, "bold red")
    return 1 if screen.failed else 0


if __name__ == "__main__":
    sys.exit(main())
