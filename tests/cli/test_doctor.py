"""``claw doctor``: a row for each check, a remedy for each failed one, and an
answer wherever it is run.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner, Result

from claw_cli.app import app
from claw_compile.compiler import compile_pod
from tests.compile.worked_pods import WORKED_PODS
from tests.waiting import free_port

KEY = "sk-planted-provider-key-0007"
TREE = ".claw-runtime"


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a compiled pod in the current directory, in an environment whose only
    variables of ours are free ports.
    """
    (minimal,) = (each for each in WORKED_PODS if each.name == "minimal")
    file = minimal.copy(tmp_path)
    assert compile_pod(file, {"OPENAI_API_KEY": KEY}).value is not None
    monkeypatch.chdir(file.parent)
    clear_environment(monkeypatch)
    return file


def clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("CLAW_", "CLLAMA_")) or name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LISTEN_ADDR", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("CLAW_PROXY_ADDR", f"127.0.0.1:{free_port()}")


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def rows(expected: int) -> dict[str, dict[str, str]]:
    result = doctor("--json")
    assert (result.exit_code, result.stderr) == (expected, "")
    found: list[dict[str, str]] = json.loads(result.stdout)
    assert all(row["remedy"] for row in found if row["status"] == "missing")
    return {row["check"]: row for row in found}


@pytest.mark.requirement("cli:doctor")
def test_of_a_compiled_pod_everything_is_there(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAW_STATE", "state.db")
    found = rows(0)
    assert found["compiled tree"]["detail"].startswith(f"{TREE}, ")
    assert (
        found["agent assistant"]["detail"]
        == "OPENAI_BASE_URL=http://cllama:8080/v1, a token, 1 tool"
    )
    assert found["provider keys"]["detail"] == f"openai ({TREE}/auth/providers.json)"
    assert found["CA"]["detail"] == "not needed: every agent uses the base URL"
    assert found["state"]["detail"] == f"{pod.parent / 'state.db'}, can be written"
    assert {name: row["status"] for name, row in found.items() if row["status"] != "ok"} == {
        "history": "note",
        "proxy": "note",
    }
    assert not (pod.parent / "state.db").exists()
    result = doctor()
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == [
        row["status"] for row in found.values()
    ]


@pytest.mark.requirement("cli:doctor")
def test_a_tree_that_is_older_than_its_pod_file_is_noted(pod: Path) -> None:
    os.utime(pod, (2_000_000_000, 2_000_000_000))
    row = rows(0)["compiled tree"]
    assert (row["status"], row["remedy"]) == ("note", "run `claw compile claw-pod.yml`")
    assert row["detail"].endswith("; claw-pod.yml is newer")


@pytest.mark.requirement("cli:doctor")
@pytest.mark.requirement("cli:doctor-anywhere")
def test_in_an_empty_directory_each_missing_thing_has_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clear_environment(monkeypatch)
    found = rows(1)
    assert found["compiled tree"]["detail"] == f"there is none at {TREE}"
    assert "`claw init NAME`" in found["compiled tree"]["remedy"]
    assert [name for name, row in found.items() if row["status"] == "missing"] == [
        "compiled tree",
        "provider keys",
    ]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert rows(1)["provider keys"] == {
        "check": "provider keys",
        "status": "ok",
        "detail": "OPENAI_API_KEY",
        "remedy": "",
    }


@pytest.mark.requirement("cli:doctor-anywhere")
def test_a_tree_that_was_written_by_hand_needs_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents-of-mine" / "analyst").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    clear_environment(monkeypatch)
    monkeypatch.setenv("CLAW_CONTEXT_ROOT", "agents-of-mine")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert rows(0)["agent analyst"]["remedy"] == "give it the token of its metadata.json"


def _unknown_mode(tree: Path) -> None:
    file = tree / "pod-manifest.json"
    file.write_text(
        file.read_text("utf-8").replace('"base-url"', '"transparent"'), encoding="utf-8"
    )


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the manifest is garbage": (
        "compiled tree",
        lambda tree: (tree / "pod-manifest.json").write_bytes(b"\xff{"),
    ),
    "the manifest is deep": (
        "compiled tree",
        lambda tree: (tree / "pod-manifest.json").write_bytes(b"[" * 100_000),
    ),
    "the manifest is another's": (
        "compiled tree",
        lambda tree: (tree / "pod-manifest.json").write_bytes(b'{"agents": 3}'),
    ),
    "the context is a file": (
        "compiled tree",
        lambda tree: ((tree / "context").unlink(), (tree / "context").touch()),
    ),
    "the context leads to itself": ("compiled tree", lambda tree: _loop(tree / "context")),
    "an agent has no environment": (
        "agent assistant",
        lambda tree: (tree / "agents/assistant/env").unlink(),
    ),
    "an environment is garbage": (
        "agent assistant",
        lambda tree: (tree / "agents/assistant/env").write_bytes(b"\xff\0"),
    ),
    "an environment leads to itself": (
        "compiled tree",
        lambda tree: _loop(tree / "agents/assistant/env"),
    ),
    "the keys are garbage": (
        "provider keys",
        lambda tree: (tree / "auth/providers.json").write_bytes(b"\xff{"),
    ),
    "the keys are of no kind": (
        "provider keys",
        lambda tree: (tree / "auth/providers.json").write_text(
            f'{{"providers": {{"openai": {{"keys": "{KEY}"}}}}}}', "utf-8"
        ),
    ),
    "the keys are a directory": (
        "provider keys",
        lambda tree: (
            (tree / "auth/providers.json").unlink(),
            (tree / "auth/providers.json").mkdir(),
        ),
    ),
    "there is no CA": ("CA", _unknown_mode),
}


