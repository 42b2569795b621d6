"""The journal, a stdio MCP server, behind the real wrapper; and its snapshot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from claw_compile.compiler import compile_pod
from tests.compile.oracle import compose_config
from tests.compile.worked_pods import WORKED_PODS
from tests.fork_server import CLAW, run_claw
from tests.pods.processes import DESK, eventually, healthy
from tests.waiting import free_port


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[httpx2.Client]:
    """Yield a client of the journal's wrapper, in a session that is open."""
    environ = {
        "LISTEN_ADDR": f"127.0.0.1:{free_port()}",
        "JOURNAL_FILE": str(tmp_path / "journal.jsonl"),
    }
    command = [*CLAW, "mcp-stdio", "--", sys.executable, "journal.py"]
    url = f"http://{environ['LISTEN_ADDR']}"
    headers = {"accept": "application/json, text/event-stream"}
    with (
        subprocess.Popen(command, cwd=DESK, env=environ) as process,
        httpx2.Client(base_url=url, headers=headers, trust_env=False) as client,
    ):
        try:
            eventually(lambda: process.poll() is not None or healthy(url), "the wrapper answers")
            client.headers["mcp-session-id"] = ask(client, "initialize", **OPENING).headers[
                "mcp-session-id"
            ]
            yield client
        finally:
            process.terminate()


OPENING: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


def ask(client: httpx2.Client, method: str, **params: Any) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post("/mcp", json=body)


def answer(client: httpx2.Client, method: str, **params: Any) -> Any:
    """Return the JSON-RPC response, from a body of JSON or from the last event of a stream."""
    text = ask(client, method, **params).text
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(data[-1] if data else text)


def call(client: httpx2.Client, name: str, **arguments: Any) -> Any:
    return answer(client, "tools/call", name=name, arguments=arguments)["result"]


@pytest.mark.requirement("pods:journal-tools")
def test_the_committed_snapshot_is_what_the_server_says(tmp_path: Path) -> None:
    """The command stands in the snapshot, so it runs by the name in the pod file:
    python3 is this interpreter here.
    """
    (tmp_path / "python3").symlink_to(sys.executable)
    shown = run_claw(
        ["discover", "journal", "--check", "--pod", str(DESK / "claw-pod.yml")],
        tmp_path,
        {"PATH": str(tmp_path)},
    )
    assert shown.returncode == 0, shown.stderr
    assert "nothing has changed" in shown.stdout


@pytest.mark.requirement("pods:journal-tools")
def test_another_server_than_that_of_the_snapshot_is_noticed(tmp_path: Path) -> None:
    shutil.copytree(DESK, tmp_path / "desk")
    server = tmp_path / "desk" / "journal.py"
    server.write_text(server.read_text(encoding="utf-8").replace("latest entries", "first entries"))
    (tmp_path / "python3").symlink_to(sys.executable)
    shown = run_claw(
        ["discover", "journal", "--check", "--pod", str(tmp_path / "desk" / "claw-pod.yml")],
        tmp_path,
        {"PATH": str(tmp_path)},
    )
    assert shown.returncode == 1, shown.stdout
    assert "find_entries" in shown.stdout + shown.stderr


@pytest.mark.requirement("pods:journal-calls")
def test_an_entry_is_kept_and_found(journal: httpx2.Client, tmp_path: Path) -> None:
    assert call(journal, "find_entries", word="NVDA")["structuredContent"] == {"entries": []}
    entry = {"author": "analyst", "entry": "NVDA is down, größer \u2028 than SPY."}
    assert (
        call(journal, "add_entry", claw_id="analyst", entry=entry["entry"])["structuredContent"]
        == entry
    )
    call(journal, "add_entry", claw_id="executor", entry="TSLA is up.")
    assert call(journal, "find_entries", word="nvda")["structuredContent"] == {"entries": [entry]}
    lines = (tmp_path / "journal.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line)["author"] for line in lines] == ["analyst", "executor"]


@pytest.mark.requirement("pods:journal-calls")
def test_what_is_no_call_of_a_tool_is_an_error(journal: httpx2.Client) -> None:
    assert (
        answer(journal, "tools/call", name="drop_entries", arguments={})["error"]["code"] == -32602
    )
    assert (
        answer(journal, "tools/call", name=["add_entry"], arguments={})["error"]["code"] == -32602
    )
    refused = call(journal, "add_entry", entry="By nobody.")
    assert refused["isError"] is True
    assert "claw_id" in refused["content"][0]["text"]
    assert call(journal, "find_entries", word="nobody")["structuredContent"] == {"entries": []}


@pytest.mark.requirement("pods:journal-composed")
def test_what_compose_would_start_is_healthy_and_serves_its_name_in_the_pod(tmp_path: Path) -> None:
    """There is no engine here: the process gets what Compose reads in the file of
    the compiled pod.
    """
    port = free_port()
    (desk,) = (pod for pod in WORKED_PODS if pod.directory == DESK)
    environ = {**desk.environ, "JOURNAL_URL": f"http://journal:{port}"}
    file = desk.copy(tmp_path)
    assert compile_pod(file, environ).value is not None
    service = compose_config(file.with_name("compose.generated.yml"), **environ)["services"][
        "journal"
    ]
    name, *verb = service["entrypoint"]
    (tmp_path / "python3").symlink_to(sys.executable)
    command = [*CLAW, *verb]
    with subprocess.Popen(
        command, cwd=DESK, env={"PATH": str(tmp_path), **service["environment"]}
    ) as process:
        try:
            eventually(
                lambda: process.poll() is not None or healthy(f"http://127.0.0.1:{port}"),
                "the wrapper answers",
            )
            how, _, *probe = service["healthcheck"]["test"]
            assert subprocess.run([sys.executable, *probe], check=False).returncode == 0
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                statuses = {}
                for host in ("journal", f"journal:{port}", "elsewhere"):
                    client.headers["host"] = host
                    statuses[host] = ask(client, "initialize", **OPENING).status_code
        finally:
            process.terminate()
    assert (name, how) == ("claw", "CMD")
    assert statuses == {"journal": 200, f"journal:{port}": 200, "elsewhere": 421}
