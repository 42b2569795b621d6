"""A pod with one MCP server, and `claw discover` in this process."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from claw_cli.app import app
from tests.mcp.http_server import ListingServer

SERVER = Path(__file__).with_name("stdio_server.py")


def tool(name: str, description: str = "Do it.", **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"url": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema, **more}


@dataclass
class DiscoveryPod:
    """A directory with a pod whose service ``web`` is the server."""

    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / ".claw-discovered" / "web.claw-describe.json"

    @property
    def snapshot(self) -> Any:
        return json.loads(self.file.read_text(encoding="utf-8"))

    @property
    def tools(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.snapshot["tools"]}

    def write(
        self, service: dict[str, Any], *, secrets: dict[str, Any] | None = None, allow: Any = "all"
    ) -> None:
        pod = {
            "pod": "desk",
            "cllama-defaults": {"proxy": "passthrough"},
            **({"secrets": secrets} if secrets else {}),
        }
        agent = {"agent": "AGENTS.md", "tools": [{"service": "web", "allow": allow}]}
        services = {
            "one": {"image": "runner", "x-claw": agent},
            "web": {"image": "web:1", "expose": ["8080"], **service},
        }
        text = yaml.safe_dump({"x-claw": pod, "services": services}, sort_keys=False)
        (self.directory / "claw-pod.yml").write_text(text, encoding="utf-8")
        (self.directory / "AGENTS.md").write_text("Be good.\n", encoding="utf-8")

    def serves(
        self,
        *pages: list[Any],
        service: dict[str, Any] | None = None,
        args: tuple[str, ...] = (),
        **script: Any,
    ) -> None:
        """Let ``web`` be a stdio server that lists these pages."""
        stdio = {
            "command": sys.executable,
            "args": [
                str(SERVER),
                json.dumps({"pages": list(pages) or [[]], **script}).replace("$", "$$"),
                *args,
            ],
        }
        self.write({**(service or {}), "x-claw": {"mcp-stdio": stdio}})

    def claw(self, *arguments: str, **environ: str) -> Result:
        return CliRunner().invoke(
            app, list(arguments), env={"TERM": "dumb", "COLUMNS": "80", **environ}
        )

    def discover(self, *arguments: str, **environ: str) -> Result:
        return self.claw("discover", "web", *arguments, **environ)

    def discovers(self, *arguments: str, **environ: str) -> str:
        """The same, where nothing is wrong: what it prints."""
        result = self.discover(*arguments, **environ)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return result.stdout

    def refuses(self, *arguments: str, **environ: str) -> str:
        """The same, where it fails: its words, and nothing is written."""
        before = sorted(self.directory.rglob("*"))
        result = self.discover(*arguments, **environ)
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert sorted(self.directory.rglob("*")) == before
        return result.stderr


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiscoveryPod:
    """An empty directory, which is that of the process."""
    monkeypatch.chdir(tmp_path)
    return DiscoveryPod(Path())


def at(server: ListingServer, **claw: Any) -> dict[str, Any]:
    return {"x-claw": {"mcp": {"path": "/mcp"}, "base-url": server.url, **claw}}
