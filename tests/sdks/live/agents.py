"""Real agents as their makers ship them, each with a home of its own: what they print, and what
they keep of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.docs.pages import ENTRANCES, blocks
from tests.mcp_peers.peers import client_program
from tests.proxy.pod import Pod

SECONDS = 120


def page_file(agent: str, language: str) -> str:
    """Return the settings file of an agent on the runners' page."""
    (found,) = [
        block.text
        for block in blocks(ENTRANCES / "runners.md", agent)
        if block.language == language
    ]
    return found


def claude_code(home: Path, pod: Pod, words: str, *, goes_on: bool) -> list[str]:
    del home, pod
    shown = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    again = ["--continue"] if goes_on else []
    return [*client_program("claude"), *again, "-p", words, "--allowedTools", "Bash", *shown]


def codex(home: Path, pod: Pod, words: str, *, goes_on: bool) -> list[str]:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    page = page_file("codex", "toml")
    file.write_text(page.replace("http://cllama:8080", pod.url), encoding="utf-8")
    again = ["resume", "--last"] if goes_on else []
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
    return [*client_program("codex"), "exec", *again, *options, words]


def openclaw(
    home: Path, pod: Pod, words: str, *, goes_on: bool, api: str = "openai-completions"
) -> list[str]:
    del pod, goes_on  # The session's name says it
    settings = json.loads(page_file("openclaw", "json"))
    provider = settings["models"]["providers"]["pod"]
    provider["api"] = api
    provider["models"][0]["reasoning"] = True
    if api != "anthropic-messages":
        provider |= {"baseUrl": "${OPENAI_BASE_URL}", "apiKey": "${OPENAI_API_KEY}"}
    file = home / ".openclaw" / "openclaw.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(settings), encoding="utf-8")
    session = ["--local", "--agent", "main", "--session-id", "s1"]
    return [*client_program("openclaw"), "agent", *session, "--message", words, "--json"]


def opencode(
    home: Path, pod: Pod, words: str, *, goes_on: bool, package: str = "@ai-sdk/openai-compatible"
) -> list[str]:
    del pod
    quiet = {"autoupdate": False, "share": "disabled", "permission": "allow"}
    page = page_file("opencode", "json").replace("@ai-sdk/openai-compatible", package)
    settings = json.loads(page) | quiet
    if package == "@ai-sdk/anthropic":
        settings["provider"]["pod"]["options"]["baseURL"] = "{env:ANTHROPIC_BASE_URL}/v1"
    file = home / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings), encoding="utf-8")
    again = ["--continue"] if goes_on else []
    return [*client_program("opencode"), "run", *again, "--format", "json", words]


def pi(
    home: Path, pod: Pod, words: str, *, goes_on: bool, api: str = "openai-completions"
) -> list[str]:
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    page = page_file("pi", "json").replace("openai-completions", api)
    base = pod.url if api == "anthropic-messages" else f"{pod.url}/v1"
    models = json.loads(page.replace("http://cllama:8080/v1", base))
    (folder / "models.json").write_text(json.dumps(models), encoding="utf-8")
    soon = {"retry": {"baseDelayMs": 10}}  # It tries again after 2 s else
    (folder / "settings.json").write_text(json.dumps(soon), encoding="utf-8")
    again = ["--continue"] if goes_on else []
    model = ["--provider", "pod", "--model", "gpt-4o"]
    return [*client_program("pi"), "-p", *model, "--offline", *again, "--mode", "json", words]


def qwen_code(home: Path, pod: Pod, words: str, *, goes_on: bool, api: str = "openai") -> list[str]:
    del home, pod
    again = ["--continue"] if goes_on else []
    shown = ["--output-format", "stream-json", "--include-partial-messages", "--yolo"]
    model = ["--auth-type", api, "--model", "gpt-4o"]
    return [*client_program("qwen"), *model, *again, *shown, words]


VARIANTS: dict[str, Callable[..., list[str]]] = {
    "claude-code": claude_code,
    "codex": codex,
    "openclaw": openclaw,
    "openclaw-anthropic": partial(openclaw, api="anthropic-messages"),
    "openclaw-responses": partial(openclaw, api="openai-responses"),
    "opencode": opencode,
    "opencode-anthropic": partial(opencode, package="@ai-sdk/anthropic"),
    "opencode-responses": partial(opencode, package="@ai-sdk/openai"),
    "pi": pi,
    "pi-anthropic": partial(pi, api="anthropic-messages"),
    "pi-responses": partial(pi, api="openai-responses"),
    "qwen-code": qwen_code,
    "qwen-code-anthropic": partial(qwen_code, api="anthropic"),
    "qwen-code-responses": partial(qwen_code, api="openai-responses"),
}
"""Each in every protocol that it speaks: where none is named, in chat completions, Claude Code in
Anthropic's, Codex in Responses.
"""


def run_agent(
    agent: str,
    home: Path,
    pod: Pod,
    words: str,
    *,
    goes_on: bool = False,
    gives_up: bool = False,
    output: Path | None = None,
) -> str:
    """Run one turn of an agent; return what it prints.

    ``goes_on``: in the conversation of the last turn in this home. ``gives_up``: it ends with an
    error. ``output``: the file that it prints to meanwhile.
    """
    home.mkdir(exist_ok=True)
    command = VARIANTS[agent](home, pod, words, goes_on=goes_on)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CI": "1",
        "TERM": "dumb",
        "NO_COLOR": "1",
        # Whatever else an agent would ask the internet for, it asks a port where nobody listens.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "ANTHROPIC_BASE_URL": pod.url,
        "ANTHROPIC_API_KEY": pod.token(),
        "OPENAI_BASE_URL": f"{pod.url}/v1",
        "OPENAI_API_KEY": pod.token(),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    output = output or home / "printed"
    with output.open("wb") as printing:
        run = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printing,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=SECONDS,
        )
    printed = output.read_text(encoding="utf-8")
    assert gives_up or run.returncode == 0, printed[-3000:]
    return printed