@pytest.mark.requirement("cli:doctor-anywhere")
@pytest.mark.parametrize(("check", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_rows_with_a_remedy(
    pod: Path, check: str, damage: Callable[[Path], object]
) -> None:
    damage(pod.parent / TREE)
    assert rows(1)[check]["status"] == "missing"
    assert KEY not in doctor().output


@pytest.mark.requirement("cli:doctor-anywhere")
@pytest.mark.parametrize(
    ("variable", "value", "check"),
    [
        ("LISTEN_ADDR", "nowhere", "LISTEN_ADDR"),
        ("LISTEN_ADDR", f":{'9' * 5000}", "LISTEN_ADDR"),
        ("CLAW_PROXY_ADDR", ":99999", "CLAW_PROXY_ADDR"),
        ("CLAW_PROXY_ADDR", f"{'a' * 70}:8082", "port 8082"),
        ("CLAW_PROXY_ADDR", "192.0.2.1:8082", "port 8082"),
        ("CLAW_STATE", "redis://:hush-hush@cache:port/0", "state"),
        ("CLAW_STATE", "claw-pod.yml/below/state.db", "state"),
        ("CLAW_SESSION_HISTORY_DIR", "claw-pod.yml/history", "history"),
        ("CLAW_CONTEXT_ROOT", "/nowhere/context", "compiled tree"),
        ("CLAW_AUTH_DIR", "claw-pod.yml", "provider keys"),
    ],
)
@pytest.mark.usefixtures("pod")
def test_settings_that_cannot_be_used_are_rows_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, check: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert rows(1)[check]["status"] == "missing"
    assert "hush-hush" not in doctor().output


@pytest.mark.requirement("cli:doctor-anywhere")
def test_no_secret_is_printed(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-0008")
    monkeypatch.setenv("CLAW_STATE", "redis://:hush-hush@127.0.0.1:1/0")
    env = (pod.parent / TREE / "agents" / "assistant" / "env").read_text(encoding="utf-8")
    token = env.rpartition("CLLAMA_TOKEN=")[2].strip()
    for result in (doctor(), doctor("--json")):
        assert "ANTHROPIC_API_KEY" in result.stdout
        assert not any(
            secret in result.output for secret in (KEY, token, "sk-ant-planted-0008", "hush-hush")
        )


class _Proxy(BaseHTTPRequestHandler):
    ready = 200

    def do_GET(self) -> None:
        status, body = (200, b'{"ok": true}') if self.path == "/health" else (self.ready, b"{}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.requirement("cli:doctor")
@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize(("ready", "status"), [(200, "ok"), (503, "missing")])
def test_a_proxy_that_runs_is_asked_whether_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, ready: int, status: str
) -> None:
    monkeypatch.setattr(_Proxy, "ready", ready)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("LISTEN_ADDR", f"127.0.0.1:{server.server_port}")
        row = rows(0 if status == "ok" else 1)["proxy"]
        server.shutdown()
    assert row["status"] == status
    assert f"http://127.0.0.1:{server.server_port}" in row["detail"]


@pytest.mark.requirement("cli:doctor")
@pytest.mark.usefixtures("pod")
def test_a_port_that_somebody_else_has_is_missing_with_who_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("CLAW_PROXY_ADDR", f"127.0.0.1:{port}")
        row = rows(1)[f"port {port}"]
    assert row["status"] == "missing"
    assert f"(pid {os.getpid()})" in row["detail"]
    assert row["remedy"] == "free it, or set CLAW_PROXY_ADDR to another address"
