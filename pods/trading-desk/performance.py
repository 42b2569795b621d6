"""The pod on one machine: compiled by `claw`, served by its own processes, asked through the proxy by real runners."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import evidence
from show import Screen, call_lines, runner_lines
from stage import Conversation, Stage, StageError, free_ports

DESK = Path(__file__).resolve().parent
PROJECT = DESK.parent.parent
BIN = Path(sys.executable).parent


@dataclass
class Performance:
    """One run of the pod: its secrets, its ports, its processes, and its runners' conversations."""

    stage: Stage
    screen: Screen
    real_key: str | None = field(default_factory=lambda: os.environ.get("OPENAI_API_KEY") or None)
    anthropic_key: str | None = field(default_factory=lambda: os.environ.get("ANTHROPIC_API_KEY") or None)
    tool_token: str = field(default_factory=lambda: secrets.token_hex(24))
    runners: dict[str, Conversation] = field(default_factory=dict)
    histories: dict[str, evidence.History] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api_port, self.model_port, self.base_port, self.forward_port = free_ports(4)
        self.key = self.real_key or f"scripted-{secrets.token_hex(24)}"
        self.runtime = self.stage.root / "runtime"
        self.database = self.stage.root / "desk.db"
        self.record = self.stage.root / "model-requests.jsonl"

    @property
    def scripted(self) -> bool:
        return self.real_key is None

    @property
    def model_name(self) -> str:
        return "scripted-model" if self.scripted else os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")

    def sdk(self, agent: str) -> str:
        """The executor's runner is built on the other SDK, where a key (or the SCRIPTED model) is there for it."""
        return "anthropic" if agent == "executor" and (self.scripted or self.anthropic_key) else "openai"

    async def compile(self) -> None:
        self.screen.title("compile: the pod file and the service's descriptor, into one directory for each agent")
        pod = (DESK / "claw-pod.yml").relative_to(PROJECT)
        self.screen.fact(f"claw compile {pod}")
        env = {
            "CLAW_MASTER_SECRET": secrets.token_hex(32),
            "TRADING_API_TOKEN": self.tool_token,
            "TRADING_API_URL": f"http://127.0.0.1:{self.api_port}",
        }
        await self.stage.run("compile", [BIN / "claw", "compile", str(PROJECT / pod), "-o", str(self.runtime)], env)
        for agent, tools in evidence.manifest_tools(self.runtime).items():
            self.screen.fact(f"{agent} may call: {', '.join(tools)}")

    async def start(self) -> None:
        self.screen.title("start: the service, the model, the proxy")
        base = f"http://127.0.0.1:{self.api_port}"
        env = {"TRADING_API_TOKEN": self.tool_token, "TRADING_DB": str(self.database)}
        command: list[str | Path] = [sys.executable, DESK / "trading_api.py", "--port", str(self.api_port)]
        await self.stage.serve("trading-api", command, env, f"{base}/health")
        self.screen.fact(f"trading-api is up on {base}, its book in SQLite")
        proxy_env = {
            "LISTEN_ADDR": f"127.0.0.1:{self.base_port}",
            "CLAW_PROXY_ADDR": f"127.0.0.1:{self.forward_port}",
            "CLAW_CONTEXT_ROOT": str(self.runtime / "context"),
            "CLAW_SESSION_HISTORY_DIR": str(self.stage.root / "history"),
            "CLAW_STATE": str(self.stage.root / "state.db"),
            "CLAW_POD": "trading-desk",
            "OPENAI_API_KEY": self.key,
        }
        if self.scripted:
            command = [
                sys.executable,
                DESK / "scripted_model.py",
                "--port",
                str(self.model_port),
                "--record",
                self.record,
            ]
            model = f"http://127.0.0.1:{self.model_port}"
            await self.stage.serve("scripted-model", command, {"SCRIPTED_MODEL_KEY": self.key}, f"{model}/health")
            self.screen.fact(f"the SCRIPTED model is up on {model}/v1")
            urls = {"OPENAI_BASE_URL": f"{model}/v1", "ANTHROPIC_BASE_URL": f"{model}/v1"}
            proxy_env |= {"ANTHROPIC_API_KEY": self.key, **urls}
        else:
            given = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
            proxy_env |= {name: os.environ[name] for name in given if os.environ.get(name)}
        base = f"http://127.0.0.1:{self.base_port}"
        await self.stage.serve(
            "proxy", [BIN / "mitmdump", "-s", str(PROJECT / "addons" / "cllama.py")], proxy_env, f"{base}/ready"
        )
        self.screen.fact(f"mitmdump -s addons/cllama.py is ready on {base}")

    async def ask(self, agent: str, prompt: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One prompt to the agent's runner: what the runner saw, and the history of the requests it made."""
        if agent not in self.runners:
            given = evidence.agent_environment(self.runtime, agent)
            self.tokens[agent] = given["OPENAI_API_KEY"]
            base, sdk = f"http://127.0.0.1:{self.base_port}", self.sdk(agent)
            env = {"OPENAI_API_KEY": self.tokens[agent], "OPENAI_BASE_URL": f"{base}/v1"}
            if sdk == "anthropic":
                env = {"ANTHROPIC_API_KEY": self.tokens[agent], "ANTHROPIC_BASE_URL": base}
            command: list[str | Path] = [sys.executable, DESK / "runner.py", "--sdk", sdk, "--json"]
            command += ["--notes", self.notes(agent)]
            if self.scripted or sdk == "openai":
                command += ["--model", self.model_name]
            self.runners[agent] = await self.stage.converse(f"runner-{agent}", command, env)
            self.histories[agent] = evidence.History(self.stage.root / "history", agent)
        turn = await self.runners[agent].ask(prompt)
        if turn["error"] is not None:
            raise StageError(f"the {agent}'s runner got no answer: {turn['error']}")
        entries = await self.histories[agent].next_entries(turn["requests"])
        hidden = [line for number, call in evidence.calls(entries) for line in call_lines(number, call)]
        hidden += [f"intervention: {name}" for name in evidence.interventions(self.stage.log("proxy"), entries)]
        self.screen.turn(f"{agent} ({self.sdk(agent)} SDK) ← {prompt}", runner_lines(turn), hidden)
        own = {"write_note"}
        self.screen.expect(set(turn["tool_names"]) <= own, "no managed tool's name came over the runner's wire")
        return turn, entries

    def notes(self, agent: str) -> Path:
        return self.stage.root / f"notes-{agent}.txt"

    async def model_saw(self) -> list[dict[str, Any]]:
        """What the scripted model says it was sent; a real provider does not tell."""
        return await evidence.model_saw(f"http://127.0.0.1:{self.model_port}", self.key) if self.scripted else []
