"""The whole job on one screen: compile a pod, start it, ask its agents, and show what their runners
saw and did not see.

    make demo        (or: python pods/trading-desk/demo.py)

With OPENAI_API_KEY set it asks the real provider (OPENAI_MODEL, default gpt-4.1-mini), else the
SCRIPTED model beside this file. The status is 0 only if every check passes. No process and no file
is left behind.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import evidence
import yaml
from evidence import Check, Evidence, Json, hidden_calls
from rich import box
from rich.console import Console
from rich.table import Table
from stage import Command, Stage, StageError, free_ports

DESK = Path(__file__).resolve().parent
PROJECT = DESK.parent.parent
BIN = Path(sys.executable).parent
PROVIDER = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
PROMPTS = {
    "analyst": [
        "What is my balance?",
        "Buy 10 NVDA.",
        "Add to the journal: NVDA looks cheap below $140.",
    ],
    "executor": [
        "Read the journal about NVDA, then buy 10 NVDA.",
        "Quote MSFT and write a note, at once.",
        "Show my orders.",
    ],
}
OVER_RESPONSES = ["Quote TSLA and write a note, at once.", "Show my orders."]
LIVE = "Quote AAPL, and say what you do."


class Screen:
    """Print headings, lines, tables and checks: in colour on a terminal, as plain
    text elsewhere.
    """

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else 118
        self._console = Console(width=width, highlight=False, markup=False, emoji=False)
        self.failed: list[str] = []

    def heading(self, text: str) -> None:
        self._console.print(f"\n== {text}", style="bold cyan")

    def line(self, text: str, style: str = "") -> None:
        self._console.print(f"   {text}", style=style, soft_wrap=True)

    def checks(self, checks: Iterable[Check]) -> None:
        for holds, text in checks:
            self.failed += [] if holds else [text]
            self.line(
                f"ok    {text}" if holds else f"FAIL  {text}", "green" if holds else "bold red"
            )

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
        table = Table(
            *columns, box=box.SQUARE, title=title, title_style="bold", title_justify="left"
        )
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


class Demo:
    """One run of the pod on this machine, with secrets and ports of its own."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage, self.screen, self.root = stage, screen, stage.root
        self.api, self.journal, self.model, self.proxy, self.forward = (
            f"127.0.0.1:{port}" for port in free_ports(5)
        )
        self.provider = {name: os.environ[name] for name in PROVIDER if os.environ.get(name)}
        is_scripted = "OPENAI_API_KEY" not in self.provider
        if is_scripted:
            key, url = f"scripted-{secrets.token_hex(24)}", f"http://{self.model}/v1"
            self.provider = {name: key if name.endswith("KEY") else url for name in PROVIDER}
        keys = {value for name, value in self.provider.items() if name.endswith("KEY")}
        self.run = Evidence(stage.root, is_scripted, keys, tool_token=secrets.token_hex(24))
        self.model_name = (
            "scripted-model" if is_scripted else os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
        )

    def perform(self) -> None:
        screen, run = self.screen, self.run
        text = (
            "OPENAI_API_KEY is not set, so a SCRIPTED model answers "
            "(pods/trading-desk/scripted_model.py)."
        )
        screen.line(
            text if run.is_scripted else f"The real provider answers with {self.model_name}.",
            "bold yellow",
        )
        screen.heading("Compile the pod file into one directory for each agent")
        self.compile()
        screen.heading("Start the services, the model and the proxy")
        self.start()
        screen.heading("The analyst may read and keep the journal, but not trade")
        self.ask("analyst", "openai", PROMPTS["analyst"])
        screen.checks(evidence.analyst_checks(run))
        screen.heading("The executor may also trade")
        self.ask(
            "executor",
            "anthropic" if "ANTHROPIC_API_KEY" in self.provider else "openai",
            PROMPTS["executor"],
        )
        screen.checks(evidence.executor_checks(run))
        screen.heading("The executor, by a runner on OpenAI Responses")
        self.ask("executor", "responses", [*OVER_RESPONSES, LIVE])
        screen.checks(evidence.responses_checks(run))
        screen.heading("The last turn again, as it came: the executor's policy says stream: live")
        self.show_live()
        screen.checks(evidence.live_checks(run))
        screen.heading("Audit: the calls that the proxy made, and the tools that it withheld")
        self.audit()
        screen.checks(evidence.audit_checks(run))
        screen.heading("Search for leaked secrets")
        screen.checks(evidence.leak_checks(run))

    def compile(self) -> None:
        urls = {"TRADING_API_URL": f"http://{self.api}", "JOURNAL_URL": f"http://{self.journal}"}
        env = urls | {"CLAW_MASTER_SECRET": secrets.token_hex(32)}
        command: Command = [
            BIN / "claw",
            "compile",
            DESK / "claw-pod.yml",
            "-o",
            self.root / "runtime",
        ]
        self.screen.line("claw compile pods/trading-desk/claw-pod.yml")
        self.stage.run("compile", command, env | {"TRADING_API_TOKEN": self.run.tool_token})
        for agent, tools in self.run.granted_tools().items():
            self.screen.line(f"{agent} may call: {', '.join(tools)}")

    def start(self) -> None:
        env = {"TRADING_API_TOKEN": self.run.tool_token, "TRADING_DB": str(self.root / "desk.db")}
        self.serve("trading_api", self.api, env)
        compose = yaml.safe_load((self.root / "runtime" / "compose.generated.yml").read_bytes())
        env = compose["services"]["journal"]["environment"] | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"
        }
        env |= {"LISTEN_ADDR": self.journal, "JOURNAL_FILE": str(self.root / "journal.jsonl")}
        self.stage.serve(
            "journal", [BIN / "claw", "mcp-stdio"], env, f"http://{self.journal}/health"
        )
        self.screen.line(
            f"claw mcp-stdio serves journal.py, a stdio MCP server, on http://{self.journal}/mcp"
        )
        if self.run.is_scripted:
            env = {"SCRIPTED_MODEL_KEY": self.provider["OPENAI_API_KEY"]}
            env["SCRIPTED_MODEL_RECORD"] = str(self.root / "model-requests.jsonl")
            self.serve("scripted_model", self.model, env)
        env = {
            "LISTEN_ADDR": self.proxy,
            "CLAW_PROXY_ADDR": self.forward,
            "CLAW_CONTEXT_ROOT": str(self.root / "runtime" / "context"),
            "CLAW_SESSION_HISTORY_DIR": str(self.root / "history"),
            "CLAW_STATE": str(self.root / "state.db"),
            "CLAW_POD": "trading-desk",
        }
        command: Command = [BIN / "mitmdump", "-s", PROJECT / "addons" / "cllama.py"]
        self.stage.serve("proxy", command, env | self.provider, f"http://{self.proxy}/ready")
        self.screen.line(f"mitmdump -s addons/cllama.py is ready on http://{self.proxy}")

    def serve(self, name: str, address: str, env: dict[str, str]) -> None:
        command: Command = [
            BIN / "uvicorn",
            "--factory",
            f"{name}:application",
            "--app-dir",
            DESK,
            "--log-level",
            "warning",
        ]
        command = [*command, "--port", address.rpartition(":")[2]]
        self.stage.serve(name, command, env, f"http://{address}/health")
        self.screen.line(f"{name}.py is ready on http://{address}")

    def ask(self, agent: str, sdk: str, prompts: Sequence[str]) -> None:
        """Run the agent's runner; print each turn beside the calls that were hidden from it."""
        run, models = self.run, {"OPENAI_MODEL": self.model_name}
        earlier = len(run.history(agent))
        models |= {"ANTHROPIC_MODEL": self.model_name} if run.is_scripted else {}
        urls = {
            "OPENAI_BASE_URL": f"http://{self.proxy}/v1",
            "ANTHROPIC_BASE_URL": f"http://{self.proxy}",
        }
        command: Command = [sys.executable, DESK / "runner.py", sdk, run.notes(agent), *prompts]
        self.stage.run(
            f"runner-{agent}-{sdk}",
            command,
            run.agent_environment(agent) | urls | models,
            seconds=300,
        )
        turns = run.turns(agent, sdk)
        requests = earlier + sum(turn["requests"] for turn in turns)
        # The proxy writes history after it has answered.
        self.stage.wait_until(
            lambda: len(run.history(agent)) >= requests, f"history has {requests} lines"
        )
        entries = iter(run.history(agent)[earlier:])
        for turn in turns:
            hidden = run.hidden_lines([next(entries) for _ in range(turn["requests"])])
            row = ("\n".join(_turn_lines(turn)), "\n".join(hidden) or "nothing")
            title = f"{agent} ({sdk} SDK): {turn['prompt']}"
            self.screen.table(("What the runner saw", "What was hidden from it"), [row], title)

    def show_live(self) -> None:
        """Print the last turn over Responses in the order of time: each word as it came."""
        rows = [
            (f"{seconds:.2f} s", seen.strip(), hidden)
            for seconds, seen, hidden in self.run.live_turn("executor", "responses")
        ]
        self.screen.table(("since the request", "What the runner saw", "What was hidden"), rows)

    def audit(self) -> None:
        granted = self.run.granted_tools()
        calls = [
            (agent, *call) for agent in granted for call in hidden_calls(self.run.history(agent))
        ]
        rows = [
            (agent, c["name"], str(number), c["status"], f"{c['latency_ms']} ms")
            for agent, number, c in calls
        ]
        self.screen.table(("agent", "tool", "round", "status", "latency"), rows)
        every = dict.fromkeys(tool for tools in granted.values() for tool in tools)
        for agent, tools in granted.items():
            withheld = ", ".join(tool for tool in every if tool not in tools)
            self.screen.line(
                f"{agent} may not call: {withheld}" if withheld else f"{agent} may call every tool"
            )
        for claw_id, side, symbol, quantity, status in self.run.orders():
            self.screen.line(
                f"order in the database: {claw_id}, {side} {quantity} {symbol}, {status}"
            )


def _turn_lines(turn: Json) -> list[str]:
    lines = [
        f"{call['name']}({call['arguments']}) -> {call['result']}" for call in turn["native_calls"]
    ]
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
        screen.line(
            f"Stopped by {stage.stopped_by.name}. Every process has ended, and every file "
            "is removed."
        )
        return 128 + stage.stopped_by
    screen.heading("The demo failed:" if screen.failed else "Every check passed")
    for text in screen.failed:
        screen.line(text, "bold red")
    return 1 if screen.failed else 0


if __name__ == "__main__":
    sys.exit(main())
