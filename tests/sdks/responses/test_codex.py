"""The real Codex: all scenarios in one turn, and a second turn that remembers, by base URL and
through the forward proxy.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ENTRANCES, blocks
from tests.mcp_peers.peers import client_program
from tests.one_call import MODEL
from tests.sdks.responses.plays import PLANTED, SECONDS, ResponsesPod

PLAYS = {"base-url": 901, "forward-proxy": 902}

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS)]


def command_of_page(place: int, words: str) -> list[str]:
    """Return a command of the runners' page for Codex, with our words."""
    commands = [
        block.text for block in blocks(ENTRANCES / "runners.md", "codex") if block.language == "sh"
    ]
    _, *arguments, _ = shlex.split(commands[place])
    return [
        *client_program("codex"),
        *arguments,
        "--dangerously-bypass-approvals-and-sandbox",
        words,
    ]


def run_codex(responses_pod: ResponsesPod, entrance: str, command: list[str]) -> str:
    """Run Codex in a home of its own for each entrance, with the page's file for
    the base URL; return what it prints.
    """
    home = responses_pod.pod.home / f"codex-{entrance}"
    settings = home / ".codex" / "config.toml"
    if not settings.exists():
        settings.parent.mkdir(parents=True)
        (page,) = [
            block.text
            for block in blocks(ENTRANCES / "runners.md", "codex")
            if block.language == "toml"
        ]
        by_base_url = page.replace("http://cllama:8080", responses_pod.pod.url)
        settings.write_text(
            by_base_url if entrance == "base-url" else f'model = "{MODEL}"\n', encoding="utf-8"
        )
    token = responses_pod.pod.token()
    environment = {
        **responses_pod.environment(),
        "HOME": str(home),
        "OPENAI_API_KEY": token,
        "CODEX_API_KEY": token,
        "TERM": "dumb",
    }
    run = subprocess.run(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    return run.stdout.decode() + run.stderr.decode()


def sessions(home: Path) -> str:
    return "".join(
        file.read_text(encoding="utf-8") for file in (home / ".codex" / "sessions").rglob("*.jsonl")
    )


@pytest.mark.requirement("responses:codex", "responses:clients", "responses:clients-fail")
@pytest.mark.parametrize("entrance", PLAYS)
def test_codex_plays_every_scenario_and_remembers_them(
    responses_pod: ResponsesPod, entrance: str
) -> None:
    number = PLAYS[entrance]
    assert f"Done with everything for {number}." in run_codex(
        responses_pod, entrance, command_of_page(0, f"case:everything {number};")
    )
    said = run_codex(responses_pod, entrance, command_of_page(1, f"case:again {number};"))
    assert "I remember: balance, exec_command, wait, trade." in said
    traded = [
        request.json["play"]
        for request in responses_pod.service.received
        if request.path == "/trade"
    ]
    assert traded.count(str(number)) == 1
    shown = sessions(responses_pod.pod.home / f"codex-{entrance}")
    assert "three files" in shown
    assert [word for word in ("desk__", PLANTED) if word in shown] == []
    assert responses_pod.model.refused == []
